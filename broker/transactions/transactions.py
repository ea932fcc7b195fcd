"""Transactions: half messages, the op messages that end them, and the checks of those that nothing ended.

A half message waits in RMQ_SYS_TRANS_HALF_TOPIC for its producer's END_TRANSACTION. Commit stores the real message and
then an op message, rollback only the op message; both go into the log in one commit, the op message last. What a start
finds of the log is a prefix of what was written, so a crash can lose the op message but never what it stands for;
if it did, the start completes it (`load`). A check that puts a half message back or discards it writes an op
message for the old one in the same way, which RocketMQ does not: the offsets of the checks are stored seconds later,
and a crash must not multiply the copies. Nothing else is kept on disk: after a crash the checks find half messages
without op messages and ask their producers again.

    TransactionLog       reads and writes those topics (RocketMQ: TransactionalMessageBridge)
    ProducerChecks       what happens to a half message that is not ended (producer_checks.py)
    records.py           the bytes of half and op messages
    HalfStates           how recent transactions ended, in memory (ends.py); a second end of a transaction
                         stores nothing
    TransactionChecks    the task that runs the checks over the half queues (producer_checks.py)

The first two may be replaced: others get them as `TransactionStore` and `CheckListener` (interfaces.py).
How far the queues are consumed is kept as offsets of the group CID_RMQ_SYS_TRANS. All of it is touched only on the
event loop.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

import structlog
import trio

from triomq.broker import redirection
from triomq.broker.errors import TransactionEnded
from triomq.broker.message_writer import MessageWriter, NotifyingPut, PendingPut, WatchedPut
from triomq.broker.metrics.stats import BrokerStats
from triomq.broker.put_responses import STORED, UNSTORABLE
from triomq.broker.record_border import is_border
from triomq.broker.tables.offsets import NO_OFFSET, OffsetTable
from triomq.broker.tables.topics import TopicTable, both_ways
from triomq.broker.transactions.check import HalfRead, OpMessage, OpPull
from triomq.broker.transactions.ends import COMMITTED, DISCARDED, ENDED, OPEN, ROLLED_BACK, UNKNOWN, WINDOW, HalfStates
from triomq.broker.transactions.half_message import HalfMessage
from triomq.broker.transactions.records import (
    copy_of,
    half_message,
    number,
    op_message,
    op_to_store,
    real_message,
    replacement_in,
)
from triomq.broker.undeliverable import TRANSACTION, Undeliverable
from triomq.protocol import property_names as names
from triomq.protocol.clock import NowMs
from triomq.protocol.errors import RecordError
from triomq.protocol.record import read_fields
from triomq.protocol.system_topics import (
    SCHEDULE_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_CONSUMER_GROUP,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)
from triomq.store.message_store import DefaultMessageStore
from triomq.store.results import GetResult, GetStatus, MessageToStore, PutResult, PutStatus

log = structlog.get_logger("triomq.broker.transactions")

OP_PULL_COUNT = 32
_HALF_TOPIC: Final = TRANS_HALF_TOPIC.encode()
_UNDECIDED: Final[tuple[int, ...]] = (OPEN, DISCARDED)
_COMMITTED: Final[tuple[int, ...]] = (COMMITTED, ENDED)
_ROLLED_BACK: Final[tuple[int, ...]] = (ROLLED_BACK, ENDED)
_WHY_NOT: Final = {
    COMMITTED: "The transaction is committed already.",
    ROLLED_BACK: "The transaction is rolled back already.",
    UNKNOWN: "The half message was checked long ago. If its transaction is undecided, its producer is asked again.",
}


class TransactionLog:
    """Half and op messages in the message store. `store_host` is the broker's packed address."""

    def __init__(
        self,
        store: DefaultMessageStore,
        writer: MessageWriter,
        topics: TopicTable,
        offsets: OffsetTable,
        undeliverable: Undeliverable,
        *,
        store_host: bytes,
        now_ms: NowMs,
        stats: BrokerStats | None = None,
    ) -> None:
        self._stats = stats
        self._store = store
        self._writer = writer
        self._topics = topics
        self._offsets = offsets
        self._undeliverable = undeliverable
        self._store_host = store_host
        self._now_ms = now_ms
        self._states: dict[int, HalfStates] = {}
        self._next_ops: dict[int, int] = {}  # queue id -> the first op message that the states do not cover

    # -- ending ------------------------------------------------------------------------------------------------------

    def half_at(self, physical_offset: int) -> HalfMessage | None:
        if self._store.committed.value <= physical_offset < self._store.accepted.value:
            # A producer ends its transaction within milliseconds, and a check names a copy that was just made. With
            # transientStorePoolEnable both may still be in the buffer, where nothing can be read.
            self._store.commit_buffer()
        data = self._store.reading.record_at(physical_offset)
        if data is None:
            return None
        try:
            record = read_fields(data, 0, len(data))
        except RecordError as error:
            log.warning("half message not read", physical_offset=physical_offset, error=str(error))
            return None
        if record.topic != _HALF_TOPIC:
            return None
        if not is_border(self._store.reading, physical_offset, data, record):
            log.warning("half message not found at this offset", physical_offset=physical_offset)
            return None
        return half_message(data, record)

    def commit(self, half: HalfMessage, pending: PendingPut) -> None:
        states = self._states_of(half.queue_id)
        state = states.state(half.queue_offset)
        if state not in _UNDECIDED and state not in _COMMITTED:
            raise TransactionEnded(_WHY_NOT[state])
        message = real_message(half)
        wait = half.properties.get(names.WAIT) != "false"
        message.queue_id = self._topics.reachable_queue(message.topic, message.queue_id)
        if state in _COMMITTED:
            self._writer.when_durable(wait, pending)
            return
        level = half.properties.get(names.DELAY)
        if level is not None:
            self._delay(message, level)
        self._writer.put(message, wait, pending)
        if pending.result.status in STORED:
            self._end(half, COMMITTED, states)
        elif pending.result.status in UNSTORABLE and state == OPEN:
            self._set_aside(half, message, pending.result.reason)

    def _delay(self, message: MessageToStore, level: str) -> None:
        """Let a committed message wait for its time, without what it had as a half message."""
        stored = message.properties
        own = (names.REAL_TOPIC, names.REAL_QUEUE_ID, names.TRANSACTION_PREPARED)
        message.properties = stored.without(*own)
        redirection.delay(message, level, self._store.delay_levels)
        if message.topic != SCHEDULE_TOPIC:
            message.properties = stored

    def rollback(self, half: HalfMessage, pending: PendingPut) -> None:
        states = self._states_of(half.queue_id)
        state = states.state(half.queue_offset)
        if state not in _ROLLED_BACK:
            if state not in _UNDECIDED:
                raise TransactionEnded(_WHY_NOT[state])
            stored = self._end(half, ROLLED_BACK, states)
            if not stored.is_ok:
                pending.result = stored
                pending.is_finished = True
                pending.finish()
                return
        self._writer.when_durable(False, pending)

    def _end(self, half: HalfMessage, state: int, states: HalfStates) -> PutResult:
        """Store the op message that ends the transaction of `half`. Return its place, or why the store refuses it."""
        queue_id = half.queue_id
        last = states.last_copy(half.queue_offset)
        before = states.state(last)

        def refused(result: PutResult) -> None:
            states.reopen(last, before)
            self._next_ops[queue_id] = min(self._next_ops[queue_id], max(0, result.queue_offset))

        pending = WatchedPut(refused)
        self._put_op(queue_id, last, state, pending)
        if pending.result.is_ok:
            states.note_end(last, state)
            self._noted(queue_id, pending.result)
        return pending.result

    def _set_aside(self, half: HalfMessage, message: MessageToStore, reason: str) -> bool:
        """Store a dead letter for a half message, since the store will never take `message` in its place. No check
        looks at it again; its producer may still decide. Return False if the store takes nothing at present."""
        dead = self._undeliverable.put(TRANSACTION, message, half.physical_offset, reason, replaces=True)
        if dead is not None and not dead.result.is_ok:
            return False
        states = self._states_of(half.queue_id)
        last = states.last_copy(half.queue_offset)
        pending = PendingPut()
        self._put_op(half.queue_id, last, DISCARDED, pending)
        states.note_discarded(last)
        self._noted(half.queue_id, pending.result)
        return True

    def _put_op(self, queue_id: int, half_offset: int, state: int, pending: PendingPut) -> None:
        """Append the op message of a half message."""
        op = op_to_store(queue_id, half_offset, state, now_ms=self._now_ms(), host=self._store_host)
        self._writer.put(op, False, pending)
        if pending.result.status is not PutStatus.PUT_OK:
            log.warning("op message not stored", status=pending.result.status.name, queue_offset=half_offset)

    # -- how transactions ended --------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Read how transactions ended, and complete what the last run did not, or the former leader of a group. A
        leader that was deposed meanwhile forgets what it knew: the ends and copies that it wrote last may be lost."""
        self._states.clear()
        self._next_ops.clear()
        last = self._store.reading.last_record()  # now: in a group, clients send behind it while the rest is read
        for queue_id in self._half_queues():
            states = self._begun(queue_id)
            while self._has_unread_ops(queue_id):
                self._read_ops(queue_id, states)
                await trio.lowlevel.checkpoint()
        self._complete(last)

    def _complete(self, last: bytes | None) -> None:
        """Append the op message that the end of the log cut off from the record in front of it.

        They leave in one commit, but that may take two writes, of which the second may be lost. Then the record is the
        last one, since what a start finds is a prefix of what was written.
        """
        found = replacement_in(last) if last is not None else None
        half = self.half_at(found.physical_offset) if found is not None else None
        if found is None or half is None or half.properties.uniq_key != found.uniq_key:
            return
        if self._states_of(half.queue_id).state(half.queue_offset) == OPEN:
            log.warning("op message of the last record found missing; it is stored now", queue_offset=half.queue_offset)
            self._put_op(half.queue_id, half.queue_offset, found.state, PendingPut())
            self._store.commit()
            self._states_of(half.queue_id)

    def is_settled(self, half: HalfMessage) -> bool:
        states = self._states_of(half.queue_id)
        first = number(half.properties.get(names.TRANSACTION_PREPARED_QUEUE_OFFSET, ""))
        return states.is_passed(half.queue_offset) or (first is not None and states.has_ended(first))

    def _states_of(self, queue_id: int) -> HalfStates:
        """Return the states as of now: all op messages that this object did not append are read first. Only a broker
        without `load` finds more than a few here."""
        states = self._begun(queue_id)
        while self._has_unread_ops(queue_id):
            self._read_ops(queue_id, states)
        return states

    def _begun(self, queue_id: int) -> HalfStates:
        """Return the states of this queue. What a check has passed before this broker started is in front of them."""
        states = self._states.get(queue_id)
        if states is None:
            end = self._store.reading.max_offset(TRANS_HALF_TOPIC, queue_id)
            states = self._states[queue_id] = HalfStates(min(self.half_offset(queue_id), end))
            end = self._store.reading.max_offset(TRANS_OP_HALF_TOPIC, queue_id)
            self._next_ops[queue_id] = max(self.op_offset(queue_id), end - WINDOW)
        return states

    def _has_unread_ops(self, queue_id: int) -> bool:
        return self._next_ops[queue_id] < self._store.reading.max_offset(TRANS_OP_HALF_TOPIC, queue_id)

    def _read_ops(self, queue_id: int, states: HalfStates) -> None:
        begin = self._next_ops[queue_id]
        found = self._get(TRANS_OP_HALF_TOPIC, queue_id, begin, OP_PULL_COUNT)
        end = self._store.reading.max_offset(TRANS_HALF_TOPIC, queue_id)
        for op in self._ops_in(queue_id, found.records):
            if op.half_offset is None or op.half_offset >= end:
                continue
            if op.is_end:
                states.note_end(op.half_offset, op.state)
            elif op.state == DISCARDED:
                states.note_discarded(op.half_offset)
            elif op.state < end:
                states.note_copy(op.half_offset, op.state)
        self._next_ops[queue_id] = max(found.next_begin_offset, begin + 1)

    def _ops_in(self, queue_id: int, records: Sequence[bytes]) -> list[OpMessage]:
        """Return the op messages in these records. One whose half message, or its copy, is lost names none.

        Damage to the disk can cost a half message and leave its op message, which was stored later. The next half
        message may get the lost one's queue offset, but lies behind that op message, which would end it before its
        producer was asked.
        """
        ops: list[OpMessage] = []
        for op in map(op_message, records):
            if op is None:
                continue
            named = [offset for offset in (op.half_offset, op.state if op.state > 0 else None) if offset is not None]
            if all(self._lies_before(queue_id, offset, op.physical_offset) for offset in named):
                ops.append(op)
            else:
                log.warning("half message of an op message lost", queue_offset=op.half_offset)
                ops.append(OpMessage(op.queue_offset, None, op.born_timestamp))
        return ops

    def _lies_before(self, queue_id: int, half_offset: int, physical_offset: int) -> bool:
        """Return whether the half message at this queue offset lies before `physical_offset`, or has expired."""
        reading = self._store.reading
        for begin, _, _ in reading.queue_entries(TRANS_HALF_TOPIC, queue_id, half_offset, 1):
            return begin < physical_offset
        return half_offset < reading.min_offset(TRANS_HALF_TOPIC, queue_id)

    def _noted(self, queue_id: int, result: PutResult) -> None:
        """Count an appended op message as read, unless there are others in front of it."""
        if result.queue_offset == self._next_ops[queue_id]:
            self._next_ops[queue_id] += 1

    # -- checking ----------------------------------------------------------------------------------------------------

    def put_back(self, half: HalfMessage, pending: PendingPut) -> bool:
        queue_id, old = half.queue_id, half.queue_offset
        states = self._states_of(queue_id)
        put = PendingPut()
        copy = copy_of(half, TRANS_HALF_TOPIC, queue_id, store_host=self._store_host, replaces=True)
        self._writer.put(copy, False, put)
        result = put.result
        if result.is_ok:
            self._put_op(queue_id, old, result.queue_offset, PendingPut())
        is_aside = result.status in UNSTORABLE and self._set_aside(half, copy, result.reason)
        self._store.commit()
        if not is_aside:
            if not result.is_ok:
                log.warning("half message not put back", status=result.status.name, queue_offset=old)
                return False
            states.note_copy(old, result.queue_offset)
            half.queue_offset = result.queue_offset
            half.physical_offset = result.physical_offset
            half.store_host = self._store_host
        self._writer.when_durable(False, pending)
        return True

    def give_up(self, half: HalfMessage) -> bool:
        topic = self._topics.check_max_time_topic()
        queue_id = random.randrange(both_ways(topic))
        pending = PendingPut()
        message = copy_of(half, TRANS_CHECK_MAX_TIME_TOPIC, queue_id, store_host=half.store_host, replaces=True)
        self._writer.put(message, False, pending)
        result = pending.result
        if result.is_ok:
            self._put_op(half.queue_id, half.queue_offset, DISCARDED, PendingPut())
        is_aside = result.status in UNSTORABLE and self._set_aside(half, message, result.reason)
        self._store.commit()
        log.info(
            "half message discarded",
            status=result.status.name,
            check_times=half.check_times,
            physical_offset=half.physical_offset,
            group=half.group,
        )
        return result.is_ok or is_aside

    def resume(self, physical_offset: int, pending: PendingPut) -> None:
        data = self._store.reading.record_at(physical_offset)
        if data is None:
            raise RecordError(f"there is no message at physical offset {physical_offset}")
        record = read_fields(data, 0, len(data))
        if not is_border(self._store.reading, physical_offset, data, record):
            raise RecordError(f"no message begins at physical offset {physical_offset}")
        half = half_message(data, record)
        half.properties = half.properties.with_({names.TRANSACTION_CHECK_TIMES: "0"})
        self._writer.put(copy_of(half, TRANS_HALF_TOPIC, 0, store_host=half.store_host), False, pending)

    # -- reading for a check run (CheckReads) ------------------------------------------------------------------------

    def pull_ops(self, queue_id: int, queue_offset: int) -> OpPull:
        found = self._get(TRANS_OP_HALF_TOPIC, queue_id, queue_offset, OP_PULL_COUNT)
        if found.status is GetStatus.FOUND:
            ops = self._ops_in(queue_id, found.records)
            return OpPull(ops, found.next_begin_offset, is_moved=not ops)
        if found.status in (GetStatus.OFFSET_OVERFLOW_ONE, GetStatus.NO_MESSAGE_IN_QUEUE):
            return OpPull([], queue_offset)
        return OpPull([], found.next_begin_offset, is_moved=True)

    def read_half(self, queue_id: int, queue_offset: int) -> HalfRead:
        found = self._get(TRANS_HALF_TOPIC, queue_id, queue_offset, 1)
        if found.status is GetStatus.FOUND:
            data = found.records[0]
            try:
                return HalfRead(half_message(data, read_fields(data, 0, len(data))))
            except RecordError as error:
                log.warning("half message not read", queue_offset=queue_offset, error=str(error))
        is_end = found.status in (GetStatus.OFFSET_OVERFLOW_ONE, GetStatus.NO_MESSAGE_IN_QUEUE)
        return HalfRead(None, is_end, found.next_begin_offset)

    def _get(self, topic: str, queue_id: int, queue_offset: int, max_count: int) -> GetResult:
        found = self._store.reading.get_messages(topic, queue_id, queue_offset, max_count)
        if self._stats is not None:
            self._stats.internal_get(found.message_count)
        return found

    def queue_ids(self) -> Sequence[int]:
        self._topics.half_topic()
        return self._half_queues()

    def _half_queues(self) -> Sequence[int]:
        """Return the queues of half messages: those of the topic, and others that have messages, if it had more."""
        topic = self._topics.get(TRANS_HALF_TOPIC)
        count = topic.read_queue_nums if topic is not None else 1
        ends = self._store.reading.ends(TRANS_HALF_TOPIC)
        return [*range(count), *sorted(queue_id for queue_id, end in ends.items() if queue_id >= count and end)]

    def half_offset(self, queue_id: int) -> int:
        return self._consumed(TRANS_HALF_TOPIC, queue_id)

    def op_offset(self, queue_id: int) -> int:
        return self._consumed(TRANS_OP_HALF_TOPIC, queue_id)

    def _consumed(self, topic: str, queue_id: int) -> int:
        queue_offset = self._offsets.query(TRANS_CONSUMER_GROUP, topic, queue_id)
        return queue_offset if queue_offset != NO_OFFSET else self._store.reading.min_offset(topic, queue_id)

    def keep_offsets(self, queue_id: int, half_offset: int, op_offset: int) -> None:
        def stored() -> None:
            for topic, queue_offset in ((TRANS_HALF_TOPIC, half_offset), (TRANS_OP_HALF_TOPIC, op_offset)):
                if queue_offset != self._consumed(topic, queue_id):
                    self._offsets.commit(TRANS_CONSUMER_GROUP, topic, queue_id, queue_offset)

        # The offsets pass half messages, and a deposed leader may lose the copies that it made of them.
        self._writer.when_durable(False, NotifyingPut(stored))
