"""A server's side of HTTP/2 with the h2 library as its client, and its answers to what a client must not do."""

from __future__ import annotations

import pytest
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    PingAckReceived,
    ResponseReceived,
    StreamEnded,
    TrailersReceived,
)
from h2.events import StreamReset as PeerReset
from h2.settings import SettingCodes
from http2_peer import HELLO, OK, REQUEST, TRAILERS, Pair, data, failure, greeted, headers, number, sent, settings
from hypothesis import given
from hypothesis import strategies as st

from triomq.http2 import frames
from triomq.http2.errors import ErrorCode
from triomq.http2.events import ConnectionFailed, DataArrived, RequestStarted, StreamReset, TrailersArrived
from triomq.http2.frames import ACK, END_HEADERS, END_STREAM, MAX_FRAME_BYTES, PADDED, encode_frame
from triomq.http2.hpack import Field, encode_fields
from triomq.http2.server_side import Bounds, ServerSide


def answer(server: ServerSide, stream_id: int, body: bytes) -> None:
    assert server.respond(stream_id, encode_fields(OK))
    assert server.send_data(stream_id, body)
    assert server.send_end(stream_id, encode_fields(TRAILERS))


def received(pair: Pair, stream_id: int) -> bytes:
    """Return the data that the client has of a stream, and give its window back."""
    body = b""
    for event in pair.heard:
        if isinstance(event, DataReceived) and event.stream_id == stream_id:
            body += event.data
    return body


def test_a_request_and_its_answer() -> None:
    pair = Pair()
    pair.client.send_headers(1, REQUEST)
    pair.client.send_data(1, b"question", end_stream=True)
    assert pair.exchange() == [RequestStarted(1, REQUEST, False), DataArrived(1, b"question", True)]
    answer(pair.server, 1, b"answer")
    pair.exchange()
    kinds = [type(event) for event in pair.heard if getattr(event, "stream_id", None) == 1]
    assert kinds == [ResponseReceived, DataReceived, TrailersReceived, StreamEnded]
    assert received(pair, 1) == b"answer"
    assert len(pair.server) == 0


def test_a_request_without_a_body_and_an_answer_of_trailers_alone() -> None:
    pair = Pair()
    pair.client.send_headers(1, REQUEST, end_stream=True)
    assert pair.exchange() == [RequestStarted(1, REQUEST, True)]
    assert pair.server.send_end(1, encode_fields(OK + TRAILERS))
    pair.exchange()
    assert [type(event) for event in pair.heard[-2:]] == [ResponseReceived, StreamEnded]
    assert len(pair.server) == 0


def test_trailers_of_a_request_end_it() -> None:
    pair = Pair()
    pair.client.send_headers(1, REQUEST)
    pair.client.send_headers(1, [(b"x-end", b"1")], end_stream=True)
    assert pair.exchange()[1:] == [TrailersArrived(1, [(b"x-end", b"1")])]


@given(st.lists(st.integers(1, 60), min_size=1, max_size=6), st.integers(1, 40))
def test_how_the_bytes_are_cut_changes_nothing(sizes: list[int], piece_bytes: int) -> None:
    whole, cut = Pair(), Pair()
    for pair in (whole, cut):
        for index, size in enumerate(sizes):
            pair.client.send_headers(2 * index + 1, [*REQUEST, (b"x-n", b"%d" % size)])
            pair.client.send_data(2 * index + 1, bytes(size), end_stream=True)
    assert cut.exchange(piece_bytes) == whole.exchange()
    assert cut.server.held_bytes == 0


def test_a_long_answer_goes_within_the_windows_of_the_client() -> None:
    pair = Pair()
    pair.client.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 1000})
    pair.client.send_headers(1, REQUEST, end_stream=True)
    pair.exchange()
    body = bytes(range(256)) * 400
    answer(pair.server, 1, body)
    pair.exchange()
    assert len(received(pair, 1)) == 1000
    assert pair.server.pending_bytes == len(body) - 1000
    pair.client.increment_flow_control_window(len(body), 1)
    pair.exchange()
    assert len(received(pair, 1)) == 65535  # the window of the connection
    pair.client.increment_flow_control_window(len(body))
    pair.exchange()
    assert received(pair, 1) == body
    assert isinstance(pair.heard[-1], StreamEnded)
    assert pair.server.pending_bytes == len(pair.server) == 0


