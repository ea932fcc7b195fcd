"""Stored records, properties, ids, addresses: the examples of the format, round trips, and damage."""

from __future__ import annotations

import contextlib
import pickle
import re
import struct
import tracemalloc
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stored_records import HOST, encoded
from traced_memory import least_bytes

from triomq.protocol import compression, java, message_id, properties, record, sys_flag
from triomq.protocol import property_names as names
from triomq.protocol.address import HostPort
from triomq.protocol.errors import BodyError, ProtocolError, RecordError
from triomq.protocol.message import Message, MessageExt, may_have, note_began
from triomq.protocol.message_to_store import MessageToStore
from triomq.protocol.stored_properties import NONE

EXAMPLE = bytes.fromhex(
    "000000b3 daa320a7 3610a686 00000001 00000000 0000000000000007 0000000000001000 00000000 0000018bcfe56800"
    "0a000009 00009c40 0000018bcfe5687b 0a000001 00002a9f 00000000 0000000000000000 00000005 68656c6c6f 01 54"
    "0052 544147530154616741024b455953016b3102554e49515f4b455901304130303030303930303030303030303030303030303030303030"
    "413030303102434c55535445520144656661756c74436c7573746572"
)
EXAMPLE_BATCH = bytes.fromhex(
    "0000001d 00000000 00000000 00000000 00000001 61 0006 544147530141 00000018 00000000 00000000 00000000 00000002"
    "6263 0000"
)

hosts = st.builds(
    HostPort,
    st.one_of(st.ip_addresses(v=4).map(str), st.ip_addresses(v=6).map(str)),
    st.integers(0, 65535),
)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
characters = st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"])
names_and_values = st.text(characters, min_size=1, max_size=20)


@st.composite
def messages(draw: st.DrawFn) -> MessageExt:
    message = MessageExt(
        draw(st.text("abcDEF%-_09", min_size=1, max_size=127)),
        draw(st.binary(max_size=200)),
        properties=draw(st.dictionaries(names_and_values, names_and_values, max_size=5)),
    )
    message.queue_id, message.flag = draw(int32), draw(int32)
    message.queue_offset, message.physical_offset = draw(int64), draw(int64)
    message.born_timestamp, message.store_timestamp = draw(int64), draw(int64)
    message.born_host, message.store_host = draw(hosts), draw(hosts)
    message.reconsume_times, message.prepared_transaction_offset = draw(int32), draw(int64)
    return message


def test_the_magic_codes_are_those_of_rocketmq() -> None:
    assert bytes.fromhex("daa320a7") == record.MESSAGE_MAGIC_BYTES
    assert bytes.fromhex("cbd43194") == record.BLANK_MAGIC_BYTES


def test_the_example_of_the_format() -> None:
    message = record.decode_record(EXAMPLE)
    assert (message.topic, message.body, message.queue_id) == ("T", b"hello", 1)
    assert (message.queue_offset, message.physical_offset) == (7, 4096)
    assert (message.born_host.text, message.store_host.text) == ("10.0.0.9:40000", "10.0.0.1:10911")
    assert (message.born_timestamp, message.store_timestamp) == (1700000000000, 1700000000123)
    assert (message.tags, message.keys) == ("TagA", "k1")
    assert message.msg_id == message.uniq_key == "0A0000090000000000000000000A0001"
    assert message.offset_msg_id == "0A00000100002A9F0000000000001000"
    assert record.encode_record(message) == EXAMPLE
    assert record.store_timestamp_at(EXAMPLE) == 1700000000123


@given(messages())
def test_round_trip(message: MessageExt) -> None:
    stored = record.encode_record(message)
    again = record.decode_record(stored)
    message.sys_flag = again.sys_flag
    for field in (
        "topic",
        "body",
        "properties",
        "queue_id",
        "flag",
        "queue_offset",
        "physical_offset",
        "born_host",
        "store_host",
        "born_timestamp",
        "store_timestamp",
        "reconsume_times",
        "prepared_transaction_offset",
    ):
        assert getattr(again, field) == getattr(message, field)
    assert bool(again.sys_flag & sys_flag.BORN_HOST_V6) == again.born_host.is_ipv6
    assert bool(again.sys_flag & sys_flag.STORE_HOST_V6) == again.store_host.is_ipv6
    hosts = 12 * (again.born_host.is_ipv6 + again.store_host.is_ipv6)
    varying = len(message.body) + len(message.topic) + len(properties.encode(message.properties))
    assert again.store_size_bytes == len(stored) == record.FIXED_BYTES + hosts + varying
    assert record.store_timestamp_at(stored) == message.store_timestamp


