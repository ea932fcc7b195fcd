"""Half and op messages as stored records (RocketMQ: TransactionalMessageBridge).

An op message has the tag "d", and the queue offset of a half message in decimal as its body. RocketMQ reads it as "that
half message needs no further check". Its flag, which RocketMQ leaves 0, says why:

     8  committed
    12  rolled back
     4  undecided: discarded, or put back; then TRAN_COPY_QUEUE_OFFSET is the queue offset of the copy

A record that replaces a half message names the record that it replaces: a real message in its header
(preparedTransactionOffset), a copy in TRAN_REPLACES_OFFSET. The op message that says the same follows it directly.
"""

from __future__ import annotations

from typing import Final

import structlog

from triomq.broker.transactions.check import OpMessage
from triomq.broker.transactions.ends import COMMITTED, DISCARDED, ENDED, ROLLED_BACK
from triomq.broker.transactions.half_message import HalfMessage
from triomq.protocol import property_names as names
from triomq.protocol import stored_properties, sys_flag
from triomq.protocol.errors import RecordError
from triomq.protocol.record import RecordFields, read_fields
from triomq.protocol.system_topics import (
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
    UNDELIVERABLE_TOPIC,
)
from triomq.store.results import MessageToStore

log = structlog.get_logger("triomq.broker.transactions")

OP_TAG: Final = "d"
MAX_DIGITS: Final = 19
"""The digits of the largest queue offset."""
COMMITTED_FLAG: Final = sys_flag.TRANSACTION_COMMIT
ROLLED_BACK_FLAG: Final = sys_flag.TRANSACTION_ROLLBACK
UNDECIDED_FLAG: Final = sys_flag.TRANSACTION_PREPARED
_COPIES: Final = tuple(topic.encode() for topic in (TRANS_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC, UNDELIVERABLE_TOPIC))
_FLAGS: Final = {COMMITTED: COMMITTED_FLAG, ROLLED_BACK: ROLLED_BACK_FLAG}
_STATES: Final = {COMMITTED_FLAG: COMMITTED, ROLLED_BACK_FLAG: ROLLED_BACK, UNDECIDED_FLAG: DISCARDED}
_PROPERTIES: Final = stored_properties.of({names.WAIT: "true", names.TAGS: OP_TAG})


def number(text: str) -> int | None:
    """Return the queue offset that a property holds in decimal, None if it holds none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS else None


def op_to_store(queue_id: int, half_offset: int, state: int, *, now_ms: int, host: bytes) -> MessageToStore:
    """Return the op message that says why a half message needs no further check; `state` as in ends.py."""
    properties = _PROPERTIES
    if state > 0:
        copied = {names.WAIT: "true", names.TAGS: OP_TAG, names.TRANSACTION_COPY_QUEUE_OFFSET: str(state)}
        properties = stored_properties.of(copied)
    return MessageToStore(
        TRANS_OP_HALF_TOPIC,
        queue_id,
        b"%d" % half_offset,
        properties,
        born_timestamp=now_ms,
        born_host=host,
        store_host=host,
        flag=_FLAGS.get(state, UNDECIDED_FLAG),
    )


def half_message(data: bytes, record: RecordFields) -> HalfMessage:
    """Return the half message in a record, whose fields are `record`."""
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
        properties=stored_properties.read(record.properties),
    )


class Replacement:
    """A record stands in the place of the half message at this physical offset; `state` as in ends.py."""

    __slots__ = ("physical_offset", "state", "uniq_key")

    def __init__(self, physical_offset: int, uniq_key: str | None, state: int) -> None:
        self.physical_offset = physical_offset
        self.uniq_key = uniq_key
        self.state = state


def replacement_in(data: bytes) -> Replacement | None:
    """Return what a record replaces, None if it replaces nothing or cannot be read."""
    try:
        record = read_fields(data, 0, len(data))
    except RecordError:
        return None
    properties = stored_properties.read(record.properties)
    uniq_key = properties.uniq_key
    if sys_flag.transaction_type(record.sys_flag) == sys_flag.TRANSACTION_COMMIT:
        return Replacement(record.prepared_transaction_offset, uniq_key, COMMITTED)
    replaced = number(properties.get(names.TRANSACTION_REPLACES, ""))
    if replaced is None or record.topic not in _COPIES:
        return None
    state = record.queue_offset if record.topic == TRANS_HALF_TOPIC.encode() else DISCARDED
    return Replacement(replaced, uniq_key, state)


def op_message(data: bytes) -> OpMessage | None:
    """Return the op message in a record, None if it cannot be read."""
    try:
        record = read_fields(data, 0, len(data))
    except RecordError as error:
        log.warning("op message not read", error=str(error))
        return None
    text = data[record.body_at : record.body_at + record.body_length]
    properties = stored_properties.read(record.properties)
    is_op = properties.get(names.TAGS) == OP_TAG
    half_offset = int(text) if is_op and text.isdigit() and len(text) <= MAX_DIGITS else None
    state = _STATES.get(record.flag, ENDED)
    if state == DISCARDED:
        state = number(properties.get(names.TRANSACTION_COPY_QUEUE_OFFSET, "")) or DISCARDED
    return OpMessage(record.queue_offset, half_offset, record.born_timestamp, state, record.physical_offset)


def real_message(half: HalfMessage) -> MessageToStore:
    """Return the message that a commit stores. Raises RecordError.

    Its properties are those of the half message, with REAL_TOPIC, REAL_QID and TRAN_MSG, as RocketMQ's has them.
    """
    topic, queue_text = half.properties.get(names.REAL_TOPIC), half.properties.get(names.REAL_QUEUE_ID)
    queue_id = number(queue_text or "")
    if not topic or queue_id is None:
        raise RecordError(f"REAL_TOPIC {topic!r} and REAL_QID {queue_text!r} of the half message do not name a queue")
    message = copy_of(half, topic, queue_id, store_host=half.store_host)
    message.properties = message.properties.encoded_again()
    message.sys_flag = sys_flag.with_transaction_type(half.sys_flag, sys_flag.TRANSACTION_COMMIT)
    message.prepared_transaction_offset = half.physical_offset
    return message


def copy_of(
    half: HalfMessage, topic: str, queue_id: int, *, store_host: bytes, replaces: bool = False
) -> MessageToStore:
    """Return a copy of a half message for another queue. `replaces`: it stands in the place of that record."""
    properties = half.properties
    if replaces:
        properties = properties.with_({names.TRANSACTION_REPLACES: str(half.physical_offset)})
    return MessageToStore(
        topic,
        queue_id,
        half.body,
        properties,
        born_timestamp=half.born_timestamp,
        born_host=half.born_host,
        store_host=store_host,
        flag=half.flag,
        sys_flag=half.sys_flag,
        reconsume_times=half.reconsume_times,
    )
