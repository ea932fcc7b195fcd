"""The C functions of protocol/ do the same as their definitions in Python, for any input."""

from __future__ import annotations

import contextlib
import struct
import sys
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import fast_paths
import msgspec
import pytest
import speedups_contract
from built_speedups import built_speedups
from hypothesis import example, given
from hypothesis import strategies as st

from triomq.protocol import (
    compression,
    frame,
    java,
    message_id,
    properties,
    record,
    response_template,
    speedups,
    stored_properties,
    sys_flag,
)
from triomq.protocol import property_names as names
from triomq.protocol.command import JAVA, JSON, MSGPACK, ROCKETMQ, RPC_ONEWAY, RemotingCommand
from triomq.protocol.entries import UsualFrame, decode_entries
from triomq.protocol.errors import FrameError, HeaderFieldError
from triomq.protocol.headers import base
from triomq.protocol.headers.pull import PullMessageRequestHeader
from triomq.protocol.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from triomq.protocol.message import MessageExt

any_text = st.text(st.characters(exclude_categories=[]), max_size=30)
any_number = st.one_of(st.integers(-(2**15), 2**15), st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1))
too_large = st.integers(-(2**70), 2**70)


@pytest.fixture(scope="module")
def c() -> ModuleType:
    return built_speedups("protocol")


def outcome(function: Any, *arguments: Any) -> Any:
    """Return the function's result, or the type of its error."""
    try:
        return function(*arguments)
    except Exception as error:
        return type(error)


# -- hashes and ids ----------------------------------------------------------------------------------------------------


@given(any_text, any_number)
@example("\U0001f600é", 0)
def test_string_hash(c: ModuleType, text: str, start: int) -> None:
    assert c.string_hash(text) == java.string_hash_reference(text)
    assert c.string_hash(text, start) == java.string_hash_reference(text, start)


@given(st.binary(max_size=40), any_number)
def test_offset_message_id(c: ModuleType, host: bytes, offset: int) -> None:
    assert c.offset_message_id_bytes(host, offset) == message_id.offset_message_id_bytes_reference(host, offset)


# -- properties --------------------------------------------------------------------------------------------------------

PROPERTY_NAMES = [names.WAIT, names.TAGS, names.KEYS, names.UNIQ_KEY, names.MSG_REGION, "TA", "a", ""]
SPECIAL_NAMES = [
    *(names.DELAY, names.TRANSACTION_PREPARED, names.INNER_MULTI_DISPATCH, names.INNER_MULTI_QUEUE_OFFSET),
    *(names.CLUSTER, names.POP_CHECKPOINT),
]
pair = st.one_of(
    st.builds(
        "{}\x01{}".format, st.sampled_from(PROPERTY_NAMES), st.sampled_from(["true", "false", "", "x\x01y", "k l"])
    ),
    st.builds("{}\x01{}".format, st.text("abcDEF", max_size=4), st.text("01é ", max_size=4)),
    st.builds("{}\x01{}".format, st.sampled_from(SPECIAL_NAMES), st.sampled_from(["1", ""])),
    st.sampled_from(["", "\x01", "lonely"]),
)


text_of_pairs = st.lists(pair, max_size=8).map("\x02".join)
WANTED = st.lists(st.sampled_from([*PROPERTY_NAMES, *SPECIAL_NAMES]), max_size=16).map(tuple)


@given(text_of_pairs, st.sampled_from(["DefaultCluster", "", "ü"]), WANTED)
def test_properties_to_store(c: ModuleType, text: str, cluster: str, wanted: tuple[str, ...]) -> None:
    answer = c.properties_to_store(text, cluster, wanted)
    if answer is not None:
        assert answer == stored_properties.properties_to_store_reference(text, cluster, wanted)
        return
    found = [each.partition("\x01") for each in text.split("\x02")]
    known = [name for name, _, value in found if name and value]
    is_left_to_python = not text.isascii() or not cluster.isascii() or len(set(known)) < len(known)
    assert is_left_to_python or {names.CLUSTER, names.POP_CHECKPOINT} & set(known)


def test_properties_to_store_by_example(c: ModuleType) -> None:
    text = "UNIQ_KEY\x010A\x02KEYS\x01k1 k2\x02WAIT\x01false\x02TAGS\x01t\x02"
    stored = b"UNIQ_KEY\x010A\x02KEYS\x01k1 k2\x02TAGS\x01t\x02CLUSTER\x01c"
    for to_store in (c.properties_to_store, stored_properties.properties_to_store_reference):
        assert to_store(text, "c", (names.DELAY,)) == (stored, "false", (ord("t"), "0A", "k1 k2", None, True))
        assert to_store("", "c", ()) == (b"CLUSTER\x01c", None, (0, None, None, None, True))
        delayed = to_store("DELAY\x013\x02lonely", "c", ("absent", "DELAY"))
        assert delayed == (b"DELAY\x013\x02CLUSTER\x01c", None, (0, None, None, (None, "3"), True))
    assert c.properties_to_store("\x02".join(f"n{number}\x01v" for number in range(33)), "c", ()) is None


