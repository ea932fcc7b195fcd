"""A listening server (RocketMQ: NettyRemotingServer).

It owns its connections from accept to close. Their requests go to the processor table of their port; `events` is
notified when they open and close. Several ports may share one server, each with its own table (RocketMQ's fast port,
10909).

`serve` runs until it is cancelled; `drain` stops accepting and waits for responses to be sent.
"""

from __future__ import annotations

import itertools
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple, Protocol

import trio

from triomq.protocol.address import HostPort
from triomq.protocol.frame import MAX_REQUEST_HEADER_BYTES
from triomq.protocol.networks import Network, is_listed
from triomq.protocol.outage import Outage
from triomq.remoting import network
from triomq.remoting.admission import Admission, AdmissionLimits, Guard, Place
from triomq.remoting.certificates import names_of
from triomq.remoting.config import ServerSettings
from triomq.remoting.connection import Connection
from triomq.remoting.connection_settings import ConnectionSettings
from triomq.remoting.handshake import HANDSHAKE_BYTE, PLAIN_REFUSED, HandshakeFailed, HandshakeLog, Secured, secure
from triomq.remoting.log import get_logger
from triomq.remoting.memory import MemoryBudget, budget_of
from triomq.remoting.poller import HAS_EPOLL, Poller
from triomq.remoting.processor_table import ProcessorTable
from triomq.remoting.proxy_header import ProxyHeaderError, read_proxy_header
from triomq.remoting.scheduling.step_line import StepLine
from triomq.remoting.stream_transport import serve_stream
from triomq.remoting.tls_transport import TlsTransport
from triomq.remoting.turn import Turn

log = get_logger("triomq.remoting.server")

SWEEP_SECONDS = 1
IDLE_SWEEPS = 10
"""One sweep in this number looks at all connections."""
ROOM_AT_ONCE = 64
"""The most silent connections that one sweep closes when accepting rests for want of descriptors."""
TLS_DISABLED, TLS_PERMISSIVE, TLS_ENFORCING = "disabled", "permissive", "enforcing"

TlsContext = Callable[[], "Awaitable[ssl.SSLContext | None]"]
"""Returns the context for a new connection. Called for each, so that certificates can change while the server runs, and
awaited, so that the first one can be created on demand (certificates.ServerCertificates.context)."""


Connecting = Callable[..., Connection]
"""Makes a connection of the arguments that Connection takes."""


class Port(NamedTuple):
    """What is served at one port: requests to `table`, over connections that `connecting` makes. Those that come from
    `proxies` begin with a PROXY header."""

    table: ProcessorTable
    connecting: Connecting
    proxies: tuple[Network, ...] = ()


class ConnectionEvents(Protocol):
    """Observes connections. Called on the event loop; must neither await nor raise."""

    def connection_opened(self, connection: Connection) -> None: ...

    def connection_closed(self, connection: Connection) -> None: ...


class NoEvents:
    """Ignores all events: for servers whose owner does not observe connections."""

    def connection_opened(self, connection: Connection) -> None:
        pass

    def connection_closed(self, connection: Connection) -> None:
        pass


class Undecided:
    """An accepted socket that has no connection yet. `scope` is that of the task that waits for its first bytes."""

    has_spoken = False

    def __init__(self) -> None:
        self.last_active = trio.current_time()
        self.scope = trio.CancelScope()

    def close(self, reason: str) -> None:
        self.scope.cancel()


