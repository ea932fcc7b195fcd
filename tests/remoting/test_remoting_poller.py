"""The poller over socket pairs: bursts, long turns, missing descriptors, sockets that accept only a part."""

from __future__ import annotations

import errno
import select
import socket
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from math import inf
from typing import Any

import pytest
import structlog
import trio
import trio.testing

from triomq.protocol.address import HostPort
from triomq.protocol.command import RemotingCommand, new_request, new_response
from triomq.protocol.frame import FrameDecoder, encode_frame
from triomq.remoting import poller as poller_module
from triomq.remoting.connection import Connection
from triomq.remoting.connection_settings import ConnectionSettings
from triomq.remoting.poller import ACCEPT_BURST, MOST_PIECES, Poller
from triomq.remoting.scheduling.policy import (
    BULK,
    BULK_READ_SECONDS,
    CONTENDED_SECONDS,
    INTERACTIVE,
    INTERACTIVE_READ_REQUESTS,
    INTERACTIVE_READ_SECONDS,
    INTERACTIVE_READS,
    TURNS_IN_A_ROW,
)
from triomq.remoting.turn import Turn

pytestmark = pytest.mark.skipif(not poller_module.HAS_EPOLL, reason="epoll is not available here")

HERE = HostPort("127.0.0.1", 1)
PATIENCE_SECONDS = 10


class Handler:
    """Notes each request with the number of its turn, and calls `then`."""

    def __init__(self) -> None:
        self.turns = 0
        self.handled: list[tuple[int, bytes]] = []
        self.then: Callable[[Connection, RemotingCommand], None] = lambda connection, request: None

    def handle(self, connection: Connection, request: RemotingCommand) -> None:
        self.handled.append((self.turns, request.body))
        self.then(connection, request)

    def turn_ends(self) -> None:
        self.turns += 1

    @property
    def bodies(self) -> list[bytes]:
        return [body for _, body in self.handled]


class Bench:
    """A poller with connections whose other ends the test holds."""

    def __init__(self, nursery: trio.Nursery, clock: Callable[[], float] | None = None) -> None:
        self.nursery = nursery
        self.turn = Turn(clock)
        self.handler = Handler()
        self.turn.before_flush(self.handler.turn_ends)
        self.poller = Poller(self.turn)

    def connection(self, **settings: int) -> tuple[Connection, socket.socket]:
        ours, theirs = socket.socketpair()
        return self.connection_on(ours, **settings), theirs

    def connection_on(self, ours: socket.socket, **settings: int) -> Connection:
        ours.setblocking(False)
        bounds = ConnectionSettings(1 << 22, max_unanswered=10, **settings)
        connection = Connection(self.handler, self.turn, self.nursery, HERE, HERE, bounds)
        self.poller.add(ours, connection)
        return connection


def frame(body: bytes) -> bytes:
    return encode_frame(new_request(1, body=body))


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(PATIENCE_SECONDS):
        while not condition():
            await trio.lowlevel.checkpoint()


