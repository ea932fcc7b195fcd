"""The client's side for tests: frames by hand, and the h2 library."""

from __future__ import annotations

import struct

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import Event as PeerEvent

from triomq.http2 import frames
from triomq.http2.events import ConnectionFailed, Event
from triomq.http2.frames import PREFACE, FrameReader, encode_frame
from triomq.http2.hpack import Field, encode_fields
from triomq.http2.server_side import Bounds, ServerSide

REQUEST: list[Field] = [
    (b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/x"), (b":authority", b"h"), (b"te", b"trailers")
]  # fmt: skip
OK: list[Field] = [(b":status", b"200"), (b"content-type", b"application/grpc")]
TRAILERS: list[Field] = [(b"grpc-status", b"0")]
HELLO = PREFACE + encode_frame(frames.SETTINGS, 0, 0)


def headers(stream_id: int, fields: list[Field] | None = None, flags: int = frames.END_HEADERS) -> bytes:
    return encode_frame(frames.HEADERS, flags, stream_id, encode_fields(REQUEST if fields is None else fields))


def data(stream_id: int, payload: bytes = b"", flags: int = 0) -> bytes:
    return encode_frame(frames.DATA, flags, stream_id, payload)


def number(kind: int, stream_id: int, value: int) -> bytes:
    return encode_frame(kind, 0, stream_id, value.to_bytes(4, "big"))


def settings(**values: int) -> bytes:
    numbers = {"table": 1, "push": 2, "window": 4, "frame": 5}
    return encode_frame(
        frames.SETTINGS, 0, 0, b"".join(struct.pack(">HI", numbers[name], value) for name, value in values.items())
    )


def greeted(bounds: Bounds | None = None) -> ServerSide:
    """Return a server that has the client's preface, its output taken."""
    server = ServerSide(bounds)
    assert server.receive(HELLO) == []
    server.take_output()
    return server


def sent(server: ServerSide) -> list[frames.Frame]:
    """Return the frames of the server's output."""
    reader = FrameReader()
    reader.feed(PREFACE)
    found, fault = reader.feed(server.take_output())
    assert fault is None
    assert reader.held_bytes == 0
    return found


def failure(events: list[Event]) -> ConnectionFailed:
    """Return the failure with which these events end."""
    assert isinstance(events[-1], ConnectionFailed)
    return events[-1]


class Pair:
    """A client of the h2 library and a server, without a network between them."""

    def __init__(self, bounds: Bounds | None = None) -> None:
        self.client = H2Connection(H2Configuration(client_side=True, header_encoding=None))
        self.client.initiate_connection()
        self.server = ServerSide(bounds)
        self.heard: list[PeerEvent] = []
        self.events: list[Event] = []
        self.exchange()

    def exchange(self, piece_bytes: int = 1 << 20) -> list[Event]:
        """Pass bytes until both sides are silent. Return what the server heard meanwhile."""
        found: list[Event] = []
        while True:
            up, down = self.client.data_to_send(), self.server.take_output()
            if not up and not down:
                self.events += found
                return found
            for at in range(0, len(up), piece_bytes):
                found += self.server.receive(up[at : at + piece_bytes])
            if down:
                self.heard += self.client.receive_data(down)