@given(text_of_pairs, st.binary(max_size=4), WANTED)
@example("é\x011\x02TAGS\x01😀", b"\xf0\x9f", ("TAGS",))
def test_read_properties(c: ModuleType, text: str, garbage: bytes, wanted: tuple[str, ...]) -> None:
    stored = text.encode("utf-8", "replace") + garbage
    assert c.read_properties(stored, wanted) == stored_properties.read_properties_reference(stored, wanted)


def test_read_properties_by_example(c: ModuleType) -> None:
    for read in (c.read_properties, stored_properties.read_properties_reference):
        stored = b"UNIQ_KEY\x010A\x02KEYS\x01k1 k2\x02TAGS\x01t\x02KEYS\x01\x02TAGS"
        assert read(stored, ("absent",)) == (ord("t"), "0A", "k1 k2", None, False)
        assert read(b"KEYS\x01a\x02KEYS\x01b\x01c", ()) == (0, None, "b\x01c", None, False)
        special = read(b"REAL_TOPIC\x01T\x01x\x02DELAY\x013", ("REAL_TOPIC", "absent", "DELAY"))[3]
        assert special == ("T\x01x", None, "3")
        assert read(b"", ("absent",)) == (0, None, None, None, True)
        assert read(b"a\x011\x02b\x01x\x01y", ())[4]
        for end in (b"\x02", b"\x02TAGS\x01u", b"\x02\x02a\x01b", b"\x02lonely", b"\x02empty\x01", b"\x02\x01x"):
            assert not read(b"TAGS\x01t" + end, ())[4], end
        many = b"\x02".join(b"n%d\x01v" % number for number in range(32))
        assert [read(many + more, ())[4] for more in (b"", b"\x02n\x01v")] == [True, False]
    for wrong in (None, ["x"], (b"x",), ("é",), ("x",) * 17):
        with pytest.raises(TypeError, match="wanted must be a tuple of at most 16 str"):
            c.read_properties(b"", wrong)


others = st.dictionaries(st.sampled_from([*PROPERTY_NAMES[:-1], "REAL_TOPIC", "é"]), st.sampled_from(["1", "T", "ü"]))


@given(text_of_pairs, st.sampled_from([b"", b"\x02", b"\xff"]), others)
@example("a\x011", b"\x02", {"b": "2"})
def test_properties_with(c: ModuleType, text: str, end: bytes, added: dict[str, str]) -> None:
    stored = text.encode() + end
    answer = c.properties_with(stored, added, ("REAL_TOPIC", "a"))
    known = properties.parse_bytes(stored)
    pairs = [each.partition("\x01") for each in (stored + end).decode("utf-8", "replace").split("\x02")]
    is_repeated = len(known) < len([name for name, _, value in pairs if name and value])
    is_usual = not known.keys() & added.keys() and "".join([*added, *added.values()]).isascii()
    assert (answer is not None) == (is_usual and not (added and is_repeated))
    expected = stored_properties.properties_with_reference(stored, added, ("REAL_TOPIC", "a"))
    assert answer in (None, expected)
    assert properties.parse_bytes(expected[0]) == {**known, **added}


def test_only_so_many_properties_are_added_in_c(c: ModuleType) -> None:
    many = {f"n{number}": "1" for number in range(32)}
    assert c.properties_with(b"a\x011", many, ()) is None
    del many["n8"]
    assert c.properties_with(b"a\x011", many, ())[0] == b"a\x011\x02" + properties.encode(many)
    for wrong in ({1: "a"}, {"a": b"1"}):
        with pytest.raises(TypeError, match="names and values must be str"):
            c.properties_with(b"", wrong, ())
    with pytest.raises(TypeError, match="added must be a dict"):
        c.properties_with(b"", [("a", "1")], ())


# -- records -----------------------------------------------------------------------------------------------------------


@given(
    st.binary(max_size=130),
    st.lists(st.one_of(any_number, too_large), min_size=9, max_size=9),
    st.sampled_from([8, 8, 20, 20, 0, 9, 28]),
    st.sampled_from([8, 8, 20, 20, 4, 16, 28]),
    st.binary(max_size=200),
    st.one_of(st.just(-1), st.integers(-(2**31), 2**31 - 1)),
    st.one_of(st.binary(max_size=50), st.just(b"p" * 32767), st.just(b"p" * 32768)),
)
def test_write_record(
    c: ModuleType, topic: bytes, numbers: list[int], born: int, store: int, body: bytes, crc: int, text: bytes
) -> None:
    arguments = (
        *(topic, *numbers[:6], b"b" * born, numbers[6], b"s" * store, *numbers[7:]),
        *(body, crc, text),
    )
    tails = bytearray(b"before"), bytearray(b"before")
    answers = [
        outcome(function, tail, *arguments)
        for function, tail in zip((c.write_record, record.write_record_reference), tails, strict=True)
    ]
    assert answers[0] == answers[1]
    assert tails[0] == tails[1]


