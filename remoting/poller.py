"""All TCP sockets of one server, and the plain ones of a client, served by one trio task over an inner epoll.

An epoll descriptor is itself readable when one of its sockets is ready. The task waits on that one descriptor, wakes
once for all ready sockets, reads and handles one after another, and ends the turn once for all of them. Compared with a
task per connection, this halves the cost of a request when many connections each wait for a response.

A read can bring a thousand requests, and many clients can do that at once. Bulk clients, which always have more to
read, do not delay interactive ones, which ask one thing at a time. The scheduler (scheduling/scheduler.py) tells them
apart.

A TLS connection of a server is one of these sockets once its handshake is done (tls_transport). Without epoll, and for
TLS connections that a client opens, each connection has a task of its own (stream_transport).
"""

from __future__ import annotations

import errno
import select
import socket
from collections.abc import Callable
from typing import Final

import trio

from triomq.protocol.outage import Outage
from triomq.remoting.connection import Connection
from triomq.remoting.log import get_logger
from triomq.remoting.scheduling.policy import BULK, BULK_READ_BYTES, INTERACTIVE, TURNS_IN_A_ROW
from triomq.remoting.scheduling.scheduler import Client
from triomq.remoting.turn import Turn

log = get_logger("triomq.remoting.poller")

RECEIVE_BYTES: Final = INTERACTIVE.quota_bytes
MAX_EVENTS = 512
ACCEPT_BURST = 128
MOST_PIECES: Final = 512
"""Of one write, which the system allows 1,024 of (IOV_MAX)."""
HAS_EPOLL = hasattr(select, "epoll")

