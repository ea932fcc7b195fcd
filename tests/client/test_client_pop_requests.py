"""What a client makes of responses to receives, and how it names the messages to the broker afterwards."""

from __future__ import annotations

import copy
import pickle
from base64 import b64decode

import pytest

from triomq.client.core import pop_requests
from triomq.client.core.errors import MQClientError
from triomq.client.core.received_message import ReceivedMessage
from triomq.protocol.bodies.batch_ack import BatchAckMessageRequestBody
from triomq.protocol.codes import POLLING_TIMEOUT, ResponseCode
from triomq.protocol.command import RemotingCommand, new_response
from triomq.protocol.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from triomq.protocol.message import MessageExt
from triomq.protocol.record import encode_record

ASKED_MS = 5_000
POPPED_MS = 1_700_000_000_123


def stored(topic: str, queue_id: int, queue_offset: int, properties: dict[str, str] | None = None) -> bytes:
    message = MessageExt(topic, b"%d" % queue_offset, properties=properties or {})
    message.queue_id, message.queue_offset = queue_id, queue_offset
    return encode_record(message)


def header(topic: str = "Orders", group: str = "billing", *, order: bool = False) -> PopMessageRequestHeader:
    return PopMessageRequestHeader(
        consumer_group=group,
        topic=topic,
        queue_id=-1,
        max_msg_nums=32,
        invisible_time=60_000,
        poll_time=0,
        born_time=ASKED_MS,
        init_mode=0,
        order=order,
        broker_name="broker-a",
    )


def received(
    records: list[bytes],
    starts: str | None,
    counts: str | None = None,
    *,
    wanted: PopMessageRequestHeader | None = None,
) -> list[ReceivedMessage]:
    call = pop_requests.receive(wanted or header())
    info = PopMessageResponseHeader(
        pop_time=POPPED_MS,
        invisible_time=60_000,
        revive_qid=3,
        rest_num=0,
        start_offset_info=starts,
        order_count_info=counts,
    )
    return call.result(new_response(call.request, header=info, body=b"".join(records)))


def acknowledged(message: ReceivedMessage) -> AckMessageRequestHeader:
    """Return what the broker reads of an acknowledgement."""
    return pop_requests.acknowledge(message._receipt).request.header(AckMessageRequestHeader)


def test_a_message_knows_its_attempt_its_time_and_its_handle() -> None:
    (message,) = received([stored("Orders", 2, 17)], "0 2 15")
    assert (message.topic, message.body, message.broker_name) == ("Orders", b"17", "broker-a")
    assert (message.delivery_attempt, message.invisible_until_ms) == (1, POPPED_MS + 60_000)
    ack = acknowledged(message)
    assert (ack.topic, ack.consumer_group, ack.queue_id, ack.offset) == ("Orders", "billing", 2, 17)
    assert ack.extra_info == f"15 {POPPED_MS} 60000 3 0 broker-a 2 17"


@pytest.mark.parametrize("code", [ResponseCode.PULL_NOT_FOUND, POLLING_TIMEOUT])
def test_nothing_is_no_error(code: int) -> None:
    call = pop_requests.receive(header())
    assert call.result(new_response(call.request, code)) == []


@pytest.mark.parametrize(("kind", "topic"), [("1", "%RETRY%billing_Orders"), ("2", "%RETRY%billing+Orders")])
def test_a_retry_of_rocketmq_shows_its_topic_and_is_acknowledged_where_it_is_stored(kind: str, topic: str) -> None:
    handle = f"4 {POPPED_MS} 60000 3 {kind} broker-a 0 7"
    rewritten = stored("Orders", 0, 7, {"POP_CK": handle})
    as_stored = stored(topic, 0, 8)
    first, second, new = received([rewritten, as_stored, stored("Orders", 0, 7)], f"{kind} 0 6;0 0 5")
    assert {message.topic for message in (first, second, new)} == {"Orders"}
    assert acknowledged(first).extra_info == handle
    assert acknowledged(second).extra_info == f"6 {POPPED_MS} 60000 3 {kind} broker-a 0 8"
    assert acknowledged(new).extra_info == f"5 {POPPED_MS} 60000 3 0 broker-a 0 7"
    assert [acknowledged(message).topic for message in (first, second, new)] == [topic, topic, "Orders"]


def test_a_copy_of_a_message_that_was_received_before_has_a_handle_of_its_own() -> None:
    (message,) = received([stored("Orders", 0, 7, {"POP_CK": "4 99 60000 3 1 broker-a 0 7"})], "0 0 7")
    assert acknowledged(message).extra_info == f"7 {POPPED_MS} 60000 3 0 broker-a 0 7"


