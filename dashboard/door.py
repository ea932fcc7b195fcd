"""Door: the open port of a dashboard, before anybody has come.

Only this module and the history are loaded with the daemon. The first connection makes a thread load the rest (HTTP,
templates, pages), so that neither memory nor the event loop pays for a page that nobody reads.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import structlog
import trio

from triomq.remoting import network

if TYPE_CHECKING:
    from triomq.dashboard.history import History
    from triomq.monitoring.http_server import HttpServer

log = structlog.get_logger("triomq.dashboard")

BACKLOG: Final = 64
Load = Callable[[int], "Callable[[network.Listening], HttpServer]"]


class Door:
    """See the module's docstring. A thread calls `load` with the port; it returns what makes the server."""

    def __init__(self, address: str, port: int, load: Load) -> None:
        self._address = address
        self._load = load
        self._socket: socket.socket | None = None
        self.port = port

    def open(self) -> bool:
        """Open the port. If it cannot be opened, log why and return False: no daemon stays down for that."""
        try:
            listening = network.listen(self._address, self.port, BACKLOG)
        except OSError as error:
            log.error("dashboard port not opened", port=self.port, error=error.strerror or str(error))
            return False
        assert isinstance(listening, socket.socket)
        listening.setblocking(False)
        self._socket = listening
        self.port = network.port_of(listening)
        log.info("dashboard port opened", address=self._address or "(all)", port=self.port)
        return True

    def serve(self, background: trio.Nursery, history: History) -> Door | None:
        """Open the port, and serve in the background. Return None if the port cannot be opened."""
        if not self.open():
            return None
        background.start_soon(history.run)
        background.start_soon(self.run)
        return self

    async def run(self) -> None:
        """Wait for the first visitor, then serve, until cancelled. `open` must have returned True."""
        assert self._socket is not None
        with self._socket:
            await trio.lowlevel.wait_readable(self._socket)
            try:
                make = await trio.to_thread.run_sync(self._load, self.port)
                server = make(self._socket)
            except Exception:
                log.exception("dashboard not loaded; its port is closed", port=self.port)
                return
            await server.run()