def test_a_larger_initial_window_lets_a_waiting_answer_go() -> None:
    pair = Pair()
    pair.client.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
    pair.client.send_headers(1, REQUEST, end_stream=True)
    pair.exchange()
    answer(pair.server, 1, b"answer")
    pair.exchange()
    assert received(pair, 1) == b""
    pair.client.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 3})
    pair.exchange()
    assert received(pair, 1) == b"ans"
    pair.client.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 6})
    pair.exchange()
    assert received(pair, 1) == b"answer"


def test_a_stream_whose_window_is_used_up_holds_no_other_up() -> None:
    server = greeted()
    server.receive(settings(window=5) + headers(1) + headers(3) + number(frames.WINDOW_UPDATE, 3, 100))
    for stream_id in (1, 3):
        server.respond(stream_id, encode_fields(OK))
    server.send_data(1, b"0123456789")
    server.send_data(3, b"abcdefghij")
    bodies = {(stream, payload) for kind, _, stream, payload in sent(server) if kind == frames.DATA}
    assert bodies == {(1, b"01234"), (3, b"abcdefghij")}


def test_streams_share_the_window_of_the_connection_frame_by_frame() -> None:
    server = greeted()
    server.receive(settings(window=1 << 20) + headers(1) + headers(3))
    for stream_id in (1, 3):
        server.respond(stream_id, encode_fields(OK))
        server.send_data(stream_id, bytes(200_000))
    sent(server)
    server.receive(number(frames.WINDOW_UPDATE, 0, 4 * MAX_FRAME_BYTES))
    order = [(stream, len(payload)) for kind, _, stream, payload in sent(server) if kind == frames.DATA]
    assert [stream for stream, _ in order] == [1, 3, 1, 3]
    assert {size for _, size in order} == {MAX_FRAME_BYTES}


def test_streams_take_turns_when_the_window_grows_by_one_frame_at_a_time() -> None:
    server = greeted()
    server.receive(settings(window=1 << 20) + headers(1) + headers(3))
    for stream_id in (1, 3):
        server.respond(stream_id, encode_fields(OK))
        server.send_data(stream_id, bytes(200_000))
    sent(server)
    order = []
    for _ in range(4):
        server.receive(number(frames.WINDOW_UPDATE, 0, MAX_FRAME_BYTES))
        order += [stream for kind, _, stream, _ in sent(server) if kind == frames.DATA]
    assert order == [1, 3, 1, 3]


def test_frames_are_as_long_as_the_client_permits() -> None:
    server = greeted()
    server.receive(settings(frame=50_000) + headers(1))
    server.respond(1, encode_fields(OK))
    server.send_data(1, bytes(60_000))
    output = server.take_output()
    assert (50_000).to_bytes(3, "big") + b"\0\0" in output
    assert (10_000).to_bytes(3, "big") + b"\0\0" in output


def test_a_request_that_has_ended_gets_no_more_window() -> None:
    server = greeted(Bounds(stream_window_bytes=10_000))
    server.receive(headers(1) + data(1, bytes(9_000), END_STREAM))
    server.consumed(1, 9_000)
    assert sent(server) == []


def test_the_window_of_a_client_grows_as_its_data_is_consumed() -> None:
    pair = Pair(Bounds(stream_window_bytes=20_000, connection_window_bytes=70_000))
    pair.client.send_headers(1, REQUEST)
    for _ in range(50):
        size = min(pair.client.local_flow_control_window(1), MAX_FRAME_BYTES)
        assert size > 0
        pair.client.send_data(1, bytes(size))
        for event in pair.exchange():
            if isinstance(event, DataArrived):
                pair.server.consumed(1, len(event.data))
        pair.exchange()


