"""Frames in pieces, consecutive frames, and bytes that are not frames."""

from __future__ import annotations

import contextlib
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from traced_memory import least_bytes

from triomq.protocol.command import JSON, MSGPACK, ROCKETMQ, RemotingCommand, new_request, new_response
from triomq.protocol.errors import FrameError, HeaderFieldError
from triomq.protocol.frame import (
    LONG_FRAME_BYTES,
    MAX_FRAME_BYTES,
    FrameDecoder,
    decode_frame,
    decode_json,
    encode_frame,
)
from triomq.protocol.headers.offset import GetMaxOffsetRequestHeader

# The binary example of the protocol's description: code 105, language JAVA, version 0, opaque 7, topic=T, body 01 02.
BINARY_EXAMPLE = bytes.fromhex(
    "00000027 01000021 0069 00 0000 00000007 00000000 00000000 0000000c 0005 746f706963 00000001 54 0102"
)


def command(serialize_type: int = JSON, **changes: object) -> RemotingCommand:
    made = new_request(105, ext_fields={"topic": "T", "n": "5"}, body=b"\x01\x02")
    made.opaque = 7
    made.remark = 'a "remark"\nof ä lines'
    made.serialize_type = serialize_type
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def facts(made: RemotingCommand) -> tuple[object, ...]:
    return (
        made.code,
        made.flag,
        made.opaque,
        made.remark,
        made.body,
        made.serialize_type,
        made.language,
        made.version,
        made.ext_fields,
    )


@pytest.mark.parametrize("serialize_type", [JSON, ROCKETMQ, MSGPACK])
def test_a_frame_survives_in_every_codec(serialize_type: int) -> None:
    made = command(serialize_type)
    assert facts(decode_frame(encode_frame(made))) == facts(made)


@pytest.mark.parametrize("serialize_type", [JSON, ROCKETMQ, MSGPACK])
def test_frames_byte_by_byte_are_the_same_as_whole(serialize_type: int) -> None:
    frames = [encode_frame(command(serialize_type, opaque=n, body=bytes(n))) for n in range(3)]
    decoder = FrameDecoder()
    seen = [facts(found) for byte in b"".join(frames) for found in decoder.feed(bytes([byte]))]
    assert seen == [facts(decode_frame(frame)) for frame in frames]
    assert decoder.held_bytes == 0


def test_what_follows_a_frame_waits_for_its_rest() -> None:
    first, second = encode_frame(command(opaque=1)), encode_frame(command(opaque=2))
    decoder = FrameDecoder()
    assert [found.opaque for found in decoder.feed(first + second[:10])] == [1]
    assert decoder.held_bytes == 10
    assert [found.opaque for found in decoder.feed(second[10:])] == [2]


@given(st.lists(st.binary(max_size=200), max_size=5), st.lists(st.integers(1, 400), max_size=20))
def test_any_pieces_give_the_same_frames(bodies: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(encode_frame(command(body=body)) for body in bodies)
    decoder = FrameDecoder()
    seen: list[bytes] = []
    at = 0
    for cut in [*cuts, len(stream)]:
        seen += [found.body for found in decoder.feed(stream[at : at + cut])]
        at += cut
    assert seen == bodies


ext_fields = st.dictionaries(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=50), min_size=1, max_size=5)


@given(ext_fields, st.integers(0, 2**31 - 1), st.sampled_from([JSON, ROCKETMQ, MSGPACK]))
def test_any_ext_fields_survive(fields: dict[str, str], opaque: int, serialize_type: int) -> None:
    try:
        "".join([*fields, *fields.values()]).encode()
    except UnicodeEncodeError:
        return
    made = command(serialize_type, ext_fields=fields, opaque=opaque)
    assert facts(decode_frame(encode_frame(made))) == facts(made)


def test_the_documented_binary_frame_byte_for_byte() -> None:
    found = decode_frame(BINARY_EXAMPLE)
    assert (found.code, found.opaque, found.ext_fields, found.body) == (105, 7, {"topic": "T"}, b"\x01\x02")
    assert encode_frame(found) == BINARY_EXAMPLE