class RemotingServer:
    """See the module's docstring. Construct it, `bind` its ports, then run `serve` in a nursery."""

    def __init__(
        self,
        settings: ServerSettings,
        turn: Turn,
        *,
        events: ConnectionEvents | None = None,
        tls_mode: str = TLS_DISABLED,
        tls_context: TlsContext | None = None,
        serialize_type: int = 0,
        memory: MemoryBudget | None = None,
        guard: Guard | None = None,
    ) -> None:
        """`memory` is the budget of the process (memory.budget_of); None: one of its own. `guard` None: everybody is
        served."""
        self._settings = settings
        self._serialize_type = serialize_type
        self._turn = turn
        self._events: ConnectionEvents = events or NoEvents()
        self._guard = guard
        self._tls_mode = tls_mode
        self._tls_context = tls_context
        self._tls_outgoing: ssl.MemoryBIO | None = None  # of all connections: see tls_transport
        self._bound: list[tuple[network.Listening, Port]] = []
        self._memory = memory or budget_of(settings.max_request_bytes, settings.max_frame_bytes)
        self._step_line = StepLine(turn.scheduler)
        self._admission = Admission(AdmissionLimits.of(settings), guard)
        self._connections: dict[Connection, Place] = {}
        self._poller: Poller | None = None
        self._nursery: trio.Nursery | None = None
        self.opened = Counter[int]()
        """Local port -> connections that were opened."""
        self._tls_failed = HandshakeLog("TLS handshake failed")
        self._plain_refused = HandshakeLog("connection without TLS closed")
        self._proxies_refused = HandshakeLog("connection of a proxy closed")

    @property
    def connections(self) -> frozenset[Connection]:
        return frozenset(self._connections)

    @property
    def refused_connections(self) -> Counter[str]:
        """Return limit -> connections that were closed because of it."""
        return self._admission.refused

    def bind(
        self,
        port: int,
        table: ProcessorTable,
        connecting: Connecting = Connection,
        proxies: tuple[Network, ...] = (),
    ) -> int:
        """Listen on a TCP port (0: any free one) for what Port says. Return the port. Raise OSError if taken."""
        listening = network.listen(self._settings.bind_address, port, self._settings.backlog)
        self._bound.append((listening, Port(table, connecting, proxies)))
        return network.port_of(listening)

    def release(self) -> None:
        """Release every bound port. Call this only if `serve` has not run."""
        for listening, _ in self._bound:
            listening.close()
        self._bound.clear()

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Accept and serve until cancelled, then close every connection."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._turn.run)
                nursery.start_soon(self._sweep)
                nursery.start_soon(self._memory.run)
                nursery.start_soon(self._step_line.run)
                if HAS_EPOLL:
                    self._poller = Poller(self._turn)
                    nursery.start_soon(self._poller.run)
                for listening, port in self._bound:
                    if self._poller is not None and isinstance(listening, socket.socket):
                        self._poller.listen(listening, partial(self._accepted, port))
                    else:
                        nursery.start_soon(self._accept_streams, network.listener_of(listening), port)
                task_status.started()
        finally:
            self.stop_listening()
            for connection in list(self._connections):
                connection.close("server stopped")

    async def serve_stream(
        self,
        stream: trio.abc.Stream,
        table: ProcessorTable,
        remote: HostPort,
        local: HostPort,
        connecting: Connecting = Connection,
    ) -> None:
        """Serve one connection over a stream (tests use memory streams); `serve` must be running."""
        first = Undecided()
        place = self._admit(remote, local, first)
        if place is None:
            await trio.aclose_forcefully(stream)
            return
        await serve_stream(stream, self._connect(Port(table, connecting), remote, local, place), self._turn)

    def time_jumped(self, seconds: float) -> None:
        """Shift activity times by a jump of the clock, so that no peer looks idle because of it."""
        self._admission.time_jumped(seconds)
        for connection in self._connections:
            connection.last_active += seconds

    def stop_listening(self) -> None:
        """Stop accepting; open connections continue."""
        if self._poller is not None:
            self._poller.stop_listening()
        for listening, _ in self._bound:
            listening.close()

    async def drain(self, deadline_seconds: float) -> None:
        """Stop accepting, then wait at most `deadline_seconds` until the responses are sent."""
        self.stop_listening()
        for connection in list(self._connections):
            connection.leave()
        self._turn.end()
        with trio.move_on_after(deadline_seconds):
            for connection in list(self._connections):
                await connection.backpressure.wait_drained(0)

    def _admit(self, remote: HostPort, local: HostPort, first: Undecided, descriptor: int = -1) -> Place | None:
        """Return a place for a new connection, or None if it must be closed."""
        if not self._admission.admits(remote, local):
            return None
        return self._admission.enter(remote.ip, first, first.last_active, descriptor)

    def _connect(
        self, port: Port, remote: HostPort, local: HostPort, place: Place, *, was_heard: bool = False
    ) -> Connection:
        """Return a new connection, which has `place`."""
        assert self._nursery is not None, "serve() is not running"
        settings = self._settings
        connection = port.connecting(
            port.table,
            self._turn,
            self._nursery,
            remote,
            local,
            ConnectionSettings(
                max_frame_bytes=settings.max_frame_bytes,
                max_header_bytes=MAX_REQUEST_HEADER_BYTES,
                max_unanswered=settings.async_limit + settings.oneway_limit,
                high_water_bytes=settings.write_high_water_bytes,
                low_water_bytes=settings.write_low_water_bytes,
                serialize_type=self._serialize_type,
                memory=self._memory,
                step_line=self._step_line,
            ),
            on_close=self._closed,
        )
        place.hand_over(connection, was_heard=was_heard)
        self._connections[connection] = place
        self.opened[local.port] += 1
        self._events.connection_opened(connection)
        return connection

    def _closed(self, connection: Connection) -> None:
        place = self._connections.pop(connection, None)
        if place is not None:
            place.leave()
        self._events.connection_closed(connection)

    def _accepted(self, port: Port, sock: socket.socket) -> None:
        """Serve a new socket in the poller, after a task of its own when it may speak TLS. Close it if there is no
        room."""
        first = Undecided()
        place: Place | None = None
        try:
            remote, local = network.ends(sock)
            place = self._admit(remote, local, first, sock.fileno())
            if place is None:
                sock.close()
                return
            self._tune(sock)
        except OSError:
            sock.close()  # the peer has already gone
            if place is not None:
                place.leave()
            return
        assert self._nursery is not None
        assert self._poller is not None
        if port.proxies and is_listed(remote.ip, port.proxies):
            self._nursery.start_soon(self._accept_proxied, port, sock, (remote, local), place, first)
        elif self._may_use_tls:
            self._nursery.start_soon(self._detect_tls, port, sock, (remote, local), place, first)
        else:
            self._poller.add(sock, self._connect(port, remote, local, place))

    @property
    def _may_use_tls(self) -> bool:
        return self._tls_context is not None and self._tls_mode != TLS_DISABLED

    async def _accept_proxied(
        self,
        port: Port,
        sock: socket.socket,
        ends: tuple[HostPort, HostPort],
        place: Place | None,
        first: Undecided,
    ) -> None:
        """Read the PROXY header, and continue as with a connection of the client that it names, which needs the place
        instead of the proxy. The sweep ends the wait for the header."""
        assert self._poller is not None

        async def receive(size: int) -> bytes:
            await trio.lowlevel.wait_readable(sock)
            first.last_active = trio.current_time()
            return sock.recv(size)

        owned: socket.socket | None = sock
        try:
            proxy, local = ends
            remote: HostPort | None = None
            with first.scope:
                try:
                    remote = await read_proxy_header(receive) or proxy
                except (ProxyHeaderError, OSError) as error:
                    self._proxies_refused.failed(proxy.text, str(error))
            if remote is None or first.scope.cancel_called or place is None:
                return
            if remote is not proxy:
                place.leave()
                place = self._admit(remote, local, first, sock.fileno())
                if place is None:
                    return
            owned = None
            first.scope = trio.CancelScope()
            if self._may_use_tls:
                await self._detect_tls(port, sock, (remote, local), place, first)
            else:
                self._poller.add(sock, self._connect(port, remote, local, place, was_heard=True))
        finally:
            if owned is not None:
                owned.close()
                if place is not None:
                    place.leave()

    async def _detect_tls(
        self,
        port: Port,
        sock: socket.socket,
        ends: tuple[HostPort, HostPort],
        place: Place,
        first: Undecided,
    ) -> None:
        """Peek at the first byte to tell a TLS handshake from a plain frame. The sweep ends the wait for it."""
        assert self._poller is not None
        owned: socket.socket | None = sock
        try:
            peeked = b""
            with first.scope:
                try:
                    await trio.lowlevel.wait_readable(sock)
                    peeked = sock.recv(1, socket.MSG_PEEK)
                except OSError:
                    peeked = b""
            if not peeked or first.scope.cancel_called:
                return
            first.last_active = trio.current_time()
            if peeked[0] == HANDSHAKE_BYTE:
                owned = None
                await self._serve_tls(port, sock, ends, place, first)
            elif self._tls_mode == TLS_ENFORCING:
                self._plain_refused.failed(
                    ends[0].text, self._guard.plain_refused if self._guard is not None else PLAIN_REFUSED
                )
            else:
                owned = None
                self._poller.add(sock, self._connect(port, *ends, place, was_heard=True))
        finally:
            if owned is not None:
                owned.close()
                place.leave()

    async def _serve_tls(
        self,
        port: Port,
        sock: socket.socket,
        ends: tuple[HostPort, HostPort],
        place: Place,
        first: Undecided,
    ) -> None:
        """Perform the handshake, then let the poller serve the connection. Otherwise close the socket and free the
        place."""
        assert self._poller is not None
        is_owned = True
        first.scope = trio.CancelScope()
        try:
            context = await self._tls_context() if self._tls_context is not None else None
            if context is None:
                self._tls_failed.failed(ends[0].text, "no certificate can be used here; an earlier line says why")
                return
            secured: Secured | None = None
            if self._tls_outgoing is None:  # ssl is loaded by the first of them (daemon/deferred.py)
                self._tls_outgoing = ssl.MemoryBIO()
            try:
                with first.scope:
                    secured = await secure(sock, context, self._tls_outgoing)
            except HandshakeFailed as error:
                self._tls_failed.failed(ends[0].text, str(error))
                return
            if secured is None or first.scope.cancel_called:
                return
            names = names_of(secured.tls.getpeercert())
            fault = self._guard.names_fault(names) if self._guard is not None else None
            if fault is not None:
                self._tls_failed.failed(ends[0].text, fault)
                return
            is_owned = False
            connection = self._connect(port, *ends, place, was_heard=True)
            connection.peer_names = names
            self._poller.take_over(TlsTransport(self._poller, sock, connection, secured))
        finally:
            if is_owned:
                sock.close()
                place.leave()

    async def _accept_streams(self, listener: trio.SocketListener | network.SimulatedListener, port: Port) -> None:
        """Accept connections where epoll is not available: one task per connection."""
        assert self._nursery is not None
        outage = Outage()
        while True:
            try:
                stream = await listener.accept()
            except trio.ClosedResourceError:  # stop_listening
                return
            except OSError as error:
                if outage.failed(trio.current_time()):
                    log.error("connection not accepted; accepting pauses", exc_info=error)
                self._admission.make_room("the process has no descriptor left")
                await trio.sleep(SWEEP_SECONDS)
                continue
            if outage.worked(trio.current_time()):
                log.info("connections accepted again")
            try:
                remote, local = network.ends(stream)
            except OSError:  # the peer has already gone
                await trio.aclose_forcefully(stream)
                continue
            self._nursery.start_soon(self.serve_stream, stream, port.table, remote, local, port.connecting)

    def _tune(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._settings.send_buffer_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._settings.send_buffer_bytes)
        if self._settings.receive_buffer_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._settings.receive_buffer_bytes)

    async def _sweep(self) -> None:
        """Close silent and idle connections; resume listening after a shortage of descriptors."""
        idle_seconds = self._settings.idle_seconds
        for sweep in itertools.count(1):
            await trio.sleep(SWEEP_SECONDS)
            now = trio.current_time()
            self._admission.sweep(now)
            if self._poller is not None and self._poller.is_accepting_paused:
                for _ in range(ROOM_AT_ONCE):
                    if not self._admission.make_room("the process has no descriptor left"):
                        break
                self._poller.wake_listeners()
            if sweep % IDLE_SWEEPS:
                continue
            for connection in [c for c in self._connections if now - c.last_active > idle_seconds]:
                log.info("idle connection closed", remote=connection.remote.text, idle_seconds=idle_seconds)
                connection.close(f"idle for {idle_seconds} s")