def test_data_that_is_not_consumed_stops_the_client() -> None:
    pair = Pair(Bounds(stream_window_bytes=20_000))
    pair.client.send_headers(1, REQUEST)
    pair.exchange()
    for _ in range(2):
        pair.client.send_data(1, bytes(10_000))
        pair.exchange()
    assert pair.client.local_flow_control_window(1) == 0


def test_what_a_stream_held_is_given_back_when_it_is_gone() -> None:
    pair = Pair(Bounds(stream_window_bytes=70_000, connection_window_bytes=70_000))
    for stream_id in range(1, 41, 2):
        pair.client.send_headers(stream_id, REQUEST)
        size = min(pair.client.local_flow_control_window(stream_id), MAX_FRAME_BYTES)
        assert size > 10_000
        pair.client.send_data(stream_id, bytes(size))
        pair.client.reset_stream(stream_id)
        pair.exchange()
    assert len(pair.server) == 0


def test_data_for_a_stream_that_is_gone_is_given_back_to_the_connection() -> None:
    server = greeted(Bounds(connection_window_bytes=70_000))
    server.receive(headers(1))
    server.reset(1, ErrorCode.CANCEL)
    for _ in range(20):
        server.receive(data(1, bytes(10_000)))
    updates = [payload for kind, _, _, payload in sent(server) if kind == frames.WINDOW_UPDATE]
    assert sum(int.from_bytes(payload, "big") for payload in updates) > 130_000
    assert not server.is_closed


def test_padding_counts_for_the_window_and_is_given_back() -> None:
    server = greeted(Bounds(stream_window_bytes=2000, connection_window_bytes=70_000))
    server.receive(headers(1))
    for _ in range(50):
        padded = bytes([255]) + b"x" + bytes(255)
        events = server.receive(data(1, padded, PADDED))
        assert events == [DataArrived(1, b"x", False)]
    server.consumed(1, 50)


def test_pings_are_answered() -> None:
    pair = Pair()
    pair.client.ping(b"12345678")
    pair.exchange()
    assert [event.ping_data for event in pair.heard if isinstance(event, PingAckReceived)] == [b"12345678"]


def test_a_client_that_gives_up_is_told_and_its_answer_goes_nowhere() -> None:
    pair = Pair()
    pair.client.send_headers(1, REQUEST)
    pair.client.reset_stream(1, error_code=8)
    assert pair.exchange()[1:] == [StreamReset(1, ErrorCode.CANCEL, "given up by the client", False)]
    assert not pair.server.respond(1, encode_fields(OK))
    assert not pair.server.send_data(1, b"x")
    assert not pair.server.send_end(1, encode_fields(TRAILERS))


def test_an_answer_before_the_end_of_the_request_asks_for_no_more_of_it() -> None:
    pair = Pair()
    pair.client.send_headers(1, REQUEST)
    pair.exchange()
    pair.server.send_end(1, encode_fields(OK + TRAILERS))
    pair.exchange()
    resets = [event.error_code for event in pair.heard if isinstance(event, PeerReset)]
    assert resets == [ErrorCode.NO_ERROR]


def test_an_answer_has_one_beginning_and_one_end() -> None:
    server = greeted()
    server.receive(settings(window=0) + headers(1))
    assert not server.send_data(1, b"before the beginning")
    assert server.respond(1, encode_fields(OK)) and not server.respond(1, encode_fields(OK))
    assert server.send_data(1, b"x")
    assert server.send_end(1, encode_fields(TRAILERS)) and not server.send_end(1, encode_fields(TRAILERS))
    assert not server.send_data(1, b"behind the end")


def test_a_long_header_block_goes_in_several_frames() -> None:
    pair = Pair()
    pair.client.send_headers(1, REQUEST, end_stream=True)
    pair.exchange()
    message = (b"grpc-message", b"m" * 40_000)
    pair.server.send_end(1, encode_fields([*OK, message]))
    pair.exchange()
    answers = [event.headers for event in pair.heard if isinstance(event, ResponseReceived)]
    assert [tuple(field) for field in answers[0]] == [*OK, message]


