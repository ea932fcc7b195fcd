"""All plain TCP sockets of one server or client, served by one trio task over an inner epoll.

An epoll descriptor is itself readable when one of its sockets is ready. The task waits on that one descriptor, wakes
once for all ready sockets, reads and handles one after another, and ends the turn once for all of them. Compared with a
task per connection, this halves the cost of a request when many connections each wait for a response.

A read can bring a thousand requests, and many clients can do that at once. Those that always have more to read do not
delay those that ask one thing at a time (CALM_READS).

Without epoll, and for TLS, each connection has a task of its own (stream_transport).
"""

from __future__ import annotations

import errno
import select
import socket
from collections.abc import Callable
from math import inf

import trio

from triomq.protocol.outage import Outage
from triomq.remoting.connection import Connection
from triomq.remoting.log import get_logger
from triomq.remoting.turn import Turn

log = get_logger("triomq.remoting.poller")

RECEIVE_BYTES = 256 * 1024
# A client is calm when this number of reads in a row took everything that it had sent, and each brought few requests
# and cost little. While there are calm ones, the others are read after them, in small pieces, and for a short part of
# the turn. A client with a window of many requests is not calm even if they are cheap: pieces would make it dearer.
CALM_READS = 8
CALM_READ_REQUESTS = 16
CALM_READ_SECONDS = 0.0005
CALM_FOR_SECONDS = 0.1
HASTY_RECEIVE_BYTES = 16 * 1024
HASTY_SECONDS = 0.0005
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

    __slots__ = ("_backlog", "_backlog_bytes", "_interest", "_poller", "_sock", "calm_reads", "connection", "fd",
                 "has_more", "is_watched", "requests")  # fmt: skip

    def __init__(self, poller: Poller, sock: socket.socket, connection: Connection) -> None:
        self._poller = poller
        self._sock = sock
        self._backlog: list[memoryview] = []
        self._backlog_bytes = 0
        self._interest = select.EPOLLIN
        self.connection = connection
        self.fd = sock.fileno()
        self.calm_reads = 0
        self.has_more = False
        self.is_watched = False
        self.requests = 0

    def readable(self, now: float, limit_bytes: int = RECEIVE_BYTES) -> None:
        """Read and handle at most `limit_bytes`. `has_more` is then whether there may be more, `requests` what came."""
        self.has_more = False
        self.requests = 0
        try:
            data = self._sock.recv(limit_bytes)
        except OSError as error:
            if error.errno not in _WOULD_BLOCK:
                self.connection.close(f"read failed: {error.strerror}")
            return
        if not data:
            self.connection.close("closed by the peer")
            return
        self.has_more = len(data) == limit_bytes
        self.connection.last_active = now
        self.requests = self.connection.receive(data)
        self.connection.turn.received(self.requests, len(data))

    def took(self, seconds: float) -> None:
        """Note how long the last read took."""
        if self.has_more or self.requests > CALM_READ_REQUESTS or seconds > CALM_READ_SECONDS:
            self.calm_reads = 0
        else:
            self.calm_reads += 1
        self._watch()

    @property
    def is_calm(self) -> bool:
        return self.calm_reads >= CALM_READS

    def _watch(self) -> None:
        """Let the poller watch a calm client while it is read."""
        is_watched = self.is_calm and self.is_read
        if is_watched is not self.is_watched and self._sock.fileno() >= 0:
            self.is_watched = is_watched
            self._poller.watch_calm(self.fd, is_watched=is_watched)

    @property
    def is_read(self) -> bool:
        """Return whether the socket is to be read."""
        return self._interest & select.EPOLLIN != 0

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
        self.connection.turn.sent_bytes += len(data)
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
            self._watch()

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
        self._listeners: dict[int, tuple[socket.socket, Callable[[socket.socket], None], Outage]] = {}
        self._resting: list[int] = []
        self._hasty: dict[int, int] = {}  # descriptor -> events of those that wait for the calm, the longest first
        self._calm_until = -inf
        self._calm = select.epoll()
        """The calm clients that are read, once more: one look tells whether any of them asks for something."""
        self._ends_going_first = turn.goes_first(self.is_calm_waiting)
        self._is_over = False

    def __len__(self) -> int:
        return len(self._transports)

    def add(self, sock: socket.socket, connection: Connection) -> SocketTransport:
        """Take ownership of a connected, non-blocking socket and serve it. After the end of `run` close both: the task
        that brings the socket may have been about to run when the server stopped."""
        transport = SocketTransport(self, sock, connection)
        connection.transport = transport
        if self._is_over:
            connection.close("stopped")
            return transport
        self._transports[transport.fd] = transport
        self._epoll.register(transport.fd, select.EPOLLIN)
        return transport

    def modify(self, fd: int, interest: int) -> None:
        self._epoll.modify(fd, interest)

    def remove(self, fd: int) -> None:
        transport = self._transports.pop(fd, None)
        if transport is not None:
            self._epoll.unregister(fd)
            if transport.is_watched:
                transport.is_watched = False
                self._calm.unregister(fd)

    def watch_calm(self, fd: int, *, is_watched: bool) -> None:
        """Begin or end to watch a client that is calm."""
        if is_watched:
            self._calm.register(fd, select.EPOLLIN)
        else:
            self._calm.unregister(fd)

    def is_calm_waiting(self) -> bool:
        """Return whether a calm client has sent something that is not read yet. Free without calm clients."""
        return self._turn.now < self._calm_until and bool(self._calm.poll(0, 1))

    def listen(self, sock: socket.socket, accepted: Callable[[socket.socket], None]) -> None:
        """Accept from a listening socket; `accepted` receives and owns each new, non-blocking socket."""
        sock.setblocking(False)
        self._listeners[sock.fileno()] = (sock, accepted, Outage())
        self._epoll.register(sock.fileno(), select.EPOLLIN)

    def stop_listening(self) -> None:
        for fd, (sock, _, _) in self._listeners.items():
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
                    if unread or self._hasty:
                        break  # let other tasks run
        finally:
            self._is_over = True
            self._ends_going_first()
            self.stop_listening()
            for transport in list(self._transports.values()):
                transport.connection.close("stopped")
            self._epoll.close()
            self._calm.close()

    def _take_turn(self, ready: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Read and handle these sockets, then send the responses. Return the sockets left unread when time ran out."""
        turn = self._turn
        turn.begin()
        now = turn.began
        is_mixed = now < self._calm_until
        if is_mixed:
            ready = self._calm_of(ready)
        unread: list[tuple[int, int]] = []
        at = now
        for index, (fd, mask) in enumerate(ready):
            if at - now > turn.limit_seconds:
                unread = ready[index:]
                break
            at = self._serve(fd, mask, at, RECEIVE_BYTES)
        if is_mixed:
            self._read_hasty(at)
            turn.hurry(turn.limit_seconds)
        turn.end()
        return unread

    def _calm_of(self, ready: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return those that are calm, and the listeners; add the others to those that wait."""
        calm: list[tuple[int, int]] = []
        for each in ready:
            transport = self._transports.get(each[0])
            if transport is None or transport.is_calm:
                calm.append(each)
            else:
                self._hasty[each[0]] = each[1]
        return calm

    def _read_hasty(self, began: float) -> None:
        """Read from the others, the one that has waited longest first, until the time is over or a calm one asks for
        something, and at least from one. What is left is for the next turn."""
        hasty = self._hasty
        at = began
        self._turn.hurry(HASTY_SECONDS)
        while hasty:
            fd = next(iter(hasty))
            mask = hasty.pop(fd)
            transport = self._transports.get(fd)
            if transport is not None:
                at = self._serve(fd, mask if transport.is_read else mask & select.EPOLLOUT, at, HASTY_RECEIVE_BYTES)
                if transport.has_more and transport.is_read:
                    hasty[fd] = select.EPOLLIN
            if self._turn.is_over():
                break

    def _serve(self, fd: int, mask: int, began: float, limit_bytes: int) -> float:
        """Do what one socket is ready for. Return the time afterwards."""
        transport = self._transports.get(fd)
        if transport is None:
            if fd in self._listeners:
                self._accept(fd)
            return self._turn.look()
        now = self._turn.began
        is_readable = mask & ~select.EPOLLOUT
        try:
            if mask & select.EPOLLOUT:
                transport.writable(now)
            if is_readable:
                transport.readable(now, limit_bytes)
        except Exception:
            log.exception("connection failed", remote=transport.connection.remote.text)
            transport.connection.close("internal error; see the log")
        at = self._turn.look()
        if is_readable:
            transport.took(at - began)
            if transport.is_calm:
                self._calm_until = at + CALM_FOR_SECONDS
        return at

    def _accept(self, fd: int) -> None:
        sock, accepted, outage = self._listeners[fd]
        now = self._turn.began
        for _ in range(ACCEPT_BURST):
            try:
                peer, _ = sock.accept()
            except OSError as error:
                if error.errno in _NO_DESCRIPTORS:
                    if outage.failed(now):
                        port = sock.getsockname()[1]
                        log.error("a connection cannot be accepted; accepting pauses", port=port, exc_info=error)
                    self._epoll.unregister(fd)
                    self._resting.append(fd)
                elif error.errno not in _NO_PEER:
                    log.warning("accept failed", error=error.strerror)
                return
            if outage.worked(now):
                log.info("connections can be accepted again", port=sock.getsockname()[1])
            peer.setblocking(False)
            accepted(peer)
