"""Messages in pieces, compressed ones, and bodies that are not messages; how a call begins and ends."""

from __future__ import annotations

import gzip
from urllib.parse import unquote_to_bytes

import pytest
from hpack import Decoder
from hypothesis import given
from hypothesis import strategies as st

from triomq.grpc_front.call import read_call, read_timeout
from triomq.grpc_front.messages import GZIP, MAX_MESSAGES_AT_ONCE, MessageReader, encode_message
from triomq.grpc_front.status import (
    ANSWER_HEADERS,
    MAX_MESSAGE_BYTES,
    OK_TRAILERS,
    CallFailed,
    GrpcStatus,
    percent_encoded,
    trailers,
)
from triomq.http2.hpack import Field

LIMIT = 1000
# Without the time of day: a test's name holds these bytes, and each process of a run must give the same names.
GZIPPED = gzip.compress(b"text", mtime=0)


def compressed(message: bytes) -> bytes:
    return b"\1" + encode_message(gzip.compress(message))[1:]


def refused(reader: MessageReader, data: bytes) -> GrpcStatus:
    with pytest.raises(CallFailed) as caught:
        reader.feed(data)
    return caught.value.status


@given(st.lists(st.tuples(st.binary(max_size=80), st.booleans()), max_size=6), st.integers(1, 40))
def test_messages_are_the_same_however_their_bytes_arrive(messages: list[tuple[bytes, bool]], size: int) -> None:
    body = b"".join(compressed(text) if is_gzip else encode_message(text) for text, is_gzip in messages)
    reader = MessageReader(LIMIT, GZIP)
    found = [message for at in range(0, len(body), size) for message in reader.feed(body[at : at + size])]
    assert found == [text for text, _ in messages]
    assert reader.held_bytes == reader.needed_bytes == 0
    reader.check_ended()


def test_the_length_of_a_message_is_known_before_its_rest_is_there() -> None:
    reader = MessageReader(LIMIT)
    assert reader.feed(encode_message(bytes(500))[:4]) == []
    assert reader.needed_bytes == 0
    reader.feed(encode_message(bytes(500))[4:100])
    assert (reader.held_bytes, reader.needed_bytes) == (100, 505)


def test_a_message_has_a_longest() -> None:
    assert MessageReader(LIMIT).feed(encode_message(bytes(LIMIT))) == [bytes(LIMIT)]
    assert refused(MessageReader(LIMIT), encode_message(bytes(LIMIT + 1))[:5]) is GrpcStatus.RESOURCE_EXHAUSTED


def test_a_compressed_message_inflates_to_the_longest_at_most() -> None:
    assert MessageReader(LIMIT, GZIP).feed(compressed(bytes(LIMIT))) == [bytes(LIMIT)]
    assert refused(MessageReader(LIMIT, GZIP), compressed(bytes(LIMIT + 1))) is GrpcStatus.RESOURCE_EXHAUSTED
    assert refused(MessageReader(LIMIT, GZIP), compressed(bytes(1 << 20))[:]) is GrpcStatus.RESOURCE_EXHAUSTED


def test_the_messages_of_one_read_are_bounded() -> None:
    reader = MessageReader(LIMIT)
    assert len(reader.feed(encode_message(b"") * MAX_MESSAGES_AT_ONCE)) == MAX_MESSAGES_AT_ONCE
    assert refused(reader, encode_message(b"") * (MAX_MESSAGES_AT_ONCE + 1)) is GrpcStatus.RESOURCE_EXHAUSTED


@pytest.mark.parametrize(
    "data",
    [
        b"\x02\0\0\0\0",
        b"\x01" + encode_message(b"not gzip")[1:],
        b"\x01" + encode_message(GZIPPED[:-3])[1:],
        b"\x01" + encode_message(GZIPPED + b"more")[1:],
    ],
)
def test_what_is_not_a_message_fails_the_call(data: bytes) -> None:
    assert refused(MessageReader(LIMIT, GZIP), data) is GrpcStatus.INTERNAL