def test_a_client_may_have_a_smaller_header_table() -> None:
    pair = Pair()
    pair.client.update_settings({SettingCodes.HEADER_TABLE_SIZE: 100})
    for stream_id in (1, 3):
        pair.client.send_headers(stream_id, REQUEST, end_stream=True)
        pair.exchange()
        answer(pair.server, stream_id, b"answer")
        pair.exchange()
        assert received(pair, stream_id) == b"answer"


def test_no_new_stream_is_taken_after_the_farewell_and_the_open_ones_end() -> None:
    server = greeted()
    server.receive(headers(1))
    server.go_away("the server stops")
    server.go_away("the server stops")
    assert [(kind, payload) for kind, _, _, payload in sent(server)] == [
        (frames.GOAWAY, (1).to_bytes(4, "big") + bytes(4) + b"the server stops")
    ]
    assert server.receive(headers(3)) == []
    assert sent(server) == [(frames.RST_STREAM, 0, 3, int(ErrorCode.REFUSED_STREAM).to_bytes(4, "big"))]
    answer(server, 1, b"answer")
    assert len(server) == 0
    server.close(ErrorCode.NO_ERROR, "done")
    assert sent(server)[-1][3][:4] == (1).to_bytes(4, "big")


def test_a_server_may_give_a_stream_up() -> None:
    pair = Pair()
    pair.client.send_headers(1, REQUEST)
    pair.exchange()
    pair.server.reset(1, ErrorCode.INTERNAL_ERROR)
    pair.server.reset(1, ErrorCode.INTERNAL_ERROR)
    pair.exchange()
    assert [event.error_code for event in pair.heard if isinstance(event, PeerReset)] == [ErrorCode.INTERNAL_ERROR]


def test_after_the_close_nothing_is_heard() -> None:
    pair = Pair()
    pair.client.send_headers(1, REQUEST)
    pair.exchange()
    pair.server.close(ErrorCode.INTERNAL_ERROR, "a reason")
    pair.exchange()
    ends = [event for event in pair.heard if isinstance(event, ConnectionTerminated)]
    assert [(event.error_code, event.additional_data) for event in ends] == [(ErrorCode.INTERNAL_ERROR, b"a reason")]
    assert pair.server.receive(data(1, b"x")) == []


REFUSED_REQUESTS: list[list[Field]] = [
    REQUEST[1:],
    [field for field in REQUEST if field[0] != b":scheme"],
    [field for field in REQUEST if field[0] != b":path"],
    [*REQUEST, (b":path", b"/again")],
    [*REQUEST[:2], *REQUEST[3:], (b":path", b"/late")],
    [REQUEST[0], *REQUEST],
    [(b":status", b"200"), *REQUEST],
    [(b":path", b""), (b":method", b"POST"), (b":scheme", b"http")],
    [*REQUEST, (b"connection", b"close")],
    [*REQUEST, (b"transfer-encoding", b"chunked")],
    [*REQUEST[:4], (b"te", b"gzip")],
    [*REQUEST, (b"Upper", b"case")],
]


@pytest.mark.parametrize("fields", REFUSED_REQUESTS)
def test_a_malformed_request_costs_its_stream_only(fields: list[Field]) -> None:
    server = greeted()
    assert server.receive(headers(1, fields) + headers(3)) == [RequestStarted(3, REQUEST, False)]
    assert sent(server) == [(frames.RST_STREAM, 0, 1, int(ErrorCode.PROTOCOL_ERROR).to_bytes(4, "big"))]


