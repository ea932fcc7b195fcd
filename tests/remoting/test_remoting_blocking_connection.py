"""The blocking connection: how long a frame may be, and how long each call waits."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from triomq.protocol.command import new_request, new_response
from triomq.protocol.errors import FrameError
from triomq.protocol.frame import encode_frame
from triomq.protocol.json_frame import Request
from triomq.remoting import blocking_connection
from triomq.remoting.blocking_connection import BlockingConnection

TIMEOUT_SECONDS = 7.0


@pytest.fixture
def ends() -> Iterator[tuple[BlockingConnection, socket.socket]]:
    """A connection and the socket of its peer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connection = BlockingConnection(f"127.0.0.1:{listener.getsockname()[1]}", TIMEOUT_SECONDS)
        peer, _ = listener.accept()
    with closing(connection), peer:
        yield connection, peer


def response_to(opaque: int) -> bytes:
    request = new_request(1)
    request.opaque = opaque
    return encode_frame(new_response(request, 0, "done"))


@pytest.mark.parametrize("missing_bytes", [0, 1])
def test_the_largest_frame_is_read_and_a_larger_one_is_an_error(
    ends: tuple[BlockingConnection, socket.socket], monkeypatch: pytest.MonkeyPatch, missing_bytes: int
) -> None:
    connection, peer = ends
    [opaque] = connection.send(Request(1, {}))
    frame = response_to(opaque)
    monkeypatch.setattr(blocking_connection, "MAX_FRAME_BYTES", len(frame) - 4 - missing_bytes)
    peer.sendall(frame)
    if missing_bytes:
        with pytest.raises(FrameError):
            connection.receive(opaque)
    else:
        assert connection.receive(opaque).remark == "done"


def test_a_deadline_holds_for_its_own_call_only(ends: tuple[BlockingConnection, socket.socket]) -> None:
    connection, peer = ends
    [opaque] = connection.send(Request(1, {}), deadline=time.monotonic() + 1000)
    assert TIMEOUT_SECONDS < (connection._socket.gettimeout() or 0) <= 1000
    peer.sendall(response_to(opaque))
    connection.receive(opaque)
    assert connection._socket.gettimeout() == TIMEOUT_SECONDS