async def run_for(bench: Bench, condition: Callable[[], bool]) -> None:
    """Serve until the condition holds."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.poller.run)
        await until(condition)
        nursery.cancel_scope.cancel()


async def counts_between_passes(bench: Bench, count: Callable[[], int], condition: Callable[[], bool]) -> list[int]:
    """Serve until the condition holds. Return what `count` was whenever the poller let other tasks run."""
    steps = StepsOf(count)
    trio.lowlevel.add_instrument(steps)
    async with trio.open_nursery() as serving:
        serving.start_soon(steps.run, bench.poller.run)
        await until(condition)
        serving.cancel_scope.cancel()
    trio.lowlevel.remove_instrument(steps)
    return steps.counts


def ready_for_a_turn_and_a_half(nursery: trio.Nursery) -> Bench:
    """Four clients have sent something, which takes so long that the time of a turn is over behind the third."""
    now = [100.0]
    bench = Bench(nursery, lambda: now[0])
    for number in range(4):
        bench.connection()[1].sendall(frame(b"%d" % number))

    def takes_long(*_: object) -> None:
        now[0] += 0.4 * INTERACTIVE.quota_seconds

    bench.handler.then = takes_long
    return bench


async def test_sockets_that_are_ready_together_are_handled_in_one_turn(nursery: trio.Nursery) -> None:
    bench = Bench(nursery)
    peers = [bench.connection()[1] for _ in range(5)]
    for number, peer in enumerate(peers):
        peer.sendall(frame(b"%d" % number))
    await run_for(bench, lambda: len(bench.handler.handled) == 5)
    assert {turn for turn, _ in bench.handler.handled} == {0}
    assert sorted(bench.handler.bodies) == [b"0", b"1", b"2", b"3", b"4"]


class StepsOf(trio.abc.Instrument):
    """Notes `count()` whenever the task lets others run."""

    def __init__(self, count: Callable[[], int]) -> None:
        self.count = count
        self.task: trio.lowlevel.Task | None = None
        self.counts: list[int] = []

    async def run(self, function: Callable[[], Awaitable[None]]) -> None:
        self.task = trio.lowlevel.current_task()
        await function()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self.task:
            self.counts.append(self.count())


async def test_so_many_turns_run_in_a_row_and_then_the_other_tasks(nursery: trio.Nursery) -> None:
    """Each request makes its peer send the next one, so the socket is never empty."""
    bench = Bench(nursery)
    _, peer = bench.connection()
    bench.handler.then = lambda *_: peer.sendall(frame(b"next"))
    peer.sendall(frame(b"first"))
    handler = bench.handler
    counts = await counts_between_passes(bench, lambda: handler.turns, lambda: handler.turns >= 5 * TURNS_IN_A_ROW)
    assert sorted(set(counts))[:5] == [TURNS_IN_A_ROW * number for number in range(5)]


@pytest.mark.parametrize(("slice_seconds", "in_a_row"), [(0.0, TURNS_IN_A_ROW), (1.1 * BULK.quota_seconds, 1)])
async def test_what_waits_has_a_slice_behind_each_turn_until_slices_were_long(
    nursery: trio.Nursery, slice_seconds: float, in_a_row: int
) -> None:
    """No pass of the loop is needed for a slice; but other tasks run when slices have had their time."""
    now = [100.0]
    bench = Bench(nursery, lambda: now[0])
    _, peer = bench.connection()
    sliced = 0

    def answer() -> None:
        nonlocal sliced
        sliced += 1
        now[0] += slice_seconds
        peer.sendall(frame(b"next"))

    bench.handler.then = lambda connection, _: connection.postpone(answer)
    peer.sendall(frame(b"first"))
    counts = await counts_between_passes(bench, lambda: sliced, lambda: sliced >= 5 * in_a_row)
    assert sorted(set(counts))[:5] == [in_a_row * number for number in range(5)]


async def test_beside_sends_a_slice_has_to_be_earned_while_sockets_are_ready(nursery: trio.Nursery) -> None:
    """Else a slice behind each short turn would have most of the loop."""
    now = [100.0]
    bench = Bench(nursery, lambda: now[0])
    _, peer = bench.connection()

    def sends(connection: Connection, _: RemotingCommand) -> None:
        bench.turn.scheduler.has_sent = True
        now[0] += BULK.least_seconds / BULK.share / 3.9
        connection.postpone(lambda: None)
        peer.sendall(frame(b"next"))

    bench.handler.then = sends
    peer.sendall(frame(b"first"))
    # slices are turns, too
    counts = await counts_between_passes(bench, lambda: bench.handler.turns, lambda: bench.handler.turns >= 50)
    in_a_row = TURNS_IN_A_ROW + TURNS_IN_A_ROW // 4
    assert sorted(set(counts))[:5] == [in_a_row * number for number in range(5)]


async def test_what_waits_when_other_tasks_run_has_its_slice_then(nursery: trio.Nursery) -> None:
    """No socket has to become ready for it."""
    bench = Bench(nursery)
    _, peer = bench.connection()
    sliced = 0

    def again(connection: Connection) -> None:
        nonlocal sliced
        sliced += 1
        if sliced < 5 * TURNS_IN_A_ROW:
            connection.postpone(lambda: again(connection))

    bench.handler.then = lambda connection, _: connection.postpone(lambda: again(connection))
    peer.sendall(frame(b"first"))
    nursery.start_soon(bench.turn.run)
    await run_for(bench, lambda: sliced == 5 * TURNS_IN_A_ROW)


async def test_a_long_turn_leaves_the_other_sockets_to_the_next_one(nursery: trio.Nursery) -> None:
    bench = ready_for_a_turn_and_a_half(nursery)
    handled = bench.handler.handled
    counts = await counts_between_passes(bench, lambda: len(handled), lambda: len(handled) >= 4)
    assert [turn for turn, _ in bench.handler.handled] == [0, 0, 0, 1]
    assert 3 in counts, "the other tasks did not run between the turns"


async def test_a_turn_of_just_the_limit_is_not_long(nursery: trio.Nursery) -> None:
    now = [64.0]
    bench = Bench(nursery, lambda: now[0])
    bench.turn.scheduler.turn_seconds = 0.5
    for number in range(2):
        bench.connection()[1].sendall(frame(b"%d" % number))

    def takes_half_a_second(*_: object) -> None:
        now[0] += 0.5

    bench.handler.then = takes_half_a_second
    ready = bench.poller._epoll.poll(0)
    assert bench.poller._take_turn(ready) == []
    assert len(bench.handler.handled) == 2


async def test_a_task_that_computes_lets_clients_have_a_turn(nursery: trio.Nursery) -> None:
    """At once, without the poller's task; what was to be sent before leaves, too."""
    bench = Bench(nursery)
    _, peer = bench.connection()
    other, other_peer = bench.connection()
    bench.handler.then = lambda connection, request: connection.answer(request, new_response(request, body=b"answer"))
    asked = new_request(1)
    other.answer(asked, new_response(asked, body=b"earlier"))
    bench.turn.catch_up()
    assert other_peer.recv(1000).endswith(b"earlier")
    peer.sendall(frame(b"asks"))
    bench.turn.catch_up()
    assert bench.handler.bodies == [b"asks"]
    assert peer.recv(1000).endswith(b"answer")
    turns = bench.handler.turns
    bench.turn.catch_up()
    assert bench.handler.turns == turns, "nobody has sent anything"


