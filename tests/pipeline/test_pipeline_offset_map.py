"""Where offsets of a group continue at the target: repeated perhaps, never behind a message that is not consumed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from triomq.pipeline.copying.offset_map import MAX_RUNS, OffsetMap


def test_adjacent_messages_are_one_run() -> None:
    offsets = OffsetMap()
    for offset in range(1000):
        offsets.add(offset + 7, offset, 1)
    assert offsets.runs == [[7, 0, 1000]]
    assert [offsets.translate(offset) for offset in (0, 7, 8, 1006, 1007, 5000)] == [0, 0, 1, 999, 1000, 1000]


def test_nothing_is_translated_before_anything_is_copied() -> None:
    assert OffsetMap().translate(5) is None


def test_an_offset_behind_a_gap_of_the_source_continues_behind_the_last_message_before_it() -> None:
    offsets = OffsetMap()
    offsets.add(0, 0, 10)
    offsets.add(20, 15, 10)
    assert [offsets.translate(offset) for offset in (9, 10, 15, 20, 21)] == [9, 10, 10, 15, 16]


def test_what_is_copied_again_has_the_later_place() -> None:
    offsets = OffsetMap()
    offsets.add(0, 0, 10)
    offsets.add(6, 10, 10)
    assert offsets.runs == [[0, 0, 6], [6, 10, 10]]


def test_what_the_target_lost_is_forgotten() -> None:
    offsets = OffsetMap()
    offsets.add(0, 0, 10)
    offsets.add(10, 10, 5)
    offsets.add(8, 8, 2)
    assert offsets.runs == [[0, 0, 10]]


STEPS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 4), st.integers(0, 5)), min_size=1, max_size=300
)


@given(steps=STEPS)
def test_no_group_passes_a_message_that_it_has_not_consumed(steps: list[tuple[int, int, int, int]]) -> None:
    """Each step: offsets that the source lacks, messages of others at the target, messages copied, and with 5 a new
    beginning at an earlier message, from which all come once more."""
    offsets = OffsetMap()
    place: dict[int, int] = {}
    source = target = 0
    for gap, others, count, again in steps:
        source = max(source - again, 0) if again == 5 else source + gap
        target += others
        offsets.add(source, target, count)
        place = {known: at for known, at in place.items() if known < source}
        place |= {source + number: target + number for number in range(count)}
        source += count
        target += count
    assert len(offsets.runs) <= MAX_RUNS
    lowest = target
    for consumed in range(source + 5, -1, -1):
        lowest = min(lowest, place.get(consumed, lowest))
        found = offsets.translate(consumed)
        assert found is not None
        assert found <= lowest
