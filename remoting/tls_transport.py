"""One TLS connection of the poller: a socket, with OpenSSL between it and the connection.

    socket  -- recv -->  incoming  -- OpenSSL decrypts -->  connection.receive
    socket  <-- send --  outgoing  <-- OpenSSL encrypts --  write

`incoming` and `outgoing` are buffers in memory (ssl.MemoryBIO), so OpenSSL never waits and never touches the socket.
All that a read brought is decrypted at once. So nothing is left in OpenSSL but the beginning of a record, and a socket
that is ready is the only sign that there is more. What the handshake has read ahead is the exception
(Poller.take_over).

These buffers never shrink: OpenSSL keeps the memory of the longest content. So `incoming` is given at most one record
at a time, and a connection that once had a frame of 4 MiB costs afterwards as much as any other. `outgoing` is the same
for all connections of a server: a whole response is encrypted in one call, and the memory for it exists once.

So what OpenSSL has to send is taken at once after each call of it, also one that fails: the next connection would send
the rest. It has something to send at reads, too: the response to an update of keys, an alert.
"""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from typing import Final

from triomq.remoting.connection import Connection
from triomq.remoting.handshake import Secured, explained
from triomq.remoting.poller import RECEIVE_BYTES, Poller, SocketTransport

RECORD_BYTES: Final = 16 * 1024
"""The longest content of a record. One `read` of this many bytes takes the whole record."""
PIECE_BYTES: Final = 256 * 1024
"""Output is encrypted and sent so much at a time: a longer one is not in memory twice."""


class TlsTransport(SocketTransport):
    """See the module's docstring. It does no handshake: `secured` has done it."""

    __slots__ = ("_incoming", "_outgoing", "_tickets", "_tls")

    def __init__(self, poller: Poller, sock: socket.socket, connection: Connection, secured: Secured) -> None:
        super().__init__(poller, sock, connection)
        self._tls = secured.tls
        self._incoming = secured.incoming
        self._outgoing = secured.outgoing
        self._tickets = secured.tickets

    def readable(self, now: float, limit_bytes: int = RECEIVE_BYTES) -> None:
        if not self._incoming.pending:
            super().readable(now, limit_bytes)
            return
        self.has_more = False  # this came with the last bytes of the handshake
        self.connection.last_active = now
        self._received(b"")

    def _received(self, data: bytes) -> None:
        """Decrypt all that arrived, pass it on as one read, and end the connection if the peer did or if it is not
        TLS."""
        pieces: list[bytes] = []
        failure: str | None = None
        is_over = False
        try:
            if len(data) <= RECORD_BYTES:
                self._incoming.write(data)
                is_over = self._decrypt(pieces)
            else:
                view = memoryview(data)
                for at in range(0, len(view), RECORD_BYTES):
                    self._incoming.write(view[at : at + RECORD_BYTES])
                    if self._decrypt(pieces):
                        is_over = True
                        break
        except ssl.SSLError as error:
            failure = f"read failed: {explained(error)}"
        if not self.connection.is_open:
            return
        self.requests = 0
        if pieces:
            super()._received(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if failure is not None:
            self.connection.close(failure)
        elif is_over:
            self.connection.close_soon("closed by the peer")

    def _decrypt(self, pieces: list[bytes]) -> bool:
        """Decrypt what is in `incoming`. Return whether the peer has said that nothing follows. Raises SSLError."""
        incoming = self._incoming
        is_over = False
        try:
            while incoming.pending:
                piece = self._tls.read(RECORD_BYTES)
                if not piece:
                    incoming.read()
                    is_over = True
                    break
                pieces.append(piece)
        except ssl.SSLWantReadError:
            pass  # a record is not complete, or was one of OpenSSL's own
        finally:
            if self._outgoing.pending:
                self._put(self._output())
        return is_over

    def write(self, data: bytes) -> None:
        connection = self.connection
        connection.turn.sent_bytes += len(data)
        try:
            if len(data) <= PIECE_BYTES:
                self._put(self._encrypted(data))
                return
            view = memoryview(data)
            for at in range(0, len(view), PIECE_BYTES):
                if not connection.is_open:
                    return
                self._put(self._encrypted(view[at : at + PIECE_BYTES]))
        except ssl.SSLError as error:
            connection.close(f"write failed: {explained(error)}")

    def write_pieces(self, pieces: list[bytes]) -> None:
        """Encrypting copies them anyway, and a short piece would have a record of its own."""
        self.write(b"".join(pieces))

    def _encrypted(self, data: bytes | memoryview) -> bytes:
        """Return the records of `data`. Raises SSLError."""
        tls = self._tls
        try:
            at = tls.write(data)
            while at < len(data):
                at += tls.write(data[at:])
        except ssl.SSLError:
            self._output()
            raise
        return self._output()

    def _output(self) -> bytes:
        """Return what OpenSSL wants to send now."""
        if not self._tickets:
            return self._outgoing.read()
        data = self._tickets + self._outgoing.read()
        self._tickets = b""
        return data

    def close(self) -> None:
        """Tell the peer that nothing follows, if the socket takes that now."""
        if not self._backlog and self._sock.fileno() >= 0:
            with suppress(ssl.SSLError):
                self._tls.unwrap()
            with suppress(OSError):
                self._sock.send(self._output())
        super().close()
