"""SQL92 conditions in C decide about stored records as the tree of the expression does, or leave the record to it."""

from __future__ import annotations

import struct
from pathlib import Path
from types import ModuleType
from typing import Any

import fast_paths
import pytest
from built_speedups import built_speedups
from hypothesis import example, given
from hypothesis import strategies as st
from store_support import message, open_store
from stored_records import encoded

from triomq.broker.errors import FilterError
from triomq.broker.filters.conditions import MAX_NAMES, encode_conditions
from triomq.broker.filters.sql92 import compile_expression
from triomq.broker.pulls.message_filter import MAX_SORTED_CODES, SqlFilter, TagFilter, pack_tag_codes
from triomq.broker.tables.filters import ConsumerFilter
from triomq.protocol import record as stored_record
from triomq.protocol import sys_flag
from triomq.protocol.errors import RecordError
from triomq.protocol.java import string_hash
from triomq.protocol.properties import encode, parse_bytes
from triomq.store.queues.consume_queue import ENTRY, FILLER
from triomq.store.reading import collecting
from triomq.store.results import ExtUnit, GetResult, MessageFilter

LONG = (1 << 31) - 2


@pytest.fixture(scope="module")
def c() -> ModuleType:
    return built_speedups("store")


def filter_of(expression: str) -> ConsumerFilter:
    return ConsumerFilter("T", "G", expression, 0, 0, None)


def take(
    c: ModuleType,
    entries: bytes,
    log: bytes,
    *,
    at: int = 0,
    count: int = 9,
    first_room: int = LONG,
    room: int = LONG,
    most: int = 9,
    start: int = 0,
    low: int = 0,
    high: int = 1 << 40,
    checked: tuple[int, int, bytes] = (0, 0, b""),
    codes: bytes = b"",
    conditions: bytes = b"",
) -> Any:
    """Call `take_records`. `checked`: before which log offset records are checked, and of which queue they must be."""
    return c.take_records(
        entries, at, count, first_room, room, most, log, start, low, high, *checked, codes, conditions
    )


def taken(c: ModuleType, conditions: bytes, record: bytes) -> tuple[int, list[bytes]]:
    position, count, records = take(c, ENTRY.pack(0, len(record), 0), record, count=1, conditions=conditions)
    assert count == bool(records)
    return position, [records] if count else []


names = st.sampled_from(["a", "b", "NULLS", "b2"])
literals = st.sampled_from(
    [
        "3",
        "-3",
        "0",
        "5L",
        "2147483648",
        "-9223372036854775807",
        "3.0",
        "-0.5",
        "15.25",
        "1e2",
        "'x'",
        "'3'",
        "'TRUE'",
        "''",
        "'ü'",
        "TRUE",
        "FALSE",
    ]
)
comparisons = st.one_of(
    st.builds(
        "{} {} {}".format, names | literals, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), names | literals
    ),
    st.builds(
        "{} {} ({})".format, names, st.sampled_from(["IN", "NOT IN"]), st.sampled_from(["'x'", "'x', '3', 'true'"])
    ),
    st.builds("{} IS {}".format, names | st.just("TRUE"), st.sampled_from(["NULL", "NOT NULL"])),
    st.builds("{} {} {} AND {}".format, names, st.sampled_from(["BETWEEN", "NOT BETWEEN"]), literals, literals),
    names,
    st.sampled_from(["TRUE", "FALSE", "NULL"]),
)
expressions = st.recursive(
    comparisons,
    lambda inner: (
        st.builds("({}) {} ({})".format, inner, st.sampled_from(["AND", "OR"]), inner)
        | st.builds("NOT ({})".format, inner)
    ),
    max_leaves=5,
)
texts = st.sampled_from(
    [
        "3",
        "03",
        "-3",
        "+3",
        "-0",
        "-0.0",
        "3.0",
        "3.",
        ".5",
        "15.25",
        "1e2",
        "3f",
        "x",
        "",
        "-",
        "+",
        ".",
        "true",
        "TRUE",
        "tru",
        "trüe",
        "ü",
        "\ufffd",
        "2147483648",
        "9" * 18,
        "9" * 19,
        "9" * 15 + ".5",
        "0.1",
        "٣",
        "1_0",
        " 3",
        "NaN",
        "\x013",
        "-9223372036854775807",
    ]
) | st.text(max_size=3)
stored = st.lists(st.tuples(names | st.sampled_from(["", "ab", "A"]), texts), max_size=6).map(
    lambda pairs: b"\x02".join([f"{name}\x01{value}".encode("utf-8", "replace") for name, value in pairs])
) | st.binary(max_size=30).map(lambda data: b"a\x01" + data + b"\x02b\x01\xff3")


