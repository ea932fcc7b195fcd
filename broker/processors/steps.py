"""Long requests in steps, between which other tasks run.

Walks over the queues of a topic, of which there may be 65,536, are a step every few queues. What is long only for some
clients, such as the heartbeat of a thousand groups, runs here in `Steps`. A long expression is compiled in steps, too.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final

import trio

from triomq.broker.filters.sql92 import compile_steps
from triomq.protocol.command import RemotingCommand, new_response
from triomq.remoting.connection import Connection
from triomq.remoting.step_line import Result, in_steps, next_step

QUEUES_IN_A_STEP: Final = 32


async def end_of_step(queue_id: int) -> None:
    """Let other tasks run if this queue is the last of a step."""
    if queue_id % QUEUES_IN_A_STEP == QUEUES_IN_A_STEP - 1:
        await next_step()


async def compile_first(expression: str, then: Callable[[], Result]) -> Result:
    """Compile a long SQL92 expression in steps, then return what `then` returns, which finds it compiled."""
    compiled = await in_steps(compile_steps(expression))
    result = then()
    del compiled  # it had to be held until here
    return result


class Steps:
    """Requests in steps. Those of one connection run in the order in which they began."""

    def __init__(self) -> None:
        self._last: dict[Connection, trio.Event] = {}

    def has(self, connection: Connection) -> bool:
        """Return whether requests of the connection are in progress. What depends on their order goes behind them."""
        return connection in self._last

    def begin(
        self, connection: Connection, request: RemotingCommand, steps: Iterator[None]
    ) -> Coroutine[Any, Any, RemotingCommand]:
        """Give the request its place now, and return what runs it and responds. `steps` works until its next item."""
        before = self._last.get(connection)
        ended = self._last[connection] = trio.Event()
        return self._run(connection, request, steps, before, ended)

    async def _run(
        self,
        connection: Connection,
        request: RemotingCommand,
        steps: Iterator[None],
        before: trio.Event | None,
        ended: trio.Event,
    ) -> RemotingCommand:
        try:
            if before is not None:
                await before.wait()
            # What a connection registers after its close would stay permanently.
            while connection.is_open and next(steps, _END) is None:
                await next_step()
            return new_response(request)
        finally:
            ended.set()
            if self._last.get(connection) is ended:
                del self._last[connection]


_END: Final = object()
