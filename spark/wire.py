"""One blocking connection to a broker or name server, and requests that may overtake each other on it.

The executors' hot path is pull, parse, pull; it needs no event loop. `send` puts a request on the wire and returns its
number, `receive` waits for the answer to a given number and keeps the answers that come before it. At most
`MAX_IN_FLIGHT` answers are outstanding. One owner, one thread; a connection that raised is closed and not used again.
"""

from __future__ import annotations

import socket
import ssl
from typing import Final

from triomq.protocol.codes import LanguageCode, ResponseCode
from triomq.protocol.command import RemotingCommand
from triomq.protocol.errors import FrameError
from triomq.protocol.frame import MAX_FRAME_BYTES, decode_frame, encode_frame
from triomq.protocol.signature import sign_fields
from triomq.spark.errors import BrokerError
from triomq.spark.options import ConnectionOptions

MAX_IN_FLIGHT: Final = 1024
RECEIVE_BUFFER_BYTES: Final = 1024 * 1024


class WireConnection:
    """Raises OSError (also TimeoutError) and FrameError from every method when the connection is of no more use."""

    def __init__(self, address: str, options: ConnectionOptions) -> None:
        self.address = address
        self._options = options
        host, _, port = address.rpartition(":")
        timeout = options.request_timeout_ms / 1000
        self._socket = socket.create_connection((host.strip("[]"), int(port)), timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if options.tls:
            self._socket = _tls_context(options).wrap_socket(self._socket, server_hostname=host.strip("[]"))
        self._file = self._socket.makefile("rb", RECEIVE_BUFFER_BYTES)
        self._next_opaque = 1
        self._outstanding: set[int] = set()
        self._early: dict[int, RemotingCommand] = {}

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def send(self, *requests: RemotingCommand) -> list[int]:
        """Write requests; the answer is their numbers."""
        frames = []
        opaques = []
        for request in requests:
            if len(self._outstanding) >= MAX_IN_FLIGHT:
                raise BrokerError(f"more than {MAX_IN_FLIGHT} requests to {self.address} are unanswered")
            request.opaque = self._next_opaque
            request.language = int(LanguageCode.PYTHON)
            self._next_opaque += 1
            if self._options.access_key is not None:
                request.ext_fields = sign_fields(
                    request.ext_fields or {}, request.body, self._options.access_key, self._options.secret_key or "",
                    self._options.security_token,
                )  # fmt: skip
            frames.append(encode_frame(request))
            opaques.append(request.opaque)
            if not request.is_oneway:
                self._outstanding.add(request.opaque)
        self._socket.sendall(b"".join(frames))
        return opaques

    def receive(self, opaque: int) -> RemotingCommand:
        """The answer to request `opaque`; waits for it as long as the request timeout allows without any byte."""
        while True:
            answer = self._early.pop(opaque, None)
            if answer is not None:
                return answer
            command = self._read_frame()
            if command.is_response and command.opaque in self._outstanding:
                self._outstanding.discard(command.opaque)
                self._early[command.opaque] = command

    def call(self, request: RemotingCommand) -> RemotingCommand:
        return self.receive(self.send(request)[0])

    def _read_frame(self) -> RemotingCommand:
        length = self._read(4)
        size = int.from_bytes(length, "big", signed=True)
        if not 4 <= size <= MAX_FRAME_BYTES:
            raise FrameError(f"{self.address} announced a frame of {size} bytes")
        return decode_frame(length + self._read(size))

    def _read(self, count: int) -> bytes:
        data: bytes = self._file.read(count)
        if len(data) < count:
            raise ConnectionError(f"{self.address} closed the connection")
        return data


def _tls_context(options: ConnectionOptions) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
    context.check_hostname = False
    if options.tls_auth_server:
        if options.tls_trust_path:
            context.load_verify_locations(options.tls_trust_path)
    else:
        context.verify_mode = ssl.CERT_NONE
    if options.tls_cert_path:
        context.load_cert_chain(options.tls_cert_path, options.tls_key_path, options.tls_key_password)
    return context


def refused(answer: RemotingCommand, address: str, action: str) -> BrokerError:
    """The error for an answer other than success."""
    try:
        name = ResponseCode(answer.code).name
    except ValueError:
        name = "unknown code"
    remark = " ".join((answer.remark or "no remark").split())
    return BrokerError(f"{action} was refused by {address}: {name} ({answer.code}): {remark[:300]}", answer.code)
