"""A real server and a real client over loopback sockets, and one connection over a memory stream."""

from __future__ import annotations

import gc
import socket
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import structlog
import trio
import trio.testing

from triomq.protocol.address import HostPort
from triomq.protocol.codes import ResponseCode
from triomq.protocol.command import RemotingCommand, new_request, new_response
from triomq.protocol.errors import RequestRefused
from triomq.protocol.frame import FrameDecoder, decode_frame, encode_frame
from triomq.protocol.headers.offset import GetMaxOffsetRequestHeader
from triomq.remoting import network
from triomq.remoting.client import RemotingClient, open_client
from triomq.remoting.config import ClientSettings, ServerSettings
from triomq.remoting.connection import Connection
from triomq.remoting.connection_settings import ConnectionSettings
from triomq.remoting.errors import ConnectFailed, ConnectionClosed, RemotingTimeout, TooManyRequests
from triomq.remoting.processor_table import Pool, ProcessorTable
from triomq.remoting.server import RemotingServer
from triomq.remoting.stream_transport import serve_stream
from triomq.remoting.turn import Turn

ECHO, SLOW, REFUSE, BREAK, TYPED, NEVER, CALL_BACK, LATER = 1, 2, 3, 4, 5, 6, 7, 8
HERE = HostPort("127.0.0.1", 1)


class Events:
    def __init__(self) -> None:
        self.opened: list[Connection] = []
        self.closed: list[Connection] = []

    def connection_opened(self, connection: Connection) -> None:
        self.opened.append(connection)

    def connection_closed(self, connection: Connection) -> None:
        self.closed.append(connection)


def echo(_: Connection, request: RemotingCommand) -> RemotingCommand:
    return new_response(request, body=request.body, ext_fields=request.ext_fields)


async def slow(_: Connection, request: RemotingCommand) -> RemotingCommand:
    await trio.sleep(1)
    return new_response(request, body=b"slow")


async def never(_: Connection, request: RemotingCommand) -> RemotingCommand:
    await trio.sleep_forever()
    raise AssertionError


def refuse(_: Connection, request: RemotingCommand) -> RemotingCommand:
    raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, "no such topic")


def break_down(_: Connection, request: RemotingCommand) -> RemotingCommand:
    raise KeyError("our fault")


def typed(_: Connection, request: RemotingCommand) -> RemotingCommand:
    return new_response(request, remark=str(request.header(GetMaxOffsetRequestHeader).queue_id))