STREAM_FAULTS = {
    "data behind the end": (data(1, b"x", END_STREAM) + data(1, b"y"), ErrorCode.STREAM_CLOSED),
    "headers behind the end": (data(1, b"x", END_STREAM) + headers(1), ErrorCode.STREAM_CLOSED),
    "trailers in the middle": (headers(1, [(b"a", b"b")]), ErrorCode.PROTOCOL_ERROR),
    "a pseudo field in trailers": (headers(1, flags=END_STREAM | END_HEADERS), ErrorCode.PROTOCOL_ERROR),
    "a malformed trailer": (headers(1, [(b"A", b"")], END_STREAM | END_HEADERS), ErrorCode.PROTOCOL_ERROR),
    "a window update by 0": (number(frames.WINDOW_UPDATE, 1, 0), ErrorCode.PROTOCOL_ERROR),
    "a window that is too large": (number(frames.WINDOW_UPDATE, 1, 2**31 - 1), ErrorCode.FLOW_CONTROL_ERROR),
    "a short priority": (encode_frame(frames.PRIORITY, 0, 1, b"1234"), ErrorCode.FRAME_SIZE_ERROR),
    "data above the window": (data(1, bytes(10_001)), ErrorCode.FLOW_CONTROL_ERROR),
}


@pytest.mark.parametrize("what", STREAM_FAULTS)
def test_a_fault_in_one_stream_leaves_the_others(what: str) -> None:
    bad, code = STREAM_FAULTS[what]
    server = greeted(Bounds(stream_window_bytes=10_000))
    events = server.receive(headers(1) + bad + headers(3))
    assert isinstance(events[-1], RequestStarted)
    resets = [event for event in events if isinstance(event, StreamReset)]
    assert [(reset.stream_id, reset.code, reset.is_fault) for reset in resets] == [(1, code, True)]
    assert (frames.RST_STREAM, 0, 1, int(code).to_bytes(4, "big")) in sent(server)
    assert len(server) == 1


