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

from triomq.broker.message_writer import tags_code
from triomq.broker.transactions.check import OpMessage
from triomq.broker.transactions.ends import COMMITTED, DISCARDED, ENDED, ROLLED_BACK
from triomq.broker.transactions.half_message import HalfMessage
from triomq.protocol import properties as property_text
from triomq.protocol import property_names as names
from triomq.protocol import sys_flag
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
OP_TAGS_CODE: Final = tags_code(OP_TAG)
MAX_DIGITS: Final = 19
"""The digits of the largest queue offset."""
COMMITTED_FLAG: Final = sys_flag.TRANSACTION_COMMIT
ROLLED_BACK_FLAG: Final = sys_flag.TRANSACTION_ROLLBACK
UNDECIDED_FLAG: Final = sys_flag.TRANSACTION_PREPARED
_COPIES: Final = tuple(topic.encode() for topic in (TRANS_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC, UNDELIVERABLE_TOPIC))
_FLAGS: Final = {COMMITTED: COMMITTED_FLAG, ROLLED_BACK: ROLLED_BACK_FLAG}
_STATES: Final = {COMMITTED_FLAG: COMMITTED, ROLLED_BACK_FLAG: ROLLED_BACK, UNDECIDED_FLAG: DISCARDED}
_PROPERTIES: Final = property_text.encode({names.WAIT: "true", names.TAGS: OP_TAG})


def number(text: str) -> int | None:
    """Return the queue offset that a property holds in decimal, None if it holds none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS else None


def op_to_store(queue_id: int, half_offset: int, state: int, *, now_ms: int, host: bytes) -> MessageToStore:
    """Return the op message that says why a half message needs no further check; `state` as in ends.py."""
    properties = _PROPERTIES
    if state > 0:
        copied = {names.WAIT: "true", names.TAGS: OP_TAG, names.TRANSACTION_COPY_QUEUE_OFFSET: str(state)}
        properties = property_text.encode(copied)
    return MessageToStore(
        TRANS_OP_HALF_TOPIC,
        queue_id,
        b"%d" % half_offset,
        properties,
        born_timestamp=now_ms,
        born_host=host,
        store_host=host,
        flag=_FLAGS.get(state, UNDECIDED_FLAG),
        tags_code=OP_TAGS_CODE,
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
        stored_properties=record.properties,
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
    properties = property_text.parse_bytes(record.properties)
    uniq_key = properties.get(names.UNIQ_KEY)
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
    properties = property_text.parse_bytes(record.properties)
    is_op = properties.get(names.TAGS) == OP_TAG
    half_offset = int(text) if is_op and text.isdigit() and len(text) <= MAX_DIGITS else None
    state = _STATES.get(record.flag, ENDED)
    if state == DISCARDED:
        state = number(properties.get(names.TRANSACTION_COPY_QUEUE_OFFSET, "")) or DISCARDED
    return OpMessage(record.queue_offset, half_offset, record.born_timestamp, state, record.physical_offset)


def plain_message(half: HalfMessage) -> MessageToStore | None:
    """Return the message that a commit stores, made from the record of its half message as it is; None if that takes a
    table of its properties (`real_message`)."""
    plain = half.plain
    if plain is None or plain.topic is None or plain.queue_text is None:
        return None
    queue_id = number(plain.queue_text)
    if queue_id is None:
        return None
    return MessageToStore(
        plain.topic,
        queue_id,
        half.body,
        half.stored_properties,
        born_timestamp=half.born_timestamp,
        born_host=half.born_host,
        store_host=half.store_host,
        flag=half.flag,
        sys_flag=sys_flag.with_transaction_type(half.sys_flag, sys_flag.TRANSACTION_COMMIT),
        reconsume_times=half.reconsume_times,
        prepared_transaction_offset=half.physical_offset,
        tags_code=plain.tags_code,
        uniq_key=plain.uniq_key,
        keys=plain.keys,
    )


def real_message(half: HalfMessage) -> tuple[MessageToStore, dict[str, str]]:
    """Return the message that a commit stores, and its properties as the store sees them. Raises RecordError.

    The stored text still holds REAL_TOPIC, REAL_QID and TRAN_MSG. It is encoded again from the table, which lacks them,
    only if the message is to be delayed.
    """
    properties = dict(half.properties)
    topic = properties.pop(names.REAL_TOPIC, None)
    queue_id = properties.pop(names.REAL_QUEUE_ID, "")
    properties.pop(names.TRANSACTION_PREPARED, None)
    if not topic or number(queue_id) is None:
        raise RecordError(f"REAL_TOPIC {topic!r} and REAL_QID {queue_id!r} of the half message do not name a queue")
    message = copy_of(half, topic, int(queue_id), store_host=half.store_host)
    message.sys_flag = sys_flag.with_transaction_type(half.sys_flag, sys_flag.TRANSACTION_COMMIT)
    message.prepared_transaction_offset = half.physical_offset
    return message, properties


def copy_of(
    half: HalfMessage, topic: str, queue_id: int, *, store_host: bytes, replaces: bool = False
) -> MessageToStore:
    """Return a copy of a half message for another queue. `replaces`: it stands in the place of that record."""
    properties = half.properties
    if replaces:
        properties = {**properties, names.TRANSACTION_REPLACES: str(half.physical_offset)}
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
