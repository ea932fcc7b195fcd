"""The topics and groups of one scrape: what several families show of each is computed once.

The first family that walks over them computes, step by step, and the others read the result; so the families of one
scrape agree. At most `limit` topics, and pairs of a topic and a group, are computed; `left_out` counts the others.

How long a message has been waiting is read from the log, and for a group that does not move only once: `ages` keeps the
store time of the message at a committed or pulled offset for the next scrape, for the pairs that were shown last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from triomq.broker.tables.metadata import Metadata
from triomq.broker.tables.offsets import NO_OFFSET
from triomq.protocol.clock import NowMs
from triomq.protocol.system_topics import DLQ_PREFIX, RETRY_PREFIX
from triomq.store.reading.reading import Reading

if TYPE_CHECKING:
    from triomq.broker.pop.figures import InFlightFigures

OFFLINE_MODEL = "CLUSTERING"
Ages = dict[tuple[str, str, int, int], int]
"""(group, topic, queue id, queue offset) -> store time (ms) of the first message from there on."""
NextOffset = Callable[[str, str, int], int]
"""Returns where a group will pull next from a queue of a topic, -1 if that is not known."""
FiguresOfQueue = Callable[[str, str, int], "InFlightFigures | None"]
"""Called with topic, group and queue id. Returns what the group has received of the queue (POP) and not acknowledged;
None if it does not receive."""


@dataclass(slots=True)
class TopicFigures:
    """One topic. `end` is the sum of the max offsets of its queues."""

    name: str
    end: int


@dataclass(slots=True)
class PairFigures:
    """A group and a topic that it consumes or has consumed. `lag` is what the group lacks, `consumed` what it has
    committed, both over all queues; `age_ms` is how long the oldest message that it lacks has been stored. `beyond`
    counts the queues with an offset beyond their end: nothing waits there, and they hide no backlog of others.
    `inflight` is what the group has pulled and not committed, without queues that it has committed nothing for;
    `ready` is what it has not pulled, and `ready_age_ms` how long the oldest of that has been stored. A group whose
    pulls are not known has pulled what it has committed. Of a queue from which the group receives single messages (POP)
    `lag` is without those that it has acknowledged, `inflight` is what it has received, and what is to be received
    again is `ready`."""

    group: str
    topic: str
    consumed: int
    lag: int
    beyond: int
    age_ms: int
    inflight: int
    ready: int
    ready_age_ms: int
    members: int
    is_broadcasting: bool

    @property
    def is_retry(self) -> bool:
        return self.topic.startswith(RETRY_PREFIX)


class Snapshot:
    """See the module's docstring. Made for one scrape."""

    def __init__(
        self,
        metadata: Metadata,
        reading: Reading,
        next_offset: NextOffset,
        in_flight: FiguresOfQueue,
        *,
        now_ms: NowMs,
        limit: int,
        ages: Ages,
    ) -> None:
        self._metadata = metadata
        self._reading = reading
        self._next_offset = next_offset
        self._in_flight = in_flight
        self._now_ms = now_ms()
        self._limit = limit
        self._known = ages
        self.ages: Ages = {}
        self.topics: list[TopicFigures] = []
        self.topics_left_out = 0
        self.pairs: list[PairFigures] = []
        self.pairs_left_out = 0

    def steps(self) -> Iterator[int]:
        """Compute everything; yields 0 where the work may be interrupted."""
        names = list(self._metadata.topics.names())
        self.topics_left_out = max(0, len(names) - self._limit)
        for name in names[: self._limit]:
            self.topics.append(TopicFigures(name, sum(self._reading.ends(name).values())))
            yield 0
        groups = dict.fromkeys([*self._metadata.groups.names(), *self._metadata.offsets.groups()])
        groups.update(dict.fromkeys([group.name for group in self._metadata.consumers.groups()]))
        for group in groups:
            topics = self.topics_of(group)
            room = self._limit - len(self.pairs)
            self.pairs_left_out += max(0, len(topics) - room)
            yield 0
            for topic in topics[:room]:
                pair = self.pair(group, topic)
                if pair is not None:
                    self.pairs.append(pair)
                yield 0

    def topics_of(self, group: str) -> list[str]:
        """Return the topics of a group: of its members' subscriptions, or without members those that it committed
        offsets for."""
        online = self._metadata.consumers.get(group)
        if online is not None and online.subscriptions:
            return list(online.subscriptions)
        return self._metadata.offsets.topics_of_group(group)

    def pair(self, group: str, topic: str) -> PairFigures | None:
        """Return the figures of a pair; None if the topic does not exist, or holds dead letters."""
        if topic.startswith(DLQ_PREFIX) or self._metadata.topics.get(topic) is None:
            return None
        online = self._metadata.consumers.get(group)
        model = online.consumption.message_model if online is not None else OFFLINE_MODEL
        offsets = self._metadata.offsets.queues(group, topic)
        ends = self._reading.ends(topic)
        consumed = lag = beyond = inflight = ready = 0
        oldest_ms = oldest_ready_ms = self._now_ms
        for queue_id, end in ends.items():
            committed = offsets.get(queue_id, NO_OFFSET)
            offset = max(0, committed)
            received = self._in_flight(topic, group, queue_id)
            if received is not None:
                again = received.ready_again
                first_ready = received.oldest_ready if again else received.next_offset
                new = max(0, end - received.next_offset)
                lag += received.count + new
                inflight += received.count - again
                ready += again + new
            else:
                first_ready = max(offset, min(self._next_offset(group, topic, queue_id), end))
                lag += max(0, end - offset)
                ready += max(0, end - first_ready)
                if committed >= 0:
                    inflight += first_ready - offset
            if offset < end:
                oldest_ms = min(oldest_ms, self._stored_at(group, topic, queue_id, offset))
            if first_ready < end:
                oldest_ready_ms = min(oldest_ready_ms, self._stored_at(group, topic, queue_id, first_ready))
        for queue_id, offset in offsets.items():
            consumed += max(0, offset)
            beyond += offset > ends.get(queue_id, 0)
        return PairFigures(
            group,
            topic,
            consumed=consumed,
            lag=lag,
            beyond=beyond,
            age_ms=max(0, self._now_ms - oldest_ms),
            inflight=inflight,
            ready=ready,
            ready_age_ms=max(0, self._now_ms - oldest_ready_ms),
            members=len(online.channels) if online is not None else 0,
            is_broadcasting=model == "BROADCASTING",
        )

    def _stored_at(self, group: str, topic: str, queue_id: int, offset: int) -> int:
        """Return the store time of the first message of a queue from `offset` on."""
        offset = max(offset, self._reading.min_offset(topic, queue_id))
        key = (group, topic, queue_id, offset)
        stored_ms = self._known.get(key, -1)
        if stored_ms < 0:
            found_ms = self._reading.store_time_at(topic, queue_id, offset)
            stored_ms = found_ms if found_ms >= 0 else self._now_ms
        self.ages[key] = stored_ms
        return stored_ms