def test_a_compressed_message_needs_an_encoding_that_is_known() -> None:
    assert refused(MessageReader(LIMIT), compressed(b"text")) is GrpcStatus.INTERNAL
    with pytest.raises(CallFailed, match="compressed as br; known are gzip"):
        MessageReader(LIMIT, b"br")


def test_a_request_that_ends_in_the_middle_of_a_message_fails() -> None:
    reader = MessageReader(LIMIT)
    reader.feed(encode_message(b"text")[:-1])
    with pytest.raises(CallFailed, match="ends 8 bytes after"):
        reader.check_ended()


CALL: list[Field] = [(b":method", b"POST"), (b":path", b"/s/m"), (b"content-type", b"application/grpc")]


def test_the_fields_of_a_call() -> None:
    call = read_call([*CALL, (b"grpc-timeout", b"500m"), (b"grpc-encoding", b"gzip"), (b"x", b"1"), (b"x", b"2")])
    assert (call.path, call.timeout_seconds, call.encoding, call.fields[b"x"]) == (b"/s/m", 0.5, b"gzip", b"1,2")
    call = read_call(CALL)
    assert (call.timeout_seconds, call.encoding) == (None, b"identity")


@pytest.mark.parametrize("kind", [b"application/grpc+proto", b"application/grpc;charset=utf-8"])
def test_the_content_type_may_say_more(kind: bytes) -> None:
    assert read_call([*CALL[:2], (b"content-type", kind)]).path == b"/s/m"


@pytest.mark.parametrize(
    "fields",
    [
        [(b":method", b"GET"), *CALL[1:]],
        CALL[:2],
        [*CALL[:2], (b"content-type", b"application/grpc-web")],
        [*CALL, (b"grpc-timeout", b"1s")],
    ],
)
def test_what_is_not_a_call_is_refused(fields: list[Field]) -> None:
    with pytest.raises(CallFailed):
        read_call(fields)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(b"1H", 3600), (b"2M", 120), (b"3S", 3), (b"4m", 0.004), (b"5u", 5e-6), (b"6n", 6e-9), (b"99999999S", 99999999)],
)
def test_time_limits_have_units(text: bytes, seconds: float) -> None:
    assert read_timeout(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", [b"", b"1", b"S", b"123456789S", b"-1S", b"1.5S", b"1S\n"])
def test_a_time_limit_of_another_form_is_refused(text: bytes) -> None:
    with pytest.raises(CallFailed, match="grpc-timeout"):
        read_timeout(text)


@given(st.text(max_size=60))
def test_a_message_of_a_status_is_printable_and_survives(message: str) -> None:
    found = percent_encoded(message)
    assert all(0x20 <= byte <= 0x7E for byte in found)
    assert unquote_to_bytes(found) == message.encode("utf-8", "replace").strip(b" ")


def test_a_long_message_of_a_status_is_cut_between_characters() -> None:
    assert len(percent_encoded("m" * 5000)) == MAX_MESSAGE_BYTES
    assert unquote_to_bytes(percent_encoded("ä" * 5000)).decode() == "ä" * (MAX_MESSAGE_BYTES // 6)


def test_the_header_blocks_of_an_answer() -> None:
    def fields(block: bytes) -> list[tuple[bytes, bytes]]:
        return [tuple(field) for field in Decoder().decode(block, raw=True)]

    answer = [(b":status", b"200"), (b"content-type", b"application/grpc")]
    assert fields(ANSWER_HEADERS) == answer
    assert fields(OK_TRAILERS) == fields(trailers(GrpcStatus.OK)) == [(b"grpc-status", b"0")]
    ended = [(b"grpc-status", b"12"), (b"grpc-message", b"no %25 here")]
    assert fields(trailers(GrpcStatus.UNIMPLEMENTED, "no % here")) == ended
    assert fields(trailers(GrpcStatus.UNIMPLEMENTED, "no % here", is_whole_answer=True)) == [*answer, *ended]