@pytest.mark.parametrize("size", [*range(130), 1000, 1023, 1024, 4097, 1 << 20])
def test_the_crc_of_a_body_by_example(c: ModuleType, size: int) -> None:
    body = Random(size).randbytes(size)
    tail = bytearray()
    c.write_record(tail, b"T", 1, 2, 3, 4, 0, 5, b"b" * 8, 6, b"s" * 8, 7, 8, body, -1, b"")
    assert int.from_bytes(tail[8:12], "big") == record.body_crc(body)


def test_records_are_written_and_not_only_refused(c: ModuleType) -> None:
    tail = bytearray()
    size = c.write_record(tail, b"T", 1, 2, 3, 4, 0, 5, b"b" * 8, 6, b"s" * 20, 7, 8, b"body", 9, b"p\x01v")
    fields = record.read_fields(tail, 0, len(tail))
    assert (size, fields.topic, fields.queue_offset, fields.properties) == (len(tail), b"T", 3, b"p\x01v")
    with pytest.raises(struct.error):
        c.write_record(tail, b"T", 2**31, 2, 3, 4, 0, 5, b"b" * 8, 6, b"s" * 8, 7, 8, b"body", 9, b"")
    assert len(tail) == size


TEXTS = st.sampled_from([b"", b"Orders", b"Orders", b"\xc3\xbc", b"\xff", b"t" * 127])


@st.composite
def pulled(draw: st.DrawFn) -> bytes:
    """Records as in a pull response, most of them sound, and perhaps something wrong somewhere."""
    data = bytearray()
    for _ in range(draw(st.integers(0, 4))):
        body, flags = draw(st.binary(max_size=80)), draw(st.sampled_from([0, 0, 0, 1, 8]))
        born, store = (
            draw(st.sampled_from([b"b" * 8, b"b" * 8, b"b" * 20])),
            draw(st.sampled_from([b"s" * 8, b"s" * 20])),
        )
        numbers = draw(st.lists(any_number, min_size=4, max_size=4))
        record.write_record_reference(
            *(data, draw(TEXTS), 1, -2, numbers[0], numbers[1], flags, numbers[2], born, numbers[3], store, 3, -4),
            body,
            draw(st.sampled_from([-1, -1, -1, 5])),
            draw(TEXTS),
        )
    if data and draw(st.booleans()):
        data[draw(st.integers(0, len(data) - 1))] ^= 1 << draw(st.integers(0, 7))
    return bytes(data[: draw(st.integers(0, len(data)))]) if draw(st.integers(0, 3)) == 0 else bytes(data)


def slots_of(message: MessageExt) -> list[Any]:
    """Return what was filled, without having anything parsed."""
    return [each.__get__(message) for each in record._SLOTS]


@given(pulled(), st.integers(-1, 3), st.sampled_from(["broker", None]))
def test_take_messages(c: ModuleType, data: bytes, at: int, broker_name: str | None) -> None:
    arguments = (data, 0 if at == 3 else at, MessageExt, record._SLOTS, broker_name)
    answers = [outcome(function, *arguments) for function in (c.take_messages, fast_paths.messages)]
    if isinstance(answers[0], tuple):
        answers = [(end, [slots_of(message) for message in found], found) for end, found in answers]
    assert answers[0] == answers[1]


@given(pulled())
def test_messages_are_the_same_with_and_without_the_fast_path(c: ModuleType, data: bytes) -> None:
    answers = []
    with pytest.MonkeyPatch.context() as patch:
        for fast in (c.take_messages, None):
            patch.setattr(record, "_take_messages", fast)
            answers.append(outcome(record.decode_records, data, "broker"))
    assert answers[0] == answers[1]


def test_the_records_of_a_pull_take_the_fast_path(c: ModuleType) -> None:
    data = bytearray()
    for number, host in enumerate([b"\x7f\0\0\1\0\0\0\1", b"\x7f\0\0\1\0\0\0\2", b"\0" * 15 + b"\1\0\0\0\3"]):
        record.write_record_reference(
            *(data, b"Orders", 1, 2, number, 4, 0, 5, host, 6, host, 7, 8, b"body", -1, b"TAGS\x01a\x02k\x01v")
        )
    end, found = c.take_messages(bytes(data), 0, MessageExt, record._SLOTS, "broker")
    assert (end, len(found)) == (len(data), 3)
    assert [message.queue_offset for message in found] == [0, 1, 2]
    assert [str(message.store_host) for message in found] == ["127.0.0.1:1", "127.0.0.1:2", "0:0:0:0:0:0:0:1:3"]
    last = found[-1]
    assert (last.topic, last.body, last.tags, last.properties) == ("Orders", b"body", "a", {"TAGS": "a", "k": "v"})
    assert (last.queue_id, last.flag, last.physical_offset, last.sys_flag) == (1, 2, 4, 0x30)
    assert (last.born_timestamp, last.store_timestamp, last.reconsume_times) == (5, 6, 7)
    assert (last.prepared_transaction_offset, last.broker_name, last.transaction_id) == (8, "broker", None)
    assert last == record.decode_records(bytes(data), "broker")[-1]
    assert found[0].topic is found[1].topic


