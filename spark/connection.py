"""One blocking connection to a broker or name server, on which many requests may wait for their responses.

An executor's hot path is pull, parse, pull, which needs no event loop. `send` writes requests and returns their
numbers; `receive` waits for the response to one of them and keeps responses that come before it. At most
`MAX_IN_FLIGHT` requests are unanswered. One owner, one thread; after an exception the connection is of no use.
"""

from __future__ import annotations

import socket
import ssl
import time
from typing import Final

from triomq.client.core.config import Credentials
from triomq.client.core.signing import SigningHook
from triomq.protocol.codes import LanguageCode
from triomq.protocol.command import RemotingCommand
from triomq.protocol.errors import FrameError
from triomq.protocol.frame import MAX_FRAME_BYTES, decode_frame, encode_frame
from triomq.spark.errors import BrokerError, OptionError
from triomq.spark.options import ConnectionOptions

MAX_IN_FLIGHT: Final = 1024
RECEIVE_BUFFER_BYTES: Final = 1024 * 1024


class BlockingConnection:
    """Every method raises OSError (TimeoutError included) and FrameError when the connection is of no more use."""

    def __init__(self, address: str, options: ConnectionOptions) -> None:
        self.address = address
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        self._signing: SigningHook | None = None
        if options.access_key is not None:
            credentials = Credentials(options.access_key, options.secret_key or "", options.security_token, bound=True)
            self._signing = SigningHook(credentials, lambda: time.time_ns() // 1_000_000)
        self._socket = socket.create_connection((host, int(port)), options.request_timeout_ms / 1000)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if options.tls:
            self._socket = tls_context(options).wrap_socket(self._socket, server_hostname=host)
        self._file = self._socket.makefile("rb", RECEIVE_BUFFER_BYTES)
        self._next_opaque = 1
        self._outstanding: set[int] = set()
        self._early: dict[int, RemotingCommand] = {}

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def send(self, *requests: RemotingCommand) -> list[int]:
        """Write requests in one piece and return their numbers."""
        frames = []
        opaques = []
        for request in requests:
            if len(self._outstanding) >= MAX_IN_FLIGHT:
                raise BrokerError(f"more than {MAX_IN_FLIGHT} requests to {self.address} are unanswered")
            request.opaque = self._next_opaque
            request.language = int(LanguageCode.PYTHON)
            self._next_opaque += 1
            if self._signing is not None:
                self._signing.before_request(self.address, request)
            frames.append(encode_frame(request))
            opaques.append(request.opaque)
            if not request.is_oneway:
                self._outstanding.add(request.opaque)
        self._socket.sendall(b"".join(frames))
        return opaques

    def receive(self, opaque: int) -> RemotingCommand:
        """Return the response to request `opaque`. Waits as long as bytes keep coming within the request timeout."""
        while True:
            response = self._early.pop(opaque, None)
            if response is not None:
                return response
            command = self._read_frame()
            if command.is_response and command.opaque in self._outstanding:
                self._outstanding.discard(command.opaque)
                self._early[command.opaque] = command

    def call(self, request: RemotingCommand) -> RemotingCommand:
        """Send one request and return its response."""
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


def tls_context(options: ConnectionOptions) -> ssl.SSLContext:
    """The context of the options tls.client.*. Raises OptionError for files that cannot be used."""
    # Only here: it loads trio, which an executor without TLS does not need.
    from triomq.remoting.tls import TlsError, TlsSettings, client_context

    settings = TlsSettings(
        test_mode_text="false",
        check_servers_text=str(options.tls_auth_server).lower(),
        client_trust=options.tls_trust_path,
        client_certificate=options.tls_cert_path,
        client_key=options.tls_key_path or options.tls_cert_path,
        client_key_password=options.tls_key_password,
    )
    try:
        return client_context(settings)
    except TlsError as error:
        raise OptionError(f"option tls.client: {error}") from None
