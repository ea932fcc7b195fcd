"""Turns: the requests of one wake-up are finished together. A hook that raises leaves its work unfinished, so no
response that claims otherwise may leave.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import cast

import pytest
import trio
import trio.testing

from triomq.protocol.address import HostPort
from triomq.protocol.command import RemotingCommand, new_request, new_response
from triomq.protocol.frame import encode_frame
from triomq.remoting.client import open_client
from triomq.remoting.config import ServerSettings
from triomq.remoting.connection import Connection
from triomq.remoting.connection_settings import ConnectionSettings
from triomq.remoting.errors import ConnectionClosed
from triomq.remoting.processor_table import ProcessorTable
from triomq.remoting.server import RemotingServer
from triomq.remoting.turn import Turn

HERE = HostPort("127.0.0.1", 1)
ERRORS = pytest.mark.parametrize("error", [RuntimeError("boom"), MemoryError(), SystemExit(7)], ids=repr)


class Written:
    """A transport that keeps what it receives."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data

    def write_pieces(self, pieces: list[bytes]) -> None:
        self.write(b"".join(pieces))

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None: ...


class Hook:
    """An end-of-turn hook that raises `error` if it is set."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1
        if self.error is not None:
            raise self.error


def echo(_: Connection, request: RemotingCommand) -> RemotingCommand:
    return new_response(request, body=request.body)


def table() -> ProcessorTable:
    made = ProcessorTable()
    made.register(1, echo)
    return made


@ERRORS
async def test_a_hook_that_raises_ends_the_turn_and_nothing_leaves_then_or_later(
    nursery: trio.Nursery, error: BaseException
) -> None:
    turn, hook, transport = Turn(), Hook(), Written()
    turn.before_flush(hook)
    connection = Connection(table(), turn, nursery, HERE, HERE, ConnectionSettings(1 << 20, max_unanswered=10))
    connection.transport = transport
    turn.begin()
    connection.receive(encode_frame(new_request(1, body=b"first")))
    turn.end()
    assert transport.data.endswith(b"first")
    sent = transport.data
    hook.error = error
    turn.begin()
    connection.receive(encode_frame(new_request(1, body=b"second")))
    with pytest.raises(type(error)):
        turn.end()
    assert turn.failure is error
    hook.error = None
    connection.receive(encode_frame(new_request(1, body=b"third")))
    with pytest.raises(type(error)):
        turn.end()
    assert transport.data == sent
    assert hook.calls == 2, "what failed is not tried again"


@ERRORS
async def test_a_hook_that_raises_ends_the_server(error: BaseException) -> None:
    turn, hook = Turn(), Hook()
    turn.before_flush(hook)
    server = RemotingServer(ServerSettings(bind_address="127.0.0.1"), turn)
    port = server.bind(0, table())
    async with open_client() as client:
        with pytest.raises(BaseExceptionGroup) as caught:
            async with trio.open_nursery() as nursery:
                await nursery.start(server.serve)
                assert (await client.invoke(f"127.0.0.1:{port}", new_request(1, body=b"x"), 5)).body == b"x"
                hook.error = error
                with trio.CancelScope(shield=True), pytest.raises(ConnectionClosed):
                    await client.invoke(f"127.0.0.1:{port}", new_request(1), 5)
                with trio.fail_after(10):
                    await trio.sleep_forever()
    assert caught.value.subgroup(type(error)) is not None


@ERRORS
async def test_a_hook_that_raises_for_a_stream_ends_the_server(error: BaseException) -> None:
    turn, hook = Turn(), Hook()
    turn.before_flush(hook)
    server = RemotingServer(ServerSettings(bind_address="127.0.0.1"), turn)
    mine, theirs = trio.testing.memory_stream_pair()
    with pytest.raises(BaseExceptionGroup) as caught:
        async with trio.open_nursery() as nursery:
            await nursery.start(server.serve)
            nursery.start_soon(server.serve_stream, theirs, table(), HERE, HERE)
            hook.error = error
            await mine.send_all(encode_frame(new_request(1)))
            with trio.CancelScope(shield=True):
                assert await mine.receive_some(1000) == b""
            with trio.fail_after(10):
                await trio.sleep_forever()
    assert caught.value.subgroup(type(error)) is not None


@ERRORS
async def test_a_hook_that_raises_outside_of_a_driver_ends_the_server(error: BaseException) -> None:
    turn, hook = Turn(), Hook()
    turn.before_flush(hook)
    server = RemotingServer(ServerSettings(bind_address="127.0.0.1"), turn)
    hook.error = error
    with pytest.raises(BaseExceptionGroup) as caught:
        async with trio.open_nursery() as nursery:
            await nursery.start(server.serve)
            turn.wake()
            with trio.fail_after(10):
                await trio.sleep_forever()
    assert caught.value.subgroup(type(error)) is not None


class Flushed:
    """A stand-in for a connection: it notes its flushes in `log` and calls `then`."""

    def __init__(self, name: str, log: list[str], then: Callable[[], None] = lambda: None) -> None:
        self.name = name
        self.log = log
        self.then = then

    def flush(self) -> None:
        self.log.append(self.name)
        self.then()


def mark(turn: Turn, connection: Flushed) -> None:
    turn.mark(cast(Connection, connection))


async def test_hooks_run_in_order_before_each_marked_connection_is_flushed_once() -> None:
    turn, log = Turn(), list[str]()
    turn.before_flush(lambda: log.append("first hook"))
    turn.before_flush(lambda: log.append("second hook"))
    turn.begin()
    for name in ("a", "b"):
        mark(turn, Flushed(name, log))
    turn.end()
    assert log == ["first hook", "second hook", "a", "b"]
    turn.end()
    assert log[4:] == ["first hook", "second hook"], "what was flushed is not flushed again"


async def test_a_connection_marked_by_a_hook_or_by_a_flush_leaves_with_the_same_turn() -> None:
    turn, log = Turn(), list[str]()
    late = Flushed("marked by a flush", log)
    early = Flushed("marked by a hook", log, lambda: mark(turn, late))
    turn.before_flush(lambda: mark(turn, early))
    turn.end()
    assert log == ["marked by a hook", "marked by a flush"]


async def test_output_outside_of_a_turn_ends_one_soon_and_output_within_one_does_not(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    turn, log = Turn(), list[str]()
    nursery.start_soon(turn.run)
    await trio.testing.wait_all_tasks_blocked()
    turn.begin()
    mark(turn, Flushed("within", log))
    await trio.testing.wait_all_tasks_blocked()
    assert log == [], "its driver ends that turn"
    turn.end()
    assert log == ["within"]
    for name in ("outside", "outside again"):
        mark(turn, Flushed(name, log))
        await trio.testing.wait_all_tasks_blocked()
    assert log == ["within", "outside", "outside again"]


async def test_a_server_that_ends_takes_no_wake_up_from_another_one_of_the_same_turn(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    """A broker's port and its group's port share a turn, so that what both bring is finished together."""
    turn = Turn()
    hook = Hook()
    turn.before_flush(hook)
    async with trio.open_nursery() as servers:
        scopes = [trio.CancelScope() for _ in range(3)]
        for scope in scopes:
            servers.start_soon(_run_in, scope, turn)
        await trio.testing.wait_all_tasks_blocked()
        for scope in scopes:
            before = hook.calls
            turn.wake()
            await trio.testing.wait_all_tasks_blocked()
            assert hook.calls > before
            scope.cancel()
            await trio.testing.wait_all_tasks_blocked()


async def _run_in(scope: trio.CancelScope, turn: Turn) -> None:
    with scope:
        await turn.run()


async def test_a_turn_can_be_ended_for_its_hooks_alone(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    turn, hook = Turn(), Hook()
    turn.before_flush(hook)
    nursery.start_soon(turn.run)
    await trio.testing.wait_all_tasks_blocked()
    turn.begin()
    turn.wake()
    await trio.testing.wait_all_tasks_blocked()
    assert hook.calls == 0, "a turn is running and will run the hooks"
    turn.end()
    turn.wake()
    await trio.testing.wait_all_tasks_blocked()
    assert hook.calls == 2


async def test_a_turn_knows_when_it_began(autojump_clock: trio.testing.MockClock) -> None:
    turn = Turn()
    assert turn.began == inf
    await trio.sleep(7)
    turn.begin()
    assert turn.began == 7