def test_a_compressed_body_between_others_is_decompressed(c: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "_take_messages", c.take_messages)
    data = bytearray()
    for flags, body in ((0, b"a"), (1, compression.compress(b"b" * 50)), (0, b"c")):
        record.write_record_reference(
            *(data, b"Orders", 1, 2, 3, 4, flags, 5, b"b" * 8, 6, b"s" * 8, 7, 8, body, -1, b"")
        )
    found = record.decode_records(bytes(data), "broker")
    assert [(message.body, message.broker_name) for message in found] == [
        *((b"a", "broker"), (b"b" * 50, "broker"), (b"c", "broker"))
    ]


def test_slots_of_another_class_are_refused(c: ModuleType) -> None:
    class Other:
        __slots__ = ("a",)

    for kind, slots in (
        *((MessageExt, record._SLOTS[1:]), (MessageExt, (*record._SLOTS[1:], MessageExt.tags)), (Other, record._SLOTS)),
        *((MessageExt, (*record._SLOTS[1:], vars(Other)["a"])), (None, record._SLOTS), (MessageExt, None)),
    ):
        with pytest.raises(TypeError):
            c.take_messages(b"", 0, kind, slots, None)


# -- responses ---------------------------------------------------------------------------------------------------------

values = st.lists(st.one_of(st.binary(max_size=20), any_number), min_size=1, max_size=5)
bodies = st.one_of(st.binary(max_size=30), st.integers(-2, 10), st.integers(2**31 - 200, 2**31 + 2), any_number)


@given(values, st.lists(st.binary(max_size=10), min_size=6, max_size=6), bodies)
def test_fill_json(c: ModuleType, given_values: list[Any], pieces: list[bytes], body: bytes | int) -> None:
    arguments = (tuple(pieces[: len(given_values) + 1]), tuple(given_values), body)
    assert outcome(c.fill_json, *arguments) == outcome(response_template.fill_json_reference, *arguments)


@given(
    values,
    st.lists(st.binary(max_size=10), min_size=5, max_size=5),
    st.lists(st.one_of(st.integers(-200, 200), st.integers(-(2**33), 2**33)), min_size=4, max_size=4),
    st.binary(max_size=9),
    bodies,
)
def test_fill_binary(
    c: ModuleType,
    given_values: list[Any],
    given_names: list[bytes],
    numbers: list[int],
    remark: bytes,
    body: bytes | int,
) -> None:
    arguments = (tuple(given_names[: len(given_values)]), tuple(given_values), *numbers, remark, body)
    assert outcome(c.fill_binary, *arguments) == outcome(response_template.fill_binary_reference, *arguments)


# -- frames ------------------------------------------------------------------------------------------------------------


def framed(header: bytes, codec: int = JSON) -> bytes:
    return struct.pack(">iI", 4 + len(header), codec << 24 | len(header)) + header


def decoded(data: bytes, read_frames: Any) -> Any:
    """Return the command of a frame as plain values, or "refused"."""
    try:
        _, usual = read_frames(data, 0, frame.MAX_FRAME_BYTES, frame.MAX_FRAME_BYTES)
        if not usual:
            command = decode_generally(data)
            language, fields = command.language, command.ext_fields
            return command.code, language, command.version, command.opaque, command.flag, command.remark, fields
    except (FrameError, HeaderFieldError):
        return "refused"
    return fast_paths.values_of(usual[0])


def no_fast_path(_data: bytes, position: int, _longest: int, _longest_header: int) -> tuple[int, list[UsualFrame]]:
    return position, []


def decode_generally(data: bytes) -> RemotingCommand:
    header = data[8 : 8 + int.from_bytes(data[5:8], "big")]
    return frame.decode_json(header, b"") if data[4] == JSON else frame.decode_rocketmq(header, b"")


@st.composite
def frames(draw: st.DrawFn, codecs: st.SearchStrategy[int]) -> bytes:
    """Yield whole frames, some of them damaged behind their lengths."""
    command = RemotingCommand(
        draw(st.integers(-(2**15), 2**15 - 1)),
        flag=draw(st.sampled_from([0, RPC_ONEWAY, -1])),
        opaque=draw(st.integers(-(2**31), 2**31 - 1)),
        remark=draw(st.sampled_from([None, "", "why", "warum nicht: ü"])),
        serialize_type=draw(codecs),
        language=draw(st.integers(0, 12)),
        ext_fields=draw(
            st.none() | st.dictionaries(st.text(max_size=6), st.text('01aü\x7f\x01\n"\\', max_size=200), max_size=4)
        ),
    )
    command.version = draw(st.integers(0, 0xFFFF))
    data = bytearray(frame.encode_frame(command))
    for _ in range(draw(st.sampled_from([0, 0, 1, 3]))):
        at = draw(st.integers(8, len(data) - 1))
        data[at] = draw(st.integers(0, 255))
    return bytes(data)


