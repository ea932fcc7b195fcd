"""Listeners: the parts that need to know when connections open and close, and when a virtual clock jumps. Parts
register themselves while the broker is put together; the server and the controller call them."""

from __future__ import annotations

from collections.abc import Callable

from triomq.remoting.connection import Connection

ConnectionListener = Callable[[Connection], object]


class Listeners:
    """Called in the order in which they were registered, on the event loop; they must not await or raise (implements
    remoting.server.ConnectionEvents)."""

    def __init__(self) -> None:
        self._opened: list[ConnectionListener] = []
        self._closed: list[ConnectionListener] = []
        self._jumped: list[Callable[[float], None]] = []

    def on_open(self, listener: ConnectionListener) -> None:
        self._opened.append(listener)

    def on_close(self, listener: ConnectionListener) -> None:
        self._closed.append(listener)

    def on_jump(self, listener: Callable[[float], None]) -> None:
        self._jumped.append(listener)

    def connection_opened(self, connection: Connection) -> None:
        """Pass on that a client connected."""
        for listener in self._opened:
            listener(connection)

    def connection_closed(self, connection: Connection) -> None:
        """Pass on that a client disconnected: it leaves its groups, and its held pulls are dropped."""
        for listener in self._closed:
            listener(connection)

    def time_jumped(self, seconds: float) -> None:
        """Pass on a jump of the clock (only if a test owns it); tables of clients shift their timestamps by it."""
        for listener in self._jumped:
            listener(seconds)
