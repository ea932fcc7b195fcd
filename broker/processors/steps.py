"""Long requests in steps, between which other tasks run.

Walks over the queues of a topic, of which there may be 65,536, are a step every few queues. What is long only for some
clients, such as the heartbeat of a thousand groups, runs here in `OrderedRequests`. A long expression is compiled in
steps, too.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterator
from typing import TYPE_CHECKING, Any, Final

import trio

from triomq.broker import optional
from triomq.broker.errors import FilterError
from triomq.protocol.codes import ResponseCode
from triomq.protocol.command import RemotingCommand, new_response
from triomq.protocol.errors import RequestRefused
from triomq.remoting.connection import Connection
from triomq.remoting.scheduling.step_line import Result

if TYPE_CHECKING:
    from triomq.broker.filters.sql92 import Compiled

QUEUES_IN_A_STEP: Final = 32


async def end_of_step(connection: Connection, queue_id: int) -> None:
    """Let other tasks run if this queue is the last of a step."""
    if queue_id % QUEUES_IN_A_STEP == QUEUES_IN_A_STEP - 1:
        await connection.steps.next()


def compile_steps(expression: str) -> Generator[None, None, Compiled | None]:
    """Compile an SQL92 expression in steps if it is a long one. It is compiled as long as what they return is held."""
    return optional.sql92.compile_steps(expression)


def check_expression(expression: str) -> Iterator[None]:
    """Compile an expression in steps. Raise RequestRefused if it is invalid."""
    held = [(yield from compile_steps(expression))]
    try:
        optional.sql92.compile_expression(expression)
    except FilterError as error:
        raise RequestRefused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
    finally:
        held.clear()


async def compile_first(connection: Connection, expression: str, then: Callable[[], Result]) -> Result:
    """Compile a long SQL92 expression in steps, then return what `then` returns, which finds it compiled."""
    compiled = await connection.steps.run(compile_steps(expression))
    result = then()
    del compiled  # it had to be held until here
    return result


class OrderedRequests:
    """Requests in steps. Those of one connection run in the order in which they began."""

    def __init__(self) -> None:
        self._last: dict[Connection, trio.Event] = {}

    def has(self, connection: Connection) -> bool:
        """Return whether requests of the connection are in progress. What depends on their order goes behind them."""
        return connection in self._last

    def begin(
        self,
        connection: Connection,
        request: RemotingCommand,
        steps: Iterator[None],
        respond: Callable[[RemotingCommand], RemotingCommand] = new_response,
    ) -> Coroutine[Any, Any, RemotingCommand]:
        """Give the request its place now, and return what runs it and responds. `steps` works until its next item;
        `respond` makes the response when they are done."""
        before = self._last.get(connection)
        ended = self._last[connection] = trio.Event()
        return self._run(connection, request, steps, respond, before, ended)

    async def _run(
        self,
        connection: Connection,
        request: RemotingCommand,
        steps: Iterator[None],
        respond: Callable[[RemotingCommand], RemotingCommand],
        before: trio.Event | None,
        ended: trio.Event,
    ) -> RemotingCommand:
        try:
            if before is not None:
                await before.wait()
            await connection.steps.run(_while_open(connection, steps))
            return respond(request)
        finally:
            ended.set()
            if self._last.get(connection) is ended:
                del self._last[connection]


def _while_open(connection: Connection, steps: Iterator[None]) -> Generator[None, None, None]:
    """Do steps of work until the connection closes. What it registers after its close would stay permanently."""
    while connection.is_open and next(steps, _END) is None:
        yield


_END: Final = object()