@given(frames(st.sampled_from([ROCKETMQ, JSON])))
def test_a_frame_is_read_as_the_general_decoder_reads_it(c: ModuleType, data: bytes) -> None:
    assert_frame(c, data)


def assert_frame(c: ModuleType, data: bytes) -> None:
    """Check that the fast path returns what the general decoder returns, and nothing exactly where it should."""
    assert decoded(data, c.read_frames) == decoded(data, no_fast_path)
    limits = (0, frame.MAX_FRAME_BYTES, frame.MAX_FRAME_BYTES)
    assert c.read_frames(data, *limits) == fast_paths.frames(data, *limits)


@given(
    st.lists(frames(st.sampled_from([ROCKETMQ, JSON, JSON, MSGPACK])), max_size=4),
    st.integers(-1, 9),
    st.integers(0, 12),
    st.sampled_from([12, 60, 1 << 20]),
    st.sampled_from([0, 40, 1 << 20]),
)
def test_many_frames(c: ModuleType, each: list[bytes], at: int, lost: int, longest: int, longest_header: int) -> None:
    data = b"".join(each)
    data = data[: len(data) - lost]
    arguments = (data, at, longest, longest_header)
    assert outcome(c.read_frames, *arguments) == outcome(fast_paths.frames, *arguments)


@given(st.lists(frames(st.sampled_from([ROCKETMQ, JSON, MSGPACK])), max_size=4), st.lists(st.integers(1, 200)))
def test_a_decoder_finds_the_same_commands_in_pieces_and_without_the_fast_path(
    each: list[bytes], sizes: list[int]
) -> None:
    data = b"".join(each)
    commands, error = commands_of(data, sizes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frame, "_read_frames", None)
        assert commands_of(data, []) == (commands, error)


def commands_of(data: bytes, sizes: list[int]) -> tuple[list[Any], str]:
    """Return the commands that a decoder finds in pieces of these sizes, and what it refuses."""
    decoder = frame.FrameDecoder(frame.MAX_FRAME_BYTES, 1 << 20)
    commands: list[RemotingCommand] = []
    refused = ""
    try:
        for size in sizes:
            commands += decoder.feed(data[:size])
            data = data[size:]
        commands += decoder.feed(data)
    except FrameError as error:
        commands += error.decoded
        refused = str(error)
    values = []
    for command in commands:
        try:
            fields: Any = command.ext_fields
        except HeaderFieldError:
            fields = "malformed"
        numbers = (command.code, command.language, command.version, command.opaque, command.flag)
        values.append((*numbers, command.remark, command.serialize_type, fields, command.body))
    return values, refused


JSON_PIECES = [
    *(
        '"code":310',
        '"code":-0',
        '"code":2147483648',
        '"code":"1"',
        '"code":null',
        '"flag":1',
        '"opaque":-5',
        '"version":07',
    ),
    *('"extFields":{"a":"b"}', '"extFields":{}', '"extFields":null', '"extFields":{"a":1}', '"extFields":{"a":""}'),
    *('"extFields":{"a":"\\u0001\\u004a\\n\\/","b":"\\""}', '"extFields":{"a":"\\u00e9"}', '"extFields":{"a":"\\x"}'),
    *('"extFields":{"a":"b","a":"c"}', '"extFields":{"a":"b",}', '"extFields":{"a" :"b"}', '"extFields":{"a":"\\u00"}'),
    *('"language":"JAVA"', '"language":"GO"', '"language":"KLINGON"', '"language":3', '"language":""', '"remark":"r"'),
    *('"extFields":{"a":"\\\x00"}', '"extFields":{"a":"b"', '"extFields":{"a":"\\'),
    *('"remark":null', '"serializeTypeCurrentRPC":"JSON"', '"more":[1]', '"code": 1', "", " "),
]


@given(
    st.lists(st.sampled_from(JSON_PIECES), max_size=5), st.sampled_from(["{%s}", "{%s", "{%s}}", " {%s}", "%s", "[%s]"])
)
def test_json_headers_of_all_kinds(c: ModuleType, pieces: list[str], form: str) -> None:
    assert_frame(c, framed((form % ",".join(pieces)).encode()))