@given(expressions, stored)
@example("a = 3 AND b IN ('x', 'y')", b"a\x013\x02b\x01y")
@example("a = 3", b"a\x013\x02a\x01\x02")
@example("a = 3", b"a\x013\x02a\x014")
@example("3 > a", b"a\x013")
@example("3 <> a", b"")
@example("NOT (a = 3)", b"")
@example("a = 3 OR b = 4", b"a\x013\x02b\x01no number")
@example("a < 0.1", b"a\x010.1")
@example("a BETWEEN 1 AND 5 OR b IS NULL", b"a\x017")
@example("a = 2147483648", b"a\x012147483648")
@example("a = 3", b"a\x012147483648")
@example("a = TRUE", b"a\x01tRuE")
def test_conditions_decide_as_the_tree_does_or_not_at_all(c: ModuleType, text: str, properties: bytes) -> None:
    try:
        tree = compile_expression(text)
    except FilterError:
        return
    conditions = encode_conditions(tree)
    if not conditions:
        return
    record = bytes(encoded(b"topic", b"body", properties))
    matches = SqlFilter(filter_of(text)).matches_record(record)
    if not fast_paths.conditions_decide(tree, parse_bytes(properties)):
        assert taken(c, conditions, record) == (0, []), "the tree decides"
    else:
        assert taken(c, conditions, record) == (20, [record] if matches else [])


@pytest.mark.parametrize(
    "text",
    [
        "a = 3",
        "a <> 'x'",
        "3 < a",
        "a = -5",
        "a > -1.5",
        "a BETWEEN 1 AND 2",
        "a NOT BETWEEN 1 AND 2",
        "a IN ('x')",
        "a IS NULL",
        "a IS NOT NULL",
        "a = TRUE",
        "a",
        "NOT (a = 1 OR b = 2) AND NULL",
        " AND ".join(["a = 1"] * 32),
    ],
)
def test_usual_expressions_are_encoded(text: str) -> None:
    assert encode_conditions(compile_expression(text))


@pytest.mark.parametrize(
    "text",
    [
        "a = b",
        "a < b",
        "a = 'ü'",
        "a IN ('x', 'ü')",
        "1 = 1",
        "-a = 1",
        "TRUE = a",
        "(a = 1) IS NULL",
        " AND ".join(["a = 1"] * 33),
        " OR ".join([f"a{n} = 1" for n in range(MAX_NAMES + 1)]),
        f"a = '{'x' * 4100}'",
        f"{'n' * 256} = 1",
    ],
)
def test_other_expressions_are_left_to_the_tree(text: str) -> None:
    assert encode_conditions(compile_expression(text)) == b""


@pytest.mark.parametrize("flags", [0, sys_flag.BORN_HOST_V6, sys_flag.STORE_HOST_V6, 0x30])
def test_properties_are_found_behind_hosts_of_any_length(c: ModuleType, flags: int) -> None:
    hosts = [bytes(20 if flags & flag else 8) for flag in (sys_flag.BORN_HOST_V6, sys_flag.STORE_HOST_V6)]
    record = bytes(encoded(b"t", b"body", b"a\x013", sys_flag=flags, born_host=hosts[0], store_host=hosts[1]))
    for text, expected in (("a = 3", [record]), ("a = 4", [])):
        assert taken(c, encode_conditions(compile_expression(text)), record) == (20, expected)