async def call_back(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    answer = await connection.invoke(new_request(ECHO, body=b"are you there"), 1)
    return new_response(request, body=answer.body)


class Later:
    """A processor that responds when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Connection, RemotingCommand]] = []

    def __call__(self, connection: Connection, request: RemotingCommand) -> None:
        self.waiting.append((connection, request))

    def answer_all(self) -> None:
        for connection, request in self.waiting:
            connection.answer(request, new_response(request, body=b"later"))


def table() -> ProcessorTable:
    made = ProcessorTable()
    for code, processor in (
        (ECHO, echo),
        (SLOW, slow),
        (REFUSE, refuse),
        (BREAK, break_down),
        (TYPED, typed),
        (CALL_BACK, call_back),
    ):
        made.register(code, processor)
    made.register(NEVER, never, Pool("never", 2))
    return made


@asynccontextmanager
async def serving(events: Events | None = None, **settings: int) -> AsyncIterator[tuple[RemotingServer, str]]:
    server = RemotingServer(ServerSettings(**settings), Turn(), events=events)
    port = server.bind(0, table())
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve)
        yield server, f"127.0.0.1:{port}"
        nursery.cancel_scope.cancel()


async def test_requests_are_answered_whatever_the_size() -> None:
    async with serving() as (_, address), open_client() as client:
        for size in (0, 1, 70_000, 9_000_000):
            answer = await client.invoke(address, new_request(ECHO, body=b"x" * size), 10)
            assert (answer.code, len(answer.body)) == (0, size)


async def test_many_requests_at_once_find_their_answers() -> None:
    async with serving() as (_, address), open_client() as client:
        seen: dict[int, bytes] = {}

        async def call(number: int) -> None:
            seen[number] = (await client.invoke(address, new_request(ECHO, body=b"%d" % number))).body

        async with trio.open_nursery() as nursery:
            for number in range(500):
                nursery.start_soon(call, number)
        assert seen == {number: b"%d" % number for number in range(500)}


async def test_calls_at_once_to_a_new_address_share_one_connection() -> None:
    events = Events()
    async with serving(events=events) as (_, address), open_client() as client, trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(client.invoke, address, new_request(ECHO))
    assert len(events.opened) == 1


async def test_a_client_that_is_cancelled_may_still_say_goodbye() -> None:
    """Its connections end with the block, not with the block's cancellation."""
    async with serving() as (_, address):
        answers: list[bytes] = []
        with trio.CancelScope() as scope:
            async with open_client() as client:
                try:
                    await client.invoke(address, new_request(ECHO, body=b"hello"))
                    scope.cancel()
                    await trio.sleep_forever()
                finally:
                    with trio.move_on_after(5, shield=True):
                        await trio.lowlevel.checkpoint()
                        answers.append((await client.invoke(address, new_request(ECHO, body=b"goodbye"))).body)
        assert scope.cancelled_caught
        assert answers == [b"goodbye"]


async def test_errors_become_answers_and_the_connection_goes_on() -> None:
    async with serving() as (server, address), open_client() as client:
        refused = await client.invoke(address, new_request(REFUSE))
        assert (refused.code, refused.remark) == (ResponseCode.TOPIC_NOT_EXIST, "no such topic")
        broken = await client.invoke(address, new_request(BREAK))
        assert broken.code == ResponseCode.SYSTEM_ERROR
        assert "KeyError" in (broken.remark or "")
        unknown = await client.invoke(address, new_request(9999))
        assert (unknown.code, unknown.remark) == (3, " request type 9999 not supported")
        missing = await client.invoke(address, new_request(TYPED, ext_fields={"topic": "T"}))
        assert missing.code == ResponseCode.SYSTEM_ERROR
        assert "<queueId>" in (missing.remark or "")
        assert (await client.invoke(address, new_request(ECHO, body=b"fine"))).body == b"fine"
        assert len(server.connections) == 1


async def test_a_full_pool_is_answered_with_system_busy() -> None:
    async with serving() as (_, address), open_client(ClientSettings(close_on_timeout=False)) as client:

        async def hang() -> None:
            with pytest.raises((RemotingTimeout, ConnectionClosed)):
                await client.invoke(address, new_request(NEVER), 60)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(hang)
            nursery.start_soon(hang)
            await trio.testing.wait_all_tasks_blocked(0.05)
            busy = await client.invoke(address, new_request(NEVER))
            assert (busy.code, (busy.remark or "")[:10]) == (ResponseCode.SYSTEM_BUSY, "[OVERLOAD]")
            client.close()


async def test_the_server_calls_the_client_back() -> None:
    async with serving() as (_, address), open_client() as client:
        client.register(ECHO, echo)
        assert (await client.invoke(address, new_request(CALL_BACK))).body == b"are you there"


async def test_a_closed_connection_fails_what_waits_on_it_and_is_made_anew() -> None:
    events = Events()
    async with serving(events) as (server, address), open_client() as client:
        async with trio.open_nursery() as nursery:

            async def hang() -> None:
                with pytest.raises(ConnectionClosed):
                    await client.invoke(address, new_request(NEVER), 60)

            nursery.start_soon(hang)
            await trio.testing.wait_all_tasks_blocked(0.05)
            next(iter(server.connections)).close("test")
        assert (await client.invoke(address, new_request(ECHO, body=b"again"))).body == b"again"
        assert (len(events.opened), len(events.closed)) == (2, 1)


@pytest.mark.parametrize("code", [ECHO, NEVER, CALL_BACK])
async def test_a_closed_connection_is_freed_without_the_collector(code: int) -> None:
    """Daemons run the garbage collector rarely, so objects that only it can free would accumulate as clients come and
    go.
    """
    async with serving() as (server, address):
        host, _, port = address.rpartition(":")
        gc.collect()
        gc.disable()
        try:
            stream = await trio.open_tcp_stream(host, int(port))
            await stream.send_all(encode_frame(new_request(ECHO)) + encode_frame(new_request(code)))
            await stream.receive_some(65536)
            freed = trio.Event()
            weakref.finalize(next(iter(server.connections))._unanswered, freed.set)  # which only the connection holds
            await stream.aclose()
            with trio.fail_after(30):
                await freed.wait()
        finally:
            gc.enable()


async def test_nobody_there_is_a_clear_error() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        async with open_client() as client:
            with pytest.raises(ConnectFailed, match=address):
                await client.invoke(address, new_request(ECHO))
            with pytest.raises(ConnectFailed, match="host:port"):
                await client.invoke("nonsense", new_request(ECHO))


async def test_a_call_without_time_left_does_not_fail_those_that_wait_for_the_same_connection(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    attempts: list[float] = []
    failures: list[tuple[float, str]] = []

    async def connect(host: str, port: int) -> trio.SocketStream:
        attempts.append(trio.current_time() - began)
        if len(attempts) == 1:
            await trio.sleep_forever()
        raise ConnectionRefusedError("nobody there")

    async def call(client: RemotingClient, seconds: float) -> None:
        with pytest.raises(ConnectFailed) as failed:
            await client.invoke("a:1", new_request(ECHO), seconds)
        failures.append((trio.current_time() - began, str(failed.value)))

    monkeypatch.setattr(network, "connect", connect)
    async with open_client() as client, trio.open_nursery() as nursery:
        began = trio.current_time()
        for seconds in (1, 2.5, 2.5):
            nursery.start_soon(call, client, seconds)
            await trio.lowlevel.checkpoint()
    assert attempts == [0, 1], "the second attempt is for both that have time left"
    assert [at for at, _ in failures] == [1, 1, 1]
    assert "no response within 1 s" in failures[0][1]
    assert all("nobody there" in text for _, text in failures[1:])


async def test_unanswered_requests_are_bounded() -> None:
    async with serving() as (_, address), open_client(ClientSettings(async_limit=1)) as client:
        await client.invoke(address, new_request(ECHO))
        async with trio.open_nursery() as nursery:

            async def hang() -> None:
                with pytest.raises(ConnectionClosed):
                    await client.invoke(address, new_request(NEVER), 60)

            nursery.start_soon(hang)
            await trio.testing.wait_all_tasks_blocked(0.05)
            with pytest.raises(TooManyRequests):
                await client.invoke(address, new_request(ECHO))
            client.close()


BAD_FRAMES = [
    b"\xff\xff\xff\xff" + b"x" * 20,
    b"\x7f\xff\xff\xff" + b"x" * 20,
    b"GET / HTTP/1.1\r\n\r\n",
    bytes.fromhex("00000006000000027b7b"),
    bytes.fromhex("00000006090000027b7d"),
]


@pytest.mark.parametrize("bad", BAD_FRAMES)
async def test_a_malformed_frame_closes_its_own_connection_only_with_one_log_line(bad: bytes) -> None:
    with structlog.testing.capture_logs() as logs:
        async with serving() as (_, address), open_client() as client:
            await client.invoke(address, new_request(ECHO))
            host, port = address.split(":")
            stream = await trio.open_tcp_stream(host, int(port))
            await stream.send_all(encode_frame(new_request(ECHO, body=b"good one first")) + bad)
            received = b""
            with trio.fail_after(5):
                async for piece in stream:
                    received += piece
            assert [found.body for found in FrameDecoder().feed(received)] == [b"good one first"]
            assert (await client.invoke(address, new_request(ECHO, body=b"unharmed"))).body == b"unharmed"
    warnings = [entry for entry in logs if entry["log_level"] == "warning"]
    assert len(warnings) == 1
    assert "malformed" in warnings[0]["event"]


async def test_a_peer_that_does_not_read_is_not_read_from_either() -> None:
    async with serving(write_high_water_bytes=100_000) as (server, address):
        host, port = address.split(":")
        stream = await trio.open_tcp_stream(host, int(port))
        frame = encode_frame(new_request(ECHO, body=b"x" * 100_000))
        sent = 0
        with trio.move_on_after(2):
            while sent < 1000:
                await stream.send_all(frame)
                sent += 1
        assert sent < 1000, "the server took 100 MB from a peer that takes nothing"
        connection = next(iter(server.connections))
        assert connection.paused
        decoder = FrameDecoder()
        answered = 0
        with trio.fail_after(10):
            while answered < sent:
                answered += len(decoder.feed(bytes(await stream.receive_some(1 << 20))))
        assert not connection.paused


# One connection over a memory stream, with a clock that jumps.


@asynccontextmanager
async def memory_connection(
    made: ProcessorTable, turn: Turn, events: Events | None = None
) -> AsyncIterator[tuple[RemotingServer, trio.StapledStream]]:
    ours, theirs = trio.testing.memory_stream_pair()
    server = RemotingServer(ServerSettings(), turn, events=events)
    server.bind(0, made)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve)
        nursery.start_soon(server.serve_stream, theirs, made, HERE, HERE)
        yield server, ours
        nursery.cancel_scope.cancel()


async def test_an_async_processor_does_not_hold_up_the_next_request(autojump_clock: trio.testing.MockClock) -> None:
    async with memory_connection(table(), Turn()) as (_, stream):
        first, second = new_request(SLOW), new_request(ECHO)
        first.opaque, second.opaque = 1, 2
        await stream.send_all(encode_frame(first) + encode_frame(second))
        began = trio.current_time()
        answers: list[RemotingCommand] = []
        decoder = FrameDecoder()
        while len(answers) < 2:
            answers += decoder.feed(bytes(await stream.receive_some(65536)))
        assert [answer.opaque for answer in answers] == [2, 1]
        assert trio.current_time() - began == pytest.approx(1, abs=0.01)


async def test_an_answer_outside_of_a_turn_leaves_soon(autojump_clock: trio.testing.MockClock) -> None:
    made, later = ProcessorTable(), Later()
    made.register(LATER, later)
    async with memory_connection(made, Turn()) as (_, stream):
        await stream.send_all(encode_frame(new_request(LATER)))
        await trio.testing.wait_all_tasks_blocked()
        later.answer_all()
        assert decode_frame(bytes(await stream.receive_some(65536))).body == b"later"


async def test_closing_cancels_the_tasks_of_a_connection(autojump_clock: trio.testing.MockClock) -> None:
    events, made, pool = Events(), ProcessorTable(), Pool("never", 10)
    made.register(NEVER, never, pool)
    async with memory_connection(made, Turn(), events) as (_, stream):
        await stream.send_all(encode_frame(new_request(NEVER)))
        await trio.testing.wait_all_tasks_blocked()
        assert pool.in_flight == 1
        await stream.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert (pool.in_flight, pool.head_wait_ms(), len(events.closed)) == (0, 0, 1)


async def test_a_silent_connection_is_closed(autojump_clock: trio.testing.MockClock) -> None:
    events = Events()
    async with memory_connection(table(), Turn(), events) as (_, stream):
        began = trio.current_time()
        await stream.send_all(encode_frame(new_request(ECHO)))
        await stream.receive_some(65536)
        assert await stream.receive_some(65536) == b""
        assert 120 <= trio.current_time() - began <= 135
        assert "idle" in str(events.closed[0].close_reason)


async def test_one_way_requests_get_no_answer(autojump_clock: trio.testing.MockClock) -> None:
    async with memory_connection(table(), Turn()) as (_, stream):
        for code in (ECHO, REFUSE, BREAK, 9999):
            await stream.send_all(encode_frame(new_request(code, oneway=True)))
        marker = new_request(ECHO, body=b"marker")
        await stream.send_all(encode_frame(marker))
        assert [found.body for found in FrameDecoder().feed(bytes(await stream.receive_some(65536)))] == [b"marker"]


async def test_end_of_turn_hooks_run_before_answers_leave(autojump_clock: trio.testing.MockClock) -> None:
    """As in the store: responses that the commit at the end of a turn produces leave with that turn."""
    turn, later, made = Turn(), Later(), ProcessorTable()
    made.register(LATER, later)
    turn.before_flush(lambda: (later.answer_all(), later.waiting.clear())[0])  # type: ignore[func-returns-value]
    async with memory_connection(made, turn) as (_, stream):
        await stream.send_all(encode_frame(new_request(LATER)) * 3)
        assert len(FrameDecoder().feed(bytes(await stream.receive_some(65536)))) == 3


class Clogged:
    """A transport that holds back what it receives."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data

    def write_pieces(self, pieces: list[bytes]) -> None:
        self.write(b"".join(pieces))

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None: ...


async def test_a_peer_that_takes_nothing_is_sent_nothing_more(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    turn, transport = Turn(), Clogged()
    connection = Connection(
        table(), turn, nursery, HERE, HERE, ConnectionSettings(1000, max_unanswered=9, high_water_bytes=1000)
    )
    connection.transport = transport
    connection.wrote(2000)
    with pytest.raises(RemotingTimeout, match="reads nothing"):
        await connection.invoke(new_request(ECHO), 3)
    assert trio.current_time() == 3
    turn.end()
    assert transport.data == b""

    async def invoke(error: type[Exception], seconds: float) -> None:
        with pytest.raises(error):
            await connection.invoke(new_request(ECHO), 3)
        assert trio.current_time() == seconds

    nursery.start_soon(invoke, RemotingTimeout, 6)  # one limit for both waits
    await trio.sleep(1)
    connection.wrote(0)
    await trio.testing.wait_all_tasks_blocked()
    turn.end()
    assert decode_frame(transport.data).code == ECHO
    await trio.sleep(3)
    connection.wrote(2000)
    nursery.start_soon(invoke, ConnectionClosed, 8)
    await trio.sleep(1)
    connection.close("enough")
    await trio.testing.wait_all_tasks_blocked()


async def test_a_peer_that_is_gone_before_its_request_begins_takes_no_place_of_a_pool_along() -> None:
    """Its bad frame closes the connection in the turn in which the earlier request was accepted."""
    async with serving() as (_, address), open_client() as client:
        host, port = address.split(":")
        for _attempt in range(3):  # the pool has two places
            async with await trio.open_tcp_stream(host, int(port)) as stream:
                await stream.send_all(encode_frame(new_request(NEVER)) + b"\xff\xff\xff\xff")
                assert await stream.receive_some() == b""
        with pytest.raises(RemotingTimeout):  # accepted, not refused with SYSTEM_BUSY
            await client.invoke(address, new_request(NEVER), 0.2)


async def test_the_bound_on_unanswered_requests_holds_for_those_who_waited_for_the_peer(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    turn = Turn()
    connection = Connection(
        ProcessorTable(), turn, nursery, HERE, HERE, ConnectionSettings(1000, max_unanswered=2, high_water_bytes=10)
    )
    connection.wrote(11)  # the peer takes nothing
    refused: list[TooManyRequests] = []

    async def call() -> None:
        try:
            await connection.invoke(new_request(ECHO), 5)
        except TooManyRequests as error:
            refused.append(error)
        except RemotingTimeout:
            pass

    async with trio.open_nursery() as callers:
        for _ in range(5):
            callers.start_soon(call)
        await trio.sleep(1)
        connection.wrote(0)
    assert len(refused) == 3


async def test_a_call_cancelled_while_it_connects_leaves_no_connection_that_nobody_serves() -> None:
    async with serving() as (_, address), open_client() as client:
        for _attempt in range(20):  # trio runs the two tasks in any order
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(client.invoke, address, new_request(ECHO, body=b"x"), 3)
                    while client.connection(address) is None:
                        await trio.lowlevel.checkpoint()
                    scope.cancel()
            assert (await client.invoke(address, new_request(ECHO, body=b"y"), 1)).body == b"y"
            connection = client.connection(address)
            assert connection is not None
            connection.close("the test goes on")


async def test_what_is_sent_before_there_is_a_transport_leaves_when_there_is_one(nursery: trio.Nursery) -> None:
    """A connection is in the client's table before the task that serves its stream begins."""
    turn = Turn()
    ours, theirs = trio.testing.memory_stream_pair()
    connection = Connection(ProcessorTable(), turn, nursery, HERE, HERE, ConnectionSettings(1000, max_unanswered=2))
    assert connection.send_oneway(new_request(ECHO, body=b"early"))
    turn.end()
    nursery.start_soon(serve_stream, ours, connection, turn)
    with trio.fail_after(5):
        (command,) = FrameDecoder().feed(bytes(await theirs.receive_some()))
    assert isinstance(command, RemotingCommand)
    assert command.body == b"early"
    connection.close("the test is over")