async def test_what_a_turn_leaves_unread_is_for_the_next_one_whoever_takes_it(nursery: trio.Nursery) -> None:
    bench = ready_for_a_turn_and_a_half(nursery)
    bench.turn.catch_up()
    assert len(bench.handler.handled) == 3
    await run_for(bench, lambda: len(bench.handler.handled) == 4)
    assert [turn for turn, _ in bench.handler.handled] == [0, 0, 0, 1]


async def test_no_turn_is_taken_once_the_poller_has_ended(nursery: trio.Nursery) -> None:
    bench = Bench(nursery)
    _, peer = bench.connection()
    peer.sendall(frame(b"first"))
    await run_for(bench, lambda: len(bench.handler.handled) == 1)
    bench.turn.catch_up()
    assert bench.handler.bodies == [b"first"]


class Crowd:
    """An interactive client, and bulk ones that always have more to read, on a clock that requests move on."""

    def __init__(self, nursery: trio.Nursery, bulk: int) -> None:
        self.now = [100.0]
        self.bench = bench = Bench(nursery, lambda: self.now[0])
        self.bulk = [bench.connection()[1] for _ in range(bulk)]
        self.interactive = bench.connection()[1]
        self.asked = 0
        bench.turn.scheduler.turn_seconds = inf
        bench.handler.then = self.takes
        for _ in range(INTERACTIVE_READS):
            self.ask()
            self.turn()
        for number, peer in enumerate(self.bulk):
            peer.sendall(frame(b"%d" % number * 1000) * 100)

    def takes(self, _: Connection, request: RemotingCommand) -> None:
        self.now[0] += INTERACTIVE_READ_SECONDS / 100 if request.body == b"interactive" else BULK_READ_SECONDS / 20

    def ask(self) -> None:
        self.interactive.sendall(frame(b"interactive"))

    def turn(self) -> list[bytes]:
        """Return what the next turn handles."""
        before = len(self.bench.handler.handled)
        self.bench.poller._take_turn(self.bench.poller._epoll.poll(0))
        return self.bench.handler.bodies[before:]

    def slice(self) -> list[bytes]:
        """Return what the next slice handles: of requests that wait in their connections."""
        before = len(self.bench.handler.handled)
        self.bench.turn.run_slice()
        self.bench.turn.end()
        return self.bench.handler.bodies[before:]

    def is_interactive_waiting(self) -> bool:
        return self.bench.turn.scheduler.is_interactive_waiting(self.now[0])

    def ask_meanwhile(self) -> None:
        """Let the interactive client ask while the next request of another one is handled."""

        def takes(connection: Connection, request: RemotingCommand) -> None:
            self.takes(connection, request)
            if request.body != b"interactive":
                self.ask()
                self.bench.handler.then = self.takes

        self.bench.handler.then = takes


