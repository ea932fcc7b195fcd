"""Calls to any number of servers (RocketMQ: NettyRemotingClient).

There is one connection per address. The first call opens it, all calls share it, and the next call reopens it after a
failure. Requests that a server sends over it go to `table`. The number of connections is bounded: the client closes
idle ones, and the least recently used one to make room.
"""

from __future__ import annotations

import socket
import ssl as _ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

import trio

from triomq.protocol.command import RPC_ONEWAY, RemotingCommand
from triomq.protocol.frame import MAX_FRAME_BYTES
from triomq.remoting import network
from triomq.remoting.config import ClientSettings
from triomq.remoting.connection import Connection
from triomq.remoting.connection_settings import ConnectionSettings
from triomq.remoting.errors import ConnectFailed, ConnectionClosed, RemotingTimeout, TooManyRequests
from triomq.remoting.handshake import shake_hands
from triomq.remoting.log import get_logger
from triomq.remoting.poller import HAS_EPOLL, Poller
from triomq.remoting.processor_table import Processor, ProcessorTable
from triomq.remoting.stream_transport import serve_stream
from triomq.remoting.turn import Turn

log = get_logger("triomq.remoting.client")

MAX_ADDRESSES = 4096
SWEEP_SECONDS = 10

TlsContext: TypeAlias = "_ssl.SSLContext | Callable[[], _ssl.SSLContext]"
"""The context of new connections, or what returns it (ClientCertificates.current), so that certificates can change."""


class _Opening:
    """An address to which a connection is being opened: one call at a time, and how the last of them failed."""

    __slots__ = ("failure", "lock")

    def __init__(self) -> None:
        self.lock = trio.Lock()
        self.failure: str | None = None


