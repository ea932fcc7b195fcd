"""All plain TCP sockets of one server or client, served by one trio task over an inner epoll.

An epoll descriptor is itself readable when one of its sockets is ready. The task waits on that one descriptor, wakes
once for all ready sockets, reads and handles one after another, and ends the turn once for all of them. Compared with a
task per connection, this halves the cost of a request when many connections each wait for a response.

Without epoll, and for TLS, each connection has a task of its own (stream_transport).
"""

from __future__ import annotations

import errno
import select
import socket
from collections.abc import Callable

import trio

from triomq.remoting.connection import Connection
from triomq.remoting.log import get_logger
from triomq.remoting.turn import Turn

log = get_logger("triomq.remoting.poller")

RECEIVE_BYTES = 256 * 1024
MAX_EVENTS = 512
# Polling again costs a tenth of a pass through the event loop. The bound keeps other tasks from starving.
TURNS_IN_A_ROW = 8
ACCEPT_BURST = 128
HAS_EPOLL = hasattr(select, "epoll")

_WOULD_BLOCK = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EINTR)
_NO_PEER = (*_WOULD_BLOCK, errno.ECONNABORTED)
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class SocketTransport:
    """One socket of the poller. It sends what the socket accepts now, and the rest when it is writable again."""

    __slots__ = ("_backlog", "_backlog_bytes", "_interest", "_poller", "_sock", "connection", "fd")

    def __init__(self, poller: Poller, sock: socket.socket, connection: Connection) -> None:
        self._poller = poller
        self._sock = sock
        self._backlog: list[memoryview] = []
        self._backlog_bytes = 0
        self._interest = select.EPOLLIN
        self.connection = connection
        self.fd = sock.fileno()

    def readable(self, now: float) -> None:
        try:
            data = self._sock.recv(RECEIVE_BYTES)
        except OSError as error:
            if error.errno not in _WOULD_BLOCK:
                self.connection.close(f"read failed: {error.strerror}")
            return
        if not data:
            self.connection.close("closed by the peer")
            return
        self.connection.last_active = now
        self.connection.receive(data)

    def writable(self, now: float) -> None:
        while self._backlog:
            piece = self._backlog[0]
            sent = self._send(piece)
            if sent < 0:
                return
            self.connection.last_active = now
            self._backlog_bytes -= sent
            if sent < len(piece):
                self._backlog[0] = piece[sent:]
                break
            del self._backlog[0]
        if not self._backlog:
            self._want(self._interest & ~select.EPOLLOUT)
        self.connection.wrote(self._backlog_bytes)

    def write(self, data: bytes) -> None:
        if self._backlog:
            self._backlog.append(memoryview(data))
            self._backlog_bytes += len(data)
            self.connection.wrote(self._backlog_bytes)
            return
        sent = self._send(data)
        if 0 <= sent < len(data):
            self._backlog.append(memoryview(data)[sent:])
            self._backlog_bytes = len(data) - sent
            self._want(self._interest | select.EPOLLOUT)
            self.connection.wrote(self._backlog_bytes)

    def _send(self, data: bytes | memoryview) -> int:
        """Return the number of bytes accepted, 0 if the socket buffer is full, -1 if the connection is gone."""
        try:
            return self._sock.send(data)
        except OSError as error:
            if error.errno in _WOULD_BLOCK:
                return 0
            self.connection.close(f"write failed: {error.strerror}")
            return -1

    def pause_reading(self) -> None:
        self._want(self._interest & ~select.EPOLLIN)

    def resume_reading(self) -> None:
        self._want(self._interest | select.EPOLLIN)

    def _want(self, interest: int) -> None:
        if interest != self._interest and self._sock.fileno() >= 0:
            self._interest = interest
            self._poller.modify(self.fd, interest)

    def close(self) -> None:
        self._backlog.clear()
        self._backlog_bytes = 0
        if self._sock.fileno() >= 0:
            self._poller.remove(self.fd)
            self._sock.close()


