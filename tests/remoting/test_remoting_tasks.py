"""Requests that run as tasks: a bound for each connection, and a line in which all of them compute."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing
from fake_clock import FakeSeconds
from test_remoting_memory import HERE, MIB, Bench
from test_remoting_waiting import Link
from trio.testing import MockClock

from triomq.protocol.command import RPC_RESPONSE, RemotingCommand, new_request, new_response
from triomq.protocol.frame import FrameDecoder, encode_frame
from triomq.remoting.config import ServerSettings
from triomq.remoting.connection import Connection
from triomq.remoting.connection_settings import ConnectionSettings
from triomq.remoting.connection_tasks import MAX_TASKS
from triomq.remoting.processor_table import Pool, ProcessorTable
from triomq.remoting.scheduling.policy import BACKGROUND
from triomq.remoting.scheduling.scheduler import Scheduler
from triomq.remoting.scheduling.step_line import StepLine, Steps
from triomq.remoting.server import RemotingServer
from triomq.remoting.turn import Turn

WAITS = 2
MORE = 6


def many(count: int, code: int = WAITS) -> bytes:
    """Return requests whose opaque values count from 0."""
    commands = [new_request(code) for _ in range(count)]
    for number, command in enumerate(commands):
        command.opaque = number
    return b"".join(map(encode_frame, commands))


def asking_back(
    nursery: trio.Nursery, then: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
) -> tuple[Bench, Link]:
    """Return a connection on which each WAITS asks the peer, does `then`, and responds."""
    bench = Bench(nursery, 100 * MIB)

    async def asks_back(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        await connection.invoke(new_request(77), 5)
        await then()
        return new_response(request)

    bench.table.register(WAITS, asks_back)
    connection = Connection(bench.table, bench.turn, nursery, HERE, HERE, ConnectionSettings(16 * MIB, 1000))
    connection.transport = link = Link(connection)
    return bench, link


async def test_requests_beyond_the_bound_wait_in_order_and_the_socket_with_them(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, 100 * MIB)
    begun: list[int] = []
    release = trio.Event()

    async def waits(_: Connection, request: RemotingCommand) -> RemotingCommand:
        begun.append(request.opaque)
        await release.wait()
        return new_response(request)

    bench.table.register(WAITS, waits)
    link = bench.connect()
    bench.read(link, many(MAX_TASKS))
    await trio.testing.wait_all_tasks_blocked()
    assert (len(begun), link.is_read) == (MAX_TASKS, True)
    held_bytes = bench.memory.held_bytes
    bench.read(link, many(MAX_TASKS + MORE)[len(many(MAX_TASKS)) :])
    await trio.testing.wait_all_tasks_blocked()
    assert (len(begun), link.is_read) == (MAX_TASKS, False)
    assert bench.memory.held_bytes == held_bytes * (MAX_TASKS + MORE) // MAX_TASKS
    other = bench.connect()
    bench.read(other, many(1))
    await trio.testing.wait_all_tasks_blocked()
    assert len(begun) == MAX_TASKS + 1, "the bound is that of one connection"
    release.set()
    await trio.testing.wait_all_tasks_blocked()
    assert begun[MAX_TASKS + 1 :] == [MAX_TASKS + number for number in range(MORE)]
    assert link.is_read
    assert sorted(link.answered) == list(range(MAX_TASKS + MORE))
    assert bench.memory.held_bytes == 0


async def test_tasks_that_wait_for_their_own_peer_receive_its_responses(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The socket must be read for them, although more requests wait than may run."""
    bench, link = asking_back(nursery)
    bench.read(link, many(MAX_TASKS + MORE))
    assert not link.is_read
    answered: list[int] = []
    for asked in (MAX_TASKS, MORE):
        await trio.testing.wait_all_tasks_blocked()
        assert link.is_read
        bench.read(link, many(1, code=1))  # a request that is handled at once
        sent = FrameDecoder().feed(link.written)
        link.written = b""
        questions = [command for command in sent if not command.flag & RPC_RESPONSE]
        answered += [command.opaque for command in sent if command.flag & RPC_RESPONSE]
        assert len(questions) == asked
        for question in questions:
            bench.read(link, encode_frame(new_response(question)))
    await trio.testing.wait_all_tasks_blocked()
    answered += link.answered
    assert sorted(answered) == sorted([0, 0, *range(MAX_TASKS + MORE)])