def test_the_documented_json_headers_byte_for_byte() -> None:
    texts = [
        '{"code":105,"extFields":{"topic":"T"},"flag":0,"language":"JAVA","opaque":0,'
        '"serializeTypeCurrentRPC":"JSON","version":407}',
        '{"code":17,"flag":1,"language":"JAVA","opaque":0,"remark":"...","serializeTypeCurrentRPC":"JSON","version":407}',
    ]
    for text in texts:
        header = text.encode()
        frame = (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
        assert encode_frame(decode_frame(frame)) == frame


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (bytes.fromhex("00000003000000"), "3 bytes"),
        (bytes.fromhex("ffffffff00000000"), "-1 bytes"),
        ((MAX_FRAME_BYTES - 3).to_bytes(4, "big"), "limits"),
        (bytes.fromhex("0000000400000005"), "header length"),
        (bytes.fromhex("00000006000000027b7d"), None),
        (bytes.fromhex("00000006070000027b7d"), "unknown header codec 7"),
        (bytes.fromhex("00000006000000027b7b"), "JSON header"),
        (bytes.fromhex("00000006010000027b7b"), "21 bytes"),
        (bytes.fromhex("00000006020000027b7b"), "MSGPACK"),
        (BINARY_EXAMPLE.replace(bytes.fromhex("0000000c0005"), bytes.fromhex("0000000c7005")), "exceed limit"),
        (BINARY_EXAMPLE.replace(bytes.fromhex("0000000c0005"), bytes.fromhex("0000fffc0005")), "exceed limit"),
    ],
)
def test_what_is_no_frame_is_refused_with_the_reason(data: bytes, reason: str | None) -> None:
    if reason is None:
        assert decode_frame(data).code == 0  # an empty JSON object is a frame of defaults
        return
    with pytest.raises(FrameError, match=reason):
        FrameDecoder().feed(data)


@pytest.mark.parametrize("serialize_type", [JSON, ROCKETMQ, MSGPACK])
@pytest.mark.parametrize("too_long", [1, 2, 30])
def test_a_header_that_reaches_into_the_next_frame_is_refused(serialize_type: int, too_long: int) -> None:
    frame = bytearray(encode_frame(command(serialize_type, body=b"")))
    header_bytes = len(frame) - 8
    frame[5:8] = (header_bytes + too_long).to_bytes(3, "big")
    refused = f"bad header length: {header_bytes + too_long} in a frame of {header_bytes + 4} bytes"
    with pytest.raises(FrameError, match=refused):
        FrameDecoder().feed(bytes(frame) + encode_frame(command(serialize_type)))


def test_a_header_longer_than_the_limit_is_refused() -> None:
    limit = len(encode_frame(command())) - 8 - len(command().body)
    assert FrameDecoder(4096, limit).feed(encode_frame(command()))
    with pytest.raises(FrameError, match=f"a header of {limit} bytes was sent; the limit is {limit - 1}"):
        FrameDecoder(4096, limit - 1).feed(encode_frame(command()))


@pytest.mark.parametrize("begins_with", [3, 6, 8, 30])
def test_a_header_longer_than_the_limit_is_refused_before_the_rest_of_its_frame_is_read(begins_with: int) -> None:
    frame = (15 << 20).to_bytes(4, "big") + b"\0" + (101).to_bytes(3, "big") + bytes(100)
    decoder = FrameDecoder(16 << 20, 100)
    with pytest.raises(FrameError, match="a header of 101 bytes was sent; the limit is 100"):
        decoder.feed(frame[:begins_with])
        decoder.feed(frame[begins_with:])
    decoder = FrameDecoder(16 << 20, 101)
    assert decoder.feed(frame[:begins_with]) + decoder.feed(frame[begins_with:]) == []


def test_commands_before_a_header_that_is_too_long_are_returned_with_the_error() -> None:
    frame = encode_frame(command())
    limit = len(frame)
    begun = (1 << 20).to_bytes(4, "big") + b"\0" + (limit + 1).to_bytes(3, "big")
    with pytest.raises(FrameError) as refused:
        FrameDecoder(16 << 20, limit).feed(frame + begun)
    assert len(refused.value.decoded) == 1


def test_pieces_of_two_bytes_take_the_memory_of_their_bytes() -> None:
    """As objects of their own they would take twenty times as much."""
    frame = encode_frame(command(body=bytes(200_000)))

    def taken_bytes() -> int:
        decoder = FrameDecoder()
        for start in range(0, len(frame) - 2, 2):
            assert decoder.feed(frame[start : start + 2]) == []
        taken = tracemalloc.get_traced_memory()[0]
        assert decoder.held_bytes > 200_000
        assert len(decoder.feed(frame[decoder.held_bytes :])) == 1
        return taken

    assert least_bytes(taken_bytes) < 1.5 * len(frame)