@given(messages(), st.data())
def test_a_cut_record_is_refused(message: MessageExt, data: st.DataObject) -> None:
    stored = record.encode_record(message)
    with pytest.raises(RecordError):
        record.decode_record(stored[: data.draw(st.integers(0, len(stored) - 1))])


@given(st.binary(max_size=300), st.integers(0, 300))
def test_garbage_never_raises_anything_else(garbage: bytes, offset: int) -> None:
    for data in (garbage, EXAMPLE[:8] + garbage, bytes(record.encode_blank(50)) + garbage):
        with contextlib.suppress(RecordError):
            record.decode_record(data, min(offset, len(data)))


@pytest.mark.parametrize("at", [*range(8), 8, 11, 39, 84, 87, 88, 93, 95, 96])
def test_a_flipped_bit_in_the_structure_is_seen(at: int) -> None:
    damaged = bytearray(EXAMPLE)
    damaged[at] ^= 0x10
    with pytest.raises(RecordError):
        record.decode_record(bytes(damaged) + bytes(64)) if at != 39 else record.decode_record(bytes(damaged))


def test_records_in_a_row_from_a_memoryview() -> None:
    found = list(record.iterate_records(memoryview(EXAMPLE * 3)))
    assert [message.body for message in found] == [b"hello"] * 3
    with pytest.raises(RecordError):
        list(record.iterate_records(EXAMPLE + EXAMPLE[:40]))


@pytest.mark.parametrize("hosts", [(8, 8), (20, 8), (8, 20), (20, 20)])
def test_every_value_lands_in_its_own_field(hosts: tuple[int, int]) -> None:
    """No two values are alike, so that none can take the place of another; a checksum covers the body only."""
    born_host, store_host = b"b" * hosts[0], b"s" * hosts[1]
    values: dict[str, Any] = {
        "queue_id": 1,
        "flag": -2,
        "queue_offset": 3 << 40,
        "physical_offset": 4 << 41,
        "born_timestamp": 5 << 42,
        "born_host": born_host,
        "store_timestamp": 6 << 43,
        "store_host": store_host,
        "reconsume_times": 7,
        "prepared_transaction_offset": 8 << 44,
    }
    data = encoded(b"topic", b"body", b"properties\x01here", sys_flag=sys_flag.TRANSACTION_COMMIT, **values)
    fields = record.read_fields(data, 0, len(data))
    assert {name: getattr(fields, name) for name in values} == values
    assert (fields.topic, fields.properties) == (b"topic", b"properties\x01here")
    assert data[fields.body_at : fields.body_at + fields.body_length] == b"body"
    assert (fields.size_bytes, fields.body_crc) == (len(data), record.body_crc(b"body"))
    v6 = (sys_flag.BORN_HOST_V6 if hosts[0] == 20 else 0) | (sys_flag.STORE_HOST_V6 if hosts[1] == 20 else 0)
    assert fields.sys_flag == sys_flag.TRANSACTION_COMMIT | v6


def test_a_known_body_crc_is_stored_and_not_computed() -> None:
    known = encoded(body=b"body", body_crc=7)
    assert record.read_fields(known, 0, len(known)).body_crc == 7
    assert encoded(body=b"body", body_crc=record.body_crc(b"body")) == encoded(body=b"body")
    message = MessageToStore("T", 0, b"body", NONE, born_timestamp=0, born_host=HOST, store_host=HOST, body_crc=7)
    assert message.with_content(0, b"other").body_crc == -1, "that of another body"


def test_numbers_that_do_not_fit_leave_the_tail_alone() -> None:
    tail = bytearray(b"before")
    for unfit in (
        {"queue_id": 2**31},
        {"topic": b"T" * 128},
        {"properties": b"p" * 32768},
        {"physical_offset": 2**63},
        {"born_host": bytes(9)},
        {"store_host": bytes(4)},
    ):
        with pytest.raises(struct.error):
            encoded(tail=tail, **unfit)  # type: ignore[arg-type]
    assert tail == b"before"


@pytest.mark.parametrize("kind", [sys_flag.COMPRESSION_ZLIB, sys_flag.COMPRESSION_LZ4, sys_flag.COMPRESSION_ZSTD])
def test_compressed_bodies(kind: int) -> None:
    plain = b"the same words again and again " * 50
    message = MessageExt("T", compression.compress(plain, kind))
    message.sys_flag = sys_flag.COMPRESSED | kind
    stored = record.encode_record(message)
    assert len(stored) < len(plain)
    assert record.decode_record(stored).body == plain
    assert record.decode_record(stored, decompress=False).body == message.body
    for broken in (message.body[:-6], b"\0" + message.body):
        with pytest.raises(BodyError):
            compression.decompress(broken, kind)