async def test_beside_an_interactive_client_others_are_read_later_and_for_a_short_time(nursery: trio.Nursery) -> None:
    crowd = Crowd(nursery, 5)
    for _ in range(10):
        crowd.ask()
        began = crowd.now[0]
        handled = crowd.turn()
        assert handled[0] == b"interactive"
        assert len(handled) - 1 <= 20 + 1
        assert crowd.now[0] - began < 1.1 * BULK_READ_SECONDS
        assert len(handled) > 1 or crowd.slice()
    seen = {body[:1] for body in crowd.bench.handler.bodies if body != b"interactive"}
    assert seen == {b"0", b"1", b"2", b"3", b"4"}, "they take turns"


async def test_an_interactive_client_that_asks_meanwhile_ends_the_reading_of_the_others(nursery: trio.Nursery) -> None:
    crowd = Crowd(nursery, 3)
    crowd.ask()
    crowd.ask_meanwhile()
    assert [body[:1] for body in crowd.turn()] == [b"i", b"0"]
    crowd.slice()
    assert crowd.turn()[0] == b"interactive"


async def test_the_others_have_their_share_although_an_interactive_client_asks_again(nursery: trio.Nursery) -> None:
    """An interactive request of 18 time units: a quarter is 4.5, so the others have five."""
    crowd = Crowd(nursery, 3)

    def takes(_: Connection, request: RemotingCommand) -> None:
        crowd.now[0] += BULK_READ_SECONDS * (0.9 if request.body == b"interactive" else 0.05)
        if request.body == b"interactive":
            crowd.ask()

    crowd.ask()
    crowd.bench.handler.then = takes
    assert [body[:1] for body in crowd.turn()] == [b"i"] + [b"0"] * 5


@pytest.mark.parametrize("asks", [False, True])
async def test_an_interactive_client_that_asks_meanwhile_ends_a_slice(asks: bool, nursery: trio.Nursery) -> None:
    crowd = Crowd(nursery, 0)
    crowd.ask()
    crowd.bench.connection()[1].sendall(frame(b"h") * 100)
    crowd.turn()
    if asks:
        crowd.ask_meanwhile()
    handled = len(crowd.slice())
    assert handled < 12 if asks else handled > 70
    assert crowd.turn() == [b"interactive"] * asks


async def test_an_interactive_client_that_is_paused_or_gone_is_waited_for_by_nobody(nursery: trio.Nursery) -> None:
    crowd = Crowd(nursery, 1)
    poller, waiting = crowd.bench.poller, crowd.is_interactive_waiting
    assert not waiting()
    crowd.ask()
    assert waiting()
    interactive = next(each for each in poller._transports.values() if each.client.is_interactive)
    interactive.pause_reading()
    assert not waiting()
    interactive.resume_reading()
    assert waiting()
    crowd.now[0] += CONTENDED_SECONDS
    assert not waiting(), "none has asked for so long"
    crowd.turn()
    crowd.ask()
    assert waiting()
    interactive.connection.close("gone")
    assert not waiting()


async def test_who_asks_for_much_is_not_watched_any_more(nursery: trio.Nursery) -> None:
    crowd = Crowd(nursery, 0)
    crowd.interactive.sendall(frame(b"interactive") * (INTERACTIVE_READ_REQUESTS + 1))
    crowd.turn()
    crowd.ask()
    assert not crowd.is_interactive_waiting()


async def test_without_interactive_clients_all_are_read_in_whole(nursery: trio.Nursery) -> None:
    crowd = Crowd(nursery, 3)
    crowd.now[0] += CONTENDED_SECONDS
    assert len(crowd.turn()) == 300


async def test_a_client_with_many_requests_in_each_read_is_not_interactive(nursery: trio.Nursery) -> None:
    crowd = Crowd(nursery, 3)
    crowd.now[0] += CONTENDED_SECONDS
    crowd.turn()
    for requests, is_interactive in ((INTERACTIVE_READ_REQUESTS + 1, False), (INTERACTIVE_READ_REQUESTS, True)):
        for _ in range(INTERACTIVE_READS):
            crowd.interactive.sendall(frame(b"interactive") * requests)
            assert len(crowd.turn()) == requests
        for peer in crowd.bulk:
            peer.sendall(frame(b"l" * 1000) * 100)
        assert (len(crowd.turn()) < 300) is is_interactive