async def test_a_request_that_must_wait_does_not_pause_a_socket_whose_responses_are_awaited(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench, link = asking_back(nursery)
    bench.read(link, many(MAX_TASKS))
    await trio.testing.wait_all_tasks_blocked()
    bench.read(link, many(1))
    assert link.is_read, "its tasks wait for responses"
    link.connection.close("done")


async def test_requests_that_wait_for_a_task_pause_the_socket_again_when_nobody_is_asked(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench, link = asking_back(nursery, then=trio.sleep_forever)
    bench.read(link, many(MAX_TASKS + MORE))
    await trio.testing.wait_all_tasks_blocked()
    for question in FrameDecoder().feed(link.written):
        bench.read(link, encode_frame(new_response(question)))
    await trio.testing.wait_all_tasks_blocked()
    bench.read(link, many(1))
    assert not link.is_read
    link.connection.close("done")


async def test_what_waits_when_its_connection_closes_gives_its_place_in_the_pool_back(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, 100 * MIB)
    pool = Pool("waits", 1000)

    async def waits(_: Connection, request: RemotingCommand) -> RemotingCommand:
        await trio.sleep_forever()
        raise AssertionError

    bench.table.register(WAITS, waits, pool)
    link = bench.connect()
    bench.read(link, many(MAX_TASKS + MORE))
    await trio.testing.wait_all_tasks_blocked()
    assert pool.in_flight == MAX_TASKS + MORE
    link.connection.close("gone")
    await trio.testing.wait_all_tasks_blocked()
    assert pool.in_flight == 0


async def test_what_waits_when_the_server_stops_gives_its_place_in_the_pool_back() -> None:
    pool = Pool("waits", 1000)

    async def waits(_: Connection, request: RemotingCommand) -> RemotingCommand:
        await trio.sleep_forever()
        raise AssertionError

    async with trio.open_nursery() as nursery:
        bench = Bench(nursery, 100 * MIB)
        bench.table.register(WAITS, waits, pool)
        bench.read(bench.connect(), many(MAX_TASKS + MORE))
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert pool.in_flight == 0


async def test_the_steps_of_one_pass_of_the_loop_have_a_time(nursery: trio.Nursery) -> None:
    clock = FakeSeconds(0.0)
    line = StepLine(Scheduler(), clock)
    steps = [0]

    async def task(owner: int) -> None:
        mine = Steps(line)
        await mine.begin()
        for _ in range(3):
            steps[-1] += 1
            clock.now += 0.6 * BACKGROUND.quota_seconds
            await mine.next()

    async def passes() -> None:
        while True:
            await trio.lowlevel.checkpoint()
            steps.append(0)

    nursery.start_soon(line.run)
    nursery.start_soon(passes)
    async with trio.open_nursery() as tasks:
        for owner in range(20):
            tasks.start_soon(task, owner)
    assert sum(steps) == 60
    assert max(steps) == 2


@pytest.mark.parametrize("tasks", [1, 2])
async def test_short_parts_share_a_pass_until_its_time_is_over_or_another_waits(
    nursery: trio.Nursery, tasks: int
) -> None:
    clock = FakeSeconds(0.0)
    line = StepLine(Scheduler(), clock)
    parts: list[list[int]] = [[]]

    async def task(owner: int) -> None:
        mine = Steps(line)
        await mine.begin()
        for _ in range(60):
            parts[-1].append(owner)
            clock.now += 0.24 * BACKGROUND.quota_seconds
            await mine.next(is_short=True)

    async def passes() -> None:
        while True:
            await trio.lowlevel.checkpoint()
            parts.append([])

    nursery.start_soon(line.run)
    nursery.start_soon(passes)
    async with trio.open_nursery() as others:
        for owner in range(tasks):
            others.start_soon(task, owner)
    taken = [one for one in parts if one]
    assert sum(map(len, taken)) == 60 * tasks
    assert max(map(len, taken)) <= 10  # two passes, when the other task of this test ran between them
    if tasks == 1:
        assert len(taken) <= 13
    order = [owner for one in taken for owner in one]
    assert tasks == 1 or sorted(order[:60]) != [order[0]] * 60, "the other one need not wait until all is done"


@pytest.mark.parametrize("seconds", [0.0, 2 * BACKGROUND.quota_seconds])
async def test_connections_take_their_steps_in_turns(nursery: trio.Nursery, seconds: float) -> None:
    clock = FakeSeconds(0.0)
    line = StepLine(Scheduler(), clock)
    order: list[str] = []

    async def task(owner: str) -> None:
        await line.wait(owner)
        order.append(owner)
        clock.now += seconds

    clock.now, line_is_taken = 1.0, line.wait("first")
    await line_is_taken
    clock.now += 2 * BACKGROUND.quota_seconds  # this pass is over
    async with trio.open_nursery() as tasks:
        for _ in range(500):
            tasks.start_soon(task, "many")
        await trio.testing.wait_all_tasks_blocked()
        tasks.start_soon(task, "one")
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(line.run)
    assert len(order) == 501
    assert order.index("one") < 5


async def test_a_task_that_finds_the_line_free_begins_at_once() -> None:
    line = StepLine(Scheduler(), FakeSeconds(0.0))
    with trio.testing.assert_no_checkpoints():
        await line.wait("owner")


async def test_nobody_waits_for_a_line_that_has_ended(autojump_clock: MockClock) -> None:
    clock = FakeSeconds(0.0)
    line = StepLine(Scheduler(), clock)
    await line.wait("first")
    clock.now += 2 * BACKGROUND.quota_seconds
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(line.wait, "owner")
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(line.run)
            nursery.cancel_scope.cancel()
        await line.wait("owner")


async def test_the_connections_of_a_server_share_a_line(nursery: trio.Nursery) -> None:
    lines: list[StepLine | None] = []
    owners: set[Steps] = set()

    async def looks(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        lines.append(connection.steps._line)
        owners.add(connection.steps)
        return new_response(request)

    table = ProcessorTable()
    table.register(WAITS, looks)
    server = RemotingServer(ServerSettings(listen_port=0), Turn())
    await nursery.start(server.serve)
    for _ in range(2):
        ours, theirs = trio.testing.memory_stream_pair()
        nursery.start_soon(server.serve_stream, theirs, table, HERE, HERE)
        await ours.send_all(many(3))
        decoder, count = FrameDecoder(), 0
        while count < 3:
            count += len(decoder.feed(await ours.receive_some()))
    assert (len(lines), len(set(lines)), len(owners)) == (6, 1, 2)
    nursery.cancel_scope.cancel()