def test_old_clients_mean_zlib() -> None:
    message = MessageExt("T", zlib.compress(b"x" * 100))
    message.sys_flag = sys_flag.COMPRESSED
    assert record.decode_record(record.encode_record(message)).body == b"x" * 100


def test_batch_example() -> None:
    first, second = Message("T", b"a", tags="A"), Message("T", b"bc")
    units = record.split_batch(EXAMPLE_BATCH)
    assert [(unit.flag, unit.body, unit.properties) for unit in units] == [(0, b"a", b"TAGS\x01A"), (0, b"bc", b"")]
    assert record.encode_batch([first, second]) == EXAMPLE_BATCH


@given(st.binary(max_size=100))
def test_broken_batches(data: bytes) -> None:
    for body in (data, EXAMPLE_BATCH + data, EXAMPLE_BATCH[: len(data)]):
        with contextlib.suppress(RecordError):
            record.split_batch(body)
    with pytest.raises(RecordError):
        record.split_batch(EXAMPLE_BATCH[:-1])


@given(
    st.lists(st.tuples(st.binary(max_size=9), st.binary(max_size=9)), max_size=12),
    st.binary(max_size=30),
    st.integers(1, 9),
)
def test_a_batch_has_at_most_the_units_that_are_allowed(parts: list[Any], rest: bytes, most: int) -> None:
    whole = record.encode_batch_units([record.BatchUnit(0, *part) for part in parts])
    for body in (whole, whole + rest):
        try:
            units = record.split_batch(body)
        except RecordError as error:
            with pytest.raises(RecordError, match=f"{re.escape(str(error))}|more than {most} messages"):
                record.split_batch(body, most)
            continue
        if len(units) <= most:
            assert len(record.split_batch(body, most)) == len(units)
        else:
            with pytest.raises(RecordError, match=f"more than {most} messages; send several batches"):
                record.split_batch(body, most)


def test_a_batch_of_too_many_units_is_refused_without_a_copy_of_any() -> None:
    body = record.encode_batch_units([record.BatchUnit(0, b"", b"")] * 20_000)

    def peak_bytes() -> int:
        with pytest.raises(RecordError, match="more than 4096 messages"):
            record.split_batch(body, 4096)
        return tracemalloc.get_traced_memory()[1]

    assert least_bytes(peak_bytes) < 50_000


@given(st.dictionaries(names_and_values, names_and_values))
def test_properties_round_trip(table: dict[str, str]) -> None:
    text = properties.format(table)
    assert properties.parse(text) == table
    assert properties.parse(text + "\x02") == table
    assert properties.parse_bytes(properties.encode(table)) == table


def test_properties_that_no_library_writes() -> None:
    assert properties.parse("a\x011\x02noseparator\x02\x01novalue\x02empty\x01\x02a\x012\x02b\x01x\x01y\x02") == {
        "a": "2",
        "b": "x\x01y",
    }
    assert properties.parse("") == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("TagA", 2598919),
        ("T#k1", 2539445),
        ("polygenelubricants", -(2**31)),
        ("\U0001f600", 1772899),
        ("käse", 3410411),
    ],
)
def test_java_string_hash(text: str, expected: int) -> None:
    assert java.string_hash(text) == java.cached_string_hash(text) == expected


@given(st.text(), st.text())
def test_string_hash_continues(start: str, rest: str) -> None:
    assert java.string_hash(rest, java.string_hash(start)) == java.string_hash(start + rest)


@given(hosts)
def test_addresses_round_trip(host: HostPort) -> None:
    assert HostPort.from_packed(host.packed) == host
    assert HostPort.parse(host.text) == host
    assert HostPort.parse(f"[{host.ip}]:{host.port}" if host.is_ipv6 else f"{host.ip}:{host.port}") == host
    assert len(host.packed) == (20 if host.is_ipv6 else 8)


def test_address_texts() -> None:
    host = HostPort("::1", 41894)
    assert (host.text, host.ip) == ("0:0:0:0:0:0:0:1:41894", "::1")
    assert host.packed == bytes(15) + b"\x01" + bytes.fromhex("0000a3a6")
    for wrong in ("", "10.0.0.1", "10.0.0:1", "host:1", "10.0.0.1:x", "10.0.0.1:-1", "::1"):
        with pytest.raises(ValueError, match="not"):
            HostPort.parse(wrong)
    with pytest.raises(ValueError, match="8 or 20"):
        HostPort.from_packed(b"1234")


