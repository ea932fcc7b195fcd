"""Rates of a consumer, and the packing of trace messages."""

from __future__ import annotations

from fake_clock import FakeClock
from hypothesis import given
from hypothesis import strategies as st

from triomq.client.core.consumer_stats import ConsumerStats
from triomq.protocol.trace_records import MAX_BODY_BYTES, TraceLine, line, pack


def test_rates_of_the_last_minute() -> None:
    clock = FakeClock()
    stats = ConsumerStats(clock)
    assert stats.of_topic("T").consume_ok_tps == 0
    for _ in range(30):
        stats.pulled("T", 20, 10)
        stats.consumed("T", 4, 9, 1)
        clock.now_ms += 1000
    rates = stats.of_topic("T")
    assert (rates.pull_rt, rates.consume_rt) == (20.0, 4.0)
    assert (rates.pull_tps, rates.consume_ok_tps, rates.consume_failed_tps) == (10.0, 9.0, 1.0)
    assert rates.consume_failed_msgs == 30
    clock.now_ms += 120_000
    rates = stats.of_topic("T")
    assert (rates.pull_tps, rates.consume_ok_tps, rates.consume_failed_msgs) == (0.0, 0.0, 30)
    clock.now_ms += 3_600_000
    assert stats.of_topic("T").consume_failed_msgs == 0


def test_what_is_counted_later_than_the_window_is_long_counts() -> None:
    """A consumer runs for days: the buckets of its first minute, and of its first hour, are not all that it has."""
    clock = FakeClock()
    stats = ConsumerStats(clock)
    for _ in range(7200):
        stats.pulled("T", 20, 10)
        stats.consumed("T", 4, 9, 1)
        clock.now_ms += 1000
    rates = stats.of_topic("T")
    assert (rates.pull_tps, rates.consume_ok_tps, rates.consume_failed_tps) == (10.0, 9.0, 1.0)
    assert 3540 <= rates.consume_failed_msgs <= 3600


def test_lines_are_written_as_java_does() -> None:
    assert line("Pub", 1, None, True, "") == "Pub\x011\x01null\x01true\x01\x02"


@given(st.lists(st.integers(0, 60_000), max_size=20))
def test_lines_are_packed_in_order_into_bodies_of_bounded_size(sizes: list[int]) -> None:
    lines = [TraceLine(f"<{number}>" + "x" * size, (f"<{number}>",)) for number, size in enumerate(sizes)]
    packed = pack(lines)
    assert "".join(body for body, _ in packed) == "".join(one.text for one in lines)
    assert all(len(body.encode()) <= MAX_BODY_BYTES for body, _ in packed)
    for body, keys in packed:
        assert keys == {key for one in lines for key in one.keys if key in body}
