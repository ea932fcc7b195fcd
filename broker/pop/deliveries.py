"""Deliveries: what each group receives of each queue, what is in flight, and what it has done with (RocketMQ:
PopMessageProcessor, PopBufferMergeService, AckMessageProcessor, ChangeInvisibleTimeProcessor).

A receive looks first (looking.py), writes what it will take into the log, and only then takes it: if the log cannot be
written, nothing has changed. Nothing in between awaits. So do acknowledgements and changes of invisible times.

The offset that a group commits is in the table of offsets as well, where administrators and consumers that pull change
it. `GroupQueue.committed` is what was written there last; another value there means that somebody moved the group
(`_follow_moves`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import structlog
import trio

from triomq.broker.errors import TableFull
from triomq.broker.pop import log_records
from triomq.broker.pop.figures import InFlightFigures
from triomq.broker.pop.group_queues import GroupQueue, GroupQueues, Key
from triomq.broker.pop.in_flight import ENTRY_BYTES, NO_HANDLE_MS, InFlight
from triomq.broker.pop.log import InFlightLog, State
from triomq.broker.pop.looking import Looking, Plan, Received, Wanted, give_back
from triomq.broker.tables.offsets import NO_OFFSET, OffsetTable
from triomq.protocol.clock import NowMs
from triomq.remoting.table_memory import TableAccount
from triomq.store.reading.reading import Reading

log = structlog.get_logger("triomq.broker.pop")

QUEUE_BYTES: Final = 1000
"""The memory that a queue of a group takes, beside what is in flight."""
QUEUES_IN_A_STEP: Final = 256
HOLDS_AFTER_START_MS: Final = 60_000
"""How long after a start a message stays with the client that had it before, which may not live any more."""


def _nobody(topic: str, group: str) -> None:
    """Hear of nothing."""


class DeliveryEvents(NamedTuple):
    """Called with topic and group. `times_changed`: messages in flight are ready again at other times than before.
    `moved`: somebody has moved the group, and what was received may be received again."""

    times_changed: Callable[[str, str], None] = _nobody
    moved: Callable[[str, str], None] = _nobody


class Deliveries:
    """See the module's docstring. `limits` returns the most messages in flight in one group, and in all."""

    def __init__(
        self,
        reading: Reading,
        offsets: OffsetTable,
        *,
        now_ms: NowMs,
        limits: Callable[[], tuple[int, int]],
        account: TableAccount,
        is_recent: Callable[[str, int], bool],
    ) -> None:
        """`is_recent` returns whether the first message of a queue is likely to be in memory."""
        self._reading = reading
        self._offsets = offsets
        self._now_ms = now_ms
        self._limits = limits
        self._account = account
        self._is_recent = is_recent
        self._log: InFlightLog | None = None
        self._looking = Looking(reading)
        self._by_group: dict[tuple[str, str], GroupQueues] = {}
        """By topic and group."""
        self._queue_count = 0
        self._of_group: dict[str, int] = {}
        self._count = 0
        self._numbers = 0
        self._events = DeliveryEvents()

    def use(self, log_of_all: InFlightLog) -> None:
        """Write to this log from now on. In a group of brokers there is none."""
        self._log = log_of_all

    def tell(self, events: DeliveryEvents) -> None:
        """Call these from now on."""
        self._events = events

    # -- the start -----------------------------------------------------------------------------------------------------

    def load(self, bodies: Iterable[list[Any]]) -> bool:
        """Take what the log says. Return whether something of it was dropped: what lies outside of its queue in the
        store, which lost its end or its beginning, or before the offset that the group committed."""
        by_number: dict[int, GroupQueue] = {}
        for body in bodies:
            self._replay(body, by_number)
        dropped = 0
        for queue in self._all():
            key = queue.key
            in_flight, committed = queue.in_flight, self._offsets.query(key.group, key.topic, key.queue_id)
            end = self._reading.max_offset(key.topic, key.queue_id)
            begin = min(max(self._reading.min_offset(key.topic, key.queue_id), committed), end)
            before = in_flight.next_offset
            lost = in_flight.forget(begin, end)
            if lost or in_flight.next_offset < before:
                log.warning("messages in flight dropped: not in the store", **key._asdict(), dropped=lost)
                dropped += 1
            self._add(key.group, len(in_flight))
            queue.committed = committed
            self._commit(queue)
            in_flight.shorten_holds(self._now_ms() + HOLDS_AFTER_START_MS)
        if self._queue_count:
            log.info("messages in flight loaded", queues=self._queue_count, messages=self._count)
        return dropped > 0

    def _replay(self, body: list[Any], by_number: dict[int, GroupQueue]) -> None:
        kind = body[0]
        if kind == log_records.QUEUE:
            number, topic, group, queue_id, in_flight = log_records.decode_queue(body)
            by_number[number] = self._made(Key(topic, group, queue_id), in_flight, NO_OFFSET)
            return
        if kind in (log_records.BEGIN, log_records.COMPLETE):
            return
        queue = by_number[body[1]]
        in_flight = queue.in_flight
        if kind == log_records.RECEIVED:
            _, _, popped_ms, visible_ms, next_offset, offsets = body
            in_flight.receive(offsets, popped_ms, visible_ms, next_offset)
        elif kind == log_records.AGAIN:
            for queue_offset in body[4]:
                in_flight.receive_again(queue_offset, body[2], body[3])
        elif kind == log_records.DONE:
            for queue_offset in body[2]:
                in_flight.done(queue_offset)
        elif kind == log_records.CHANGED:
            in_flight.change(body[4], body[2], body[3])
        elif kind == log_records.BEGINS_AT:
            in_flight.begin_at(body[2])
        elif kind == log_records.GONE and self._find(queue.key) is queue:
            self._remove(queue)

    def state(self) -> State:
        """Return the records of all queues, for a new file of the log, and what to call when it has them."""
        queues = self._all()

        def written() -> None:
            for queue in queues:
                queue.is_named = True

        return [log_records.encode_queue(each.number, *each.key, each.in_flight) for each in queues], written

    def _made(self, key: Key, in_flight: InFlight, committed: int) -> GroupQueue:
        self._numbers += 1  # never given again: after a file that could not be begun the former one stays in use
        siblings = self._by_group.get((key.topic, key.group))
        if siblings is None:
            siblings = self._by_group[key.topic, key.group] = GroupQueues()
        self._queue_count += key.queue_id not in siblings.by_id
        queue = siblings.by_id[key.queue_id] = GroupQueue(siblings, key, in_flight, committed, self._numbers)
        return queue

    # -- receiving -----------------------------------------------------------------------------------------------------

    def receive(self, topic: str, group: str, queue_ids: Sequence[int], wanted: Wanted) -> Received:
        """Take at most `wanted.most` messages of these queues: in the order of the queues, first those that are ready
        again. Raises TableFull, MemoryShort; OSError if the log cannot be written."""
        now_ms = self._now_ms()
        received = Received(now_ms)
        self._check_room(group, wanted.most)
        plans: list[Plan] = []
        queues: dict[int, GroupQueue] = {}
        siblings = self._by_group.get((topic, group))
        looks_again = wanted.in_order or siblings is None or siblings.ready_ms <= now_ms
        try:
            for queue_id in queue_ids if looks_again else ():
                if len(received.records) >= wanted.most:
                    break
                queue = queues[queue_id] = self._queue(topic, group, queue_id, begins_first=wanted.begins_first)
                if wanted.in_order and not queue.may_repeat(wanted.attempt_id, now_ms):
                    continue
                if not self._looking.look_again(queue, wanted, received, plans) and not received.records:
                    raise _OnDisk
            for queue_id in queue_ids:
                if len(received.records) >= wanted.most or (wanted.in_order and received.missing is not None):
                    break  # in order what is ready again goes first
                queue = queues.get(queue_id) or self._queue(topic, group, queue_id, begins_first=wanted.begins_first)
                if wanted.in_order and queue.is_blocked(now_ms):
                    continue
                if not self._looking.look_ahead(queue, wanted, received, plans) and not received.records:
                    raise _OnDisk
            self._write(plans, now_ms, now_ms + wanted.invisible_ms)
        except _OnDisk:
            give_back(plans)
            received.dead.clear()
            return received
        except BaseException:
            give_back(plans)
            raise
        for plan in plans:
            plan.queue.attempt_id = wanted.attempt_id
            self._take(plan, now_ms, now_ms + wanted.invisible_ms)
        siblings = self._by_group.get((topic, group))
        if siblings is not None:
            siblings.in_order = wanted.in_order
            if looks_again:
                siblings.note_times()
        if plans:
            self._events.times_changed(topic, group)
        return received

    def _check_room(self, group: str, most: int) -> None:
        of_group, in_all = self._limits()
        if self._of_group.get(group, 0) + most > of_group:
            raise TableFull("messages in flight of one group (popMaxInFlightOfGroup)", of_group, f"receive of {group}")
        if self._count + most > in_all:
            raise TableFull("messages in flight (popMaxInFlight)", in_all, f"receive of {group}")
        self._account.check(most * ENTRY_BYTES, f"receive of {group}")

    def has_begun(self, topic: str, group: str, queue_ids: Iterable[int]) -> bool:
        """Return whether it is known here where a group has begun in each of these queues."""
        siblings = self._by_group.get((topic, group))
        return all(siblings is not None and queue_id in siblings.by_id for queue_id in queue_ids)

    def choose_begin(self, topic: str, group: str, queue_ids: Iterable[int], *, begins_first: bool) -> None:
        """Commit where a group begins in those of these queues in which it has no offset. Raises TableFull,
        TableTooLarge."""
        for queue_id in queue_ids:
            if self._offsets.query(group, topic, queue_id) < 0:
                first = self._begin(Key(topic, group, queue_id), begins_first=begins_first)
                self._offsets.commit(group, topic, queue_id, first)

    def begin(self, topic: str, group: str, queue_ids: Iterable[int]) -> None:
        """Let a group begin at the offsets that it has committed. Raises MemoryShort."""
        for queue_id in queue_ids:
            if self._offsets.query(group, topic, queue_id) >= 0:
                self._queue(topic, group, queue_id, begins_first=True)

    def forget_all(self) -> None:
        """Forget everything: from now on another broker delivers, from the committed offsets on."""
        self._by_group.clear()
        self._queue_count = 0
        self._of_group.clear()
        self._count = 0
        self._count_memory()

    def _queue(self, topic: str, group: str, queue_id: int, *, begins_first: bool) -> GroupQueue:
        """Return a queue of a group as the table of offsets has it by now."""
        siblings = self._by_group.get((topic, group))
        queue = siblings.by_id.get(queue_id) if siblings is not None else None
        if queue is not None and self._follow_moves(queue):
            return queue
        key = Key(topic, group, queue_id)
        committed = self._offsets.query(group, topic, queue_id)
        begin = committed if committed >= 0 else self._begin(key, begins_first=begins_first)
        self._account.check(QUEUE_BYTES, f"receive of {group}")
        queue = self._made(key, InFlight(begin), committed)
        self._commit(queue)
        self._count_memory()
        return queue

    def _begin(self, key: Key, *, begins_first: bool) -> int:
        """Return where a group without an offset begins: at the first message, or at the last unless the first is
        recent."""
        first = self._reading.min_offset(key.topic, key.queue_id)
        if begins_first or (first == 0 and self._is_recent(key.topic, key.queue_id)):
            return first
        return max(first, self._reading.max_offset(key.topic, key.queue_id) - 1)

    def _write(self, plans: list[Plan], popped_ms: int, visible_ms: int) -> None:
        if plans and self._log is not None:
            self._log.open()  # first: it names all queues as they are
        records: list[bytes] = []
        new: dict[int, GroupQueue] = {}
        for plan in plans:
            queue = plan.queue
            if not queue.is_named and queue.number not in new:
                new[queue.number] = queue
                records.append(log_records.encode_queue(queue.number, *plan.queue.key, queue.in_flight))
            if plan.again:
                records.append(log_records.encode(log_records.AGAIN, queue.number, popped_ms, visible_ms, plan.again))
            for queue_offset in plan.repeated:
                body = queue.number, popped_ms, visible_ms, queue_offset
                records.append(log_records.encode(log_records.CHANGED, *body))
            for queue_offset in plan.left:
                body = queue.number, NO_HANDLE_MS, queue.in_flight.visible_ms(queue_offset), queue_offset
                records.append(log_records.encode(log_records.CHANGED, *body))
            if plan.gone:
                records.append(log_records.encode(log_records.DONE, queue.number, plan.gone))
            if plan.next_offset != queue.in_flight.next_offset:
                received = queue.number, popped_ms, visible_ms, plan.next_offset, plan.fresh
                records.append(log_records.encode(log_records.RECEIVED, *received))
        self._append(b"".join(records))
        for queue in new.values():
            queue.is_named = True

    def _take(self, plan: Plan, popped_ms: int, visible_ms: int) -> None:
        in_flight = plan.queue.in_flight
        before = len(in_flight)
        for queue_offset in plan.again:
            in_flight.receive_again(queue_offset, popped_ms, visible_ms)
        for queue_offset in plan.repeated:
            in_flight.change(queue_offset, popped_ms, visible_ms)
        for queue_offset in plan.left:
            in_flight.change(queue_offset, NO_HANDLE_MS, in_flight.visible_ms(queue_offset))
        for queue_offset in plan.gone:
            in_flight.done(queue_offset)
        if plan.gone:
            log.warning("messages in flight lost", **plan.queue.key._asdict(), messages=len(plan.gone))
        if plan.next_offset != in_flight.next_offset:
            in_flight.receive(plan.fresh, popped_ms, visible_ms, plan.next_offset)
        plan.queue.siblings.note_time(visible_ms)
        self._add(plan.queue.key.group, len(in_flight) - before)
        self._commit(plan.queue)

    # -- what was received ---------------------------------------------------------------------------------------------

    def acknowledge(self, key: Key, offsets: Sequence[int], popped_ms: int) -> list[int]:
        """Forget messages that the group has done with, as far as handles with this time are valid. Return those whose
        handles are not: the message was received again, or its invisible time changed. What is done already is done.
        Raises OSError if the log cannot be written."""
        queue = self._find(key)
        if queue is None or not self._follow_moves(queue):
            committed = self._offsets.query(key.group, key.topic, key.queue_id)
            return [queue_offset for queue_offset in offsets if queue_offset >= committed]  # they come again
        in_flight = queue.in_flight
        valid: list[int] = []
        void: list[int] = []
        for queue_offset in offsets:
            known = in_flight.popped_ms(queue_offset)
            if known or queue_offset >= in_flight.next_offset:
                (valid if known and known == popped_ms else void).append(queue_offset)
        if valid:
            self._append(log_records.encode(log_records.DONE, queue.number, valid))
            for queue_offset in valid:
                in_flight.done(queue_offset)
            self._add(key.group, -len(valid))
            self._commit(queue)
            if queue.siblings.in_order:
                self._events.moved(key.topic, key.group)  # the next batch may be received
        return void

    def change_invisible_time(self, key: Key, queue_offset: int, popped_ms: int, invisible_ms: int) -> int | None:
        """Let a message be ready again that long from now on. Return the time in its new handle; None if the handle is
        not valid. Raises OSError if the log cannot be written."""
        queue = self._find(key)
        if queue is None or not self._follow_moves(queue):
            return None
        if queue.in_flight.popped_ms(queue_offset) != popped_ms:
            return None
        now_ms = self._now_ms()
        changed_ms = max(now_ms, popped_ms + 1)
        body = queue.number, changed_ms, now_ms + invisible_ms, queue_offset
        self._append(log_records.encode(log_records.CHANGED, *body))
        queue.in_flight.change(queue_offset, changed_ms, now_ms + invisible_ms)
        queue.siblings.note_time(now_ms + invisible_ms)
        self._events.times_changed(key.topic, key.group)
        return changed_ms

    def reset(self, topic: str, group: str, queue_id: int, queue_offset: int) -> None:
        """Let a group begin at this offset, whatever it has in flight or done behind it. Raises TableFull,
        TableTooLarge; OSError if the log cannot be written."""
        queue = self._find(Key(topic, group, queue_id))
        if queue is not None and self._follow_moves(queue):
            self._begin_at(queue, queue_offset)
            queue.committed = queue_offset
        self._offsets.commit(group, topic, queue_id, queue_offset)
        self._events.moved(topic, group)

    def release(self, key: Key, begin: int, most: int) -> list[int]:
        """Let messages in flight be ready again now: of those from the queue offset `begin` on the first ones, at most
        `most`. Return their queue offsets. Their handles stay valid until they are received again. Raises OSError if
        the log cannot be written."""
        queue = self._find(key)
        if queue is None or not self._follow_moves(queue):
            return []
        now_ms, in_flight = self._now_ms(), queue.in_flight
        offsets = in_flight.invisible(now_ms, begin, most)
        changes = [(queue.number, in_flight.popped_ms(each), now_ms, each) for each in offsets]
        self._append(b"".join([log_records.encode(log_records.CHANGED, *change) for change in changes]))
        for _, popped_ms, visible_ms, queue_offset in changes:
            in_flight.change(queue_offset, popped_ms, visible_ms)
        queue.siblings.note_time(now_ms)
        if offsets:
            self._events.moved(key.topic, key.group)
        return offsets

    # -- when and how many ---------------------------------------------------------------------------------------------

    def next_visible_ms(self, topic: str, group: str, queue_ids: Iterable[int]) -> int | None:
        """Return when the next message in flight of these queues may be received again (Unix ms), in order when all of
        its batch are ready; None: there is none."""
        siblings = self._by_group.get((topic, group))
        if siblings is None:
            return None
        times = [siblings.by_id[queue_id].next_visible_ms() for queue_id in queue_ids if queue_id in siblings.by_id]
        return min([time for time in times if time is not None], default=None)

    def attempts(self, key: Key, queue_offset: int) -> int:
        """Return how often a message in flight was received; 0: it is not in flight."""
        queue = self._find(key)
        return queue.in_flight.attempts(queue_offset) if queue is not None else 0

    def next_offset(self, topic: str, group: str, queue_id: int) -> int:
        """Return the offset of the next new message to receive; of a queue of which the group has received nothing, the
        offset that it has committed, or the first."""
        queue = self._find(Key(topic, group, queue_id))
        if queue is not None:
            return queue.in_flight.next_offset
        return max(self._offsets.query(group, topic, queue_id), self._reading.min_offset(topic, queue_id))

    def ready_count(self, topic: str, group: str, queue_ids: Iterable[int]) -> int:
        """Return how many messages of these queues may be received: new ones, whether a filter wants them or not, and 1
        for each queue that has some that are ready again."""
        now_ms = self._now_ms()
        siblings = self._by_group.get((topic, group))
        ready = 0
        for queue_id in queue_ids:
            end = self._reading.max_offset(topic, queue_id)
            queue = siblings.by_id.get(queue_id) if siblings is not None else None
            if siblings is None or queue is None:
                ready += max(0, end - self.next_offset(topic, group, queue_id))
                continue
            if siblings.in_order and queue.is_blocked(now_ms):
                continue
            ready += max(0, end - queue.in_flight.next_offset)
            if siblings.ready_ms <= now_ms:
                upcoming_ms = queue.next_visible_ms()
                ready += upcoming_ms is not None and upcoming_ms <= now_ms
        return ready

    def count(self, topic: str | None = None, group: str | None = None) -> int:
        """Return the number of messages in flight, of a topic or a group or both."""
        if topic is None:
            return self._count if group is None else self._of_group.get(group, 0)
        return sum([len(queue.in_flight) for queue in self._all(topic, group)])

    def figures(self, key: Key) -> InFlightFigures | None:
        """Return what is in flight in a queue; None if the group has received nothing of it, or was moved and has
        received nothing since."""
        queue = self._find(key)
        if queue is None or self._offsets.query(key.group, key.topic, key.queue_id) != queue.committed:
            return None
        return queue.in_flight.figures(self._now_ms())

    def keys(self, topic: str | None = None, group: str | None = None) -> list[Key]:
        """Return the queues of which something was received, of a topic or a group or both."""
        return sorted(queue.key for queue in self._all(topic, group))

    # -- ends ----------------------------------------------------------------------------------------------------------

    def end_topic(self, topic: str) -> None:
        """Forget a topic: it was deleted, and may have been made again. Raises OSError if the log cannot be written."""
        for queue in self._all(topic):
            self._end(queue)

    async def clean(self, is_topic: Callable[[str], bool], is_group: Callable[[str], bool]) -> None:
        """Forget what belongs to no topic or group, or lies before the first message that its queue has, and follow
        what the table of offsets says. Raises OSError if the log cannot be written."""
        for place, queue in enumerate(self._all()):
            if place % QUEUES_IN_A_STEP == 0:
                await trio.lowlevel.checkpoint()
            key = queue.key
            if self._find(key) is not queue:
                continue  # it ended meanwhile
            if not is_topic(key.topic) or not is_group(key.group):
                self._end(queue)
            elif self._follow_moves(queue):
                first = self._reading.min_offset(key.topic, key.queue_id)
                if queue.in_flight.oldest() < first:
                    self._begin_behind(queue, first)

    def _end(self, queue: GroupQueue) -> None:
        key = queue.key
        if queue.is_named:
            self._append(log_records.encode(log_records.GONE, queue.number))
        self._add(key.group, -len(queue.in_flight))
        if len(queue.in_flight):
            log.info("messages in flight ended with their topic or group", **key._asdict(), ended=len(queue.in_flight))
        self._remove(queue)
        self._count_memory()

    def _follow_moves(self, queue: GroupQueue) -> bool:
        """Let a queue begin where somebody has moved its group. Return False if the group has no offset any more; then
        the queue is gone. Raises OSError if the log cannot be written."""
        key = queue.key
        committed = self._offsets.query(key.group, key.topic, key.queue_id)
        if committed == queue.committed:
            return True
        if committed < 0:
            self._end(queue)
            return False
        if committed < queue.committed:
            self._begin_at(queue, committed)
        else:
            self._begin_behind(queue, committed)
        queue.committed = committed
        self._commit(queue)
        self._events.moved(key.topic, key.group)
        return True

    def _begin_at(self, queue: GroupQueue, queue_offset: int) -> None:
        self._name(queue)
        self._append(log_records.encode(log_records.BEGINS_AT, queue.number, queue_offset))
        self._add(queue.key.group, -len(queue.in_flight))
        queue.in_flight.begin_at(queue_offset)

    def _begin_behind(self, queue: GroupQueue, queue_offset: int) -> None:
        """Forget what is in flight before an offset."""
        key, in_flight = queue.key, queue.in_flight
        passed = [offset for offset in in_flight.offsets() if offset < queue_offset]
        self._name(queue)
        records = log_records.encode(log_records.DONE, queue.number, passed)
        next_offset = max(in_flight.next_offset, queue_offset)
        if next_offset != in_flight.next_offset:
            records += log_records.encode(log_records.RECEIVED, queue.number, 0, 0, next_offset, [])
        self._append(records)
        for offset in passed:
            in_flight.done(offset)
        in_flight.next_offset = next_offset
        self._add(key.group, -len(passed))
        if passed:
            log.info("messages in flight passed over", **key._asdict(), begin=queue_offset, messages=len(passed))
        self._commit(queue)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _find(self, key: Key) -> GroupQueue | None:
        siblings = self._by_group.get((key.topic, key.group))
        return siblings.by_id.get(key.queue_id) if siblings is not None else None

    def _all(self, topic: str | None = None, group: str | None = None) -> list[GroupQueue]:
        """Return the queues of a topic or a group or both, or all."""
        found: list[GroupQueue] = []
        for (of_topic, of_group), siblings in self._by_group.items():
            if topic in (None, of_topic) and group in (None, of_group):
                found += siblings.by_id.values()
        return found

    def _remove(self, queue: GroupQueue) -> None:
        key = queue.key
        del queue.siblings.by_id[key.queue_id]
        if not queue.siblings.by_id:
            del self._by_group[key.topic, key.group]
        self._queue_count -= 1

    def _name(self, queue: GroupQueue) -> None:
        if self._log is not None:
            self._log.open()
        if not queue.is_named:
            self._append(log_records.encode_queue(queue.number, *queue.key, queue.in_flight))
            queue.is_named = True

    def _append(self, records: bytes) -> None:
        if records and self._log is not None:
            self._log.append(records)

    def _commit(self, queue: GroupQueue) -> None:
        oldest = queue.in_flight.oldest()
        if oldest != queue.committed:
            key = queue.key
            self._offsets.commit(key.group, key.topic, key.queue_id, oldest)
            queue.committed = oldest

    def _add(self, group: str, more: int) -> None:
        if not more:
            return
        self._count += more
        of_group = self._of_group.get(group, 0) + more
        if of_group:
            self._of_group[group] = of_group
        else:
            del self._of_group[group]
        self._count_memory()

    def _count_memory(self) -> None:
        self._account.set(self._count * ENTRY_BYTES + self._queue_count * QUEUE_BYTES)


class _OnDisk(Exception):
    """Nothing can be taken before the disk is read."""