@given(hosts, st.integers(0, 2**63 - 1))
def test_offset_message_ids(host: HostPort, physical_offset: int) -> None:
    text = message_id.offset_message_id(host.packed, physical_offset)
    assert len(text) == (56 if host.is_ipv6 else 32)
    assert message_id.parse_offset_message_id(text) == (host, physical_offset)


def test_message_ids_that_are_none() -> None:
    for wrong in ("", "zz", "0A00000100002A9F000000000000100", "0A 00000100002A9F0000000000001000"):
        with pytest.raises(ProtocolError):
            message_id.parse_offset_message_id(wrong)


def test_uniq_keys() -> None:
    now_ms = 1_700_000_000_123
    maker = message_id.UniqKeyMaker(bytes([10, 0, 0, 9]), 0x12345, -2, counter=0xFFFE)
    first, second, third = maker.make(now_ms), maker.make(now_ms + 5), maker.make(now_ms + 40 * 86_400_000)
    assert len(first) == 32
    maker_part = "0A000009" + "2345" + "FFFFFFFE"  # address, process id, loader hash

    def parts(key: str) -> tuple[str, int, int]:
        return key[:20], int(key[20:28], 16), int(key[28:], 16)

    in_month_ms = now_ms - message_id.month_start_ms(now_ms)
    assert parts(first) == (maker_part, in_month_ms, 0xFFFF)
    assert parts(second) == (maker_part, in_month_ms + 5, 0)
    later_ms = now_ms + 40 * 86_400_000
    assert parts(third) == (maker_part, later_ms - message_id.month_start_ms(later_ms), 1), "another month"


def test_message_accessors() -> None:
    message = Message("T", b"x", tags="A", keys=["k1", "k2"])
    assert message.properties == {"TAGS": "A", "KEYS": "k1 k2"}
    assert message.key_list == ["k1", "k2"]
    assert (message.delay_level, message.wait_store_msg_ok) == (0, True)
    message.delay_level, message.wait_store_msg_ok, message.tags = 3, False, None
    assert message.properties == {"KEYS": "k1 k2", "DELAY": "3", "WAIT": "false"}
    message.put_user_property("color", "red")
    assert message.user_property("color") == "red"
    for name, value in ((names.KEYS, "x"), ("", "x"), ("a", " ")):
        with pytest.raises(ValueError, match=r"system|blank"):
            message.put_user_property(name, value)


def received(stored: str = "UNIQ_KEY\x010A\x02TAGS\x01t") -> MessageExt:
    """Return a message as a consumer has it before anybody read its properties."""
    sent = MessageExt("Orders", b"body", properties=properties.parse(stored))
    sent.born_host = sent.store_host = HostPort("10.0.0.1", 10911)
    return record.decode_records(record.encode_record(sent))[0]


@pytest.mark.parametrize("is_read_before", [True, False])
def test_a_message_says_when_consuming_it_began(is_read_before: bool) -> None:
    message = received()
    if is_read_before:
        assert message.tags == "t"
    note_began([message], 1234)
    assert message.properties == {"UNIQ_KEY": "0A", "TAGS": "t", "CONSUME_START_TIME": "1234"}
    note_began([message], 1235)
    assert message.properties["CONSUME_START_TIME"] == "1235"


def test_what_is_read_late_is_there_in_copies_and_can_be_changed() -> None:
    message = received()
    note_began([message], 1)
    copied = pickle.loads(pickle.dumps(message))
    assert copied == message
    assert (copied.properties["CONSUME_START_TIME"], str(copied.born_host)) == ("1", "10.0.0.1:10911")
    message.tags = "u"
    message.born_host = HostPort("10.0.0.2", 1)
    assert (message.tags, copied.tags, message.born_host.ip) == ("u", "t", "10.0.0.2")
    message.properties = {"a": "b"}
    assert message.properties == {"a": "b"}


def test_whether_a_message_may_have_a_property_is_known_without_reading_them() -> None:
    message = received("TRAN_MSG\x01true")
    assert may_have(message, b"TRAN_MSG")
    assert not may_have(message, b"DELAY")
    assert isinstance(message._properties, bytes)
    assert message.properties == {"TRAN_MSG": "true"}
    assert may_have(message, b"TRAN_MSG")
    assert not may_have(message, b"DELAY")
