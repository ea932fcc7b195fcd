"""The columns of messages in flight against a table, and the records of their log against themselves."""

from __future__ import annotations

import random
import tracemalloc
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from stored_records import encoded

from triomq.broker.pop import log_records
from triomq.broker.pop.figures import InFlightFigures
from triomq.broker.pop.in_flight import ENTRY_BYTES, HELD_MS, InFlight
from triomq.protocol import record
from triomq.protocol.address import HostPort
from triomq.protocol.receipt_handle import ReceiptHandle, ReceiptHandleError, parse_handle


@dataclass
class Entry:
    popped: int
    visible: int
    attempts: int = 1


@dataclass
class Table:
    """What InFlight says of itself, in the simplest form."""

    next_offset: int
    entries: dict[int, Entry] = field(default_factory=dict)


class Columns(RuleBasedStateMachine):
    """Any order of receives, acknowledgements, changes, resets and copies."""

    @initialize(first=st.integers(0, 2**40))
    def begin(self, first: int) -> None:
        self.now = 1_000
        self.table, self.real = Table(first), InFlight(first)

    @rule(count=st.integers(1, 40), gap=st.integers(0, 3), invisible=st.integers(1, 50))
    def receive(self, count: int, gap: int, invisible: int) -> None:
        begin = self.table.next_offset + gap
        offsets = [begin + number * (gap + 1) for number in range(count)]
        end = offsets[-1] + 1 + gap
        self.real.receive(offsets, self.now, self.now + invisible, end)
        self.table.next_offset = end
        self.table.entries.update({offset: Entry(self.now, self.now + invisible) for offset in offsets})

    @rule(most=st.integers(1, 40), invisible=st.integers(1, 50), is_kept=st.booleans())
    def receive_again(self, most: int, invisible: int, is_kept: bool) -> None:
        taken = self.real.take_ready(self.now, most)
        ready = sorted((each.visible, offset) for offset, each in self.table.entries.items())
        assert taken == [offset for visible, offset in ready if visible <= self.now][:most]
        if not is_kept:
            self.real.give_back(taken)
            return
        for offset in taken:
            self.real.receive_again(offset, self.now, self.now + invisible)
            attempts = self.table.entries[offset].attempts + 1
            self.table.entries[offset] = Entry(self.now, self.now + invisible, attempts)

    @rule(data=st.data(), count=st.integers(1, 60))
    def acknowledge(self, data: st.DataObject, count: int) -> None:
        for _ in range(min(count, len(self.table.entries))):
            offset = data.draw(st.sampled_from(sorted(self.table.entries)))
            self.real.done(offset)
            self.real.done(offset)
            del self.table.entries[offset]

    @rule(data=st.data(), invisible=st.integers(1, 50))
    def change(self, data: st.DataObject, invisible: int) -> None:
        if self.table.entries:
            offset = data.draw(st.sampled_from(sorted(self.table.entries)))
            self.real.change(offset, self.now, self.now + invisible)
            self.table.entries[offset].popped = self.now
            self.table.entries[offset].visible = self.now + invisible

    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        begin = data.draw(st.integers(max(0, self.table.next_offset - 50), self.table.next_offset + 5))
        end = begin + data.draw(st.integers(0, 60))
        outside = [offset for offset in self.table.entries if not begin <= offset < end]
        assert self.real.forget(begin, end) == len(outside)
        for offset in outside:
            del self.table.entries[offset]
        self.table.next_offset = min(max(self.table.next_offset, begin), end)

    @rule(queue_offset=st.integers(0, 2**40))
    def reset(self, queue_offset: int) -> None:
        self.real.begin_at(queue_offset)
        self.table = Table(queue_offset)

    @rule()
    def write_and_read(self) -> None:
        [body] = log_records.Records(log_records.encode_queue(7, "T", "G", 3, self.real))
        number, topic, group, queue_id, self.real = log_records.decode_queue(body)
        assert (number, topic, group, queue_id) == (7, "T", "G", 3)

    @rule(ms=st.integers(1, 60))
    def wait(self, ms: int) -> None:
        self.now += ms

    @invariant()
    def says_the_same(self) -> None:
        if not hasattr(self, "table"):
            return
        entries = self.table.entries
        assert list(self.real.offsets()) == sorted(entries)
        assert (len(self.real), self.real.next_offset) == (len(entries), self.table.next_offset)
        assert self.real.oldest() == min(entries, default=self.table.next_offset)
        assert self.real.next_visible_ms() == min((each.visible for each in entries.values()), default=None)
        ready = [offset for offset, each in entries.items() if each.visible <= self.now]
        assert self.real.figures(self.now) == InFlightFigures(
            next_offset=self.table.next_offset,
            count=len(entries),
            oldest=min(entries, default=-1),
            ready_again=len(ready),
            oldest_ready=min(ready, default=-1),
            most_attempts=max((each.attempts for each in entries.values()), default=0),
        )
        for offset, entry in entries.items():
            assert self.real.popped_ms(offset) == entry.popped
            assert (self.real.visible_ms(offset), self.real.attempts(offset)) == (entry.visible, entry.attempts)


TestColumns = Columns.TestCase


