"""`deliver_records` delivers what is due, up to a record that wants a look of its own: in C as in Python."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from typing import Any

import pytest
from built_speedups import built_speedups
from hypothesis import example, given
from hypothesis import strategies as st
from stored_records import HOST, encoded

from triomq.protocol.record import read_fields
from triomq.protocol.system_topics import SCHEDULE_TOPIC
from triomq.store.queues.consume_queue import ENTRY, FILLER
from triomq.store.writing.delivering import deliver_records_reference, due_message

LONG = (1 << 31) - 2
KEY = b"T\x013"
TO_T = b"TAGS\x01t\x02UNIQ_KEY\x01u\x02REAL_TOPIC\x01T\x02REAL_QID\x013"
LOG_AT = 100


Deliver = Callable[..., tuple[int, bytes]]


@pytest.fixture(scope="module", params=["C", "Python"])
def deliver(request: pytest.FixtureRequest) -> Deliver:
    found: Deliver = built_speedups("store").deliver_records if request.param == "C" else deliver_records_reference
    return found


def head(queue_id: int, queue_offset: int, topic: bytes) -> bytearray:
    return bytearray(struct.pack(">iq", queue_id, queue_offset) + topic)


class Delivered:
    """What one call with these records, one behind the other in the log, does. `queues`: key -> queue and head."""

    def __init__(
        self,
        deliver: Deliver,
        log: bytes,
        entries: bytes,
        queues: dict[bytes, Any],
        *,
        at: int = 0,
        room: int = LONG,
        due: int = 50,
        longest: int = LONG,
        file_room: int = LONG,
    ) -> None:
        self.tail = bytearray(b"before")
        self.taken: list[Any] = []
        to = (self.tail, queues, self.taken, longest, 7000, file_room, 1_700_000_000_000)
        self.position, self.unknown = deliver(entries, at, room, due, log, LOG_AT, 0, 1 << 40, to)
        self.count = len(self.taken)


def delayed(properties: bytes = TO_T, body: bytes = b"body", at: int = LOG_AT, **values: Any) -> bytes:
    return bytes(
        encoded(
            *(SCHEDULE_TOPIC.encode(), body, properties),
            queue_id=9,
            queue_offset=8,
            physical_offset=at,
            store_timestamp=6,
            flag=5,
            reconsume_times=4,
            born_timestamp=3,
            prepared_transaction_offset=2,
            **values,
        )
    )


def expected(record: bytes, topic: bytes, queue_id: int, queue_offset: int, physical_offset: int) -> bytes:
    fields = read_fields(record, 0, len(record))
    return bytes(
        encoded(
            topic,
            record[fields.body_at : fields.body_at + fields.body_length],
            fields.properties,
            queue_id=queue_id,
            queue_offset=queue_offset,
            physical_offset=physical_offset,
            store_timestamp=1_700_000_000_000,
            flag=fields.flag,
            sys_flag=fields.sys_flag,
            reconsume_times=fields.reconsume_times,
            born_timestamp=fields.born_timestamp,
            born_host=fields.born_host,
            store_host=fields.store_host,
            body_crc=fields.body_crc,
        )
    )


pieces = st.sampled_from(
    [
        b"TAGS\x01t",
        b"KEYS\x01a b",
        b"UNIQ_KEY\x01u",
        b"k\x01v",
        b"k2\x01",
        b"\x01v",
        b"",
        b"\xc3\xbc\x01u",
        b"k3\x01v\x01w",
    ]
) | st.sampled_from(
    [b"REAL_TOPIC\x01T", b"REAL_QID\x013", b"REAL_TOPIC\x01T\x01", b"REAL_QID\x0112345678901", b"REAL_QID\x01-3"]
)


@given(
    st.just(TO_T)
    | st.lists(pieces, max_size=40).map(b"\x02".join)
    | st.permutations([b"TAGS\x01t", b"KEYS\x01a b", b"REAL_TOPIC\x01T", b"REAL_QID\x013"]).map(b"\x02".join),
    st.binary(max_size=40),
    st.sampled_from([HOST, bytes(range(20))]),
    st.sampled_from([HOST, bytes(range(20))]),
    st.sampled_from([0, 1, 4, 8, 12]),
    st.none() | st.tuples(st.integers(0, 300), st.integers(0, 255)),
)
@example(TO_T, b"", HOST, HOST, 0, (8, 255))
def test_a_record_is_delivered_or_left_to_python(
    deliver: Deliver,
    properties: bytes,
    body: bytes,
    born_host: bytes,
    store_host: bytes,
    sys_flag: int,
    change: tuple[int, int] | None,
) -> None:
    """Whole records, and ones with one changed byte."""
    changed = bytearray(delayed(properties, body, born_host=born_host, store_host=store_host, sys_flag=sys_flag))
    if change is not None:
        changed[change[0] % len(changed)] = change[1]
    record = bytes(changed)
    queue = "the queue"
    heads = {KEY: (queue, head(2, 40, b"T"))}
    found = Delivered(deliver, record, ENTRY.pack(LOG_AT, len(record), 50), heads)
    usual = due_message(record, LOG_AT)
    if usual is not None and usual[1] == KEY:
        assert (found.position, found.count, found.unknown) == (20, 1, b"")
        whole = expected(record, b"T", 2, 40, 7000)
        assert found.tail == b"before" + whole
        assert found.taken == [(queue, 40, 7000, len(whole), *usual[2][:3])]
        assert heads[KEY][1] == head(2, 41, b"T")
    else:
        assert (found.position, found.count, found.unknown) == (0, 0, usual[1] if usual is not None else b"")
        assert found.tail == b"before"
        assert found.taken == []
        assert heads[KEY][1] == head(2, 40, b"T")


def block(count: int = 3) -> tuple[bytes, bytes, int]:
    """Return a log of delayed messages, the entries of them, and the size of each."""
    size = len(delayed())
    log = b"".join([delayed(at=LOG_AT + number * size) for number in range(count)])
    return log, b"".join([ENTRY.pack(LOG_AT + number * size, size, 50) for number in range(count)]), size


def test_messages_of_several_queues_follow_each_other(deliver: Deliver) -> None:
    other = delayed(b"REAL_TOPIC\x01Longer\x02REAL_QID\x010", b"other")
    size = len(other)
    log = other + delayed(at=LOG_AT + size) + delayed(at=LOG_AT + size + len(delayed()))
    ends = [LOG_AT, LOG_AT + size, LOG_AT + size + len(delayed())]
    entries = b"".join([ENTRY.pack(at, len(delayed()) if at > LOG_AT else size, 50) for at in ends])
    queues = {KEY: ("t", head(2, 40, b"T")), b"Longer\x010": ("longer", head(0, 0, b"Longer"))}
    found = Delivered(deliver, log, entries, queues)
    assert (found.position, found.count, found.unknown) == (60, 3, b"")
    whole = expected(other, b"Longer", 0, 0, 7000)
    ours = len(expected(delayed(), b"T", 2, 40, 0))
    at = 7000 + len(whole)
    whole += expected(delayed(), b"T", 2, 40, at) + expected(delayed(), b"T", 2, 41, at + ours)
    assert found.tail == b"before" + whole
    assert [each[:4] for each in found.taken] == [
        ("longer", 0, 7000, at - 7000),
        ("t", 40, at, ours),
        ("t", 41, at + ours, ours),
    ]
    assert found.taken[1][4:] == (ord("t"), "u", None)


def test_what_is_not_usual_ends_the_delivery(deliver: Deliver) -> None:
    log, entries, size = block()
    new_size = len(expected(delayed(), b"T", 0, 0, 0))

    def reached(data: bytes = entries, **values: Any) -> int:
        found = Delivered(deliver, log, data, {KEY: ("t", head(2, 40, b"T"))}, **values)
        assert found.count == (found.position - values.get("at", 0)) // 20
        assert len(found.tail) == len(b"before") + found.count * new_size
        assert found.unknown == b""
        return int(found.position)

    assert reached() == 60
    assert reached(at=20) == 60
    assert reached(at=60) == 60
    assert reached(at=80) == 80
    assert reached(room=3 * size) == 60
    assert reached(room=3 * size - 1) == 40
    assert reached(longest=size) == 60
    assert reached(longest=size - 1) == 0
    assert reached(file_room=3 * new_size - 1) == 40
    assert reached(file_room=-1) == 0
    assert reached(due=49) == 0
    assert reached(entries[:20] + FILLER + entries[20:]) == 20
    assert reached(entries[:20] + ENTRY.pack(LOG_AT + size, size, -(2**31) - 1)) == 20
    assert reached(entries[:20] + ENTRY.pack(LOG_AT + size, size, -(2**31))) == 40
    assert reached(entries[:20] + ENTRY.pack(LOG_AT + size, size - 1, 50)) == 20
    assert reached(entries[:20] + ENTRY.pack(LOG_AT + 3 * size, size, 50)) == 20
    assert reached(entries[:39]) == 20


def test_an_unknown_queue_ends_the_delivery_with_its_key(deliver: Deliver) -> None:
    log, entries, _ = block()
    queues = {b"T\x014": ("t", head(2, 40, b"T"))}
    found = Delivered(deliver, log, entries, queues)
    assert (found.position, found.count, found.unknown, found.tail) == (0, 0, KEY, b"before")


def test_wrong_arguments_change_nothing() -> None:
    in_c = built_speedups("store").deliver_records
    log, entries, _ = block()
    tail, taken = bytearray(b"before"), [0]
    good = {KEY: ("t", head(2, 40, b"T"))}
    numbers = (LONG, 7000, LONG, 6)
    for wrong in (
        *((tail, good, taken), (bytes(tail), good, taken, *numbers), (tail, [], taken, *numbers)),
        *((tail, good, (), *numbers), (tail, good, taken, *numbers[:3], "6"), [tail, good, taken, *numbers]),
        *((tail, {KEY: "t"}, taken, *numbers), (tail, {KEY: ("t",)}, taken, *numbers)),
        *((tail, {KEY: ("t", b"")}, taken, *numbers), (tail, {KEY: ("t", bytearray(11))}, taken, *numbers)),
        (tail, {KEY: ("t", bytearray(12 + 128))}, taken, *numbers),
    ):
        with pytest.raises(TypeError):
            in_c(entries, 0, LONG, 50, log, LOG_AT, 0, 1 << 40, wrong)
    with pytest.raises(struct.error):
        in_c(entries, 0, LONG, 50, log, LOG_AT, 0, 1 << 40, (tail, good, taken, 1 << 63, 7000, LONG, 6))
    with pytest.raises(ValueError, match="start is negative"):
        in_c(entries, 0, LONG, 50, log, -1, 0, 1 << 40, (tail, good, taken, *numbers))
    with pytest.raises(TypeError):
        in_c(entries, 0, LONG, 50, log, LOG_AT, 0, 1 << 40, (), 0)
    assert in_c(entries, -20, LONG, 50, log, LOG_AT, 0, 1 << 40, (tail, good, taken, *numbers)) == (-20, b"")
    assert tail == b"before"
    assert taken == [0]
    assert good == {KEY: ("t", head(2, 40, b"T"))}


def test_an_error_leaves_the_tail_as_it_was() -> None:
    size = len(delayed())
    log = delayed() + delayed(b"REAL_TOPIC\x01Other\x02REAL_QID\x010", at=LOG_AT + size)
    rest = len(log) - size
    entries = ENTRY.pack(LOG_AT, size, 50) + ENTRY.pack(LOG_AT + size, rest, 50)
    tail = bytearray(b"before")
    queues = {KEY: ("t", head(2, 40, b"T")), b"Other\x010": "wrong"}
    with pytest.raises(TypeError, match="pair with its head"):
        to = (tail, queues, [], LONG, 7000, LONG, 6)
        built_speedups("store").deliver_records(entries, 0, LONG, 50, log, LOG_AT, 0, 1 << 40, to)
    assert tail == b"before"


def test_nothing_is_held_behind_a_delivery(deliver: Deliver) -> None:
    log, entries, _ = block()
    queue, own = object(), head(2, 40, b"T")
    queues: dict[bytes, Any] = {KEY: (queue, own)}
    for _ in range(3):
        Delivered(deliver, log, entries, queues)
        Delivered(deliver, log, entries, {})
    watched = [log, entries, queue, own, queues[KEY]]
    before = [sys.getrefcount(each) for each in watched]
    for _ in range(1000):
        Delivered(deliver, log, entries, queues)
        Delivered(deliver, log, entries, {})
    assert [sys.getrefcount(each) for each in watched] == before