def test_a_usual_frame_takes_the_fast_path(c: ModuleType) -> None:
    limits = (frame.MAX_FRAME_BYTES, frame.MAX_FRAME_BYTES)
    long = RemotingCommand(310, opaque=7, serialize_type=ROCKETMQ, ext_fields={"a": "b" * 200}, body=b"body")
    first = frame.encode_frame(long)
    fields = {"a": 'b\x01\n"', "topic": "t"}
    second = frame.encode_frame(RemotingCommand(310, opaque=8, serialize_type=JSON, ext_fields=fields, language=9))
    third = framed(b'{"code":34,"extFields":null,"flag":1,"language":"JAVA","opaque":9,"version":399}')
    data = first + second + third
    position, usual = c.read_frames(data + first[:-1], 0, *limits)
    assert position == len(data)
    assert [each[:6] for each in usual] == [
        (ROCKETMQ, 310, 0, 407, 7, 0),
        (JSON, 310, "GO", 407, 8, 0),
        (JSON, 34, 0, 399, 9, 1),
    ]
    entries = [each[6] for each in usual]
    assert decode_entries(entries[0], 0, len(entries[0])) == {"a": "b" * 200}
    assert decode_entries(entries[1], 0, len(entries[1])) == fields
    assert entries[2] is None
    assert [each[7] for each in usual] == [b"body", b"", b""]
    assert c.read_frames(data, len(first), *limits) == (len(data), usual[1:])
    assert c.read_frames(data, len(data) + 1, *limits) == (len(data) + 1, [])
    header_bytes = len(first) - 8 - len(b"body")
    assert c.read_frames(first, 0, len(first), header_bytes) == (len(first), usual[:1])
    assert c.read_frames(first, 0, len(first) - 1, header_bytes) == (0, [])
    assert c.read_frames(first, 0, len(first), header_bytes - 1) == (0, [])


BINARY_HEADER = struct.pack(">hbHiii", 310, 0, 407, 7, 0, 0)
ENTRY = b"\0\1a\0\0\0\1b"
OTHER_FRAMES = {
    "a header that ends behind its frame": struct.pack(">iI", 4 + 25, ROCKETMQ << 24 | 29)
    + BINARY_HEADER
    + bytes((0, 0, 0, 8))
    + ENTRY,
    "bytes behind the entries": framed(BINARY_HEADER + bytes(4) + ENTRY, ROCKETMQ),
    "fewer entries than announced": framed(BINARY_HEADER + struct.pack(">i", 9) + ENTRY, ROCKETMQ),
    "an entry that is cut off": framed(BINARY_HEADER + struct.pack(">i", 7) + ENTRY[:-1], ROCKETMQ),
    "a short header": framed(BINARY_HEADER[:16], ROCKETMQ),
    "no header": framed(b"", ROCKETMQ),
    "no JSON": framed(b""),
    "half a brace": framed(b"{"),
    "another codec": framed(b"{}", MSGPACK),
    "no codec": struct.pack(">i", 3) + bytes(4),
}


@pytest.mark.parametrize("data", OTHER_FRAMES.values(), ids=OTHER_FRAMES)
def test_what_is_not_a_usual_frame_is_left_to_the_general_decoder(c: ModuleType, data: bytes) -> None:
    limits = (0, frame.MAX_FRAME_BYTES, frame.MAX_FRAME_BYTES)
    assert c.read_frames(data, *limits) == fast_paths.frames(data, *limits) == (0, [])


# -- header records ----------------------------------------------------------------------------------------------------

field_texts = st.one_of(
    st.integers(-(2**33), 2**33).map(str),
    st.sampled_from(
        ["", "true", "false", "True", "1", "0", "-0", "007", "+1", "9" * 18, "9" * 19, "1.0", " 1", "text"]
    ),
)


@given(
    st.sampled_from([SendMessageRequestHeaderV2, SendMessageRequestHeader, PullMessageRequestHeader]),
    st.data(),
    st.dictionaries(st.sampled_from("abcdefghijklmnxyz"), field_texts, max_size=4),
)
def test_read_header(c: ModuleType, cls: type[base.Header], data: st.DataObject, more: dict[str, str]) -> None:
    columns = base.schema_columns(cls)
    usual = {0: "text", 1: "12", 2: "1700000000000", 3: "false"}
    fields = {name.decode(): usual[kind] for name, kind in zip(columns[1], columns[2], strict=True)}
    for name in data.draw(st.lists(st.sampled_from(sorted(fields)), max_size=3)):
        fields[name] = data.draw(field_texts)
    fields.update(more)
    entries = b"".join(
        len(name).to_bytes(2, "big") + name.encode() + len(value).to_bytes(4, "big") + value.encode()
        for name, value in data.draw(st.permutations(list(fields.items())))
    )
    found = c.read_header(entries, cls, columns)
    assert found == fast_paths.header_record(entries, cls, columns)
    assert c.read_header(entries, None, columns) == (None if found is None else msgspec.structs.astuple(found))
    with contextlib.suppress(HeaderFieldError):
        expected = base.decode_header(cls, decode_entries(entries, 0, len(entries)))
        assert found is None or found == expected
        return
    assert found is None


