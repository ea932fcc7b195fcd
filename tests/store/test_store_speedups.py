"""The C functions of store/ do the same as their definitions in Python."""

from __future__ import annotations

import struct
import sys
from types import ModuleType
from typing import Any

import pytest
import speedups_contract
from built_speedups import built_speedups
from hypothesis import example, given
from hypothesis import strategies as st
from stored_records import encoded

from triomq.broker.filters import conditions
from triomq.dledger.ledger import entry_format, runs
from triomq.dledger.wire.bodies import ENTRY_HEADER_BYTES, ENTRY_MAGIC
from triomq.protocol import properties, record, speedups, sys_flag
from triomq.protocol.java import string_hash
from triomq.store.log import scanned_record
from triomq.store.queues import consume_queue, index_file
from triomq.store.writing import delivering

any_text = st.text(st.characters(exclude_categories=[]), max_size=40)


@pytest.fixture(scope="module")
def c() -> ModuleType:
    return built_speedups("store")


@given(any_text, any_text)
@example("", "\U0001f600" * 20)
def test_key_hash(c: ModuleType, topic: str, key: str) -> None:
    assert c.key_hash(topic, key) == index_file.key_hash_reference(topic, key)


def test_a_hash_without_an_absolute_value_is_0(c: ModuleType) -> None:
    rest = (2**31 - 31**5 * string_hash("t#")) % 2**32
    key = ""
    for place in (31**4, 31**3, 31**2, 31, 1):
        key += chr(rest // place)
        rest %= place
    assert c.key_hash("t", key) == index_file.key_hash_reference("t", key) == 0


some_keys = st.none() | st.lists(st.sampled_from(["", "a", "b2", "ü", "\U0001f600x"]), max_size=4).map(" ".join)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["T", "ü"]),
            some_keys,
            some_keys,
            st.integers(0, 2**63 - 1),
            st.integers(-(2**63), 2**63 - 1),
        ),
        max_size=8,
    ),
    st.integers(1, 8),
    st.integers(0, 12),
    st.sampled_from([-5, 0, 1, 1_700_000_000_000]),
    st.binary(min_size=80, max_size=80),
)
def test_write_keys(
    c: ModuleType,
    messages: list[tuple[str, str | None, str | None, int, int]],
    slot_count: int,
    limit: int,
    begin_timestamp: int,
    garbage: bytes,
) -> None:
    files = [(bytearray(garbage), bytearray(1), bytearray()) for _ in range(2)]
    start = 0
    while start <= len(messages):
        number = 1 + len(files[0][2]) // 20
        answers = [
            function(*file, slot_count, number, limit, begin_timestamp, messages, start)
            for function, file in zip((c.write_keys, index_file.write_keys_reference), files, strict=True)
        ]
        assert answers[0] == answers[1]
        assert files[0] == files[1]
        start = answers[0][0] + 1  # the message that has no room is left out


def test_what_lies_outside_is_refused(c: ModuleType) -> None:
    slots, pages, entries = bytearray(44), bytearray(1), bytearray()
    messages: list[Any] = [("t", "key", None, 0, 0)]
    watched = [slots, pages, entries, messages]
    before = [sys.getrefcount(each) for each in watched]
    for slot_count in (2, 0, -1):
        with pytest.raises(IndexError):
            c.write_keys(slots, pages, entries, slot_count, 1, 5, 0, messages, 0)
    with pytest.raises(IndexError):
        c.write_keys(bytearray(10_000), pages, entries, 2000, 1, 5, 0, messages, 0)
    with pytest.raises(IndexError):
        c.write_keys(slots, pages, entries, 1, 1, 5, 0, messages, -1)
    with pytest.raises(struct.error):
        c.write_keys(slots, pages, entries, 1, 1, 5, 0, [*messages, ("t", "key", None, 2**63, 0)], 0)
    with pytest.raises(BufferError):
        c.write_keys(bytes(44), pages, entries, 1, 1, 5, 0, messages, 0)
    with pytest.raises(TypeError):
        c.write_keys(slots, b"", entries, 1, 1, 5, 0, messages, 0)
    with pytest.raises(TypeError):
        c.write_keys(slots, pages, entries, 1, 1, 5, 0, tuple(messages), 0)
    wrong: list[Any] = [
        ("t", b"key", None, 0, 0),
        (b"t", "key", None, 0, 0),
        ("t", "key", 1, 0, 0),
        ("t", "key", None, 0.0, 0),
    ]
    for message in (*wrong, ("t", "key", None, 0), ["t", "key", None, 0, 0]):
        with pytest.raises(TypeError):
            c.write_keys(slots, pages, entries, 1, 1, 5, 0, [*messages, message], 0)
    assert not entries
    assert slots == bytearray(44)
    slots += b"not held"
    assert [sys.getrefcount(each) for each in watched] == before


