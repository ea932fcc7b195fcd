"""The delay levels of a broker that has RocketMQ's default ones (messageDelayLevel)."""

from __future__ import annotations

from datetime import timedelta

LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""The delays of the levels 1 to 18, as in messageDelayLevel."""

_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600}
_SECONDS = tuple(int(part[:-1]) * _UNIT_SECONDS[part[-1]] for part in LEVELS.split())


def level_of(delay: timedelta) -> int:
    """Return the level, from 1, that delays by this much. Raises ValueError if there is none."""
    if not isinstance(delay, timedelta):
        raise ValueError(f"delay is a datetime.timedelta, not {delay!r}")
    try:
        return _SECONDS.index(delay.total_seconds()) + 1
    except ValueError:
        raise ValueError(
            f"no delay level is {delay}; the levels are {LEVELS}. For a broker with others (messageDelayLevel) give "
            "the number: delay_level=..."
        ) from None


def in_words(level: int) -> str:
    """Return the delay of a level; that of the highest for those above, as a broker has it."""
    number = LEVELS.split()[min(level, len(_SECONDS)) - 1]
    return f"{number[:-1]} { {'s': 's', 'm': 'min', 'h': 'h'}[number[-1]] }"