@pytest.mark.parametrize("body_bytes", [1000, 5000, 30_000])
async def test_a_client_whose_reads_always_leave_more_behind_is_never_interactive(
    body_bytes: int, nursery: trio.Nursery
) -> None:
    """However few and quick the requests of a read are: a read that is cut off at its limit says nothing else."""
    crowd = Crowd(nursery, 1)
    crowd.bench.handler.then = lambda connection, request: None
    [peer] = crowd.bulk
    peer.setblocking(False)
    data, at = frame(b"l" * body_bytes) * 60, 0
    for _ in range(3 * INTERACTIVE_READS):
        with suppress(BlockingIOError):
            while True:
                at = (at + peer.send(data[at:])) % len(data)
        crowd.ask()
        assert crowd.turn()[0] == b"interactive"
        assert [each.client.is_interactive for each in crowd.bench.poller._transports.values()] == [False, True]


async def test_who_becomes_paused_while_it_waits_for_interactive_ones_is_not_read(nursery: trio.Nursery) -> None:
    crowd = Crowd(nursery, 3)
    crowd.turn()
    for fd in crowd.bench.poller._bulk:
        crowd.bench.poller._transports[fd].pause_reading()
    waited = set(crowd.bench.poller._bulk)
    assert waited
    handled = crowd.turn()
    assert len({body[:1] for body in handled}) <= 3 - len(waited)


async def test_a_connection_that_fails_costs_only_itself(nursery: trio.Nursery) -> None:
    bench = Bench(nursery)
    (bad, bad_peer), (good, good_peer) = bench.connection(), bench.connection()

    def fail_once(connection: Connection, _: RemotingCommand) -> None:
        if connection is bad:
            raise RuntimeError("the handler failed")

    bench.handler.then = fail_once
    bad_peer.sendall(frame(b"bad"))
    good_peer.sendall(frame(b"good"))
    with structlog.testing.capture_logs() as logs:
        await run_for(bench, lambda: len(bench.handler.handled) == 2)
    assert "see the log" in str(bad.close_reason)
    assert good.close_reason == "stopped", "the end of the poller closed it"
    assert [entry["log_level"] for entry in logs] == ["error"]


async def test_a_peer_that_hangs_up_is_closed_with_that_reason(nursery: trio.Nursery) -> None:
    bench = Bench(nursery)
    connection, peer = bench.connection()
    peer.close()
    await run_for(bench, lambda: not connection.is_open)
    assert connection.close_reason == "closed by the peer"
    assert len(bench.poller) == 0


async def test_the_end_closes_every_socket(nursery: trio.Nursery) -> None:
    bench = Bench(nursery)
    pairs = [bench.connection() for _ in range(3)]
    await run_for(bench, lambda: True)
    assert [connection.close_reason for connection, _ in pairs] == ["stopped"] * 3
    assert [peer.recv(1) for _, peer in pairs] == [b""] * 3


async def test_what_a_socket_does_not_take_leaves_in_order_when_it_is_read(nursery: trio.Nursery) -> None:
    bench = Bench(nursery)
    connection, peer = bench.connection(high_water_bytes=500_000, low_water_bytes=1000)
    peer.setblocking(False)
    bodies = [bytes([number]) * 400_000 for number in range(10)]
    for body in bodies:
        assert connection.is_open
        connection._send(new_request(1, body=body))
        bench.turn.end()
    assert connection.paused, "the socket took four megabytes"
    decoder, received = FrameDecoder(), list[bytes]()

    def read() -> bool:
        with suppress(BlockingIOError):
            received.extend(command.body for command in decoder.feed(peer.recv(1 << 16)))
        return len(received) == len(bodies)

    await run_for(bench, read)
    assert received == bodies
    assert not connection.paused