_WOULD_BLOCK = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EINTR)
_NO_PEER = (*_WOULD_BLOCK, errno.ECONNABORTED)
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class SocketTransport:
    """One socket of the poller. It sends what the socket accepts now, and the rest when it is writable again."""

    __slots__ = (
        "_backlog",
        "_backlog_bytes",
        "_interest",
        "_poller",
        "_sock",
        "client",
        "connection",
        "fd",
        "has_more",
        "is_watched",
        "requests",
    )

    def __init__(self, poller: Poller, sock: socket.socket, connection: Connection) -> None:
        self._poller = poller
        self._sock = sock
        self._backlog: list[memoryview] = []
        self._backlog_bytes = 0
        self._interest = select.EPOLLIN
        self.connection = connection
        self.fd = sock.fileno()
        self.client = Client()
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
        self._received(data)

    def _received(self, data: bytes) -> None:
        """Pass on what one read brought."""
        self.requests = self.connection.receive(data)
        self.connection.turn.received(self.requests, len(data))

    def was_read(self, seconds: float) -> None:
        """Note how long the last read took."""
        self.client.was_read(self.requests, seconds, has_more=self.has_more)
        self._watch()

    def _watch(self) -> None:
        """Let the poller watch an interactive client while it is read."""
        is_watched = self.client.is_interactive and self.is_read
        if is_watched is not self.is_watched and self._sock.fileno() >= 0:
            self.is_watched = is_watched
            self._poller.watch(self.fd, is_watched=is_watched)

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
        self._put(data)

    def _put(self, data: bytes) -> None:
        """Send the bytes as they are, now or behind the backlog."""
        if self._backlog:
            self._backlog.append(memoryview(data))
            self._backlog_bytes += len(data)
            self.connection.wrote(self._backlog_bytes)
            return
        sent = self._send(data)
        if 0 <= sent < len(data):
            self._backlog.append(memoryview(data)[sent:])
            self._hold(len(data) - sent)

    def write_pieces(self, pieces: list[bytes]) -> None:
        if self._backlog or len(pieces) > MOST_PIECES:
            self.write(b"".join(pieces))
            return
        size = sum(map(len, pieces))
        self.connection.turn.sent_bytes += size
        try:
            sent = self._sock.sendmsg(pieces)
        except OSError as error:
            sent = self._failed(error)
        if 0 <= sent < size:
            left_bytes = size - sent
            for piece in pieces:
                if sent < len(piece):
                    self._backlog.append(memoryview(piece)[sent:])
                sent = max(0, sent - len(piece))
            self._hold(left_bytes)

    def _hold(self, backlog_bytes: int) -> None:
        """Keep what the socket did not take until it is writable."""
        self._backlog_bytes = backlog_bytes
        self._want(self._interest | select.EPOLLOUT)
        self.connection.wrote(backlog_bytes)

    def _send(self, data: bytes | memoryview) -> int:
        """Return the number of bytes accepted, 0 if the socket buffer is full, -1 if the connection is gone."""
        try:
            return self._sock.send(data)
        except OSError as error:
            return self._failed(error)

    def _failed(self, error: OSError) -> int:
        """Return 0 if the socket buffer is full. Otherwise the connection is gone: close it, and return -1."""
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
        self._scheduler = turn.scheduler
        self._unread: list[tuple[int, int]] = []  # of the last turn, whose time ran out
        self._bulk: dict[int, int] = {}  # descriptor -> events of those that wait for interactive ones, longest first
        self._interactive = select.epoll()
        """The interactive clients that are read, once more: one call tells whether any of them has sent something."""
        self._is_asked_no_more = self._scheduler.ask(self.has_backlog)
        self._drives_no_more = turn.driven_by(self.take_turn)
        self._is_over = False

    def __len__(self) -> int:
        return len(self._transports)

    def add(self, sock: socket.socket, connection: Connection) -> SocketTransport:
        """Take ownership of a connected, non-blocking socket and serve it. After the end of `run` close both: the task
        that brings the socket may have been about to run when the server stopped."""
        transport = SocketTransport(self, sock, connection)
        self._serve_from_now(transport)
        return transport

    def take_over(self, transport: SocketTransport) -> None:
        """Serve a transport that may have read ahead: what it holds is handled now, in a turn of its own, because the
        socket will not be ready for it. Otherwise like `add`."""
        self._serve_from_now(transport)
        if transport.connection.is_open:
            self._turn.begin()
            self._serve(transport.fd, select.EPOLLIN, self._turn.began, BULK_READ_BYTES)
            self._turn.end()

    def _serve_from_now(self, transport: SocketTransport) -> None:
        transport.connection.transport = transport
        if self._is_over:
            transport.connection.close("stopped")
        else:
            self._transports[transport.fd] = transport
            self._epoll.register(transport.fd, select.EPOLLIN)

    def modify(self, fd: int, interest: int) -> None:
        self._epoll.modify(fd, interest)

    def remove(self, fd: int) -> None:
        transport = self._transports.pop(fd, None)
        if transport is not None:
            self._epoll.unregister(fd)
            if transport.is_watched:
                transport.is_watched = False
                self._interactive.unregister(fd)

    def watch(self, fd: int, *, is_watched: bool) -> None:
        """Begin or end to watch an interactive client."""
        if is_watched:
            self._interactive.register(fd, select.EPOLLIN)
        else:
            self._interactive.unregister(fd)

    def has_backlog(self) -> bool:
        """Return whether an interactive client has sent something that is not read yet."""
        return bool(self._interactive.poll(0, 1))

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
        try:
            while True:
                if self._unread:
                    await trio.lowlevel.checkpoint()
                else:
                    await trio.lowlevel.wait_readable(descriptor)
                self._take_turns()
        finally:
            self._is_over = True
            self._is_asked_no_more()
            self._drives_no_more()
            self.stop_listening()
            for transport in list(self._transports.values()):
                transport.connection.close("stopped")
            self._epoll.close()
            self._interactive.close()

    def _take_turns(self) -> None:
        """Take some turns, and slices for what waits where no socket is ready or sends have had their time, until other
        tasks are to run."""
        turn, scheduler = self._turn, self._scheduler
        slices_seconds = 0.0
        for _ in range(TURNS_IN_A_ROW):
            is_ready = self.take_turn()
            if not is_ready and not scheduler.has_waiting:
                break
            if scheduler.has_waiting and (not is_ready or scheduler.is_slice_due(turn.read_clock())):
                turn.run_slice()
                turn.finish()
                slices_seconds += turn.read_clock() - turn.began
            if self._unread or self._bulk or slices_seconds > BULK.quota_seconds:
                break
        if scheduler.has_waiting:
            turn.wake()

    def take_turn(self) -> bool:
        """Take a turn with the sockets that are ready. Return False if there are none. What waits for a slice does so
        until the caller has one taken."""
        ready = self._unread or self._epoll.poll(0, MAX_EVENTS)
        if not ready:
            return False
        self._unread = []
        self._unread = self._take_turn(ready)
        return True

    def _take_turn(self, ready: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Read and handle these sockets, then send the responses. Return the sockets left unread when time ran out."""
        turn, scheduler = self._turn, self._scheduler
        turn.begin()
        is_contended = scheduler.is_contended(turn.began)
        if is_contended:
            ready = self._first_of(ready, turn.began)
        unread: list[tuple[int, int]] = []
        at = turn.began
        for index, (fd, mask) in enumerate(ready):
            if not scheduler.may_continue(at):
                unread = ready[index:]
                break
            at = self._serve(fd, mask, at, RECEIVE_BYTES)
        if is_contended:
            self._read_bulk(at)
        turn.finish()
        return unread

    def _first_of(self, ready: list[tuple[int, int]], now: float) -> list[tuple[int, int]]:
        """Return those that may be read now, and the listeners; add the others to those that wait."""
        first: list[tuple[int, int]] = []
        for each in ready:
            transport = self._transports.get(each[0])
            if transport is None or self._scheduler.may_read(transport.client, now):
                first.append(each)
            else:
                self._bulk[each[0]] = each[1]
        return first

    def _read_bulk(self, at: float) -> None:
        """Read from the others, the one that has waited longest first, until the turn has no more time for them, and at
        least from one. What is left is for the next turn."""
        bulk = self._bulk
        scheduler = self._scheduler
        scheduler.bulk_began(at)
        while bulk:
            fd = next(iter(bulk))
            mask = bulk.pop(fd)
            transport = self._transports.get(fd)
            if transport is not None:
                at = self._serve(fd, mask if transport.is_read else mask & select.EPOLLOUT, at, BULK_READ_BYTES)
                if transport.has_more and transport.is_read:
                    bulk[fd] = select.EPOLLIN
            if not scheduler.may_continue(at):
                break
        scheduler.bulk_ended(at)

    def _serve(self, fd: int, mask: int, began: float, limit_bytes: int) -> float:
        """Do what one socket is ready for. Return the time afterwards."""
        transport = self._transports.get(fd)
        if transport is None:
            if fd in self._listeners:
                self._accept(fd)
            return self._turn.read_clock()
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
        at = self._turn.read_clock()
        if is_readable:
            transport.was_read(at - began)
            self._scheduler.was_read(transport.client, at)
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
                        log.error("connection not accepted; accepting pauses", port=port, exc_info=error)
                    self._epoll.unregister(fd)
                    self._resting.append(fd)
                elif error.errno not in _NO_PEER:
                    log.warning("accept failed", error=error.strerror)
                return
            if outage.worked(now):
                log.info("connections accepted again", port=sock.getsockname()[1])
            peer.setblocking(False)
            accepted(peer)
