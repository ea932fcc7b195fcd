"""Delay levels (ScheduleMessageService): the table of messageDelayLevel and the delivery time of a delayed message."""

from __future__ import annotations

from triomq.protocol.settings import SettingError

_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_UNKNOWN_LEVEL_MS = 1_000


class DelayLevels:
    """Level (1-based) -> delay. Immutable."""

    def __init__(self, text: str) -> None:
        """`text` is like "1s 5s 1m 2h". Raises SettingError naming the part that is wrong."""
        delays: list[int] = []
        for part in text.split():
            number, unit = part[:-1], part[-1]
            if unit not in _UNIT_MS or not number.isascii() or not number.isdigit():
                raise SettingError("store", "messageDelayLevel", f"{part!r} is not a number followed by s, m, h or d")
            delays.append(int(number) * _UNIT_MS[unit])
        self.delays_ms: tuple[int, ...] = tuple(delays)
        self.max_level: int = len(delays)

    def delay_ms(self, level: int) -> int:
        """Return the delay of a level in ms; 1000 for a level that does not exist."""
        return self.delays_ms[level - 1] if 1 <= level <= self.max_level else _UNKNOWN_LEVEL_MS

    def clamp(self, level: int) -> int:
        """Return the level, lowered to the last one if it is above it."""
        return min(level, self.max_level)

    def deliver_at(self, level: int, store_timestamp: int) -> int:
        """Return the delivery time in ms, which is the tags code of a SCHEDULE_TOPIC_XXXX entry."""
        return store_timestamp + self.delay_ms(self.clamp(level))