@pytest.mark.parametrize("count", [3, MOST_PIECES])
async def test_long_bodies_of_one_turn_leave_whole_and_in_order(nursery: trio.Nursery, count: int) -> None:
    """In pieces, or joined where there are more of them than one call may have; the socket takes a part at a time."""
    bench = Bench(nursery)
    connection, peer = bench.connection(high_water_bytes=1 << 26, low_water_bytes=1000)
    peer.setblocking(False)
    bodies = [number.to_bytes(2, "big") * 10_000 for number in range(count)]
    for body in bodies:
        connection._send(new_request(1, body=body))
    bench.turn.end()
    assert bench.turn.sent_bytes == sum(len(frame(body)) for body in bodies)
    decoder, received = FrameDecoder(), list[bytes]()

    def read() -> bool:
        with suppress(BlockingIOError):
            received.extend(command.body for command in decoder.feed(peer.recv(5000)))
        return len(received) == len(bodies)

    await run_for(bench, read)
    assert received == bodies


class TakesSome(socket.socket):
    """Takes `limit_bytes` of the first pieces that it gets."""

    limit_bytes = 0

    def sendmsg(self, buffers: Iterable[Any], *_: Any) -> int:  # type: ignore[override]
        if not self.limit_bytes:
            raise BlockingIOError(errno.EAGAIN, "full")
        return self.send(b"".join(buffers)[: self.limit_bytes])


async def test_however_many_bytes_of_several_pieces_a_socket_takes_the_rest_follows_whole_and_in_order(
    nursery: trio.Nursery,
) -> None:
    pieces = [b"abc", b"defg", b"h", b"ijklm"]
    whole = b"".join(pieces)
    for taken in range(len(whole) + 1):
        bench = Bench(nursery)
        ours, peer = socket.socketpair()
        some = TakesSome(fileno=ours.detach())
        some.limit_bytes = taken
        connection = bench.connection_on(some)
        peer.setblocking(False)
        connection.transport.write_pieces(pieces)
        received = bytearray()

        def read(peer: socket.socket = peer, received: bytearray = received) -> bool:
            with suppress(BlockingIOError):
                received.extend(peer.recv(100))
            return len(received) >= len(whole)

        await run_for(bench, read)
        assert received == whole, taken


async def test_a_peer_that_takes_what_waits_for_it_is_active(nursery: trio.Nursery) -> None:
    """Else a client that reads a long answer slowly, and asks nothing meanwhile, is closed as idle."""
    now = 100.0
    bench = Bench(nursery, lambda: now)
    connection, peer = bench.connection(high_water_bytes=1 << 24, low_water_bytes=1000)
    connection._send(new_request(1, body=bytes(4_000_000)))
    bench.turn.end()
    began = connection.last_active
    peer.setblocking(False)

    def took_some_and_is_active() -> bool:
        with suppress(BlockingIOError):
            peer.recv(1 << 16)
        return connection.last_active == now

    now = 107.0
    async with trio.open_nursery() as serving:
        serving.start_soon(bench.poller.run)
        for _ in range(50):
            await trio.lowlevel.checkpoint()
        assert connection.last_active == began, "it has taken nothing"
        await until(took_some_and_is_active)
        serving.cancel_scope.cancel()


async def test_a_peer_that_took_everything_does_not_keep_the_poller_busy(nursery: trio.Nursery) -> None:
    bench = Bench(nursery)
    connection, peer = bench.connection(high_water_bytes=1 << 24, low_water_bytes=1000)
    peer.setblocking(False)
    connection._send(new_request(1, body=bytes(1_000_000)))
    bench.turn.end()
    taken = 0

    def took_all() -> bool:
        nonlocal taken
        with suppress(BlockingIOError):
            taken += len(peer.recv(1 << 16))
        return taken > 1_000_000

    async with trio.open_nursery() as serving:
        serving.start_soon(bench.poller.run)
        await until(took_all)
        for _ in range(5):
            await trio.lowlevel.checkpoint()
        turns = bench.handler.turns
        for _ in range(50):
            await trio.lowlevel.checkpoint()
        assert bench.handler.turns == turns
        serving.cancel_scope.cancel()


async def test_a_paused_connection_is_not_read_from(nursery: trio.Nursery) -> None:
    bench = Bench(nursery)
    connection, peer = bench.connection()
    assert connection.transport is not None
    async with trio.open_nursery() as serving:
        serving.start_soon(bench.poller.run)
        connection.transport.pause_reading()
        peer.sendall(frame(b"late"))
        for _ in range(50):
            await trio.lowlevel.checkpoint()
        assert bench.handler.handled == []
        connection.transport.resume_reading()
        await until(lambda: bench.handler.bodies == [b"late"])
        serving.cancel_scope.cancel()


