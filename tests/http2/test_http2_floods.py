"""Floods that the protocol permits: each ends its connection, and what an honest client does instead does not."""

from __future__ import annotations

import pytest
from http2_peer import OK, REQUEST, TRAILERS, data, failure, greeted, headers, number, sent, settings

from triomq.http2 import frames
from triomq.http2.errors import ErrorCode
from triomq.http2.events import ConnectionFailed, Event
from triomq.http2.frames import END_HEADERS, END_STREAM, encode_frame
from triomq.http2.header_block import MAX_HEADER_BLOCK_BYTES, MAX_HEADER_FRAMES
from triomq.http2.hpack import MAX_FIELD_LIST_BYTES, encode_fields
from triomq.http2.patience import IDLE_FRAMES_PER_SECOND, MAX_IDLE_FRAMES
from triomq.http2.server_side import SETTINGS_COST, Bounds, ServerSide

FLOODS = {
    "PING": encode_frame(frames.PING, 0, 0, bytes(8)),
    "PING answers": encode_frame(frames.PING, 1, 0, bytes(8)),
    "windows of one byte": number(frames.WINDOW_UPDATE, 0, 1),
    "windows of a stream": number(frames.WINDOW_UPDATE, 1, 1),
    "empty data": data(1),
    "data of one byte": data(1, b"x"),
    "PRIORITY": encode_frame(frames.PRIORITY, 0, 1, bytes(5)),
    "unknown frames": encode_frame(0x42, 0, 0),
    "GOAWAY": encode_frame(frames.GOAWAY, 0, 0, bytes(8)),
    "late resets": number(frames.RST_STREAM, 1, 8),
}


def flood(server: ServerSide, frame: bytes, times: int) -> list[Event]:
    """Send a frame many times, and let the server forget what it answers."""
    events: list[Event] = []
    for _ in range(times):
        events = server.receive(frame)
        server.take_output()
        if server.is_closed:
            break
    return events


@pytest.mark.parametrize("what", FLOODS)
def test_frames_that_achieve_nothing_come_up_to_a_number(what: str) -> None:
    server = greeted()
    server.receive(settings() + headers(1))
    flood(server, FLOODS[what], MAX_IDLE_FRAMES - 2 * SETTINGS_COST)
    assert not server.is_closed
    assert failure(flood(server, FLOODS[what], 2 * SETTINGS_COST)).code is ErrorCode.ENHANCE_YOUR_CALM


