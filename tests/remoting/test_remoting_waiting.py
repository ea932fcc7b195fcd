"""Requests of one read that are too many for a turn, or whose responses the peer does not take: they wait, the socket
waits with them, and nobody else does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from triomq.protocol.address import HostPort
from triomq.protocol.command import HELD_BYTES, RemotingCommand, new_request, new_response
from triomq.protocol.frame import FrameDecoder, encode_frame
from triomq.remoting.connection import Connection
from triomq.remoting.connection_settings import ConnectionSettings
from triomq.remoting.processor_table import ProcessorTable
from triomq.remoting.scheduling.policy import INTERACTIVE, READ_AHEAD_BYTES
from triomq.remoting.turn import Turn

HERE = HostPort("127.0.0.1", 1)
HIGH_BYTES, LOW_BYTES = 1000, 300
BODY_BYTES = 100
CODE = 1


class Link:
    """A transport that takes everything, or nothing while `stuck`."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.stuck = False
        self.written = b""
        self.backlog_bytes = 0
        self.is_read = True

    def write(self, data: bytes) -> None:
        self.written += data
        if self.stuck:
            self.backlog_bytes += len(data)
            self.connection.wrote(self.backlog_bytes)

    def write_pieces(self, pieces: list[bytes]) -> None:
        self.write(b"".join(pieces))

    def take_all(self) -> None:
        """The peer takes what was written."""
        self.backlog_bytes = 0
        self.connection.wrote(0)

    def pause_reading(self) -> None:
        assert self.is_read
        self.is_read = False

    def resume_reading(self) -> None:
        assert not self.is_read
        self.is_read = True

    def close(self) -> None: ...

    @property
    def answered(self) -> list[int]:
        return [response.opaque for response in FrameDecoder().feed(self.written)]