@pytest.mark.parametrize(
    ("text", "codes", "is_taken"),
    [("a = 4", [], False), ("a = 3", [], True), ("", [7], True), ("", [-8, 9], False), ("", [], True)],
)
def test_what_is_unusual_ends_the_taking(c: ModuleType, text: str, codes: list[int], is_taken: bool) -> None:
    """A filler, a long record, one outside of the bytes that may be read, the most records, the last entry."""
    record = bytes(encoded(b"t", b"body", b"a\x013"))
    size = len(record)
    log = record * 4
    conditions = encode_conditions(compile_expression(text)) if text else b""
    wanted = struct.pack(f">{len(codes)}i", *codes)
    entries = b"".join([ENTRY.pack(100 + at * size, size, 7) for at in range(4)])

    def reached(
        low: int = 0, high: int = 1 << 40, most: int = 9, longest: int = LONG, data: bytes = entries, at: int = 0
    ) -> int:
        position, count, records = take(
            c,
            data,
            log,
            at=at,
            first_room=longest,
            most=most,
            start=100,
            low=low,
            high=high,
            codes=wanted,
            conditions=conditions,
        )
        assert count == ((position - at) // 20 if is_taken else 0)
        assert records == record * count
        return int(position)

    assert reached() == 80
    assert reached(at=40) == 80
    assert reached(most=2) == 40
    assert reached(most=0) == 0
    assert reached(longest=size - 1) == 0
    assert reached(high=100 + 3 * size) == 60
    assert reached(high=99 + 3 * size) == 40
    assert reached(high=-(1 << 63)) == 0
    assert reached(low=101) == 0
    assert reached(data=entries[:20] + FILLER + entries) == 20
    assert reached(data=entries + ENTRY.pack(100 + 4 * size, size, 7)) == 80
    assert reached(data=entries[:20] + ENTRY.pack(100, 0, 7)) == 20
    assert reached(data=entries[:20] + ENTRY.pack(100, -1, 7)) == 20
    assert reached(data=entries[:20] + ENTRY.pack(0, size, 7)) == 20
    assert reached(data=entries[:39]) == 20
    if text:
        assert reached(data=entries[:20] + ENTRY.pack(100, size - 1, 7)) == 20


@pytest.mark.parametrize("codes", [b"", struct.pack(">i", 7)])
def test_records_are_taken_as_long_as_they_fit(c: ModuleType, codes: bytes) -> None:
    """The first one may be longer; what does not match has to fit as well, so that `collect` stops there."""
    log = b"abcdefgh"
    entries = b"".join([ENTRY.pack(at, size, 7) for at, size in ((0, 3), (3, 2), (5, 1), (6, 2))])

    def taken(count: int, first_room: int, room: int) -> Any:
        return take(c, entries, log, count=count, first_room=first_room, room=room, codes=codes)

    assert taken(9, LONG, 8) == (80, 4, b"abcdefgh")
    assert taken(2, LONG, 8) == (40, 2, b"abcde")
    assert taken(0, LONG, 8) == (0, 0, b"")
    assert taken(9, LONG, 7) == (60, 3, b"abcdef")
    assert taken(9, LONG, 4) == (20, 1, b"abc")
    assert taken(9, LONG, 2) == (20, 1, b"abc")
    assert taken(9, 2, 8) == (0, 0, b"")
    other = ENTRY.pack(0, 3, 7) + ENTRY.pack(3, 3, 8)
    position, _, _ = take(c, other, log, room=5, codes=struct.pack(">i", 7))
    assert position == 20


def test_records_that_lie_apart_are_joined(c: ModuleType) -> None:
    entries = b"".join([ENTRY.pack(at, size, 7) for at, size in ((0, 1), (1, 2), (5, 2), (4, 1), (7, 1), (0, 1))])
    assert take(c, entries, b"abcdefgh", room=8) == (120, 6, b"abcfgeha")


def is_sound(data: bytes, physical_offset: int, queue_id: int, topic: bytes) -> bool:
    try:
        fields = stored_record.read_fields(data, 0, len(data))
    except RecordError:
        return False
    is_own = (fields.queue_id, fields.physical_offset, fields.topic) == (queue_id, physical_offset, topic)
    body = data[fields.body_at : fields.body_at + fields.body_length]
    return is_own and fields.size_bytes == len(data) and stored_record.body_crc(body) == fields.body_crc


@given(
    st.binary(max_size=90),
    st.sampled_from([0, sys_flag.TRANSACTION_PREPARED, sys_flag.BORN_HOST_V6, sys_flag.STORE_HOST_V6, 0x30]),
    st.tuples(st.integers(0, 300), st.integers(0, 255)) | st.none(),
    st.tuples(st.sampled_from([50, 51]), st.sampled_from([-3, 3]), st.sampled_from([b"topic", b"topi", b"other", b""])),
)
@example(b"body", 0, None, (50, 3, b"topic"))
@example(b"", 0, None, (50, 3, b"topic"))
@example(b"body", 0, (8, 0xFF), (50, 3, b"topic"))
@example(b"body", 0x30, None, (50, 3, b"topic"))
def test_records_of_before_are_taken_if_they_are_sound(
    c: ModuleType, body: bytes, flags: int, change: tuple[int, int] | None, own: tuple[int, int, bytes]
) -> None:
    """Whole ones of this queue, at their own place, with the right CRC, also where a filter would match; others are
    left to Python. What this process wrote is not checked."""
    hosts = [bytes(20 if flags & flag else 8) for flag in (sys_flag.BORN_HOST_V6, sys_flag.STORE_HOST_V6)]
    offset, queue_id, topic = own
    fields: dict[str, Any] = {"queue_id": queue_id, "physical_offset": offset, "sys_flag": flags}
    fields |= {"born_host": hosts[0], "store_host": hosts[1]}
    record = encoded(topic, body, b"a\x013", **fields)
    if change is not None:
        record[change[0] % len(record)] = change[1]
    data = bytes(record)
    expected = (20, 1, data) if is_sound(data, 50, 3, b"topic") else (0, 0, b"")
    entries = ENTRY.pack(50, len(data), 7)
    of_queue = (3, b"topic")
    for codes in (b"", struct.pack(">i", 7)):
        assert take(c, entries, data, start=50, checked=(51, *of_queue), codes=codes) == expected
        assert take(c, entries, data, start=50, checked=(50, *of_queue), codes=codes) == (20, 1, data)
    conditions = encode_conditions(compile_expression("TRUE OR a = 3"))
    found = take(c, entries, data, start=50, checked=(51, *of_queue), conditions=conditions)
    assert found == expected or (change is not None and found == (0, 0, b"")), "a changed property is left to the tree"
    passed = take(c, entries, data, start=50, checked=(51, *of_queue), codes=struct.pack(">i", 8))
    assert passed == (20, 0, b""), "what has another code is not looked at"


def test_what_is_sound_before_a_damaged_record_is_taken(c: ModuleType) -> None:
    log = bytearray()
    entries = b""
    for number in range(3):
        begin = len(log)
        encoded(b"t", b"%d" % number, physical_offset=begin, tail=log)
        entries += ENTRY.pack(begin, len(log) - begin, 0)
    size = len(log) // 3
    log[-4] ^= 1
    assert take(c, entries, bytes(log), checked=(1 << 40, 0, b"t")) == (40, 2, log[: 2 * size])
    assert take(c, entries, bytes(log), checked=(2 * size, 0, b"t")) == (60, 3, log)


@given(st.integers(0, 120), st.integers(0, 255))
def test_records_whose_lengths_do_not_add_up_are_left_to_the_tree(c: ModuleType, place: int, value: int) -> None:
    record = encoded(b"topic", b"body", b"a\x013\x02b\x014567890123")
    whole = len(record)
    record[place % whole] = value
    conditions = encode_conditions(compile_expression("a = 3 OR TRUE"))
    assert taken(c, conditions, bytes(record)) in [(0, []), (20, [bytes(record)])]


@given(st.binary(max_size=40) | st.binary(max_size=40).map(lambda data: b"\x01\x01a" + data), st.integers(0, 40))
@example(b"", 0)
@example(b"\x01\x01a\x02\x00\x00\x01\x00\x01\x00\x09x", 40)
def test_malformed_conditions_are_an_error(c: ModuleType, data: bytes, cut: int) -> None:
    record = bytes(encoded(b"topic", b"body", b"a\x013"))
    valid = encode_conditions(compile_expression("a = 3 AND a IN ('x') OR a < 2.5"))
    for conditions in (data, valid[:cut] if cut < len(valid) else data):
        try:
            assert taken(c, conditions, record)[0] in (0, 20)
        except ValueError:
            continue
    with pytest.raises(ValueError, match="malformed"):
        taken(c, b"\x11" + data, record)
    with pytest.raises(ValueError, match="malformed"):
        taken(c, valid + b"\x06\x06\x07", record)


class Slow:
    """The same filter without what decides about many entries at once; that of a pull without a filter matches all."""

    tag_codes = conditions = b""

    def __init__(self, fast: MessageFilter | None) -> None:
        self._fast = fast

    @property
    def cost(self) -> int:
        return self._fast.cost if self._fast is not None else 0

    def matches_entry(self, tags_code: int, ext: ExtUnit | None) -> bool:
        return self._fast is None or self._fast.matches_entry(tags_code, ext)

    def matches_record(self, record: bytes) -> bool:
        return self._fast is None or self._fast.matches_record(record)


FIELDS = (
    "status",
    "next_begin_offset",
    "min_offset",
    "max_offset",
    "body",
    "size_bytes",
    "message_count",
    "suggest_slave",
)
"""Of GetResult, whose compiled form does not name its own."""

FILTERS = [
    *(
        filter_of("k = 3"),
        filter_of("k = 3 AND region = 'eu'"),
        filter_of("k > 2.5 OR region IS NULL"),
        filter_of("NULL"),
    ),
    *(filter_of("k = region"), filter_of("FALSE OR " + " OR ".join([f"k = {number}" for number in range(3, 31)]))),
    filter_of("k = 3 -- " + "x" * 30_000 + "\n"),
]


@pytest.mark.parametrize("is_reopened", [False, True])
@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"max_transfer_bytes_on_message_in_memory": 700},
        {"max_transfer_count_on_message_in_memory": 2},
        {"access_message_in_memory_max_ratio_percent": 0, "max_transfer_bytes_on_message_in_disk": 700},
    ],
)
async def test_a_pull_finds_the_same_as_record_by_record(
    tmp_path: Path, limits: dict[str, int], is_reopened: bool
) -> None:
    """Every field of the result, from every offset; log and queue have several files."""
    store = await open_store(tmp_path, **limits)
    for number in range(60):
        k = ["3", "x", "5", ""][number % 4]
        table = {"TAGS": f"t{number % 5}", "k": k, **({"region": "eu"} if number % 3 else {})}
        properties = encode({name: value for name, value in table.items() if value})
        assert store.append(message(body=b"b" * (number % 7 * 40), properties=properties)).is_ok
    store.commit()
    if is_reopened:
        await store.close()
        store = await open_store(tmp_path, **limits)
    fast: list[MessageFilter | None] = [None, *(SqlFilter(each) for each in FILTERS)]
    fast += [TagFilter(frozenset({string_hash("t3"), 5})), TagFilter(frozenset({1})), TagFilter(frozenset())]
    for each in fast:
        for offset in range(60):
            for count in (1, 3, 100):
                quick = store.reading.get_messages("T", 0, offset, count, each)
                slow = store.reading.get_messages("T", 0, offset, count, Slow(each))
                assert [(name, getattr(quick, name)) for name in FIELDS] == [
                    (name, getattr(slow, name)) for name in FIELDS
                ]
    await store.close()


