"""What must hold of messages when the faults are over and everything that was stopped runs again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from math import inf

import trio

from sim.cluster import Broker, Node
from sim.history import Acknowledged, History
from sim.plan import FILTERED, TRANSACTIONAL
from sim.workload import DELAY_SECONDS, WANTED_TAG
from triomq.protocol import property_names, record
from triomq.protocol.system_topics import TRANS_HALF_TOPIC
from triomq.store.message_store import DefaultMessageStore

UNSYNCED_SECONDS = 1.7
"""How old a message may be that a power failure takes with ASYNC_FLUSH: flushCommitLogThoroughInterval (1 s here) and
flushIntervalCommitLog (0.5 s), the commit of a transient pool (0.2 s), and the time of the sync itself on a slow disk
is added by `may_be_lost`."""
SLOW_SYNC_SECONDS = 3.5
SHOWN = 5
Position = tuple[str, str, int, int]
"""broker, topic, queue id, queue offset"""
LOOK_SECONDS = 2.0


class Verdict:
    """Collects what does not hold."""

    def __init__(self) -> None:
        self.failures: list[str] = []

    def expect(self, holds: bool, text: str) -> None:
        if not holds:
            self.failures.append(text)

    def none_of(self, found: Iterable[str], text: str) -> None:
        """There may be no such thing; the first ones are named."""
        things = list(found)
        if things:
            more = f" and {len(things) - SHOWN} more" if len(things) > SHOWN else ""
            self.failures.append(f"{text}: {', '.join(things[:SHOWN])}{more}")


def may_be_lost(history: History, key: str, brokers: Mapping[str, Broker]) -> bool:
    """Return whether a power failure may have taken this message: without SYNC_FLUSH, shortly before. The
    acknowledgement may have been in flight at that moment. A broker that is down syncs nothing, so that time does not
    count. A disk of a while ago lacks what came meanwhile."""
    place = history.acknowledged[key]
    broker = brokers[place.broker]
    if not broker.died_at:
        return False
    sent_at, window = history.sent[key][2], UNSYNCED_SECONDS + SLOW_SYNC_SECONDS
    # The check of a transaction puts a copy of its half message in the place of the first.
    # It does so unseen while no producer is there to be asked.
    written = [(sent_at, place.at if place.topic != TRANSACTIONAL else inf)]
    if key in history.delays:  # what is due is put into its own topic
        delay = DELAY_SECONDS[history.delays[key]]
        written.append((sent_at + delay, place.at + delay + 1.0))
    lossy = lossy_moments(broker)
    if any(begin <= at < end + window + broker.down_seconds(end, at) for begin, end in written for at in lossy):
        return True
    return any(begin <= back and end >= copied - window for begin, end in written for copied, back in broker.restored)


def lossy_moments(broker: Broker) -> list[float]:
    """Return when the broker may have lost messages."""
    ends = broker.ends_that_lose
    return [at for at, how in broker.died_at if how in ends]


def may_reuse_offsets(broker: Broker) -> bool:
    """Return whether the broker may have lost messages that listeners had read, promised or not."""
    return bool(broker.restored) or any(how == "power" or how in broker.ends_that_lose for _, how in broker.died_at)


def groups_of(history: History, key: str, topic: str) -> list[str]:
    """Return the groups that consume this message."""
    if topic == FILTERED and history.tags.get(key) != WANTED_TAG:
        return []
    if topic == TRANSACTIONAL and not history.outcomes[key]:
        return []
    return history.groups.get(topic, [])


def unfinished(history: History, brokers: Mapping[str, Broker]) -> list[str]:
    """Return keys and groups of promised messages that nobody of the group has consumed."""
    consumed = history.consumed
    missing = [
        (group, key)
        for key, place in history.acknowledged.items()
        for group in groups_of(history, key, place.topic)
        if (group, key) not in consumed
        and not may_be_lost(history, key, brokers)
        and not _is_left_out(history, brokers, group, place)
    ]
    if missing and any(map(may_reuse_offsets, brokers.values())):
        skipped = _skipped(history, brokers, {group for group, _ in missing})
        missing = [one for one in missing if one not in skipped]
    return [f"{key} by {group}" for group, key in missing]


def _is_left_out(history: History, brokers: Mapping[str, Broker], group: str, place: Acknowledged) -> bool:
    """Return whether the group was moved to an offset behind this message, or may have passed a lost message at its
    offset whose tag it did not ask for."""
    broker = brokers[place.broker]
    if place.topic == FILTERED and may_reuse_offsets(broker) and place.at > broker.died_at[0][0]:
        return True
    queue = (place.broker, place.topic, place.queue_id)
    return any(
        reset.group == group and place.at - 1 <= reset.ended and place.queue_offset < reset.offsets.get(queue, -1)
        for reset in history.resets
    )


def _skipped(history: History, brokers: Mapping[str, Broker], groups: set[str]) -> set[tuple[str, str]]:
    """Return groups and keys of messages at offsets of lost ones, which the group has already read.

    Listeners get messages before they are synced, as with RocketMQ. A group's offset then survives the power failure
    that takes the end of a queue. The next messages get the same offsets, and the group does not see those.
    """
    reused = {name: broker for name, broker in brokers.items() if may_reuse_offsets(broker)}
    stored = stored_in_all(history, reused, Verdict())
    heights: dict[tuple[str, str, str, int], int] = {}
    for (group, key), deliveries in history.consumed.items():
        for one in deliveries:
            if group in groups and stored.get((one.broker, one.topic, one.queue_id, one.queue_offset), key) != key:
                queue = (group, one.broker, one.topic, one.queue_id)
                heights[queue] = max(heights.get(queue, -1), one.queue_offset)
    return {
        (group, key)
        for group in groups
        for (broker, topic, queue_id, offset), key in stored.items()
        if offset <= heights.get((group, broker, topic, queue_id), -1)
    }


def check_messages(history: History, brokers: Mapping[str, Broker], nodes: Iterable[Node], verdict: Verdict) -> None:
    verdict.failures += history.wrong[:SHOWN]
    for node in nodes:
        verdict.expect(node.failure is None, f"{node.name}: {node.failure}")
    verdict.none_of(unfinished(history, brokers), "acknowledged, but not consumed")
    stored = stored_in_all(history, brokers, verdict)
    _check_places(history, brokers, stored, verdict)
    _check_transactions(history, brokers, stored, verdict)


def _check_places(
    history: History, brokers: Mapping[str, Broker], stored: Mapping[Position, str], verdict: Verdict
) -> None:
    """Every promised message is where its acknowledgement said, and queues have no gaps."""
    verdict.none_of(
        (
            f"{key} at {place.broker} {place.topic} {place.queue_id}:{place.queue_offset}"
            for key, place in history.acknowledged.items()
            if place.queue_offset >= 0
            and stored.get((place.broker, place.topic, place.queue_id, place.queue_offset)) != key
            and not may_be_lost(history, key, brokers)
        ),
        "acknowledged, but not stored there",
    )
    keys = set(stored.values())
    verdict.none_of(sorted(key for key in keys if key not in history.sent), "stored, but never sent")
    verdict.none_of(
        sorted(
            f"{key} at {place[0]}"
            for place, key in stored.items()
            if key in history.deleted and not brokers[place[0]].restored  # such a disk knows nothing of it
        ),
        "came back from a topic that was deleted",
    )


def stored_in_all(history: History, brokers: Mapping[str, Broker], verdict: Verdict) -> dict[Position, str]:
    """Return the keys of all messages by their positions."""
    stored: dict[Position, str] = {}
    topics = sorted({topic for topic, _, _ in history.sent.values()})
    for name, broker in brokers.items():
        store = store_of(broker)
        if store is not None:
            for topic in topics:
                stored.update(_stored_in(name, topic, store, verdict))
    return stored


def _stored_in(broker: str, topic: str, store: DefaultMessageStore, verdict: Verdict) -> Iterator[tuple[Position, str]]:
    for queue_id in store.reading.queues().get(topic, []):
        offset, end = store.reading.min_offset(topic, queue_id), store.reading.max_offset(topic, queue_id)
        while offset < end:
            result = store.reading.get_messages(topic, queue_id, offset, 32)
            for data in result.records:
                message = record.decode_record(data)
                verdict.expect(
                    message.queue_offset == offset, f"{broker} {topic} {queue_id}: {message.queue_offset} at {offset}"
                )
                offset = message.queue_offset + 1
                yield (broker, topic, queue_id, message.queue_offset), message.keys or ""
            if not result.records:
                verdict.failures.append(f"{broker} {topic} {queue_id}: nothing at {offset} of {end}")
                return


def store_of(broker: Broker) -> DefaultMessageStore | None:
    controller = broker.controller
    serving = controller.serving if controller is not None and broker.is_running else None
    return serving.store if serving is not None else None


def _check_transactions(
    history: History, brokers: Mapping[str, Broker], stored: Mapping[Position, str], verdict: Verdict
) -> None:
    """A transaction is all or nothing, ends once, and its producer is asked once an interval."""
    delivered = {key for _, key in history.consumed}
    verdict.none_of(
        (key for key, commits in history.outcomes.items() if not commits and key in delivered),
        "rolled back, but consumed",
    )
    halves = _halves(brokers)
    times = Counter(key for place, key in stored.items() if place[1] == TRANSACTIONAL)
    if not any(broker.restored for broker in brokers.values()):
        verdict.none_of(
            (f"{key} {count} times" for key, count in times.items() if count > halves[key]), "committed more than once"
        )
    verdict.none_of(
        (
            f"{key} {len(moments)} times in {moments[-1] - history.sent[key][2]:.1f} s"
            for key, moments in history.asked.items()
            if len(moments) > max(1, halves[key]) * (1 + (moments[-1] - history.sent[key][2]) // CHECK_SECONDS)
        ),
        "asked for too often",
    )


CHECK_SECONDS = 4.0
"""transactionCheckInterval of the plans."""


def _halves(brokers: Mapping[str, Broker]) -> Counter[str]:
    """Return how often each key was sent as a half message: senders repeat what was not acknowledged."""
    halves: Counter[str] = Counter()
    for broker in brokers.values():
        store = store_of(broker)
        if store is None:
            continue
        offset, end = store.reading.min_offset(TRANS_HALF_TOPIC, 0), store.reading.max_offset(TRANS_HALF_TOPIC, 0)
        while offset < end:
            result = store.reading.get_messages(TRANS_HALF_TOPIC, 0, offset, 32)
            for message in map(record.decode_record, result.records):
                halves[message.keys or ""] += property_names.TRANSACTION_CHECK_TIMES not in message.properties
            offset = max(result.next_begin_offset, offset + 1)
    return halves


async def settle(history: History, brokers: Mapping[str, Broker], longest_seconds: float) -> None:
    """Wait until every acknowledged message is in its queue and consumed. Those that are acknowledged meanwhile count,
    too."""
    with trio.move_on_after(longest_seconds):
        await trio.sleep(1.0)
        while unfinished(history, brokers) or any(map(_has_buffered, brokers.values())):
            await trio.sleep(LOOK_SECONDS)


def _has_buffered(broker: Broker) -> bool:
    """Return whether messages wait in the buffer of transientStorePoolEnable, where nothing can read them yet."""
    store = store_of(broker)
    return store is not None and store.committed.value < store.accepted.value