def test_a_retry_topic_that_is_subscribed_to_is_acknowledged_there() -> None:
    topic = "%RETRY%billing"
    (message,) = received([stored(topic, 0, 1)], "1 0 1", wanted=header(topic))
    assert (message.topic, acknowledged(message).topic) == (topic, topic)


def test_attempts_of_an_ordered_receive_come_with_the_response() -> None:
    records = [stored("Orders", 1, 4), stored("Orders", 1, 5), stored("Orders", 3, 0)]
    messages = received(records, "0 1 4;0 3 0", "0 1 0;0 qo1%5 2;0 3 1", wanted=header(order=True))
    assert [message.delivery_attempt for message in messages] == [1, 3, 2]


@pytest.mark.parametrize(
    ("record", "starts"),
    [
        (b"\x00\x00\x00\x10 not a record", "0 0 0"),
        (stored("Orders", 0, 0), None),
        (stored("Orders", 0, 0), "0 1 0"),
        (stored("Orders", 0, 0), "0 0"),
        (stored("Orders", 0, 0), "0 0 0 0"),
        (stored("Orders", 0, 0), "0 0 -1"),
        (stored("Orders", 0, 0), "0 0 " + "9" * 40),
        (stored("Orders", 0, 0, {"POP_CK": "1 2"}), "0 0 0"),
        (stored("Orders", 0, 0, {"POP_CK": f"0 {POPPED_MS} 60000 0 7 broker-a 0 0"}), "0 0 0"),
    ],
)
def test_a_response_that_cannot_be_read_is_an_error_of_the_client(record: bytes, starts: str | None) -> None:
    with pytest.raises(MQClientError, match="response to a receive cannot be read"):
        received([record], starts)


def test_a_response_without_its_header_is_an_error_of_the_client() -> None:
    call = pop_requests.receive(header())
    with pytest.raises(MQClientError, match="response to a receive cannot be read"):
        call.result(RemotingCommand(code=0, opaque=call.request.opaque))


def test_a_batch_names_messages_of_one_receive_and_queue_by_bits() -> None:
    offsets = [(0, 5), (0, 6), (0, 13), (2, 40)]
    messages = received([stored("Orders", *each) for each in offsets], "0 0 5;0 2 40")
    request = pop_requests.acknowledge_many([message._receipt for message in messages]).request
    body = BatchAckMessageRequestBody.decode_request(request.body)
    assert body.broker_name == "broker-a"
    found = [(ack.queue_id, ack.start_offset, b64decode(ack.bits or "")) for ack in body.acks]
    assert found == [(0, 5, bytes([0b11, 0b1])), (2, 40, b"\x01")]
    first = body.acks[0]
    assert (first.consumer_group, first.topic, first.retry) == ("billing", "Orders", "0")
    assert (first.pop_time, first.invisible_time, first.revive_queue_id) == (POPPED_MS, 60_000, 3)


def test_what_is_far_away_or_perhaps_over_does_not_fit_a_batch() -> None:
    near, far = received([stored("Orders", 0, 255), stored("Orders", 0, 256)], "0 0 0")
    assert pop_requests.fits_batch(near._receipt, ASKED_MS)
    assert not pop_requests.fits_batch(far._receipt, ASKED_MS)
    assert pop_requests.fits_batch(near._receipt, ASKED_MS + 59_999)
    assert not pop_requests.fits_batch(near._receipt, ASKED_MS + 60_000)


def test_a_changed_time_is_a_new_handle() -> None:
    (message,) = received([stored("Orders", 2, 17)], "0 2 15")
    call = pop_requests.change_invisible_time(message._receipt, 90_000, ASKED_MS + 1000)
    info = ChangeInvisibleTimeResponseHeader(pop_time=POPPED_MS + 1, invisible_time=90_000, revive_qid=4)
    message._receipt = call.result(new_response(call.request, header=info))
    assert message.invisible_until_ms == POPPED_MS + 90_001
    assert acknowledged(message).extra_info == f"17 {POPPED_MS + 1} 90000 4 0 broker-a 2 17"
    assert message._receipt.held_until_ms == ASKED_MS + 91_000


def test_copies_and_pickles_can_be_acknowledged() -> None:
    (message,) = received([stored("Orders", 2, 17)], "0 2 15")
    for made in (copy.copy(message), pickle.loads(pickle.dumps(message))):
        assert made == message
        assert acknowledged(made) == acknowledged(message)