async def test_a_pull_passes_entries_without_a_message_however_few_it_asks_for(tmp_path: Path) -> None:
    """Fillers, and entries that point beyond the log; the same as if all entries had been read at once."""
    store = await open_store(tmp_path, access_message_in_memory_max_ratio_percent=0)
    for _ in range(30):
        assert store.append(message(body=b"b" * 10)).is_ok
    store.commit()
    queue = store.contents.queues.get("T", 0)
    for offset in (1, 2, 3, 7, 10, 12, 20, 21, 28, 29):
        queue.replace(offset, FILLER)
    for offset in (4, 13, 22):
        queue.replace(offset, ENTRY.pack(1 << 40, 100, 0))
    for offset in range(30):
        for count in (0, 1, 2, 3, 6, 100):
            quick = store.reading.get_messages("T", 0, offset, count)
            whole = store.reading.get_messages("T", 0, offset, count, Slow(None))
            assert [(name, getattr(quick, name)) for name in FIELDS] == [
                (name, getattr(whole, name)) for name in FIELDS
            ]
    assert store.reading.get_messages("T", 0, 1, 2).message_count == 2
    await store.close()


def test_entries_are_passed_by_tags_code_and_size() -> None:
    """Where there is no `take_records`."""
    data = b"".join([ENTRY.pack(1, size, code) for size, code in ((5, 7), (9, 7), (5, -2), (5, 7))])
    wanted = struct.pack(">i", -2)
    assert [collecting._pass_entries(data, at, 8, 1, wanted) for at in (0, 20, 40, 60)] == [20, 20, 40, 80]
    assert collecting._pass_entries(data, 0, 9, 2, wanted) == 0
    assert collecting._pass_entries(data, 0, 9, 1, wanted) == 40


def test_tag_codes_are_sorted_and_limited() -> None:
    assert pack_tag_codes(frozenset({5, -1, 1 << 31})) == struct.pack(">2i", -1, 5)
    assert pack_tag_codes(frozenset(range(MAX_SORTED_CODES + 1))) == b""
    assert TagFilter(frozenset({7})).tag_codes == struct.pack(">i", 7)


@pytest.mark.skipif(not hasattr(GetResult, "__slots__"), reason="compiled classes do not name their fields")
def test_the_fields_are_all_that_a_result_has() -> None:
    assert set(FIELDS) == {*GetResult.__slots__, "body"} - {"runs", "missing"}
