"""Transactions: half messages, the op messages that end them, and the checks of those that nothing ended.

A half message waits in RMQ_SYS_TRANS_HALF_TOPIC for its producer's END_TRANSACTION. Commit stores the real message and
then an op message, rollback only the op message; both go into the log in one commit, the op message last, so that a
crash can lose the op message but never the message that it stands for. Nothing else is kept: after a crash the
checks find half messages without op messages and ask their producers again.

    TransactionLog       reads and writes those topics (RocketMQ: TransactionalMessageBridge)
    ProducerChecks       what happens to a half message that is not ended (producer_checks.py)
    TransactionChecks    the task that runs the checks over the half queues (producer_checks.py)

The first two may be replaced: others get them as `TransactionStore` and `CheckListener`. How far the queues are
consumed is kept as offsets of the group CID_RMQ_SYS_TRANS. All of it is touched only on the event loop.
"""

from __future__ import annotations

import random
from typing import Protocol

import structlog

from triomq.broker.message_writer import MessageWriter, PendingPut, tags_code
from triomq.broker.metrics.stats import BrokerStats
from triomq.broker.put_responses import STORED
from triomq.broker.record_border import is_border
from triomq.broker.tables.offsets import NO_OFFSET, OffsetTable
from triomq.broker.tables.topics import TopicTable
from triomq.broker.transaction_check import (
    CheckReads,
    HalfMessage,
    HalfRead,
    OpMessage,
    OpPull,
)
from triomq.protocol import properties as property_text
from triomq.protocol import property_names as names
from triomq.protocol import sys_flag
from triomq.protocol.clock import NowMs
from triomq.protocol.errors import RecordError
from triomq.protocol.record import RecordFields, read_fields
from triomq.protocol.system_topics import (
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_CONSUMER_GROUP,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)
from triomq.store.message_store import MessageStore
from triomq.store.results import GetResult, GetStatus, MessageToStore, PutResult, PutStatus

log = structlog.get_logger("triomq.broker.transactions")

OP_TAG = "d"
_OP_PROPERTIES = property_text.encode({names.WAIT: "true", names.TAGS: OP_TAG})
OP_PULL_COUNT = 32


class TransactionStore(CheckReads, Protocol):
    """Where transactions live. `TransactionLog` is the one that RocketMQ's files need."""

    def half_at(self, physical_offset: int) -> HalfMessage | None:
        """Return the half message at this physical offset, None if there is none."""

    def commit(self, half: HalfMessage, pending: PendingPut) -> None:
        """End the transaction by storing its message; `pending` finishes when that message is as durable as it
        requests."""

    def rollback(self, half: HalfMessage) -> bool:
        """End the transaction without a message. Return False if that could not be stored."""

    def put_back(self, half: HalfMessage) -> bool:
        """Store a copy behind the other half messages and give `half` the copy's offsets. Return False on failure."""

    def give_up(self, half: HalfMessage) -> bool:
        """Move it to the topic of messages whose transactions never ended. Return False on failure."""

    def resume(self, physical_offset: int, pending: PendingPut) -> None:
        """Resume the checks of a discarded message. Raises RecordError if there is none."""

    def queue_ids(self) -> range:
        """Return the ids of the half queues; create the topic if it does not exist."""

    def half_offset(self, queue_id: int) -> int:
        """Return the queue offset of the first unchecked half message."""

    def op_offset(self, queue_id: int) -> int:
        """Return the queue offset of the first op message that may still be needed."""

    def keep_offsets(self, queue_id: int, half_offset: int, op_offset: int) -> None:
        """Record the progress of a check run."""


class CheckListener(Protocol):
    """Handles half messages whose transactions have not ended (RocketMQ: AbstractTransactionalMessageCheckListener)."""

    def check(self, half: HalfMessage) -> None:
        """Find out how the transaction ended; must not wait or raise."""

    def discard(self, half: HalfMessage) -> bool:
        """Discard a message that was checked too often or is too old. Return False on failure; it is then tried
        again."""


