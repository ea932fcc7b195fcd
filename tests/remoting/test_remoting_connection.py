"""One connection over a recording transport: back-pressure, closing, tasks."""

from __future__ import annotations

from math import inf

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from triomq.monitoring.answers import Answers, Kind
from triomq.protocol.address import HostPort
from triomq.protocol.command import (
    JSON,
    MSGPACK,
    ROCKETMQ,
    RPC_ONEWAY,
    RemotingCommand,
    new_request,
    new_response,
)
from triomq.protocol.frame import FrameDecoder, decode_frame, encode_frame
from triomq.protocol.response_template import ResponseTemplate
from triomq.remoting.connection import APART_BYTES, Connection
from triomq.remoting.connection_settings import ConnectionSettings
from triomq.remoting.errors import ConnectionClosed, TooManyRequests
from triomq.remoting.processor_table import ProcessorTable
from triomq.remoting.turn import Turn

HERE = HostPort("127.0.0.1", 1)
SECONDS = 60
HIGH_BYTES, LOW_BYTES = 1000, 300


class RecordingTransport:
    """Records the calls; `written` is all data, `pieces` what came in pieces."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.written = b""
        self.pieces: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written += data

    def write_pieces(self, pieces: list[bytes]) -> None:
        self.pieces += pieces
        self.write(b"".join(pieces))

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")

    def close(self) -> None:
        self.calls.append("close")


class Peers:
    """A connection, its transport, and how often its owner was notified of its end."""

    def __init__(self, nursery: trio.Nursery, low_water_bytes: int = LOW_BYTES) -> None:
        self.turn = Turn()
        self.transport = RecordingTransport()
        self.ends: list[str | None] = []
        settings = ConnectionSettings(10_000, 3, high_water_bytes=HIGH_BYTES, low_water_bytes=low_water_bytes)
        self.connection = Connection(
            ProcessorTable(),
            self.turn,
            nursery,
            HERE,
            HERE,
            settings,
            on_close=lambda connection: self.ends.append(connection.close_reason),
        )
        self.connection.transport = self.transport


async def test_reading_pauses_above_the_high_water_mark_and_resumes_at_the_low_one(nursery: trio.Nursery) -> None:
    peers = Peers(nursery)
    seen = []
    for backlog_bytes in (HIGH_BYTES, HIGH_BYTES + 1, HIGH_BYTES, LOW_BYTES + 1, LOW_BYTES, 0):
        peers.connection.wrote(backlog_bytes)
        seen.append(list(peers.transport.calls))
    assert seen == [[], ["pause"], ["pause"], ["pause"], ["pause", "resume"], ["pause", "resume"]]


async def test_without_a_low_water_mark_reading_resumes_at_a_quarter(nursery: trio.Nursery) -> None:
    peers = Peers(nursery, low_water_bytes=0)
    peers.connection.wrote(HIGH_BYTES + 1)
    peers.connection.wrote(HIGH_BYTES // 4 + 1)
    assert peers.connection.paused
    peers.connection.wrote(HIGH_BYTES // 4)
    assert not peers.connection.paused


async def test_who_waits_for_room_goes_on_at_the_low_water_mark_or_at_its_own(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    peers = Peers(nursery)
    done: list[str] = []

    async def wait(name: str, backlog_bytes: int | None) -> None:
        await peers.connection.backpressure.wait_drained(backlog_bytes)
        done.append(name)

    peers.connection.wrote(HIGH_BYTES + 1)
    nursery.start_soon(wait, "low", None)
    nursery.start_soon(wait, "own", 500)
    seen = []
    for backlog_bytes in (501, 500, LOW_BYTES + 1, LOW_BYTES):
        await trio.testing.wait_all_tasks_blocked()
        peers.connection.wrote(backlog_bytes)
        await trio.testing.wait_all_tasks_blocked()
        seen.append(list(done))
    assert seen == [[], ["own"], ["own"], ["own", "low"]]


async def test_a_long_body_is_not_copied_behind_its_header(nursery: trio.Nursery) -> None:
    peers = Peers(nursery)
    long, short = new_request(1, body=b"x" * APART_BYTES), new_request(2, body=b"y" * (APART_BYTES - 1))
    peers.connection._send(long)
    peers.turn.end()
    assert peers.transport.pieces[1] is long.body
    assert peers.transport.written == encode_frame(long)
    peers.connection._send(short)
    peers.turn.end()
    assert len(peers.transport.pieces) == 2, "a short body leaves in one piece with its header"
    assert peers.transport.written == encode_frame(long) + encode_frame(short)


async def test_a_long_body_among_many_short_ones_leaves_with_them_in_one_piece(nursery: trio.Nursery) -> None:
    peers = Peers(nursery)
    requests = [new_request(1, body=b"x" * (APART_BYTES if number == 3 else 1)) for number in range(9)]
    for request in requests:
        peers.connection._send(request)
    peers.turn.end()
    assert not peers.transport.pieces
    assert peers.transport.written == b"".join(map(encode_frame, requests))


async def test_a_close_fails_everybody_who_waits_and_tells_the_owner_once(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    peers = Peers(nursery)
    errors: list[str] = []

    async def ask() -> None:
        with pytest.raises(ConnectionClosed) as caught:
            await peers.connection.invoke(new_request(1), SECONDS)
        errors.append(str(caught.value))

    async def drain() -> None:
        await peers.connection.backpressure.wait_drained()
        errors.append("drained")

    with trio.fail_after(SECONDS / 2):
        async with trio.open_nursery() as waiting:
            waiting.start_soon(ask)
            waiting.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            peers.connection.wrote(HIGH_BYTES + 1)
            waiting.start_soon(ask)  # waits for room, not for a response
            waiting.start_soon(drain)
            await trio.testing.wait_all_tasks_blocked()
            peers.connection.close("the peer has gone")
            peers.connection.close("once more")
    assert sorted(errors) == [
        "connection to 127.0.0.1:1 is closed: the peer has gone",
        "connection to 127.0.0.1:1 was closed: the peer has gone",
        "connection to 127.0.0.1:1 was closed: the peer has gone",
        "drained",
    ]
    assert (peers.ends, peers.transport.calls.count("close")) == (["the peer has gone"], 1)


async def test_a_close_cancels_the_tasks_of_the_connection_also_one_that_has_not_begun(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    peers = Peers(nursery)
    ends: list[str] = []

    async def work(name: str) -> None:
        try:
            await trio.sleep_forever()
        finally:
            ends.append(name)

    peers.connection.start_soon(work, "running")
    await trio.testing.wait_all_tasks_blocked()
    peers.connection.start_soon(work, "not begun")
    peers.connection.close("enough")
    await trio.testing.wait_all_tasks_blocked()
    assert sorted(ends) == ["not begun", "running"]


async def test_a_task_that_fails_costs_neither_the_connection_nor_its_other_tasks(nursery: trio.Nursery) -> None:
    peers = Peers(nursery)
    ends: list[str] = []

    async def fail() -> None:
        raise ValueError("this task always fails")

    async def work() -> None:
        await trio.lowlevel.checkpoint()
        ends.append("done")

    peers.connection.start_soon(fail)
    peers.connection.start_soon(work)
    await trio.testing.wait_all_tasks_blocked()
    assert (ends, peers.connection.is_open) == (["done"], True)


async def test_a_closed_connection_takes_no_request_and_sends_no_response(nursery: trio.Nursery) -> None:
    peers = Peers(nursery)
    peers.connection.close("enough")
    with pytest.raises(ConnectionClosed, match="is closed: enough"):
        await peers.connection.invoke(new_request(1), SECONDS)
    assert not peers.connection.send_oneway(new_request(1))
    request = new_request(1)
    peers.connection.answer(request, new_response(request))
    peers.turn.end()
    assert peers.transport.written == b""


async def test_as_many_requests_as_allowed_wait_for_a_response(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    peers = Peers(nursery)
    for _ in range(3):
        nursery.start_soon(peers.connection.invoke, new_request(1), SECONDS)
    await trio.testing.wait_all_tasks_blocked()
    with pytest.raises(TooManyRequests, match=r"3 requests to 127\.0\.0\.1:1 are unanswered"):
        await peers.connection.invoke(new_request(1), SECONDS)
    peers.turn.end()
    for request in FrameDecoder().feed(peers.transport.written):
        peers.connection.receive(encode_frame(new_response(request)))


async def test_opaque_numbers_stay_positive_when_they_wrap_around(nursery: trio.Nursery) -> None:
    peers = Peers(nursery)
    peers.connection._next_opaque = 0x7FFFFFFE
    for _ in range(3):
        assert peers.connection.send_oneway(new_request(1))
    peers.turn.end()
    sent: list[RemotingCommand] = FrameDecoder().feed(peers.transport.written)
    assert [command.opaque for command in sent] == [0x7FFFFFFF, 0, 1]


@pytest.mark.parametrize("backlog_bytes", [HIGH_BYTES, HIGH_BYTES + 1])
async def test_a_oneway_request_is_dropped_above_the_high_water_mark(nursery: trio.Nursery, backlog_bytes: int) -> None:
    peers = Peers(nursery)
    peers.connection.wrote(backlog_bytes)
    assert peers.connection.send_oneway(new_request(1)) == (backlog_bytes == HIGH_BYTES)


@pytest.mark.parametrize("serialize_type", [JSON, ROCKETMQ, MSGPACK])
async def test_a_response_from_a_template_is_sent_as_any_other(nursery: trio.Nursery, serialize_type: int) -> None:
    template = ResponseTemplate(("id", "offset"), {"kind": "x"})
    request = RemotingCommand(310, opaque=7, serialize_type=serialize_type)
    written: list[bytes] = []
    noted: list[list[Kind]] = []
    observed: list[tuple[RemotingCommand, dict[str, str] | None]] = []
    for observes in (False, True):
        peers = Peers(nursery)
        peers.turn.answers = answers = Answers()
        if observes:
            peers.connection.on_answer = lambda _, asked, sent: observed.append((asked, sent.ext_fields))
        peers.turn.begin()
        peers.connection.answer_filled(request, template, 10, (b"12", 5), inf)
        peers.turn.end()
        answers.turn_ended(0.001)
        written.append(peers.transport.written)
        noted.append(list(answers.times))
    assert decode_frame(written[0]).code == decode_frame(written[1]).code == 10
    assert decode_frame(written[0]).opaque == 7
    fields = {"kind": "x", "id": "12", "offset": "5"}
    assert decode_frame(written[0]).ext_fields == decode_frame(written[1]).ext_fields == fields
    assert observed == [(request, fields)]
    assert noted == [[(310, 10, False)]] * 2


async def test_nothing_of_a_template_goes_to_who_asked_one_way_or_has_left(nursery: trio.Nursery) -> None:
    template = ResponseTemplate(("id",))
    peers = Peers(nursery)
    peers.connection.answer_filled(RemotingCommand(310, flag=RPC_ONEWAY), template, 0, (1,), inf)
    peers.turn.end()
    assert peers.transport.written == b""
    peers.connection.close("left")
    peers.connection.answer_filled(RemotingCommand(310), template, 0, (1,), inf)
    peers.turn.end()
    assert peers.transport.written == b""


async def test_a_bad_frame_closes_after_the_responses_to_the_good_ones_before_it(nursery: trio.Nursery) -> None:
    peers = Peers(nursery)
    table = ProcessorTable()
    table.register(1, lambda _, request: new_response(request, body=b"good"))
    peers.connection._handler = table
    peers.turn.begin()
    peers.connection.receive(encode_frame(new_request(1)) + b"\xff\xff\xff\xff")
    assert peers.connection.is_open
    peers.turn.end()
    assert [response.body for response in FrameDecoder().feed(peers.transport.written)] == [b"good"]
    assert "malformed frame: a frame of -1 bytes" in str(peers.connection.close_reason)
