"""What must hold when the faults are over and everything that was stopped runs again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

import trio

from sim.cluster import Broker, Node
from sim.workload import DELAY_SECONDS, DELAYED, TOPICS, TRANSACTIONAL, History
from triomq.protocol import record
from triomq.store.message_store import MessageStore

UNSYNCED_SECONDS = 1.2
"""How old a message may be that a power failure takes with ASYNC_FLUSH: flushIntervalCommitLog (0.5 s), the commit of
a transient pool (0.2 s), and the time of the sync itself on a slow disk is added by `may_be_lost`."""
SLOW_SYNC_SECONDS = 3.5
SHOWN = 5
Position = tuple[str, str, int, int]
"""broker, topic, queue id, queue offset"""
LOOK_SECONDS = 5.0


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
    acknowledgement may have been in flight at that moment."""
    place = history.acknowledged[key]
    sent_at, window = history.sent[key][2], UNSYNCED_SECONDS + SLOW_SYNC_SECONDS
    # The check of a transaction puts a copy of its half message in the place of the first.
    written = [(sent_at, place.at), *((at - 1.0, at) for at in history.asked.get(key, []))]
    lossy = lossy_moments(brokers[place.broker])
    return any(begin <= at < end + window for begin, end in written for at in lossy)


def lossy_moments(broker: Broker) -> list[float]:
    """Return when the broker may have lost messages."""
    ends = broker.ends_that_lose
    return [at for at, how in broker.died_at if how in ends]


def may_reuse_offsets(broker: Broker) -> bool:
    """Return whether the broker may have lost messages that listeners had read, promised or not."""
    return any(how == "power" or how in broker.ends_that_lose for _, how in broker.died_at)


def unfinished(history: History, brokers: Mapping[str, Broker]) -> list[str]:
    """Return the keys of promised messages that no listener has consumed."""
    missing = [
        key
        for key, place in history.acknowledged.items()
        if not history.consumed.get(key)
        and (place.topic != TRANSACTIONAL or history.outcomes[key])
        and not may_be_lost(history, key, brokers)
    ]
    if missing and any(map(may_reuse_offsets, brokers.values())):
        skipped = _skipped(history, brokers)
        missing = [key for key in missing if key not in skipped]
    return missing


def _skipped(history: History, brokers: Mapping[str, Broker]) -> set[str]:
    """Return the keys of messages at offsets of lost ones, which their group has already read.

    Listeners get messages before they are synced, as with RocketMQ. A group's offset then survives the power failure
    that takes the end of a queue. The next messages get the same offsets, and the group does not see those.
    """
    stored = _stored({name: broker for name, broker in brokers.items() if may_reuse_offsets(broker)}, Verdict())
    heights: dict[tuple[str, str, int], int] = {}
    for key, deliveries in history.consumed.items():
        for one in deliveries:
            place = (one.broker, one.topic, one.queue_id)
            if stored.get((*place, one.queue_offset), key) != key:
                heights[place] = max(heights.get(place, -1), one.queue_offset)
    return {key for (*place, offset), key in stored.items() if offset <= heights.get(tuple(place), -1)}  # type: ignore[arg-type]


def check(history: History, brokers: Mapping[str, Broker], nodes: Iterable[Node], verdict: Verdict) -> None:
    verdict.failures += history.wrong[:SHOWN]
    for node in nodes:
        verdict.expect(node.failure is None, f"{node.name}: {node.failure}")
    verdict.none_of(unfinished(history, brokers), "acknowledged, but not consumed")
    _check_places(history, brokers, verdict)
    _check_delays(history, verdict)
    _check_transactions(history, verdict)
    _check_order(history, brokers, verdict)


def _check_places(history: History, brokers: Mapping[str, Broker], verdict: Verdict) -> None:
    """Every promised message is where its acknowledgement said, and queues have no gaps."""
    stored = _stored(brokers, verdict)
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
    unknown = {key for key in stored.values() if key not in history.sent}
    verdict.none_of(sorted(unknown), "stored, but never sent")