CONNECTION_FAULTS = {
    "HTTP/1": (b"GET / HTTP/1.1\r\n", ErrorCode.PROTOCOL_ERROR),
    "no settings": (HELLO[:24] + headers(1), ErrorCode.PROTOCOL_ERROR),
    "an acknowledgement first": (HELLO[:24] + encode_frame(frames.SETTINGS, ACK, 0), ErrorCode.PROTOCOL_ERROR),
    "an even stream": (HELLO + headers(2), ErrorCode.PROTOCOL_ERROR),
    "stream 0": (HELLO + headers(0), ErrorCode.PROTOCOL_ERROR),
    "an older stream": (HELLO + headers(5) + headers(3), ErrorCode.STREAM_CLOSED),
    "data before headers": (HELLO + data(1), ErrorCode.PROTOCOL_ERROR),
    "a reset before headers": (HELLO + number(frames.RST_STREAM, 1, 8), ErrorCode.PROTOCOL_ERROR),
    "a window before headers": (HELLO + number(frames.WINDOW_UPDATE, 1, 8), ErrorCode.PROTOCOL_ERROR),
    "a push": (HELLO + encode_frame(frames.PUSH_PROMISE, 0, 1), ErrorCode.PROTOCOL_ERROR),
    "a continuation of nothing": (HELLO + encode_frame(frames.CONTINUATION, 4, 1), ErrorCode.PROTOCOL_ERROR),
    "a frame in a header block": (HELLO + headers(1, flags=0) + data(1), ErrorCode.PROTOCOL_ERROR),
    "another continuation": (
        HELLO + headers(1, flags=0) + encode_frame(frames.CONTINUATION, 4, 3),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "headers shorter than their padding": (
        HELLO + encode_frame(frames.HEADERS, PADDED | END_HEADERS, 1, b"\x05abc"),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "headers shorter than their priority": (
        HELLO + encode_frame(frames.HEADERS, 0x24, 1, b"1234"),
        ErrorCode.FRAME_SIZE_ERROR,
    ),
    "a block that cannot be decoded": (
        HELLO + encode_frame(frames.HEADERS, END_HEADERS, 1, b"\x80"),
        ErrorCode.COMPRESSION_ERROR,
    ),
    "a short ping": (HELLO + encode_frame(frames.PING, 0, 0, b"1"), ErrorCode.FRAME_SIZE_ERROR),
    "a ping in a stream": (HELLO + encode_frame(frames.PING, 0, 1, bytes(8)), ErrorCode.PROTOCOL_ERROR),
    "a short reset": (HELLO + headers(1) + encode_frame(frames.RST_STREAM, 0, 1), ErrorCode.FRAME_SIZE_ERROR),
    "a short window": (HELLO + encode_frame(frames.WINDOW_UPDATE, 0, 0), ErrorCode.FRAME_SIZE_ERROR),
    "a window by 0": (HELLO + number(frames.WINDOW_UPDATE, 0, 0), ErrorCode.PROTOCOL_ERROR),
    "a window that is too large": (HELLO + number(frames.WINDOW_UPDATE, 0, 2**31 - 1), ErrorCode.FLOW_CONTROL_ERROR),
    "settings in a stream": (HELLO + encode_frame(frames.SETTINGS, 0, 1), ErrorCode.PROTOCOL_ERROR),
    "half settings": (HELLO + encode_frame(frames.SETTINGS, 0, 0, b"123"), ErrorCode.FRAME_SIZE_ERROR),
    "settings acknowledged with bytes": (
        HELLO + encode_frame(frames.SETTINGS, ACK, 0, bytes(6)),
        ErrorCode.FRAME_SIZE_ERROR,
    ),
    "a push setting": (HELLO + settings(push=2), ErrorCode.PROTOCOL_ERROR),
    "a long initial window": (HELLO + settings(window=2**31), ErrorCode.FLOW_CONTROL_ERROR),
    "a short frame size": (HELLO + settings(frame=2**14 - 1), ErrorCode.PROTOCOL_ERROR),
    "a window that settings make too large": (
        HELLO + headers(1) + number(frames.WINDOW_UPDATE, 1, 1) + settings(window=2**31 - 1),
        ErrorCode.FLOW_CONTROL_ERROR,
    ),
    "a priority of no stream": (HELLO + encode_frame(frames.PRIORITY, 0, 0, bytes(5)), ErrorCode.PROTOCOL_ERROR),
    "a farewell in a stream": (HELLO + encode_frame(frames.GOAWAY, 0, 1, bytes(8)), ErrorCode.PROTOCOL_ERROR),
    "a long frame": (HELLO + b"\x00\x40\x01" + bytes(6), ErrorCode.FRAME_SIZE_ERROR),
    "data above the window": (
        HELLO + b"".join(headers(n) + data(n, bytes(MAX_FRAME_BYTES)) for n in range(1, 11, 2)),
        ErrorCode.FLOW_CONTROL_ERROR,
    ),
}


@pytest.mark.parametrize("what", CONNECTION_FAULTS)
def test_a_fault_of_the_connection_ends_it_with_its_reason(what: str) -> None:
    bad, code = CONNECTION_FAULTS[what]
    server = ServerSide(Bounds(connection_window_bytes=70_000, stream_window_bytes=20_000))
    server.take_output()
    found = failure(server.receive(bad + headers(99)))
    assert found.code == code
    kind, _, _, payload = sent(server)[-1]
    assert kind == frames.GOAWAY
    assert payload[4:] == int(code).to_bytes(4, "big") + found.reason.encode()
    assert server.is_closed and len(server) == 0


def test_the_window_of_a_connection_has_a_least_length() -> None:
    with pytest.raises(ValueError, match="the least is 65536"):
        Bounds(connection_window_bytes=65535)


def test_requests_before_a_fault_are_told() -> None:
    server = greeted()
    events = server.receive(headers(1) + b"\x00\x40\x01" + bytes(6))
    assert [type(event) for event in events] == [RequestStarted, ConnectionFailed]


@given(st.binary(max_size=200), st.integers(1, 50))
def test_any_bytes_are_heard_or_refused(noise: bytes, piece_bytes: int) -> None:
    server = greeted()
    for at in range(0, len(noise), piece_bytes):
        server.receive(noise[at : at + piece_bytes])
    assert server.is_closed or server.held_bytes <= len(noise)