class Bench:
    """Connections of one turn, and a processor that does `then` and has a response of BODY_BYTES."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        self.turn = Turn()
        self.table = ProcessorTable()
        self.table.register(CODE, self.process)
        self.handled: list[tuple[int, int]] = []
        self.ages: list[float] = []
        self.then: Callable[[], None] = lambda: None
        self.links: list[Link] = []

    def process(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        self.handled.append((connection.remote.port, request.opaque))
        self.ages.append(trio.current_time() - self.turn.arrived)
        self.then()
        return new_response(request, body=bytes(BODY_BYTES))

    def connect(self) -> Link:
        settings = ConnectionSettings(1 << 20, 3, high_water_bytes=HIGH_BYTES, low_water_bytes=LOW_BYTES)
        remote = HostPort("127.0.0.1", len(self.links))
        connection = Connection(self.table, self.turn, self.nursery, remote, HERE, settings)
        connection.transport = link = Link(connection)
        self.links.append(link)
        return link

    def read(self, *reads: tuple[Link, bytes]) -> None:
        """One turn of a driver."""
        self.turn.begin()
        for link, data in reads:
            link.connection.receive(data)
        self.turn.end()


def requests(count: int, first: int = 0) -> bytes:
    made = [new_request(CODE) for _ in range(count)]
    for opaque, request in enumerate(made, first):
        request.opaque = opaque
    return b"".join(map(encode_frame, made))


@pytest.fixture
def bench(nursery: trio.Nursery, autojump_clock: MockClock) -> Bench:
    return Bench(nursery)


async def test_a_peer_that_takes_no_response_gets_few_whatever_it_asks_for(
    bench: Bench, autojump_clock: MockClock
) -> None:
    link = bench.connect()
    link.stuck = True
    bench.nursery.start_soon(bench.turn.run)
    bench.read((link, requests(500)))
    await trio.testing.wait_all_tasks_blocked()
    assert HIGH_BYTES < len(link.written) < HIGH_BYTES + 2 * BODY_BYTES
    assert not link.is_read
    taken = []
    while len(link.answered) < 500:
        before = len(link.written)
        link.take_all()
        await trio.testing.wait_all_tasks_blocked()
        taken.append(len(link.written) - before)
    assert max(taken) < HIGH_BYTES + 2 * BODY_BYTES
    assert link.answered == list(range(500))
    link.take_all()
    assert link.is_read


async def test_what_waits_goes_on_at_the_low_water_mark_and_not_before(bench: Bench, autojump_clock: MockClock) -> None:
    link = bench.connect()
    link.stuck = True
    bench.nursery.start_soon(bench.turn.run)
    bench.read((link, requests(50)))
    handled = len(bench.handled)
    link.connection.wrote(LOW_BYTES + 1)
    await trio.testing.wait_all_tasks_blocked()
    assert len(bench.handled) == handled
    link.backlog_bytes = LOW_BYTES
    link.connection.wrote(LOW_BYTES)
    await trio.testing.wait_all_tasks_blocked()
    assert len(bench.handled) > handled


async def test_a_peer_that_takes_its_responses_gets_all_of_them(bench: Bench, autojump_clock: MockClock) -> None:
    link = bench.connect()
    bench.nursery.start_soon(bench.turn.run)
    bench.read((link, requests(500)))
    assert len(link.answered) < 20
    await trio.testing.wait_all_tasks_blocked()
    assert link.answered == list(range(500))
    assert link.is_read


async def test_the_time_limit_of_a_turn_holds_within_one_read(bench: Bench, autojump_clock: MockClock) -> None:
    """Between the turns everybody else runs: here a second connection, whose request comes in the middle."""
    greedy, other = bench.connect(), bench.connect()
    bench.then = lambda: autojump_clock.jump(0.4 * INTERACTIVE.quota_seconds)
    bench.nursery.start_soon(bench.turn.run)
    bench.read((greedy, requests(8)))
    assert [opaque for _, opaque in bench.handled] == [0, 1, 2]
    assert not greedy.is_read
    bench.read((other, requests(1)))
    assert other.answered == [0]
    await trio.testing.wait_all_tasks_blocked()
    assert greedy.answered == list(range(8))
    assert greedy.is_read


async def test_a_request_keeps_its_age_while_the_turns_before_it_last(bench: Bench, autojump_clock: MockClock) -> None:
    link = bench.connect()
    bench.then = lambda: autojump_clock.jump(2 * INTERACTIVE.quota_seconds)
    bench.nursery.start_soon(bench.turn.run)
    bench.read((link, requests(4)))
    await trio.testing.wait_all_tasks_blocked()
    assert bench.ages == pytest.approx([0, *(2 * INTERACTIVE.quota_seconds * number for number in (1, 2, 3))])


async def test_a_request_does_not_age_while_its_own_peer_takes_nothing(bench: Bench, autojump_clock: MockClock) -> None:
    link = bench.connect()
    link.stuck = True
    bench.nursery.start_soon(bench.turn.run)
    bench.read((link, requests(12)))
    for _ in range(3):
        await trio.sleep(100)
        link.take_all()
        await trio.testing.wait_all_tasks_blocked()
    assert len(bench.ages) == 12
    assert max(bench.ages) < 1


async def test_connections_whose_requests_wait_take_turns(bench: Bench, autojump_clock: MockClock) -> None:
    links = [bench.connect() for _ in range(3)]
    bench.then = lambda: autojump_clock.jump(2 * INTERACTIVE.quota_seconds)
    bench.nursery.start_soon(bench.turn.run)
    for link in links:
        bench.read((link, requests(4)))
    await trio.testing.wait_all_tasks_blocked()
    assert [port for port, _ in bench.handled] == [0, 1, 2] * 4


async def test_responses_of_the_peer_do_not_wait_behind_its_requests(bench: Bench, autojump_clock: MockClock) -> None:
    link = bench.connect()
    bench.then = lambda: autojump_clock.jump(2 * INTERACTIVE.quota_seconds)
    got: list[RemotingCommand] = []

    async def ask() -> None:
        got.append(await link.connection.invoke(new_request(5), 30))

    bench.nursery.start_soon(ask)
    await trio.testing.wait_all_tasks_blocked()
    bench.turn.end()
    (asked,) = FrameDecoder().feed(link.written)
    bench.read((link, requests(3) + encode_frame(new_response(asked))))
    await trio.testing.wait_all_tasks_blocked()
    assert len(got) == 1
    assert len(bench.handled) == 1, "no task goes on with the requests here"


async def test_nothing_of_a_closed_connection_is_handled(bench: Bench, autojump_clock: MockClock) -> None:
    link = bench.connect()
    bench.then = lambda: autojump_clock.jump(2 * INTERACTIVE.quota_seconds)
    bench.read((link, requests(4)))
    link.connection.close("enough")
    link.connection.postpone(lambda: 1 // 0)  # type: ignore[arg-type, return-value]
    bench.nursery.start_soon(bench.turn.run)
    await trio.testing.wait_all_tasks_blocked()
    assert len(bench.handled) == 1


async def test_a_malformed_frame_closes_after_the_requests_that_wait(bench: Bench, autojump_clock: MockClock) -> None:
    link = bench.connect()
    bench.then = lambda: autojump_clock.jump(2 * INTERACTIVE.quota_seconds)
    bench.nursery.start_soon(bench.turn.run)
    bench.read((link, requests(3) + b"\xff" * 8))
    await trio.testing.wait_all_tasks_blocked()
    assert link.answered == [0, 1, 2]
    assert "malformed" in str(link.connection.close_reason)


async def test_a_postponed_answer_is_given_in_a_later_turn_with_room_for_it(
    bench: Bench, autojump_clock: MockClock
) -> None:
    link = bench.connect()
    link.stuck = True
    bench.nursery.start_soon(bench.turn.run)
    given: list[int] = []

    def give(number: int) -> None:
        given.append(number)
        link.connection.answer(new_request(CODE), new_response(new_request(CODE), body=bytes(HIGH_BYTES)))

    assert not link.connection.must_wait()
    give(0)
    assert link.connection.must_wait()
    link.connection.postpone(lambda: give(1))
    link.connection.postpone(lambda: give(2))
    for number in range(3):
        await trio.testing.wait_all_tasks_blocked()
        assert given == list(range(number + 1))
        link.take_all()


async def test_what_a_function_holds_counts_until_it_is_called(bench: Bench, autojump_clock: MockClock) -> None:
    link = bench.connect()
    memory = link.connection.backpressure.memory
    link.connection.postpone(lambda: None, READ_AHEAD_BYTES)
    assert memory.held_bytes == READ_AHEAD_BYTES + HELD_BYTES
    assert not link.is_read, "it is as much as waits at most"
    bench.nursery.start_soon(bench.turn.run)
    await trio.testing.wait_all_tasks_blocked()
    assert (memory.held_bytes, link.is_read) == (0, True)


async def test_an_answer_must_wait_when_the_turn_is_over(bench: Bench, autojump_clock: MockClock) -> None:
    link = bench.connect()
    bench.turn.begin()
    assert not link.connection.must_wait()
    autojump_clock.jump(1.01 * INTERACTIVE.quota_seconds)
    assert link.connection.must_wait()
    bench.turn.end()
    assert not link.connection.must_wait()


async def test_an_error_in_a_later_turn_costs_its_own_connection_only(bench: Bench, autojump_clock: MockClock) -> None:
    failing, other = bench.connect(), bench.connect()
    bench.nursery.start_soon(bench.turn.run)
    failing.connection.postpone(lambda: 1 // 0)  # type: ignore[arg-type, return-value]
    other.connection.postpone(lambda: bench.table.handle(other.connection, new_request(CODE)))
    await trio.testing.wait_all_tasks_blocked()
    assert "internal error" in str(failing.connection.close_reason)
    assert len(other.answered) == 1
