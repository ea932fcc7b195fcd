"""One connection over a trio stream, with a reading and a writing task.

Used for TLS connections that a client opens, for memory streams in tests, and where epoll is not available. The
connection's back-pressure bounds the output queue: above the high water mark nothing more is read.
"""

from __future__ import annotations

import trio

from triomq.remoting.connection import Connection
from triomq.remoting.handshake import explained
from triomq.remoting.log import get_logger
from triomq.remoting.scheduling.policy import INTERACTIVE
from triomq.remoting.turn import Turn

log = get_logger("triomq.remoting.stream")

RECEIVE_BYTES = INTERACTIVE.quota_bytes


class StreamTransport:
    """The writing half of a stream; `serve_stream` is the reading half."""

    def __init__(self, stream: trio.abc.Stream, connection: Connection) -> None:
        self._connection = connection
        self._output: list[bytes] = []
        self._output_bytes = 0
        self._wakeup = trio.Event()
        self._resumed = trio.Event()
        self._resumed.set()
        self._stream = stream
        self._closed = False
        self.scope = trio.CancelScope()

    def write(self, data: bytes) -> None:
        self.write_pieces([data])

    def write_pieces(self, pieces: list[bytes]) -> None:
        size = sum(map(len, pieces))
        self._connection.turn.sent_bytes += size
        self._output += pieces
        self._output_bytes += size
        self._wakeup.set()
        self._connection.wrote(self._output_bytes)

    def pause_reading(self) -> None:
        self._resumed = trio.Event()

    def resume_reading(self) -> None:
        self._resumed.set()

    def close(self) -> None:
        """Give the writer one second to send its queue, then end both tasks."""
        self._closed = True
        self._wakeup.set()
        self._resumed.set()
        self.scope.deadline = min(self.scope.deadline, trio.current_time() + 1)

    async def read_loop(self, turn: Turn) -> None:
        connection = self._connection
        while connection.is_open:
            await self._resumed.wait()
            try:
                data = await self._stream.receive_some(RECEIVE_BYTES)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                connection.close(f"read failed: {explained(error)}")
                return
            if not data:
                connection.close("closed by the peer")
                return
            turn.begin()
            connection.last_active = turn.began
            turn.received(connection.receive(bytes(data)), len(data))
            turn.end()

    async def write_loop(self) -> None:
        connection = self._connection
        while True:
            await self._wakeup.wait()
            if not self._output:
                if self._closed:
                    return
                self._wakeup = trio.Event()
                continue
            data = b"".join(self._output)
            self._output.clear()
            try:
                await self._stream.send_all(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                connection.close(f"write failed: {explained(error)}")
                return
            connection.last_active = trio.current_time()
            self._output_bytes -= len(data)
            connection.wrote(self._output_bytes)


async def serve_stream(stream: trio.abc.Stream, connection: Connection, turn: Turn) -> None:
    """Serve `connection` over `stream` until either is closed, then close both."""
    transport = StreamTransport(stream, connection)
    connection.transport = transport
    connection.flush()  # output of tasks that used the connection before its transport existed
    try:
        with transport.scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(transport.write_loop)
                await transport.read_loop(turn)
    finally:
        connection.close("stopped")
        await trio.aclose_forcefully(stream)