class TransactionLog:
    """Half and op messages in the message store. `store_host` is the broker's packed address."""

    def __init__(
        self,
        store: MessageStore,
        writer: MessageWriter,
        topics: TopicTable,
        offsets: OffsetTable,
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
        self._store_host = store_host
        self._now_ms = now_ms

    # -- ending ------------------------------------------------------------------------------------------------------

    def half_at(self, physical_offset: int) -> HalfMessage | None:
        data = self._store.reading.record_at(physical_offset)
        if data is None:
            return None
        try:
            record = read_fields(data, 0, len(data))
        except RecordError as error:
            log.warning("a half message cannot be read", physical_offset=physical_offset, error=str(error))
            return None
        if record.topic != TRANS_HALF_TOPIC.encode():
            return None
        if not is_border(self._store.reading, physical_offset, data, record):
            log.warning("no half message begins here", physical_offset=physical_offset)
            return None
        return _half(data, record)

    def commit(self, half: HalfMessage, pending: PendingPut) -> None:
        message, properties = _real_message(half)
        wait = properties.get(names.WAIT, "true") != "false"
        self._writer.put(message, properties, wait, pending)
        if pending.result.status in STORED:
            self._put_op(half)

    def rollback(self, half: HalfMessage) -> bool:
        return self._put_op(half)

    def _put_op(self, half: HalfMessage) -> bool:
        """Store the op message that ends `half`; its body is the half message's queue offset, in decimal. Return False
        if the store refuses it."""
        pending = PendingPut()
        op = MessageToStore(
            TRANS_OP_HALF_TOPIC,
            half.queue_id,
            b"%d" % half.queue_offset,
            _OP_PROPERTIES,
            born_timestamp=self._now_ms(),
            born_host=self._store_host,
            store_host=self._store_host,
            tags_code=tags_code(OP_TAG),
        )
        self._writer.put(op, {}, False, pending)
        if pending.result.status is PutStatus.PUT_OK:
            return True
        log.warning("an op message was not stored", status=pending.result.status.name, queue_offset=half.queue_offset)
        return False

    # -- checking ----------------------------------------------------------------------------------------------------

    def put_back(self, half: HalfMessage) -> bool:
        copy = _copy(half, TRANS_HALF_TOPIC, half.queue_id, store_host=self._store_host)
        result = self._put_now(copy)
        if result.status is not PutStatus.PUT_OK:
            log.warning("a half message was not put back", status=result.status.name, queue_offset=half.queue_offset)
            return False
        half.queue_offset = result.queue_offset
        half.physical_offset = result.physical_offset
        half.store_host = self._store_host
        return True

    def give_up(self, half: HalfMessage) -> bool:
        topic = self._topics.check_max_time_topic()
        queue_id = random.randrange(max(1, topic.write_queue_nums))
        result = self._put_now(_copy(half, TRANS_CHECK_MAX_TIME_TOPIC, queue_id, store_host=half.store_host))
        log.info(
            "a half message is discarded",
            status=result.status.name,
            check_times=half.check_times,
            physical_offset=half.physical_offset,
            group=half.properties.get(names.PRODUCER_GROUP),
        )
        return result.status is PutStatus.PUT_OK

    def resume(self, physical_offset: int, pending: PendingPut) -> None:
        data = self._store.reading.record_at(physical_offset)
        if data is None:
            raise RecordError(f"there is no message at physical offset {physical_offset}")
        record = read_fields(data, 0, len(data))
        if not is_border(self._store.reading, physical_offset, data, record):
            raise RecordError(f"no message begins at physical offset {physical_offset}")
        half = _half(data, record)
        half.properties[names.TRANSACTION_CHECK_TIMES] = "0"
        self._writer.put(_copy(half, TRANS_HALF_TOPIC, 0, store_host=half.store_host), {}, False, pending)

    def _put_now(self, message: MessageToStore) -> PutResult:
        """Append and commit, so that the message is readable when this returns."""
        pending = PendingPut()
        self._writer.put(message, {}, False, pending)
        self._store.commit()
        return pending.result

    # -- reading for a check run (CheckReads) ------------------------------------------------------------------------

    def pull_ops(self, queue_id: int, queue_offset: int) -> OpPull:
        found = self._get(TRANS_OP_HALF_TOPIC, queue_id, queue_offset, OP_PULL_COUNT)
        if found.status is GetStatus.FOUND:
            return OpPull([op for op in map(_op, found.records) if op is not None], found.next_begin_offset)
        if found.status in (GetStatus.OFFSET_OVERFLOW_ONE, GetStatus.NO_MESSAGE_IN_QUEUE):
            return OpPull([], queue_offset)
        return OpPull([], found.next_begin_offset, is_moved=True)

    def read_half(self, queue_id: int, queue_offset: int) -> HalfRead:
        found = self._get(TRANS_HALF_TOPIC, queue_id, queue_offset, 1)
        if found.status is GetStatus.FOUND:
            data = found.records[0]
            try:
                return HalfRead(_half(data, read_fields(data, 0, len(data))))
            except RecordError as error:
                log.warning("a half message cannot be read", queue_offset=queue_offset, error=str(error))
        is_end = found.status in (GetStatus.OFFSET_OVERFLOW_ONE, GetStatus.NO_MESSAGE_IN_QUEUE)
        return HalfRead(None, is_end, found.next_begin_offset)

    def _get(self, topic: str, queue_id: int, queue_offset: int, max_count: int) -> GetResult:
        found = self._store.reading.get_messages(topic, queue_id, queue_offset, max_count)
        if self._stats is not None:
            self._stats.internal_get(found.message_count)
        return found

    def queue_ids(self) -> range:
        return range(self._topics.half_topic().read_queue_nums)

    def half_offset(self, queue_id: int) -> int:
        return self._consumed(TRANS_HALF_TOPIC, queue_id)

    def op_offset(self, queue_id: int) -> int:
        return self._consumed(TRANS_OP_HALF_TOPIC, queue_id)

    def _consumed(self, topic: str, queue_id: int) -> int:
        queue_offset = self._offsets.query(TRANS_CONSUMER_GROUP, topic, queue_id)
        return queue_offset if queue_offset != NO_OFFSET else self._store.reading.min_offset(topic, queue_id)

    def keep_offsets(self, queue_id: int, half_offset: int, op_offset: int) -> None:
        for topic, queue_offset in ((TRANS_HALF_TOPIC, half_offset), (TRANS_OP_HALF_TOPIC, op_offset)):
            if queue_offset != self._consumed(topic, queue_id):
                self._offsets.commit(TRANS_CONSUMER_GROUP, topic, queue_id, queue_offset)


def _half(data: bytes, record: RecordFields) -> HalfMessage:
    return HalfMessage(
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        physical_offset=record.physical_offset,
        store_timestamp=record.store_timestamp,
        born_timestamp=record.born_timestamp,
        born_host=record.born_host,
        store_host=record.store_host,
        flag=record.flag,
        sys_flag=record.sys_flag,
        reconsume_times=record.reconsume_times,
        body=data[record.body_at : record.body_at + record.body_length],
        properties=property_text.parse_bytes(record.properties),
    )


def _op(data: bytes) -> OpMessage | None:
    try:
        record = read_fields(data, 0, len(data))
    except RecordError as error:
        log.warning("an op message cannot be read", error=str(error))
        return None
    text = data[record.body_at : record.body_at + record.body_length]
    is_op = property_text.parse_bytes(record.properties).get(names.TAGS) == OP_TAG
    half_offset = int(text) if is_op and text.isdigit() and len(text) <= 19 else None
    return OpMessage(record.queue_offset, half_offset, record.born_timestamp)


def _real_message(half: HalfMessage) -> tuple[MessageToStore, dict[str, str]]:
    """Return the message that a commit stores, and its properties as the store sees them. Raises RecordError.

    The stored text still holds REAL_TOPIC, REAL_QID and TRAN_MSG. It is encoded again from the table, which lacks them,
    only if the message is to be delayed.
    """
    properties = dict(half.properties)
    text = property_text.encode(properties)
    topic = properties.pop(names.REAL_TOPIC, None)
    queue_id = properties.pop(names.REAL_QUEUE_ID, "")
    properties.pop(names.TRANSACTION_PREPARED, None)
    if not topic or not queue_id.isascii() or not queue_id.isdigit():
        raise RecordError(f"REAL_TOPIC {topic!r} and REAL_QID {queue_id!r} of the half message do not name a queue")
    message = _copy(half, topic, int(queue_id), store_host=half.store_host)
    message.properties = text
    message.sys_flag = sys_flag.with_transaction_type(half.sys_flag, sys_flag.TRANSACTION_COMMIT)
    message.prepared_transaction_offset = half.physical_offset
    return message, properties


def _copy(half: HalfMessage, topic: str, queue_id: int, *, store_host: bytes) -> MessageToStore:
    properties = half.properties
    return MessageToStore(
        topic,
        queue_id,
        half.body,
        property_text.encode(properties),
        born_timestamp=half.born_timestamp,
        born_host=half.born_host,
        store_host=store_host,
        flag=half.flag,
        sys_flag=half.sys_flag,
        reconsume_times=half.reconsume_times,
        tags_code=tags_code(properties.get(names.TAGS)),
        uniq_key=properties.get(names.UNIQ_KEY),
        keys=properties.get(names.KEYS),
    )
