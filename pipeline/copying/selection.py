"""Which topics and groups are copied, under which names, and into which queues. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.system_topics import REPLY_TOPIC_POSTFIX, dlq_topic, is_system_group, is_system_topic, retry_topic

WILDCARDS = frozenset("*?[")


class FewerQueues(Exception):
    """The target topic has too few queues for each queue of the source to have its own."""


@dataclass(frozen=True, slots=True)
class Names:
    """Names with wildcards as in a shell, without those of `excluded`."""

    wanted: tuple[str, ...]
    excluded: tuple[str, ...] = ()

    def matches(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.wanted) and not any(
            fnmatchcase(name, pattern) for pattern in self.excluded
        )

    def exact(self) -> list[str]:
        """Return the names without wildcards: each of them must exist."""
        return [name for name in self.wanted if WILDCARDS.isdisjoint(name) and self.matches(name)]


def names_of(text: str | None) -> tuple[str, ...]:
    """Return the names of a list separated by commas."""
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def chosen_topics(names: Names, known: Iterable[str], brokers: Collection[str]) -> list[str]:
    """Return the topics to copy, sorted. `brokers`: names of brokers and clusters, which have topics of their own.
    Retry and dead letter topics go with their groups, topics of the system stay."""
    return sorted(
        topic
        for topic in known
        if names.matches(topic)
        and not topic.startswith("%")
        and not is_system_topic(topic)
        and topic not in brokers
        and not topic.endswith(f"_{REPLY_TOPIC_POSTFIX}")
    )


def chosen_groups(names: Names, known: Iterable[str]) -> list[str]:
    """Return the groups to copy, sorted, without those of the system."""
    return sorted(
        {group for group in known if names.matches(group) and not is_system_group(group) and not group.startswith("%")}
    )


def topics_of_groups(groups: Iterable[str], known: Collection[str]) -> list[str]:
    """Return the retry and dead letter topics that there are."""
    return [topic for group in groups for topic in (retry_topic(group), dlq_topic(group)) if topic in known]


def placed(
    sources: Sequence[MessageQueue], targets: Sequence[MessageQueue], fixed: Mapping[MessageQueue, MessageQueue]
) -> dict[MessageQueue, MessageQueue]:
    """Return source queue -> target queue; no two have the same. What is `fixed` stays as it is, and is nobody else's.

    The same broker and id if the target has all of them; else the same id at the broker with the same place in the list
    of names, if all are there; else the queue with the same place in the list of all queues. Raises FewerQueues."""
    if fixed.keys() >= set(sources):  # a broker of the target may be away
        return {source: fixed[source] for source in sources}
    there = set(targets)
    topic = targets[0].topic if targets else ""
    ours, theirs = (sorted({queue.broker_name for queue in queues}) for queues in (sources, targets))
    partner = dict(zip(ours, theirs, strict=False))
    places = {queue: MessageQueue(topic, queue.broker_name, queue.queue_id) for queue in sources}
    if not there.issuperset(places.values()) and len(theirs) >= len(ours):
        places = {queue: MessageQueue(topic, partner[queue.broker_name], queue.queue_id) for queue in sources}
    if not there.issuperset(places.values()):
        if len(targets) < len(sources):
            raise FewerQueues(f"target topic {topic!r} has {len(targets)} queues, the source has {len(sources)}")
        places = dict(zip(sorted(sources), sorted(targets), strict=False))
    places |= {source: target for source, target in fixed.items() if source in places}
    taken = {target: source for source, target in fixed.items() if source not in places}
    for source in sorted(places, key=lambda queue: (queue not in fixed, queue)):
        if places[source] in taken:
            free = sorted(there.difference(taken, fixed.values()))
            if not free:
                raise FewerQueues(f"target topic {topic!r} has {len(targets)} queues, the source has {len(sources)}")
            places[source] = free[0]
        taken[places[source]] = source
    return places