class Poller:
    """The sockets of one server or client, by descriptor."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._epoll = select.epoll()
        self._transports: dict[int, SocketTransport] = {}
        self._listeners: dict[int, tuple[socket.socket, Callable[[socket.socket], None]]] = {}
        self._resting: list[int] = []

    def __len__(self) -> int:
        return len(self._transports)

    def add(self, sock: socket.socket, connection: Connection) -> SocketTransport:
        """Take ownership of a connected, non-blocking socket and serve it."""
        transport = SocketTransport(self, sock, connection)
        connection.transport = transport
        self._transports[transport.fd] = transport
        self._epoll.register(transport.fd, select.EPOLLIN)
        return transport

    def modify(self, fd: int, interest: int) -> None:
        self._epoll.modify(fd, interest)

    def remove(self, fd: int) -> None:
        if self._transports.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def listen(self, sock: socket.socket, accepted: Callable[[socket.socket], None]) -> None:
        """Accept from a listening socket; `accepted` receives and owns each new, non-blocking socket."""
        sock.setblocking(False)
        self._listeners[sock.fileno()] = (sock, accepted)
        self._epoll.register(sock.fileno(), select.EPOLLIN)

    def stop_listening(self) -> None:
        for fd, (sock, _) in self._listeners.items():
            if fd not in self._resting:
                self._epoll.unregister(fd)
            sock.close()
        self._listeners.clear()
        self._resting.clear()

    @property
    def is_accepting_paused(self) -> bool:
        """Return whether a listener rests because there was no descriptor."""
        return bool(self._resting)

    def wake_listeners(self) -> None:
        """Resume listening after a shortage of descriptors. The server calls this periodically."""
        for fd in self._resting:
            self._epoll.register(fd, select.EPOLLIN)
        self._resting.clear()

    async def run(self) -> None:
        """Serve until cancelled, then close every socket."""
        descriptor = self._epoll.fileno()
        unread: list[tuple[int, int]] = []
        try:
            while True:
                if unread:
                    await trio.lowlevel.checkpoint()
                else:
                    await trio.lowlevel.wait_readable(descriptor)
                for _ in range(TURNS_IN_A_ROW):
                    ready = unread or self._epoll.poll(0, MAX_EVENTS)
                    if not ready:
                        break
                    unread = self._take_turn(ready)
                    if unread:
                        break  # let other tasks run
        finally:
            self.stop_listening()
            for transport in list(self._transports.values()):
                transport.connection.close("stopped")
            self._epoll.close()

    def _take_turn(self, ready: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Read and handle these sockets, then send the responses. Return the sockets left unread when time ran out."""
        turn = self._turn
        turn.begin()
        now = turn.began
        unread: list[tuple[int, int]] = []
        for index, (fd, mask) in enumerate(ready):
            if trio.current_time() - now > turn.limit_seconds:
                unread = ready[index:]
                break
            transport = self._transports.get(fd)
            if transport is None:
                if fd in self._listeners:
                    self._accept(fd)
                continue
            try:
                if mask & select.EPOLLOUT:
                    transport.writable(now)
                if mask & ~select.EPOLLOUT:
                    transport.readable(now)
            except Exception:
                log.exception("connection failed", remote=transport.connection.remote.text)
                transport.connection.close("internal error; see the log")
        turn.end()
        return unread

    def _accept(self, fd: int) -> None:
        sock, accepted = self._listeners[fd]
        for _ in range(ACCEPT_BURST):
            try:
                peer, _ = sock.accept()
            except OSError as error:
                if error.errno in _NO_DESCRIPTORS:
                    log.error("no file descriptor is left for a new connection; accepting pauses", error=error.strerror)
                    self._epoll.unregister(fd)
                    self._resting.append(fd)
                elif error.errno not in _NO_PEER:
                    log.warning("accept failed", error=error.strerror)
                return
            peer.setblocking(False)
            accepted(peer)