class RemotingClient:
    """See the module's docstring. Use `open_client` to create one."""

    def __init__(
        self,
        settings: ClientSettings,
        nursery: trio.Nursery,
        turn: Turn,
        *,
        serialize_type: int = 0,
        language: int | None = None,
        tls_context: TlsContext | None = None,
    ) -> None:
        self.table = ProcessorTable()
        self._settings = settings
        self._nursery = nursery
        self._turn = turn
        self._connection_settings = ConnectionSettings(
            max_frame_bytes=MAX_FRAME_BYTES,
            max_unanswered=settings.async_limit,
            high_water_bytes=settings.write_high_water_bytes,
            low_water_bytes=settings.write_low_water_bytes,
            serialize_type=serialize_type,
            language=language,
        )
        self._tls_context = tls_context
        self._connections: dict[str, Connection] = {}
        self._connecting: dict[str, _Opening] = {}
        self._poller: Poller | None = None
        self._on_close: list[Callable[[str, Connection], None]] = []

    def register(self, code: int, processor: Processor) -> None:
        """Register `processor` for requests of `code` that servers send."""
        self.table.register(code, processor)

    def on_connection_closed(self, hook: Callable[[str, Connection], None]) -> None:
        """Call `hook(address, connection)` when a connection ends; it must neither await nor raise."""
        self._on_close.append(hook)

    async def invoke(self, address: str, command: RemotingCommand, timeout_seconds: float = 3.0) -> RemotingCommand:
        """Send a request to `address` ("host:port") and wait for its response; connecting counts as waiting.

        Raises ConnectFailed, ConnectionClosed, RemotingTimeout, TooManyRequests.
        """
        left = timeout_seconds
        connection = self._connections.get(address)
        if connection is None or not connection.is_open:
            started = trio.current_time()
            connection = await self._connect(address, timeout_seconds)
            left = max(0.0, timeout_seconds - (trio.current_time() - started))
        try:
            return await connection.invoke(command, left)
        except RemotingTimeout:
            if self._settings.close_on_timeout and trio.current_time() - connection.last_active > timeout_seconds:
                connection.close("a call timed out, and nothing arrived while it waited")
            raise

    async def invoke_oneway(self, address: str, command: RemotingCommand, timeout_seconds: float = 3.0) -> None:
        """Send a request that gets no response. Raises ConnectFailed, ConnectionClosed, TooManyRequests."""
        connection = self._connections.get(address)
        if connection is None or not connection.is_open:
            connection = await self._connect(address, timeout_seconds)
        command.flag |= RPC_ONEWAY
        with trio.move_on_after(timeout_seconds):
            await connection.backpressure.wait_drained()
        if not connection.send_oneway(command):
            if connection.is_open:
                raise TooManyRequests(f"{address} reads more slowly than requests are sent")
            raise ConnectionClosed(f"connection to {address} is closed: {connection.close_reason}")

    def connection(self, address: str) -> Connection | None:
        """Return the open connection to `address`, or None."""
        connection = self._connections.get(address)
        return connection if connection is not None and connection.is_open else None

    async def _connect(self, address: str, timeout_seconds: float) -> Connection:
        """Return the open connection, or open one: once for all calls that want it at the same moment."""
        opening = self._connecting.setdefault(address, _Opening())
        deadline = trio.current_time() + timeout_seconds
        waits = opening.lock.locked()
        try:
            with trio.move_on_at(deadline) as waiting:
                await opening.lock.acquire()
            if waiting.cancelled_caught:
                raise ConnectFailed(f"connect to {address} failed: no connection within {timeout_seconds:g} s")
            try:
                present = self._connections.get(address)
                if present is not None and present.is_open:
                    return present
                if waits and opening.failure is not None:
                    raise ConnectFailed(opening.failure)
                return await self._open_for_all(address, opening, deadline)
            finally:
                opening.lock.release()
        finally:
            if not opening.lock.statistics().tasks_waiting and not opening.lock.locked():
                self._connecting.pop(address, None)

    async def _open_for_all(self, address: str, opening: _Opening, deadline: float) -> Connection:
        opening.failure = None
        try:
            return await self._open(address, max(0.0, deadline - trio.current_time()))
        except ConnectFailed as error:
            if trio.current_time() < deadline:  # not for want of this caller's time
                opening.failure = str(error)
            raise

    async def _open(self, address: str, timeout_seconds: float) -> Connection:
        host, port = _split(address)
        limit = min(timeout_seconds, self._settings.connect_timeout_ms / 1000)
        began = trio.current_time()
        secure: trio.abc.Stream | None = None
        try:
            with trio.fail_after(limit):
                stream = await network.connect(host, port)
            if self._tls_context is not None:
                secure = await self._secure(stream, host, limit - (trio.current_time() - began))
        except trio.TooSlowError:
            raise ConnectFailed(f"connect to {address} failed: no response within {limit:g} s") from None
        except OSError as error:
            reason = error.__cause__.exceptions[0] if isinstance(error.__cause__, ExceptionGroup) else error
            raise ConnectFailed(f"connect to {address} failed: {reason}") from None
        try:
            remote, local = network.ends(stream)
        except OSError as error:  # the peer has already gone
            await trio.aclose_forcefully(stream)
            raise ConnectFailed(f"connect to {address} failed: {error}") from None
        connection = Connection(
            self.table,
            self._turn,
            self._nursery,
            remote,
            local,
            self._connection_settings,
            on_close=self._forget,
        )
        self._make_room()
        self._connections[address] = connection
        if secure is not None:
            self._nursery.start_soon(serve_stream, secure, connection, self._turn)
            await trio.lowlevel.checkpoint()
        elif HAS_EPOLL and isinstance(stream, trio.SocketStream):
            if self._poller is None:
                self._poller = Poller(self._turn)
                self._nursery.start_soon(self._poller.run)
            # No `await` between the table and the poller: a caller cancelled there would leave a connection in the
            # table that looks open but that nothing serves.
            sock = socket.socket(fileno=socket.dup(stream.socket.fileno()))
            stream.socket.close()
            sock.setblocking(False)
            self._poller.add(sock, connection)
        else:
            self._nursery.start_soon(serve_stream, stream, connection, self._turn)
            await trio.lowlevel.checkpoint()
        return connection

    async def _secure(self, stream: network.Stream, host: str, seconds: float) -> trio.abc.Stream:
        """Return the stream with TLS after the handshake. Raises HandshakeFailed with the stream closed."""
        context = self._tls_context
        assert context is not None
        secure = trio.SSLStream(
            stream, context() if callable(context) else context, server_hostname=host, https_compatible=True
        )
        try:
            await shake_hands(secure, max(0.0, seconds))
        except BaseException:
            await trio.aclose_forcefully(stream)
            raise
        return secure

    def _forget(self, connection: Connection) -> None:
        for address, known in list(self._connections.items()):
            if known is connection:
                del self._connections[address]
                for hook in self._on_close:
                    hook(address, connection)

    def _make_room(self) -> None:
        if len(self._connections) >= MAX_ADDRESSES:
            oldest = min(self._connections.values(), key=lambda connection: connection.last_active)
            oldest.close(f"more than {MAX_ADDRESSES} addresses are in use")

    def time_jumped(self, seconds: float) -> None:
        """Shift activity times by a jump of the clock, so that no peer looks idle because of it."""
        for connection in self._connections.values():
            connection.last_active += seconds

    async def sweep(self) -> None:
        """Close connections that exceed the idle time; runs until cancelled."""
        while True:
            await trio.sleep(SWEEP_SECONDS)
            now = trio.current_time()
            for connection in list(self._connections.values()):
                if now - connection.last_active > self._settings.idle_seconds:
                    connection.close(f"idle for {self._settings.idle_seconds} s")

    def close(self) -> None:
        for connection in list(self._connections.values()):
            connection.close("closed by this side")


@asynccontextmanager
async def open_client(
    settings: ClientSettings | None = None,
    *,
    serialize_type: int = 0,
    language: int | None = None,
    tls_context: TlsContext | None = None,
) -> AsyncIterator[RemotingClient]:
    """Open a client for the duration of the block. Leaving the block first sends pending output.

    `serialize_type` is the header codec of its requests, `language` the LanguageCode it sends (None: Java, as the
    servers do).
    """
    turn = Turn()
    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope(shield=True)
        connections: trio.Nursery = await nursery.start(_hold_nursery, scope)
        client = RemotingClient(
            settings or ClientSettings(),
            connections,
            turn,
            serialize_type=serialize_type,
            language=language,
            tls_context=tls_context,
        )
        connections.start_soon(turn.run)
        connections.start_soon(client.sweep)
        try:
            yield client
        finally:
            scope.cancel()  # it takes effect at the next wait, and must not be missed if one of these raises
            turn.end()
            client.close()


async def _hold_nursery(
    scope: trio.CancelScope, *, task_status: trio.TaskStatus[trio.Nursery] = trio.TASK_STATUS_IGNORED
) -> None:
    """Open a nursery that only `scope` ends: it outlives a cancelled caller, so that close handlers can still send."""
    with scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            task_status.started(nursery)


def _split(address: str) -> tuple[str, int]:
    host, colon, port = address.strip().rpartition(":")
    if not colon or not port.isascii() or not port.isdigit():
        raise ConnectFailed(f"{address!r} is not host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)