def test_every_function_has_a_definition_in_python_with_the_same_parameters(c: ModuleType) -> None:
    references = [
        *(index_file.key_hash_reference, index_file.write_keys_reference),
        *(consume_queue.add_queue_entry_reference, scanned_record.scan_record_reference),
        *(runs.entries_of_reference, delivering.deliver_records_reference),
    ]
    in_python = {each.__name__.removesuffix("_reference"): speedups_contract.parameters_of(each) for each in references}
    in_c = speedups_contract.functions_of(c)
    del in_c["take_records"]  # a fast path: tests/store/test_store_filters.py
    assert {name: speedups_contract.parameters_of(each) for name, each in in_c.items()} == in_python


@pytest.mark.parametrize(
    "reference",
    [index_file.key_hash_reference, scanned_record.scan_record_reference],
)
def test_a_built_extension_runs_instead_of_the_definitions(
    c: ModuleType, reference: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everywhere in store/."""
    monkeypatch.delenv("TRIOMQ_PURE", raising=False)
    monkeypatch.setitem(sys.modules, "triomq.store._speedups", c)
    speedups._import.cache_clear()
    assert speedups.accelerated(reference) is getattr(c, reference.__name__.removesuffix("_reference"))
    assert speedups.fast_path("take_records", "triomq.store") is c.take_records
    speedups._import.cache_clear()


def test_the_stub_declares_what_is_there(c: ModuleType) -> None:
    speedups_contract.assert_stub_is_right(c, "store")


def test_constants_are_those_of_the_python_modules(c: ModuleType) -> None:
    assert speedups_contract.constants_of(c) == {
        "MESSAGE_MAGIC": record.MESSAGE_MAGIC,
        "FIXED_BYTES": record.FIXED_BYTES,
        "BORN_HOST_V6": sys_flag.BORN_HOST_V6,
        "STORE_HOST_V6": sys_flag.STORE_HOST_V6,
        "HEADER_BYTES": index_file.HEADER_BYTES,
        "SLOT_BYTES": index_file.SLOT_BYTES,
        "ENTRY_BYTES": index_file.ENTRY_BYTES,
        "PAGE_BYTES": index_file.PAGE_BYTES,
        "HEAD_BYTES": scanned_record.HEAD_BYTES,
        "LEDGER_HEADER_BYTES": ENTRY_HEADER_BYTES,
        "LEDGER_UNIT_BYTES": entry_format.UNIT_BYTES,
        "LEDGER_BLANK_BYTES": entry_format.BLANK_BYTES,
        "LONGEST_LEDGER_ENTRY_BYTES": runs.LONGEST_ENTRY_BYTES,
        "LEDGER_MAGIC": ENTRY_MAGIC,
        "RECORD_OFFSET_AT": record.PHYSICAL_OFFSET_AT,
        "TRANSACTION_MASK": sys_flag.TRANSACTION_MASK,
        "MAX_TOPIC_BYTES": record.MAX_TOPIC_BYTES,
        "MAX_PROPERTIES": 32,
        "MAX_PROPERTIES_BYTES": properties.MAX_PROPERTIES_BYTES,
        "MAX_QUEUE_ID_DIGITS": delivering.MAX_QUEUE_ID_DIGITS,
        "QUEUE_HEAD_BYTES": delivering._HEAD.size,
        "MAX_NAMES": conditions.MAX_NAMES,
        "MAX_STACK": conditions.MAX_STACK,
    }
    assert index_file.ENTRY_BYTES == consume_queue.ENTRY_BYTES


numbers = st.integers(-(2**31), 2**31) | st.integers(-(2**65), 2**65)


@given(numbers, numbers, numbers)
def test_add_queue_entry(c: ModuleType, physical_offset: int, size_bytes: int, tags_code: int) -> None:
    results = []
    for function in (c.add_queue_entry, consume_queue.add_queue_entry_reference):
        buffer = bytearray(b"before")
        try:
            function(buffer, physical_offset, size_bytes, tags_code)
        except struct.error:
            buffer += b"refused"
        results.append(buffer)
    assert results[0] == results[1]


def test_queue_entries_go_into_bytearrays_only(c: ModuleType) -> None:
    with pytest.raises(TypeError):
        c.add_queue_entry(b"", 0, 0, 0)
    with pytest.raises(TypeError):
        c.add_queue_entry(bytearray(), 0, 0)


def some_record(body: bytes, topic: bytes, stored_properties: bytes, flags: int) -> bytearray:
    hosts = [bytes(20 if flags & flag else 8) for flag in (sys_flag.BORN_HOST_V6, sys_flag.STORE_HOST_V6)]
    return encoded(
        topic,
        body,
        stored_properties,
        queue_id=1,
        queue_offset=-5,
        physical_offset=1 << 40,
        sys_flag=flags,
        born_timestamp=6,
        born_host=hosts[0],
        store_timestamp=7,
        store_host=hosts[1],
    )


@given(
    st.builds(
        some_record,
        st.binary(max_size=50),
        st.binary(max_size=127),
        st.binary(max_size=300),
        st.sampled_from([0, sys_flag.TRANSACTION_PREPARED, sys_flag.BORN_HOST_V6, sys_flag.STORE_HOST_V6]),
    ),
    st.integers(0, 3),
    st.integers(-3, 3),
    st.none()
    | st.tuples(st.sampled_from([0, 3, 4, 7, 36, 39, 84, 87, 88, -1, -2]) | st.integers(0, 90), st.integers(0, 255)),
)
@example(some_record(b"", b"", b"", 0), 0, 0, None)
@example(some_record(b"", b"t", b"", 0), 0, 0, (88, 255))
def test_scan_record(c: ModuleType, data: bytearray, before: int, room: int, change: tuple[int, int] | None) -> None:
    """Whole records, truncated ones, and ones with one changed byte."""
    if change is not None:
        data = bytearray(data)
        data[change[0]] = change[1]
    end = before + len(data) + room
    whole = bytes(before) + bytes(data) + b"behind"[: max(0, room)]
    assert c.scan_record(whole, before, end) == scanned_record.scan_record_reference(whole, before, end)


far = st.integers(-100, 300) | st.sampled_from([-(2**63), 2**63 - 1])


@given(far, far)
def test_no_record_lies_outside(c: ModuleType, at: int, end: int) -> None:
    data = bytes(some_record(b"body", b"t", b"", 0))
    assert c.scan_record(data, at, end) == scanned_record.scan_record_reference(data, at, end)


def test_a_record_is_scanned(c: ModuleType) -> None:
    data = bytes(some_record(b"body", b"topic", b"UNIQ_KEY\x01u", 0))
    crc = record.body_crc(b"body")
    assert c.scan_record(data, 0, len(data)) == (len(data), crc, 1, -5, 1 << 40, 0, 7, 4, b"topic", b"UNIQ_KEY\x01u")
    watched = [data, crc]
    before = [sys.getrefcount(each) for each in watched]
    for _ in range(1000):
        c.scan_record(data, 0, len(data))
    assert [sys.getrefcount(each) for each in watched] == before
    for wrong in ((), (bytearray(data), 0, 1), (data, "0", 1), (data, 0, 1, 2)):
        with pytest.raises(TypeError):
            c.scan_record(*wrong)


records_of_a_leader = st.lists(st.tuples(st.integers(0, 300), st.integers(-1, 1)), max_size=8)
"""Sizes of bodies, and by how much a record names another offset than its own: usually 0 (see the test)."""


def records_from(pos: int, wanted: list[tuple[int, int]], *, is_right: bool) -> bytes:
    data = bytearray()
    for size, error in wanted:
        one = bytearray(encoded(body=bytes(size)))
        pos += 48
        one[28:36] = struct.pack(">q", pos + (0 if is_right else error))
        pos += len(one)
        data += one
    return bytes(data)


def answer_of(function: Any, *arguments: Any) -> object:
    try:
        return function(*arguments)
    except ValueError as error:
        return str(error)


@given(
    records_of_a_leader,
    st.booleans(),
    st.integers(0, 2**40),
    st.integers(-1, 2**40),
    st.integers(-1, 2**31),
    st.integers(-1, 2000),
    st.integers(0, 3),
)
def test_entries_of(
    c: ModuleType,
    wanted: list[tuple[int, int]],
    is_right: bool,
    pos: int,
    index: int,
    term: int,
    room: int,
    cut: int,
) -> None:
    data = records_from(pos, wanted, is_right=is_right)
    data = data[: len(data) - cut]
    found = answer_of(c.entries_of, data, 0, index, term, pos, room)
    assert found == answer_of(runs.entries_of_reference, data, 0, index, term, pos, room)
    if isinstance(found, tuple) and found[2]:
        entries, units, end = found
        rest = pos + len(entries)
        arguments = (data, end, index + len(units) // 32, term, rest, room)
        assert answer_of(c.entries_of, *arguments) == answer_of(runs.entries_of_reference, *arguments)


def test_entries_of_a_wrong_place_are_refused(c: ModuleType) -> None:
    data = records_from(100, [(10, 0)], is_right=True)
    for wrong in ((-1, 0, 1, 100, 900), (len(data) + 1, 0, 1, 100, 900), (0, 0, 1, 2**62, 900)):
        for function in (c.entries_of, runs.entries_of_reference):
            with pytest.raises(ValueError, match="outside of the ledger"):
                function(data, *wrong)
    with pytest.raises(TypeError):
        c.entries_of(bytearray(data), 0, 0, 1, 100, 900)
    with pytest.raises(struct.error):
        c.entries_of(data, 0, 0, 2**63, 100, 900)
    long = records_from(0, [(4_194_304, 0)], is_right=True)
    for function in (c.entries_of, runs.entries_of_reference):
        assert function(long, 0, 0, 1, 0, 1 << 30) == (b"", b"", 0)
