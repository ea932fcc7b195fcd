"""Delays of messages: levels, and times that are exactly one of RocketMQ's default levels."""

from __future__ import annotations

from datetime import timedelta

import pytest

from triomq.protocol.delay_levels import LEVELS, in_words, level_of
from triomq.protocol.message import Message
from triomq.store.delay import DelayLevels
from triomq.store.rocketmq_config import RocketMQStoreSettings


def test_the_levels_are_those_of_a_broker() -> None:
    assert RocketMQStoreSettings().message_delay_level == LEVELS
    delays_ms = DelayLevels(LEVELS).delays_ms
    assert [level_of(timedelta(milliseconds=delay)) for delay in delays_ms] == list(range(1, 19))


def test_a_message_takes_a_level_or_a_time() -> None:
    assert Message("T", b"x", delay_level=18).delay_level == 18
    assert Message("T", b"x", delay=timedelta(minutes=10)).delay_level == 14
    assert Message("T", b"x").properties == {}
    with pytest.raises(ValueError, match="not both"):
        Message("T", b"x", delay_level=1, delay=timedelta(seconds=1))


@pytest.mark.parametrize("delay", [timedelta(0), timedelta(seconds=2), timedelta(seconds=-1), timedelta(days=1)])
def test_a_time_that_no_level_has_is_refused_with_the_levels(delay: timedelta) -> None:
    with pytest.raises(ValueError, match=f"no delay level is .*; the levels are {LEVELS}"):
        Message("T", b"x", delay=delay)


def test_a_number_is_no_time() -> None:
    with pytest.raises(ValueError, match=r"a datetime\.timedelta, not 10"):
        Message("T", b"x", delay=10)  # type: ignore[arg-type]


def test_keys_are_texts() -> None:
    with pytest.raises(TypeError, match="keys must be a str or several of them, not 17"):
        Message("T", b"x", keys=17)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="keys must be"):
        Message("T", b"x", keys=["a", 17])  # type: ignore[list-item]


def test_the_highest_level_stands_for_those_above() -> None:
    assert [in_words(level) for level in (1, 5, 18, 40)] == ["1 s", "1 min", "2 h", "2 h"]
