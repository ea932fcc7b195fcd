"""RemotingCommand: how much memory a command takes."""

from __future__ import annotations

import pytest

from triomq.protocol.command import HELD_BYTES, JSON, MSGPACK, ROCKETMQ, RemotingCommand, new_response
from triomq.protocol.frame import decode_frame, encode_frame


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