@given(
    st.integers(LONG_FRAME_BYTES - 400, LONG_FRAME_BYTES + 400),
    st.lists(st.integers(1, 300) | st.integers(1, 150_000), max_size=12),
    st.sampled_from([JSON, ROCKETMQ, MSGPACK]),
)
def test_any_pieces_give_the_same_long_frames(size: int, cuts: list[int], serialize_type: int) -> None:
    frames = [encode_frame(command(serialize_type, body=body)) for body in (b"b" * size, b"c" * (size + 200), b"d")]
    stream = b"".join(frames)
    decoder = FrameDecoder()
    seen = []
    at = 0
    for cut in [*cuts, len(stream)]:
        seen += decoder.feed(stream[at : at + cut])
        at += cut
        assert decoder.held_bytes == min(at, len(stream)) - sum(map(len, frames[: len(seen)]))
    assert [facts(found) for found in seen] == [facts(decode_frame(frame)) for frame in frames]


def test_the_end_of_a_long_frame_copies_nothing_of_what_came_before() -> None:
    frame = encode_frame(command(body=bytes(8 * 1024 * 1024)))

    def last_bytes() -> int:
        decoder = FrameDecoder()
        for at in range(0, len(frame), 65_536):
            piece = frame[at : at + 65_536]
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            found = decoder.feed(piece)
        peak = tracemalloc.get_traced_memory()[1]
        assert len(found[0].body) == 8 * 1024 * 1024
        return peak - before

    assert least_bytes(last_bytes) < 200_000


def test_an_incomplete_frame_tells_how_many_bytes_it_needs() -> None:
    frame = encode_frame(command(body=bytes(1000)))
    decoder = FrameDecoder()
    decoder.feed(frame + frame[:2])
    assert (decoder.held_bytes, decoder.needed_bytes) == (2, 4)
    decoder.feed(frame[2:100])
    assert (decoder.held_bytes, decoder.needed_bytes) == (100, len(frame))
    decoder.feed(frame[100:])
    assert (decoder.held_bytes, decoder.needed_bytes) == (0, 0)


def test_a_bad_frame_does_not_take_the_good_ones_before_it() -> None:
    with pytest.raises(FrameError) as caught:
        FrameDecoder().feed(encode_frame(command(opaque=5)) + b"\xff\xff\xff\xff")
    assert [found.opaque for found in caught.value.decoded] == [5]  # type: ignore[attr-defined]


@given(st.binary(max_size=300))
def test_random_bytes_never_raise_anything_else(data: bytes) -> None:
    with contextlib.suppress(FrameError):
        FrameDecoder(4096).feed(data)


@given(st.binary(max_size=60), st.integers(0, 3))
def test_random_headers_never_raise_anything_else(header: bytes, serialize_type: int) -> None:
    frame = (4 + len(header)).to_bytes(4, "big") + bytes([serialize_type, 0, 0, len(header)]) + header
    try:
        found = decode_frame(frame)
        _ = found.ext_fields
        found.header(GetMaxOffsetRequestHeader)
    except (FrameError, HeaderFieldError):
        pass


def test_a_missing_field_is_named() -> None:
    with pytest.raises(HeaderFieldError, match=r"<queueId>.*required"):
        new_request(30, ext_fields={"topic": "T"}).header(GetMaxOffsetRequestHeader)
    json_frame = decode_frame(encode_frame(new_request(30, ext_fields={"topic": "T"})))
    with pytest.raises(HeaderFieldError, match=r"<queueId>.*required"):
        json_frame.header(GetMaxOffsetRequestHeader)
    with pytest.raises(HeaderFieldError, match="<topic>"):
        new_request(30).header(GetMaxOffsetRequestHeader)


@pytest.mark.parametrize("text", ["x", "", "1.5x", "99999999999", "0x10"])
def test_a_field_of_the_wrong_type_is_named(text: str) -> None:
    with pytest.raises(HeaderFieldError, match="<queueId>"):
        new_request(30, ext_fields={"topic": "T", "queueId": text}).header(GetMaxOffsetRequestHeader)


def test_an_answer_speaks_the_codec_of_its_request() -> None:
    request = decode_frame(BINARY_EXAMPLE)
    answer = decode_frame(encode_frame(new_response(request, 17, "no")))
    assert (answer.serialize_type, answer.opaque, answer.is_response) == (ROCKETMQ, 7, True)


def test_secrets_do_not_show_in_the_text_of_a_command() -> None:
    text = repr(new_request(10, ext_fields={"AccessKey": "k", "Signature": "hidden-s", "SecurityToken": "hidden-t"}))
    assert "hidden" not in text


def test_the_number_of_a_language_is_one_of_32_bits() -> None:
    header = b'{"code":1,"language":%d,"opaque":1}'
    assert decode_json(header % (2**31 - 1), b"").language == 2**31 - 1
    with pytest.raises(FrameError, match="not a 32 bit integer"):
        decode_json(header % 2**31, b"")
