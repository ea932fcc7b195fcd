"""Delay levels: their text, and the time of delivery."""

from __future__ import annotations

import pytest

from triomq.protocol.settings import SettingError
from triomq.store.delay import DelayLevels


def test_levels_count_from_1_and_are_delays_in_any_unit() -> None:
    levels = DelayLevels("1s 20m  3h 2d 0s")
    assert levels.max_level == 5
    assert [levels.delay_ms(level) for level in range(1, 6)] == [1000, 1_200_000, 10_800_000, 172_800_000, 0]
    assert DelayLevels("").max_level == 0


@pytest.mark.parametrize("part", ["5x", "s", "-1s", "1.5s", "²s", "٣s", "5", "s5", "5S"])
def test_a_level_that_is_no_number_with_a_unit_is_named(part: str) -> None:
    with pytest.raises(SettingError, match="messageDelayLevel") as raised:
        DelayLevels(f"1s {part}")
    assert repr(part) in str(raised.value)


def test_a_level_above_the_last_counts_as_the_last_and_one_that_does_not_exist_as_a_second() -> None:
    levels = DelayLevels("5s 1m")
    assert [levels.clamp(level) for level in (1, 2, 3, 99)] == [1, 2, 2, 2]
    assert [levels.deliver_at(level, 1_000_000) for level in (1, 2, 99)] == [1_005_000, 1_060_000, 1_060_000]
    assert [levels.delay_ms(level) for level in (-1, 0, 3)] == [1000, 1000, 1000]
    assert [levels.deliver_at(level, 7) for level in (-1, 0)] == [1007, 1007]