def test_a_usual_header_record_takes_the_fast_path(c: ModuleType) -> None:
    request = PullMessageRequestHeader(
        consumer_group="g",
        topic="t",
        queue_id=1,
        queue_offset=2**40,
        max_msg_nums=32,
        sys_flag=0,
        commit_offset=-1,
        suspend_timeout_millis=15000,
        sub_version=5,
    )
    fields = base.encode_header(request)
    command = RemotingCommand(11, serialize_type=ROCKETMQ, ext_fields={**fields, "unknown": "x"})
    data = frame.encode_frame(command)
    _, [(*_, entries, _)] = c.read_frames(data, 0, len(data), len(data))
    assert c.read_header(entries, PullMessageRequestHeader, base.schema_columns(PullMessageRequestHeader)) == request
    assert c.read_header(entries[:-1], PullMessageRequestHeader, base.schema_columns(PullMessageRequestHeader)) is None


def test_wrong_columns_are_refused(c: ModuleType) -> None:
    columns = base.schema_columns(PullMessageRequestHeader)
    of_no_kind = [(*columns[:at], None, *columns[at + 1 :]) for at in range(len(columns))]
    for wrong in (None, list(columns), columns[:4], (*columns, b""), (*columns[:4], b""), *of_no_kind):
        with pytest.raises(TypeError):
            c.read_header(b"", None, wrong)


def test_every_header_fits_the_fast_path(c: ModuleType) -> None:
    classes = [base.Header]
    for cls in classes:
        classes += cls.__subclasses__()
    assert len(classes) > 2
    assert max(len(base.schema_columns(cls)[0]) for cls in classes[1:]) <= c.MAX_FIELDS


def test_nothing_is_kept_or_lost(c: ModuleType) -> None:
    """Reference counts are the same after many calls, successful and refused."""
    topic, host, text = b"topic" * 3, b"h" * 8, "UNIQ_KEY\x01" + "k" * 40
    columns = base.schema_columns(SendMessageRequestHeaderV2)
    entry = b"\0\1t" + struct.pack(">I", len(topic)) + topic
    whole = framed(b'{"code":1,"extFields":{"a":"b"}}') + framed(b'{"code":1}') + framed(b'{"extFields":{"a":"b"},}')
    pulled_body = bytearray()
    record.write_record_reference(pulled_body, b"T", 1, 2, 3, 4, 0, 5, host, 6, host, 7, 8, b"body", -1, topic)
    pulled_bytes = bytes(pulled_body) * 2 + topic
    watched = [topic, host, text, columns[0], SendMessageRequestHeaderV2, entry, whole]
    watched += [pulled_bytes, record._SLOTS, MessageExt]
    before, nones = [sys.getrefcount(each) for each in watched], sys.getrefcount(None)
    for _ in range(1000):
        outcome(c.write_record, bytearray(), topic, 1, 2, 3, 4, 0, 5, host, 6, host, 7, 8, topic, 9, topic)
        outcome(c.write_record, bytearray(), topic, 1 << 80, 2, 3, 4, 0, 5, host, 6, host, 7, 8, topic, 9, topic)
        outcome(c.properties_to_store, text, text, (text,))
        outcome(c.read_properties, topic, ())
        outcome(c.read_properties, text.encode(), ("UNIQ_KEY", "KEYS"))
        outcome(c.read_properties, topic, (topic,))
        outcome(c.properties_with, text.encode(), {"a": text}, ("UNIQ_KEY", "a"))
        outcome(c.properties_with, topic, {text: topic}, ())
        outcome(c.read_header, topic, SendMessageRequestHeaderV2, columns)
        outcome(c.read_frames, text.encode(), 0, 99, 99)
        assert len(c.read_frames(whole, 0, len(whole), len(whole))[1]) == 2
        assert c.read_header(entry, None, (("t",), (b"t",), b"\0", (...,), struct.pack("=I", 99))) == (topic.decode(),)
        assert len(c.take_messages(pulled_bytes, 0, MessageExt, record._SLOTS, text)[1]) == 2
        outcome(c.take_messages, pulled_bytes, 0, MessageExt, watched, text)
        outcome(c.fill_json, (topic, topic), (host,), topic)
        outcome(c.fill_json, (topic, topic), (host,), 1 << 20)
        outcome(c.fill_json, (topic, topic), (host,), -1)
        outcome(c.fill_binary, (topic, topic), (host, 1 << 90), 1, 2, 3, 4, topic, topic)
        outcome(c.fill_binary, (topic, topic), (host, 1), 1, 2, 3, 4, topic, topic)
    assert [sys.getrefcount(each) for each in watched] == before
    if sys.version_info < (3, 12):  # later None has no count
        assert abs(sys.getrefcount(None) - nones) < 100


# -- the contract ------------------------------------------------------------------------------------------------------

