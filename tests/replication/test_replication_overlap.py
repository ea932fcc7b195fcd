"""Where a slave's log and its master's agree: the rules alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triomq.broker.replication.overlap import OVERLAP_BYTES, OutOfStep, Overlap, equal_bytes, first_report


class OwnBytes:
    """A log with these bytes; `newest` is the start of its newest queued record."""

    def __init__(self, data: bytes, newest: int, begin: int = 0) -> None:
        self.data = data
        self.newest_queued_offset = newest
        self.begin = begin
        self.piece_bytes = 1 << 30

    @property
    def min_physical_offset(self) -> int:
        return self.begin if self.data else -1

    @property
    def max_physical_offset(self) -> int:
        return self.begin + len(self.data)

    def read_log(self, physical_offset: int, max_bytes: int) -> bytes:
        at = physical_offset - self.begin
        return self.data[at : at + min(max_bytes, self.piece_bytes)]


def pattern(count: int) -> bytes:
    return bytes(number * 7 % 251 for number in range(count))


def test_an_empty_log_reports_zero_and_takes_what_comes_first() -> None:
    overlap = Overlap(OwnBytes(b"", -1), 0)
    assert overlap.begin == 0
    assert overlap.take(4096, b"first") == b"first"
    overlap.appended(4101)
    assert overlap.position == 4101
    with pytest.raises(OutOfStep, match="5000, not 4101"):
        overlap.take(5000, b"later")


@pytest.mark.parametrize("steps_back", range(6))
def test_a_comparison_never_begins_at_byte_zero(steps_back: int) -> None:
    """0 would request the master's newest file."""
    assert first_report(OwnBytes(pattern(100), 0), steps_back) == 1
    assert first_report(OwnBytes(pattern(100), -1), steps_back) == 1


def test_a_comparison_begins_at_the_overlap_and_sixteen_times_further_back_with_each_step() -> None:
    own = OwnBytes(bytes(40 * OVERLAP_BYTES), 40 * OVERLAP_BYTES - 10)
    assert [first_report(own, steps) for steps in range(3)] == [39 * OVERLAP_BYTES, 24 * OVERLAP_BYTES, 1]


def test_a_comparison_begins_no_later_than_the_newest_queued_record() -> None:
    own = OwnBytes(bytes(3 * OVERLAP_BYTES), 70)
    assert first_report(own, 0) == 70


def test_a_comparison_begins_no_earlier_than_the_log() -> None:
    own = OwnBytes(bytes(100), 4150, begin=4096)
    assert first_report(own, 0) == 4096
    assert Overlap(own, 0).reaches_start
    assert not Overlap(OwnBytes(bytes(3 * OVERLAP_BYTES), 3 * OVERLAP_BYTES - 10), 0).reaches_start


@given(st.integers(2, 200), st.lists(st.integers(1, 60), max_size=20), st.integers(1, 50), st.integers(0, 300))
def test_pieces_of_any_size_are_compared_and_the_rest_is_to_be_appended(
    own_bytes: int, cuts: list[int], piece_bytes: int, more_bytes: int
) -> None:
    master = pattern(own_bytes + more_bytes)
    own = OwnBytes(master[:own_bytes], 1)
    own.piece_bytes = piece_bytes
    overlap = Overlap(own, 0)
    at = overlap.begin
    for cut in [*cuts, len(master)]:
        piece = master[at : at + cut]
        rest = overlap.take(at, piece)
        at += len(piece)
        assert overlap.is_known == (at >= own_bytes)
        if rest:
            own.data += rest
            overlap.appended(own.max_physical_offset)
    assert (own.data, overlap.divergence) == (master, -1)


@given(st.integers(2, 120), st.data())
def test_the_first_byte_that_differs_is_the_divergence(size: int, data: st.DataObject) -> None:
    own = OwnBytes(pattern(size), 1)
    differs_at = data.draw(st.integers(1, size - 1))
    sent = bytearray(own.data[1:])
    sent[differs_at - 1] ^= 0xFF
    overlap = Overlap(own, 0)
    assert overlap.take(1, bytes(sent)) == b""
    assert (overlap.divergence, overlap.position, overlap.is_known) == (differs_at, differs_at, False)


def test_offsets_that_skip_or_repeat_are_refused() -> None:
    overlap = Overlap(OwnBytes(pattern(50), 10), 0)
    for wrong in (overlap.begin - 1, overlap.begin + 1):
        with pytest.raises(OutOfStep, match=f"{wrong}, not {overlap.begin}"):
            overlap.take(wrong, b"x")


def test_a_gap_in_the_own_log_is_named() -> None:
    own = OwnBytes(pattern(50), 10)
    own.piece_bytes = 0
    with pytest.raises(OutOfStep, match=r"this log has a gap at 1$"):
        Overlap(own, 0).take(1, b"xyz")


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_equal_bytes_counts_the_common_start(one: bytes, other: bytes) -> None:
    expected = next(
        (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
    assert equal_bytes(one, other) == expected
    shared = b"the same start" + one
    assert equal_bytes(shared, b"the same start" + other) == 14 + expected
