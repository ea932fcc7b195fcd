"""What a receive will take: it looks, and changes nothing but that messages which are ready again are set aside.

A receive takes nothing before the log has it (deliveries.py). What it will take of a queue is a `Plan`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from triomq.broker.pop.group_queues import GroupQueue, Key
from triomq.protocol import record
from triomq.store.reading.reading import Reading
from triomq.store.results import GetStatus, MessageFilter, Missing

SCANS_IN_A_RECEIVE: Final = 8
"""How many windows of messages that the filter does not want one receive passes over in a queue."""
_FOUND: Final = GetStatus.FOUND


class Wanted:
    """What a receive asks for. `begins_first`: a group without an offset begins at the first message of a queue, not at
    the last. A message that was received `most_attempts` times is a dead letter when it would come again. With
    `in_order` a queue has one batch in flight at a time; a receive with the same `attempt_id` gets it again."""

    __slots__ = ("attempt_id", "begins_first", "in_order", "invisible_ms", "message_filter", "most", "most_attempts")

    def __init__(
        self,
        most: int,
        invisible_ms: int,
        most_attempts: int,
        message_filter: MessageFilter | None,
        begins_first: bool,
        in_order: bool,
        attempt_id: str,
    ) -> None:
        self.most = most
        self.invisible_ms = invisible_ms
        self.most_attempts = most_attempts
        self.message_filter = message_filter
        self.begins_first = begins_first
        self.in_order = in_order
        self.attempt_id = attempt_id


class DeadLetter(NamedTuple):
    """A message that was received too often, and its record."""

    key: Key
    queue_offset: int
    record: bytes


class Received:
    """What a receive took: records as they are stored, but for RECONSUMETIMES, and the queue offsets of each queue in
    the order of the records, and their size in bytes. `repetitions`: queue id, queue offset and how often it was
    received before, of each message that was. `dead`: what the caller puts among the dead letters and then
    acknowledges; otherwise it comes again. `missing`: nothing, because this is on the disk only."""

    __slots__ = ("dead", "missing", "offsets", "popped_ms", "records", "repetitions", "sizes")

    def __init__(self, popped_ms: int) -> None:
        self.popped_ms = popped_ms
        self.records: list[bytes] = []
        self.offsets: dict[int, list[int]] = {}
        self.sizes: dict[int, int] = {}
        self.dead: list[DeadLetter] = []
        self.repetitions: list[tuple[int, int, int]] = []
        self.missing: Missing | None = None

    def add(self, queue_id: int, records: list[bytes], offsets: list[int]) -> None:
        """Add messages of a queue."""
        self.records += records
        self.offsets.setdefault(queue_id, []).extend(offsets)
        self.sizes[queue_id] = self.sizes.get(queue_id, 0) + sum(map(len, records))


class Plan:
    """What a receive will take from one queue."""

    __slots__ = ("again", "fresh", "gone", "left", "next_offset", "queue", "repeated", "taken")

    def __init__(self, queue: GroupQueue, taken: list[int]) -> None:
        self.queue = queue
        self.taken = taken  # as ready again
        self.again: list[int] = []
        self.repeated: list[int] = []  # those of a batch that the same attempt asks for again, which does not count
        self.gone: list[int] = []  # those whose message is not stored any more
        self.left: list[int] = []  # those of a batch that are ready again and stay so: their handles end
        self.fresh: list[int] = []
        self.next_offset = queue.in_flight.next_offset


class Looking:
    """Looks for messages to receive."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def look_again(self, queue: GroupQueue, wanted: Wanted, received: Received, plans: list[Plan]) -> bool:
        """Add what is ready again. Return False if it has to be read from the disk first."""
        key, in_flight, now_ms = queue.key, queue.in_flight, received.popped_ms
        taken: list[int] = []
        if not wanted.in_order:
            taken = in_flight.take_ready(now_ms, wanted.most - len(received.records))
        # In order all of them are ready, or this is the attempt that has the batch.
        offsets = list(in_flight.offsets()) if wanted.in_order else taken
        if not offsets:
            return True
        plan = Plan(queue, taken)
        plans.append(plan)
        for place, queue_offset in enumerate(offsets):
            if len(received.records) >= wanted.most:
                # Their handles end: nobody may acknowledge or extend them while others have what comes first.
                plan.left = [each for each in offsets[place:] if in_flight.has_handle(each, now_ms)]
                break
            result = self._reading.get_messages(key.topic, key.queue_id, queue_offset, 1, may_wait=True)
            if result.missing is not None:
                received.missing = result.missing
                in_flight.give_back(taken[place:])
                del taken[place:]
                return False
            if result.status is not _FOUND or record.queue_offset_of(result.body) != queue_offset:
                plan.gone.append(queue_offset)
                continue
            attempts = in_flight.attempts(queue_offset)
            if in_flight.visible_ms(queue_offset) > now_ms:
                plan.repeated.append(queue_offset)
                attempts -= 1
            else:
                plan.again.append(queue_offset)
            if attempts >= wanted.most_attempts:
                received.dead.append(DeadLetter(key, queue_offset, result.body))
                continue
            received.add(key.queue_id, [record.with_more_reconsume_times(result.body, attempts)], [queue_offset])
            if attempts:
                received.repetitions.append((key.queue_id, queue_offset, attempts))
        return True

    def look_ahead(self, queue: GroupQueue, wanted: Wanted, received: Received, plans: list[Plan]) -> bool:
        """Add what was not received yet. Return False if it has to be read from the disk first."""
        key, begin = queue.key, queue.in_flight.next_offset
        plan = Plan(queue, [])
        for _ in range(SCANS_IN_A_RECEIVE):
            room = wanted.most - len(received.records)
            if not room:
                break
            result = self._reading.get_messages(
                key.topic, key.queue_id, plan.next_offset, room, wanted.message_filter, may_wait=True
            )
            if result.missing is not None:
                received.missing = result.missing
                break
            if result.status is _FOUND:
                found = result.records
                fresh = [record.queue_offset_of(each) for each in found]
                received.add(key.queue_id, found, fresh)
                plan.fresh += fresh
            if result.next_begin_offset == plan.next_offset:
                break
            plan.next_offset = result.next_begin_offset
        if plan.next_offset != begin:
            plans.append(plan)
        return received.missing is None


def give_back(plans: Iterable[Plan]) -> None:
    """Let what was set aside be ready again: it is not received."""
    for plan in plans:
        plan.queue.in_flight.give_back(plan.taken)