def _stored(brokers: Mapping[str, Broker], verdict: Verdict) -> dict[Position, str]:
    """Return the keys of all messages by their positions."""
    stored: dict[Position, str] = {}
    for name, broker in brokers.items():
        store = store_of(broker)
        if store is not None:
            may_have_gaps = bool(lossy_moments(broker))  # the log lost something in its middle
            for topic in TOPICS:
                stored.update(_stored_in(name, topic, store, verdict, may_have_gaps=may_have_gaps))
    return stored


def _stored_in(
    broker: str, topic: str, store: MessageStore, verdict: Verdict, *, may_have_gaps: bool
) -> Iterator[tuple[Position, str]]:
    for queue_id in store.reading.queues().get(topic, []):
        offset, end = store.reading.min_offset(topic, queue_id), store.reading.max_offset(topic, queue_id)
        while offset < end:
            result = store.reading.get_messages(topic, queue_id, offset, 32)
            for data in result.records:
                message = record.decode_record(data)
                verdict.expect(
                    message.queue_offset == offset or (may_have_gaps and message.queue_offset > offset),
                    f"{broker} {topic} {queue_id}: {message.queue_offset} at {offset}",
                )
                offset = message.queue_offset + 1
                yield (broker, topic, queue_id, message.queue_offset), message.keys or ""
            if not result.records:
                verdict.failures.append(f"{broker} {topic} {queue_id}: nothing at {offset} of {end}")
                return


def store_of(broker: Broker) -> MessageStore | None:
    controller = broker.controller
    serving = controller.serving if controller is not None and broker.is_running else None
    return serving.store if serving is not None else None


def _check_delays(history: History, verdict: Verdict) -> None:
    verdict.none_of(
        (
            f"{key} after {first.at - history.sent[key][2]:.3f} s"
            for key, level in history.delays.items()
            if (first := next(iter(history.consumed.get(key, [])), None)) is not None
            and first.at - history.sent[key][2] < DELAY_SECONDS[level] - 0.001
        ),
        f"{DELAYED}: consumed too early",
    )


def _check_transactions(history: History, verdict: Verdict) -> None:
    verdict.none_of(
        (key for key, commits in history.outcomes.items() if not commits and history.consumed.get(key)),
        "rolled back, but consumed",
    )


def _check_order(history: History, brokers: Mapping[str, Broker], verdict: Verdict) -> None:
    """A listener gets an offset of an ordered queue for the first time after all smaller ones."""
    for (group, name, queue_id), offsets in history.seen.items():
        broker = brokers[name]
        if may_reuse_offsets(broker):
            continue  # offsets of lost messages are given to others
        first_sights = list(dict.fromkeys(offsets))
        for before, after in pairwise(first_sights):
            if after != before + 1:
                verdict.failures.append(f"{group} got {name} {queue_id}: {after} after {before}")
                break


def check_slaves(brokers: Mapping[str, Broker], nodes: Iterable[Node], verdict: Verdict) -> None:
    """A slave that had time to catch up has its master's log."""
    for node in nodes:
        if isinstance(node, Broker) and node not in brokers.values():
            master, slave = store_of(brokers[node.broker_name]), store_of(node)
            if master is None or slave is None:
                verdict.failures.append(f"{node.name} or its master does not run")
                continue
            begin, end = master.reading.min_physical_offset, master.reading.max_physical_offset
            ours, theirs = (store.reading.read_log(begin, end - begin) for store in (master, slave))
            verdict.expect(
                slave.reading.max_physical_offset == end and ours == theirs,
                f"{node.name} has the log to {slave.reading.max_physical_offset}, its master to {end}",
            )


async def settle(history: History, brokers: Mapping[str, Broker], longest_seconds: float) -> None:
    """Wait until everything promised is consumed."""
    with trio.move_on_after(longest_seconds):
        while unfinished(history, brokers):
            await trio.sleep(LOOK_SECONDS)
        await trio.sleep(1.0)
