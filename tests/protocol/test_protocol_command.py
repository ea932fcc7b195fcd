"""RemotingCommand: how much memory a command takes, and headers that are typed already."""

from __future__ import annotations

import pytest

from triomq.protocol.command import HELD_BYTES, JSON, MSGPACK, ROCKETMQ, RemotingCommand, new_response
from triomq.protocol.errors import HeaderFieldError
from triomq.protocol.frame import decode_frame, encode_frame
from triomq.protocol.headers.pop import AckMessageRequestHeader, ChangeInvisibleTimeRequestHeader


@pytest.mark.parametrize("serialize_type", [JSON, ROCKETMQ, MSGPACK])
@pytest.mark.parametrize("is_decoded", [False, True])
def test_a_command_holds_its_body_and_its_fields_in_each_codec(serialize_type: int, is_decoded: bool) -> None:
    request = RemotingCommand(1, serialize_type=serialize_type, body=bytes(3000), ext_fields={"name": "x" * 5000})
    command = decode_frame(encode_frame(request))
    if is_decoded:
        assert command.ext_fields == {"name": "x" * 5000}
    assert HELD_BYTES + 8000 < command.held_bytes < HELD_BYTES + 8000 + 500


def test_a_command_without_body_and_fields_holds_little() -> None:
    assert decode_frame(encode_frame(RemotingCommand(1))).held_bytes == HELD_BYTES
    assert new_response(RemotingCommand(1), 1, "remark").held_bytes == HELD_BYTES + 6


def test_a_header_that_is_typed_already_is_returned_as_it_is() -> None:
    header = AckMessageRequestHeader(consumer_group="g", topic="t", queue_id=1, extra_info="handle", offset=5)
    command = RemotingCommand(1, header)
    assert command.header(AckMessageRequestHeader) is header
    assert command.held_bytes == 2 * HELD_BYTES
    assert command.ext_fields == {
        "consumerGroup": "g",
        "topic": "t",
        "queueId": "1",
        "extraInfo": "handle",
        "offset": "5",
    }
    assert command.header(AckMessageRequestHeader) == header


def test_a_typed_header_of_another_class_is_read_as_its_texts() -> None:
    command = RemotingCommand(
        1, AckMessageRequestHeader(consumer_group="g", topic="t", queue_id=1, extra_info="handle", offset=5)
    )
    with pytest.raises(HeaderFieldError, match="invisibleTime"):
        command.header(ChangeInvisibleTimeRequestHeader)
