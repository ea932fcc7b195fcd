"""The requests of consumers that receive single messages (POP), and the readers of their responses; pure like
requests.py.

A response names where the messages were taken from (`startOffsetInfo`), from which the client makes their handles. A
broker of RocketMQ stores what is delivered again in a topic of its own for each group and topic. It shows such a
message with the topic that was asked for, and its handle in the property POP_CK; or, with
popResponseReturnActualRetryTopic, as it is stored.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from triomq.client.core.errors import MQClientError
from triomq.client.core.received_message import Receipt, ReceivedMessage, with_receipt
from triomq.client.core.requests import Call, T
from triomq.protocol import property_names as names
from triomq.protocol.bodies.batch_ack import BatchAck, BatchAckMessageRequestBody
from triomq.protocol.codes import POLLING_TIMEOUT, RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.errors import HeaderFieldError, ProtocolError, RecordError
from triomq.protocol.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from triomq.protocol.message import MessageExt, may_have
from triomq.protocol.receipt_handle import NORMAL, RETRY, ReceiptHandle, ReceiptHandleError, kind_of, parse_handle
from triomq.protocol.record import decode_records
from triomq.protocol.system_topics import RETRY_PREFIX, is_retry_topic

MAX_BIT: Final = 256
"""A batch names messages by their distance from the first one. Those farther apart are acknowledged one by one: a
filter may have passed over any number of messages in between."""
_POP_CK: Final = names.POP_CHECKPOINT.encode()
_RETRY_V2: Final = "2"

Numbers = dict[tuple[str, str], int]


def receive(header: PopMessageRequestHeader) -> Call[list[ReceivedMessage]]:
    """Take messages from the queues of one broker; none if there are none."""

    def read(response: RemotingCommand) -> list[ReceivedMessage]:
        if response.code != ResponseCode.SUCCESS:
            return []
        found = response.header(PopMessageResponseHeader)
        starts, repetitions = _numbers(found.start_offset_info), _numbers(found.order_count_info)
        received = []
        for message in decode_records(response.body, header.broker_name):
            handle = _handle(message, header, found, starts)
            at = f"{message.queue_id}"
            times = repetitions.get((handle.kind, f"qo{at}%{message.queue_offset}"))
            if times is None:
                times = repetitions.get((handle.kind, at), 0)
            message.reconsume_times = max(message.reconsume_times, times)
            stored_in = _stored_in(handle.kind, header)
            held_until_ms = header.born_time + found.invisible_time
            message.topic = header.topic
            receipt = Receipt(header.consumer_group, header.topic, stored_in, handle, held_until_ms)
            received.append(with_receipt(message, receipt))
        return received

    return Call(
        new_request(RequestCode.POP_MESSAGE, header),
        f"receiving from {header.topic}",
        _readable(read, "a receive"),
        (ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND, POLLING_TIMEOUT),
        is_vip=False,
    )


def acknowledge(receipt: Receipt) -> Call[None]:
    """Acknowledge one message."""
    handle = receipt.handle
    header = AckMessageRequestHeader(
        consumer_group=receipt.group,
        topic=receipt.stored_in,
        queue_id=handle.queue_id,
        extra_info=handle.text(),
        offset=_offset(handle),
        broker_name=handle.broker_name,
    )
    request = new_request(RequestCode.ACK_MESSAGE, header)
    return Call(request, _action("acknowledging", receipt), lambda _: None, is_vip=False)


def acknowledge_many(receipts: Sequence[Receipt]) -> Call[None]:
    """Acknowledge messages of one broker, all of which `fits_batch`. Brokers leave out, without a word, what was
    delivered again."""
    bits: dict[BatchAck, int] = {}
    for receipt in receipts:
        handle = receipt.handle
        taken = BatchAck(
            consumer_group=receipt.group,
            topic=receipt.topic,
            retry=handle.kind,
            queue_id=handle.queue_id,
            start_offset=handle.start_offset,
            pop_time=handle.popped_ms,
            invisible_time=handle.invisible_ms,
            revive_queue_id=handle.revive_queue_id,
        )
        bits[taken] = bits.get(taken, 0) | 1 << _offset(handle) - handle.start_offset
    acks = [replace(taken, bits=_bit_set(value)) for taken, value in bits.items()]
    body = BatchAckMessageRequestBody(acks=acks, broker_name=receipts[0].handle.broker_name)
    request = new_request(RequestCode.BATCH_ACK_MESSAGE, None, body.encode())
    return Call(request, f"acknowledging {len(receipts)} messages", lambda _: None, is_vip=False)


def fits_batch(receipt: Receipt, now_ms: int) -> bool:
    """Return whether a batch may acknowledge this message: its time is surely not over, so that the broker will not
    leave it out, and it is near enough to the first one."""
    handle = receipt.handle
    return now_ms < receipt.held_until_ms and 0 <= _offset(handle) - handle.start_offset < MAX_BIT


def change_invisible_time(receipt: Receipt, invisible_ms: int, asked_ms: int) -> Call[Receipt]:
    """Have a message invisible for this time from now on; its new receipt. The old one is void."""
    handle = receipt.handle
    queue_offset = _offset(handle)
    header = ChangeInvisibleTimeRequestHeader(
        consumer_group=receipt.group,
        topic=receipt.stored_in,
        queue_id=handle.queue_id,
        extra_info=handle.text(),
        offset=queue_offset,
        invisible_time=invisible_ms,
        broker_name=handle.broker_name,
    )

    def read(response: RemotingCommand) -> Receipt:
        changed = response.header(ChangeInvisibleTimeResponseHeader)
        new = ReceiptHandle(
            *(changed.pop_time, changed.invisible_time, handle.kind, handle.broker_name, handle.queue_id, queue_offset),
            start_offset=queue_offset,
            revive_queue_id=changed.revive_qid,
        )
        return Receipt(receipt.group, receipt.topic, receipt.stored_in, new, asked_ms + changed.invisible_time)

    action = _action("changing the invisible time of", receipt)
    request = new_request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
    return Call(request, action, _readable(read, action), is_vip=False)


def _handle(
    message: MessageExt, header: PopMessageRequestHeader, found: PopMessageResponseHeader, starts: Numbers
) -> ReceiptHandle:
    """Return the handle of a received message. Raises ProtocolError."""
    queue_id, queue_offset = message.queue_id, message.queue_offset
    text = message.properties.get(names.POP_CHECKPOINT) if may_have(message, _POP_CK) else None
    if text is not None:
        try:
            handle = parse_handle(text)
        except ReceiptHandleError as error:
            raise RecordError(f"{names.POP_CHECKPOINT} of a message: {error}") from None
        # A copy of a message that was received before has the handle of that time.
        if (handle.popped_ms, handle.queue_id, handle.queue_offset) == (found.pop_time, queue_id, queue_offset):
            return handle
    kind = kind_of(message.topic)
    if message.topic == _retry_topic(_RETRY_V2, header):
        kind = _RETRY_V2
    start = starts.get((kind, str(queue_id)))
    if start is None:
        raise HeaderFieldError(f"startOffsetInfo={found.start_offset_info!r} lacks queue {queue_id} of kind {kind}")
    return ReceiptHandle(
        *(found.pop_time, found.invisible_time, kind, header.broker_name or "", queue_id, queue_offset),
        start_offset=start,
        revive_queue_id=found.revive_qid,
    )


def _stored_in(kind: str, header: PopMessageRequestHeader) -> str:
    """Return the topic that has a message. Raises RecordError."""
    if kind == NORMAL or is_retry_topic(header.topic):
        return header.topic
    return _retry_topic(kind, header)


def _retry_topic(kind: str, header: PopMessageRequestHeader) -> str:
    """Return the retry topic of a group and a topic (RocketMQ: KeyBuilder.buildPopRetryTopic). Raises RecordError."""
    between = {RETRY: "_", _RETRY_V2: "+"}.get(kind)
    if between is None:
        raise RecordError(f"a receipt handle of the unknown kind {kind[:16]!r}")
    return f"{RETRY_PREFIX}{header.consumer_group}{between}{header.topic}"


def _numbers(text: str | None) -> Numbers:
    """Return (kind, place) -> number of "KIND PLACE NUMBER;KIND PLACE NUMBER". Raises HeaderFieldError."""
    numbers: Numbers = {}
    for part in text.split(";") if text else ():
        kind, place, number, *more = [*part.split(" "), "", "", ""]
        if len(more) != 3 or not number.isascii() or not number.isdigit() or len(number) > 19:
            raise HeaderFieldError(f"{part[:64]!r} is not a kind, a place and a number")
        numbers[kind, place] = int(number)
    return numbers


def _offset(handle: ReceiptHandle) -> int:
    assert handle.queue_offset is not None
    return handle.queue_offset


def _bit_set(value: int) -> str:
    """Return bits as a BatchAck has them."""
    return b64encode(value.to_bytes((value.bit_length() + 7) // 8, "little")).decode()


def _action(what: str, receipt: Receipt) -> str:
    handle = receipt.handle
    return f"{what} a message of {receipt.topic}, queue {handle.queue_id} offset {handle.queue_offset}"


def _readable(read: Callable[[RemotingCommand], T], what: str) -> Callable[[RemotingCommand], T]:
    """Return a reader that raises MQClientError for a response that cannot be read."""

    def guarded(response: RemotingCommand) -> T:
        try:
            return read(response)
        except ProtocolError as error:
            raise MQClientError(f"the response to {what} cannot be read: {error}") from error

    return guarded