class ScriptedListener:
    """A listening socket whose `accept` follows a script of errnos and connected sockets."""

    def __init__(self, *script: int | socket.socket) -> None:
        self.script = list(script)
        self.sock = socket.create_server(("127.0.0.1", 0), backlog=300)

    def fileno(self) -> int:
        return self.sock.fileno()

    def getsockname(self) -> tuple[str, int]:
        name: tuple[str, int] = self.sock.getsockname()
        return name

    def setblocking(self, flag: bool) -> None:
        self.sock.setblocking(flag)

    def close(self) -> None:
        self.sock.close()

    def accept(self) -> tuple[socket.socket, object]:
        if not self.script:
            raise BlockingIOError(errno.EAGAIN, "nobody there")
        step = self.script.pop(0)
        if isinstance(step, int):
            raise OSError(step, "scripted")
        return step, None

    def make_ready(self) -> socket.socket:
        """Connect to the listener; no one accepts that connection."""
        return socket.create_connection(self.sock.getsockname())


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
async def test_a_listener_rests_when_descriptors_run_out_until_it_is_woken(nursery: trio.Nursery, number: int) -> None:
    bench = Bench(nursery)
    pair = socket.socketpair()
    listener = ScriptedListener(number, number, pair[0])
    accepted: list[socket.socket] = []
    bench.poller.listen(listener, accepted.append)  # type: ignore[arg-type]
    with listener.make_ready(), structlog.testing.capture_logs() as logs:
        async with trio.open_nursery() as serving:
            serving.start_soon(bench.poller.run)
            await until(lambda: len(listener.script) == 2)
            for _ in range(20):
                await trio.lowlevel.checkpoint()
            assert (accepted, len(logs)) == ([], 1), "a listener at rest is not asked again"
            assert logs[0]["log_level"] == "error"
            bench.poller.wake_listeners()
            await until(lambda: len(listener.script) == 1)
            bench.poller.wake_listeners()
            await until(lambda: accepted == [pair[0]])
            assert len(logs) == 1, "the shortage is logged once in a minute"
            serving.cancel_scope.cancel()
    assert listener.fileno() == -1, "the end closes it"


async def test_a_listener_at_rest_is_closed_with_the_poller(nursery: trio.Nursery) -> None:
    bench = Bench(nursery)
    listener = ScriptedListener(errno.EMFILE)
    bench.poller.listen(listener, lambda _: None)  # type: ignore[arg-type]
    with listener.make_ready():
        await run_for(bench, lambda: not listener.script)
    assert listener.fileno() == -1


@pytest.mark.parametrize(
    ("number", "is_logged"), [(errno.EAGAIN, False), (errno.ECONNABORTED, False), (errno.EPERM, True)]
)
async def test_another_failure_to_accept_does_not_make_a_listener_rest(
    nursery: trio.Nursery, number: int, is_logged: bool
) -> None:
    bench = Bench(nursery)
    pair = socket.socketpair()
    listener = ScriptedListener(number, pair[0])
    accepted: list[socket.socket] = []
    bench.poller.listen(listener, accepted.append)  # type: ignore[arg-type]
    with listener.make_ready(), structlog.testing.capture_logs() as logs:
        await run_for(bench, lambda: accepted == [pair[0]])
    assert [entry["log_level"] for entry in logs] == (["warning"] if is_logged else [])


async def test_a_rush_of_connections_does_not_keep_the_others_waiting(nursery: trio.Nursery) -> None:
    bench = Bench(nursery)
    pairs = [socket.socketpair() for _ in range(ACCEPT_BURST + 1)]
    listener = ScriptedListener(*(ours for ours, _ in pairs))
    accepted: list[socket.socket] = []
    bench.poller.listen(listener, accepted.append)  # type: ignore[arg-type]
    with listener.make_ready():
        bench.poller._take_turn([(listener.fileno(), select.EPOLLIN)])
        assert len(accepted) == ACCEPT_BURST
        assert not any(sock.getblocking() for sock in accepted)
        await run_for(bench, lambda: len(accepted) == ACCEPT_BURST + 1)