REFERENCES = [
    *(java.string_hash_reference, message_id.offset_message_id_bytes_reference, record.write_record_reference),
    *(stored_properties.properties_to_store_reference, stored_properties.read_properties_reference),
    stored_properties.properties_with_reference,
    *(response_template.fill_binary_reference, response_template.fill_json_reference),
]
FAST_PATHS = [fast_paths.frames, fast_paths.header_record, fast_paths.messages]


def test_every_function_has_a_definition_in_python_with_the_same_parameters(c: ModuleType) -> None:
    in_python = {each.__name__.removesuffix("_reference"): each for each in REFERENCES}
    in_python |= dict(zip(("read_frames", "read_header", "take_messages"), FAST_PATHS, strict=True))
    in_c = speedups_contract.functions_of(c)
    assert set(in_c) == set(in_python)
    for name, function in in_c.items():
        assert speedups_contract.parameters_of(function) == speedups_contract.parameters_of(in_python[name]), name


def test_the_stub_declares_what_is_there(c: ModuleType) -> None:
    speedups_contract.assert_stub_is_right(c, "protocol")


def test_constants_are_those_of_the_python_modules(c: ModuleType) -> None:
    limits_of_c_alone = {"MAX_FIELDS": 32, "MAX_PROPERTIES": 32, "MAX_VALUES": 16}
    assert speedups_contract.constants_of(c) == limits_of_c_alone | {
        "MESSAGE_MAGIC": record.MESSAGE_MAGIC,
        "FIXED_BYTES": record.FIXED_BYTES,
        "BORN_HOST_V6": sys_flag.BORN_HOST_V6,
        "STORE_HOST_V6": sys_flag.STORE_HOST_V6,
        "COMPRESSED": sys_flag.COMPRESSED,
        "JSON": JSON,
        "ROCKETMQ": ROCKETMQ,
        "JAVA": JAVA,
        "MAX_TOPIC_BYTES": record.MAX_TOPIC_BYTES,
        "MAX_PROPERTIES_BYTES": properties.MAX_PROPERTIES_BYTES,
    }


@pytest.mark.parametrize("reference", REFERENCES)
def test_a_built_extension_runs_instead_of_the_definitions(
    c: ModuleType, reference: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRIOMQ_PURE", raising=False)
    monkeypatch.setitem(sys.modules, "triomq.protocol._speedups", c)
    speedups._import.cache_clear()
    assert speedups.accelerated(reference) is getattr(c, reference.__name__.removesuffix("_reference"))
    assert speedups.fast_path("read_header") is c.read_header
    assert speedups.running_build() in ("speedups", "compiled")
    speedups._import.cache_clear()


def test_an_extension_of_other_source_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for room in ("protocol", "store"):
        (tmp_path / room / "c").mkdir(parents=True)
        for file in (
            *(speedups_contract.ROOT / room).glob("_speedups.[ch]"),
            *(speedups_contract.ROOT / room).glob("c/*"),
        ):
            (tmp_path / file.relative_to(speedups_contract.ROOT)).write_bytes(file.read_bytes())
    stale = ModuleType("triomq.store._speedups")
    source = tmp_path / "store" / "_speedups.c"
    stale.__file__ = str(source.with_suffix(".so"))
    stale.SOURCE_CRC = speedups.source_crc(source)  # type: ignore[attr-defined]
    monkeypatch.delenv("TRIOMQ_PURE", raising=False)
    monkeypatch.setitem(sys.modules, "triomq.store._speedups", stale)
    speedups._import.cache_clear()
    assert speedups.load("triomq.store") is stale
    for changed in ("protocol/_speedups.h", "protocol/c/properties.h", "store/c/take.h"):
        before = (tmp_path / changed).read_bytes()
        (tmp_path / changed).write_text("/* changed */")
        speedups._import.cache_clear()
        assert speedups.load("triomq.store") is None
        (tmp_path / changed).write_bytes(before)
    speedups._import.cache_clear()


@pytest.mark.parametrize("reference", REFERENCES)
def test_pure_python_runs_where_the_extension_is_not_wanted(reference: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIOMQ_PURE", "1")
    assert speedups.accelerated(reference) is reference
    assert speedups.fast_path("read_header") is None
    assert speedups.running_build() in ("pure", "compiled")


def test_wrong_arguments_are_type_errors(c: ModuleType) -> None:
    for function in speedups_contract.functions_of(c).values():
        for count in (0, 1, 2, 3, 6, 9, 16):
            with pytest.raises(TypeError):
                function(*[object()] * count)


def test_ext_fields_that_are_no_utf8_are_refused() -> None:
    command = decode_generally(framed(b'{"code":11,"extFields":{"topic":"\x80"}}'))
    with pytest.raises(HeaderFieldError, match="extFields cannot be read"):
        command.header(PullMessageRequestHeader)
    with pytest.raises(HeaderFieldError, match="extFields cannot be read"):
        _ = command.ext_fields