def test_a_message_in_flight_takes_no_more_memory_than_is_counted() -> None:
    count = 4_000
    offsets = iter(random.Random(1).sample(range(1, count), count - 1))  # the first stays
    tracemalloc.start()
    try:
        in_flight = InFlight(0)
        for queue_offset in range(count):
            in_flight.receive([queue_offset], 1_700_000_000_000, 1_700_000_060_000 + queue_offset, queue_offset + 1)
        for queue_offset in range(count):
            in_flight.change(queue_offset, 1_700_000_000_001, 1_700_000_120_000 - queue_offset)
        assert tracemalloc.get_traced_memory()[1] <= count * ENTRY_BYTES / 2
        while len(in_flight) > count // 2 - 50:
            in_flight.done(next(offsets))  # until half of the places are free, which the last one gives back
        assert tracemalloc.get_traced_memory()[1] <= len(in_flight) * ENTRY_BYTES
        for queue_offset in offsets:
            in_flight.done(queue_offset)
        assert tracemalloc.get_traced_memory()[0] <= count * ENTRY_BYTES / 50
    finally:
        tracemalloc.stop()


values = st.recursive(
    st.integers(0, 2**63 - 1) | st.text(max_size=20) | st.binary(max_size=20), lambda inner: st.lists(inner, max_size=5)
)


@given(st.lists(st.lists(values, min_size=1, max_size=6), max_size=6), st.data())
def test_records_are_read_up_to_the_first_that_is_not_whole(bodies: list[list[Any]], data: st.DataObject) -> None:
    encoded = [log_records.encode(*body) for body in bodies]
    whole = b"".join(encoded)
    assert list(log_records.Records(whole)) == bodies
    end = data.draw(st.integers(0, len(whole)))
    records = log_records.Records(whole[:end])
    found = list(records)
    assert found == bodies[: len(found)]
    assert records.end <= end
    if end < len(whole):
        damaged = bytearray(whole)
        damaged[end] ^= 1 + data.draw(st.integers(0, 254))
        assert [each for each in log_records.Records(bytes(damaged)) if each not in bodies] == []


def test_a_record_has_the_bytes_that_are_documented() -> None:
    assert log_records.encode(log_records.DONE, 3, [5, 6]) == bytes.fromhex("00000006 9ae6d83e 93 05 03 92 05 06")


@given(
    st.builds(
        ReceiptHandle,
        popped_ms=st.integers(0, 2**63 - 1),
        invisible_ms=st.integers(0, 2**63 - 1),
        kind=st.sampled_from(["0", "1", "2"]),
        broker_name=st.text(st.characters(blacklist_characters=" ", blacklist_categories=("Cs",)), min_size=1),
        queue_id=st.integers(0, 2**31 - 1),
        queue_offset=st.none() | st.integers(0, 2**63 - 1),
        start_offset=st.integers(0, 2**63 - 1),
        revive_queue_id=st.integers(0, 999),
    )
)
def test_a_handle_survives_its_text(handle: ReceiptHandle) -> None:
    assert parse_handle(handle.text()) == handle


def test_the_handle_of_a_client_of_rocketmq_is_read() -> None:
    handle = parse_handle("12 1700000000000 60000 3 0 broker-a 2 14")
    assert (handle.start_offset, handle.popped_ms, handle.invisible_ms) == (12, 1_700_000_000_000, 60_000)
    assert (handle.revive_queue_id, handle.kind, handle.broker_name) == (3, "0", "broker-a")
    assert (handle.queue_id, handle.queue_offset) == (2, 14)


@pytest.mark.parametrize("text", ["", "1 2 3", "1 2 3 4 0 b x", "1 -2 3 4 0 b 0", f"1 {2**63} 3 4 0 b 0", "1 " * 2000])
def test_what_is_no_handle_is_refused(text: str) -> None:
    with pytest.raises(ReceiptHandleError):
        parse_handle(text)


@pytest.mark.parametrize("born", ["10.0.0.1:1", "[2001:db8::1]:1"])
@pytest.mark.parametrize("stored", ["10.0.0.2:2", "[2001:db8::2]:2"])
def test_reconsume_times_are_added_whatever_the_hosts(born: str, stored: str) -> None:
    hosts = {"born_host": HostPort.parse(born).packed, "store_host": HostPort.parse(stored).packed}
    data = bytes(encoded(body=b"body", queue_offset=9, reconsume_times=3, **hosts))
    before, after = (record.decode_record(each) for each in (data, record.with_more_reconsume_times(data, 4)))
    assert (before.reconsume_times, after.reconsume_times) == (3, 7)
    assert record.queue_offset_of(data) == 9
    after.reconsume_times = 3
    assert after == before


def test_what_clients_have_for_as_long_as_they_live_is_ready_again_sooner_after_a_start() -> None:
    in_flight = InFlight(0)
    in_flight.receive([0, 1], 1000, 1000 + HELD_MS, 2)
    in_flight.receive([2], 1000, 1000 + HELD_MS - 1, 3)
    in_flight.receive([3], 1000, 1000 + HELD_MS, 4)
    in_flight.done(1)
    in_flight.shorten_holds(70_000)
    assert [in_flight.visible_ms(each) for each in range(4)] == [70_000, 0, 1000 + HELD_MS - 1, 70_000]
    assert [in_flight.popped_ms(each) for each in (0, 3)] == [1000, 1000]
    assert in_flight.next_visible_ms() == 70_000
    assert in_flight.take_ready(70_000, 8) == [0, 3]