def test_settings_come_up_to_a_number() -> None:
    server = greeted()
    flood(server, settings(window=1), MAX_IDLE_FRAMES // SETTINGS_COST - 1)
    assert not server.is_closed
    assert failure(flood(server, settings(window=2), 1)).code is ErrorCode.ENHANCE_YOUR_CALM


def test_rapid_resets_come_up_to_a_number_and_hold_nothing() -> None:
    server = greeted()
    for stream_id in range(1, 10 * MAX_IDLE_FRAMES, 2):
        server.receive(headers(stream_id) + number(frames.RST_STREAM, stream_id, 8))
        server.take_output()
        assert len(server) == 0
        if server.is_closed:
            break
    assert MAX_IDLE_FRAMES - SETTINGS_COST <= (stream_id + 1) // 2 <= MAX_IDLE_FRAMES + 1


def test_all_streams_of_a_client_may_be_given_up_at_once() -> None:
    bounds = Bounds()
    server = greeted(bounds)
    streams = range(1, 2 * bounds.max_streams, 2)
    server.receive(b"".join(headers(stream_id) for stream_id in streams))
    assert len(server) == bounds.max_streams
    server.receive(b"".join(number(frames.RST_STREAM, stream_id, 8) for stream_id in streams))
    assert len(server) == 0 and not server.is_closed


def test_malformed_requests_come_up_to_a_number() -> None:
    server = greeted()
    events: list[Event] = []
    for stream_id in range(1, 4 * MAX_IDLE_FRAMES, 2):
        events = server.receive(headers(stream_id, REQUEST[1:]))
        server.take_output()
        if server.is_closed:
            break
    assert failure(events).code is ErrorCode.ENHANCE_YOUR_CALM


def test_time_gives_patience_back_up_to_a_bound() -> None:
    server = greeted()
    for _ in range(20):
        server.replenish()
        flood(server, FLOODS["PING"], IDLE_FRAMES_PER_SECOND)
    assert not server.is_closed
    for _ in range(1000):
        server.replenish()
    assert isinstance(flood(server, FLOODS["PING"], MAX_IDLE_FRAMES + 1)[-1], ConnectionFailed)


def test_data_and_answers_give_patience_back() -> None:
    server = greeted()
    server.receive(headers(1) + number(frames.WINDOW_UPDATE, 0, 2**30) + number(frames.WINDOW_UPDATE, 1, 2**30))
    server.respond(1, encode_fields(OK))
    for _ in range(2 * MAX_IDLE_FRAMES):
        server.send_data(1, bytes(1000))
        server.receive(number(frames.WINDOW_UPDATE, 0, 1000) + number(frames.WINDOW_UPDATE, 1, 1000))
        server.take_output()
    for _ in range(2 * MAX_IDLE_FRAMES):
        server.receive(data(1, bytes(1000)) + FLOODS["PING"])
        server.consumed(1, 1000)
        server.take_output()
    assert not server.is_closed


def test_requests_that_are_answered_give_patience_back() -> None:
    server = greeted()
    for stream_id in range(1, 4 * MAX_IDLE_FRAMES, 2):
        server.receive(headers(stream_id) + data(stream_id, b"q", END_STREAM) + FLOODS["PING"])
        server.respond(stream_id, encode_fields(OK))
        server.send_end(stream_id, encode_fields(TRAILERS))
        server.take_output()
    assert not server.is_closed


@pytest.mark.parametrize("answer", [b"a", b"a" * 150, b"a" * 600])
def test_a_client_that_measures_the_connection_with_each_answer_is_served_without_end(answer: bytes) -> None:
    """gRPC's client in Go answers the data of each answer with a WINDOW_UPDATE and a PING."""
    server = greeted()
    for stream_id in range(1, 10 * MAX_IDLE_FRAMES, 2):
        server.receive(headers(stream_id) + data(stream_id, b"request", END_STREAM))
        server.respond(stream_id, encode_fields(OK))
        assert server.send_data(stream_id, answer)
        assert server.send_end(stream_id, encode_fields(TRAILERS))
        server.receive(number(frames.WINDOW_UPDATE, 0, len(answer)) + encode_frame(frames.PING, 0, 0, bytes(8)))
        server.take_output()
        assert not server.is_closed, stream_id


def test_windows_opened_byte_by_byte_are_a_flood_although_data_flows() -> None:
    server = greeted()
    server.receive(settings(window=0) + headers(1))
    server.respond(1, encode_fields(OK))
    server.send_data(1, bytes(100_000))
    assert failure(flood(server, number(frames.WINDOW_UPDATE, 1, 1), MAX_IDLE_FRAMES)).code == 11


def test_streams_above_the_number_are_refused_and_the_others_go_on() -> None:
    server = greeted(Bounds(max_streams=2))
    server.receive(headers(1) + headers(3) + headers(5))
    assert sent(server) == [(frames.RST_STREAM, 0, 5, int(ErrorCode.REFUSED_STREAM).to_bytes(4, "big"))]
    server.send_end(1, encode_fields(OK))
    server.receive(headers(7))
    assert len(server) == 2


def test_streams_above_the_number_are_refused_up_to_a_number() -> None:
    server = greeted(Bounds(max_streams=1))
    events: list[Event] = []
    for stream_id in range(1, 4 * MAX_IDLE_FRAMES, 2):
        events = server.receive(headers(stream_id))
        server.take_output()
        if server.is_closed:
            break
    assert failure(events).code is ErrorCode.ENHANCE_YOUR_CALM


def test_the_fields_of_a_refused_request_stay_in_the_table() -> None:
    server = greeted(Bounds(max_streams=1))
    first = encode_fields(REQUEST) + b"\x40\x03x-a\x011"
    again = encode_fields(REQUEST) + b"\xbe"
    server.receive(headers(1))
    server.receive(encode_frame(frames.HEADERS, END_HEADERS, 3, first))
    server.send_end(1, encode_fields(OK))
    event = server.receive(encode_frame(frames.HEADERS, END_HEADERS, 5, again))[0]
    assert (b"x-a", b"1") in event.fields  # type: ignore[union-attr]


def test_a_header_block_has_a_number_of_frames() -> None:
    more = encode_frame(frames.CONTINUATION, 0, 1)
    last = encode_frame(frames.CONTINUATION, END_HEADERS, 1)
    server = greeted()
    assert len(server.receive(headers(1, flags=0) + more * (MAX_HEADER_FRAMES - 2) + last)) == 1
    server = greeted()
    bad = server.receive(headers(1, flags=0) + more * (MAX_HEADER_FRAMES - 1) + last)
    assert failure(bad).code is ErrorCode.ENHANCE_YOUR_CALM


def test_a_header_block_has_a_length() -> None:
    server = greeted()
    piece = encode_frame(frames.CONTINUATION, 0, 1, bytes(16_000))
    for _ in range(MAX_HEADER_BLOCK_BYTES // 16_000):
        assert server.receive(piece if server.held_bytes else headers(1, flags=0) + piece) == []
    assert 0 < server.held_bytes <= MAX_HEADER_BLOCK_BYTES
    assert failure(server.receive(piece)).code is ErrorCode.ENHANCE_YOUR_CALM
    assert server.held_bytes == 0


def test_header_fields_that_unfold_to_more_than_their_bound_end_the_connection() -> None:
    server = greeted()
    bomb = b"\x40\x01a\x7f\xe1\x17" + b"v" * 3168 + b"\xbe" * 1000
    found = failure(server.receive(encode_frame(frames.HEADERS, END_HEADERS, 1, encode_fields(REQUEST) + bomb)))
    assert found.code is ErrorCode.ENHANCE_YOUR_CALM
    assert str(MAX_FIELD_LIST_BYTES) in found.reason
