"""One blocking connection to a broker or NameServer, on which many requests may wait for their responses.

It is for programs without an event loop: mqadmin, which must start fast, and executors of Spark, whose hot path is
pull, parse, pull. So it imports neither trio nor msgspec, and its frames are those of `protocol/json_frame.py`.

`send` writes requests and returns their numbers; `receive` waits for the response to one of them and keeps those that
come before it; `next_response` returns whichever comes first. What nobody waits for is dropped: late responses, and
what a broker asks by itself. At most MAX_IN_FLIGHT requests are unanswered. One owner, one thread; after an OSError or
a FrameError the connection is of no use.
"""

from __future__ import annotations

import os
import socket
import time

from triomq.protocol.errors import FrameError
from triomq.protocol.json_frame import MAX_FRAME_BYTES, Request, Response, decode_response, encode_request
from triomq.protocol.wrong_port import foreign_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

MAX_IN_FLIGHT = 1024
RECEIVE_BYTES = 256 * 1024
"""As much is read at once, because responses to many requests arrive together."""


class PeerClosed(ConnectionError):
    """The peer closed the connection."""


class TooManyRequests(Exception):
    """MAX_IN_FLIGHT requests wait for their responses."""


class BlockingConnection:
    """See the module's docstring.

    timeout_seconds: how long to wait for the connection, for the peer to take a request, and for its next bytes; calls
    with a `deadline` (of time.monotonic) wait until then instead. context: makes the context of a TLS connection.
    credentials: access key, secret key and security token with which requests are signed. Methods raise OSError
    (TimeoutError included); the constructor also ValueError for an address that is not host:port.
    """

    def __init__(
        self,
        address: str,
        timeout_seconds: float,
        *,
        context: Callable[[], ssl.SSLContext] | None = None,
        credentials: tuple[str, str, str | None] | None = None,
    ) -> None:
        host, separator, port = address.rpartition(":")
        if not separator or not port.isdecimal():
            raise ValueError(f"{address!r} is not an address: write HOST:PORT")
        host = host.strip("[]")
        self.address = address
        self._timeout_seconds = timeout_seconds
        self._has_deadline = False
        self._credentials = credentials
        self._socket = socket.create_connection((host, int(port)), timeout_seconds)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is not None:
                self._socket = context().wrap_socket(self._socket, server_hostname=host)
        except BaseException:
            self._socket.close()
            raise
        self._buffer = bytearray(RECEIVE_BYTES)
        self._begin = self._end = 0  # of what the buffer holds
        self._last_opaque = 0
        self._outstanding: set[int] = set()
        self._early: dict[int, Response] = {}

    def close(self) -> None:
        self._socket.close()

    def send(self, *requests: Request, deadline: float | None = None) -> list[int]:
        """Write requests in one piece and return their numbers. Raises TooManyRequests, with none of them sent."""
        waiting = [request for request in requests if not request.is_oneway]
        if len(self._outstanding) + len(waiting) > MAX_IN_FLIGHT:
            raise TooManyRequests(f"more than {MAX_IN_FLIGHT} requests to {self.address} are unanswered")
        frames = []
        opaques = []
        for request in requests:
            self._last_opaque += 1
            frames.append(encode_request(self._signed(request), self._last_opaque))
            opaques.append(self._last_opaque)
            if not request.is_oneway:
                self._outstanding.add(self._last_opaque)
        self._limit(deadline)
        self._socket.sendall(b"".join(frames))
        return opaques

    def receive(self, opaque: int, *, deadline: float | None = None) -> Response:
        """Return the response to request `opaque`. Raises FrameError, too."""
        while True:
            response = self._early.pop(opaque, None)
            if response is not None:
                return response
            response = self._read_response(deadline)
            self._early[response.opaque] = response

    def next_response(self, *, deadline: float | None = None) -> Response:
        """Return the response that came first, to whichever request. Raises FrameError, too."""
        for opaque in self._early:
            return self._early.pop(opaque)
        return self._read_response(deadline)

    def _signed(self, request: Request) -> Request:
        if self._credentials is None:
            return request
        from triomq.protocol.signature import sign_bound, stamp  # hashes take long to import

        signed_at = stamp(time.time_ns() // 1_000_000, os.urandom(8))
        fields = sign_bound(request.code, request.fields, request.body, *self._credentials, signed_at=signed_at)
        return Request(request.code, fields, request.body, language=request.language, is_oneway=request.is_oneway)

    def _read_response(self, deadline: float | None) -> Response:
        """Return the next response that somebody waits for."""
        while True:
            size = int.from_bytes(self._read(4, deadline), "big")
            if not 4 <= size <= MAX_FRAME_BYTES:
                foreign = foreign_bytes(size.to_bytes(4, "big"))
                raise FrameError(foreign or f"{self.address} announced a frame of {size} bytes")
            response = decode_response(self._read(size, deadline))
            if response.is_response and response.opaque in self._outstanding:
                self._outstanding.discard(response.opaque)
                return response

    def _read(self, count: int, deadline: float | None) -> bytes:
        parts = []
        while True:
            part = bytes(memoryview(self._buffer)[self._begin : min(self._begin + count, self._end)])
            parts.append(part)
            self._begin += len(part)
            count -= len(part)
            if not count:
                return b"".join(parts)
            self._limit(deadline)
            self._begin = 0
            self._end = self._socket.recv_into(self._buffer)
            if not self._end:
                raise PeerClosed(f"{self.address} closed the connection")

    def _limit(self, deadline: float | None) -> None:
        """Set how long the next call of the socket may take."""
        if deadline is not None:
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
        elif self._has_deadline:
            self._socket.settimeout(self._timeout_seconds)
        self._has_deadline = deadline is not None
