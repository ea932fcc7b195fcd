"""How far each group is behind the end of the log in each queue that it read, as last measured (RocketMQ:
MomentStatsItemSet). Limit: `max_entries`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Key: TypeAlias = tuple[str, str, int]
"""Group, topic, queue id."""


class Backlogs:
    """The latest measurements; broker/protection.py writes them, the statistics log reads them."""

    def __init__(self, max_entries: int) -> None:
        self._max_entries = max_entries
        self._behind: dict[Key, tuple[int, int]] = {}

    def note(self, key: Key, size_bytes: int, time_ms: int = 0) -> None:
        """Record how far a group is behind in a queue now (GROUP_GET_FALL_SIZE and _TIME)."""
        if key in self._behind or len(self._behind) < self._max_entries:
            self._behind[key] = (size_bytes, time_ms)

    def groups_behind(self, limit_bytes: int) -> dict[str, int]:
        """Return group -> bytes for the groups that are further behind than `limit_bytes` in any queue
        (protectBroker)."""
        worst: dict[str, int] = {}
        for (group, _, _), (size_bytes, _) in self._behind.items():
            if size_bytes > limit_bytes:
                worst[group] = max(size_bytes, worst.get(group, 0))
        return worst

    def moments(self) -> list[tuple[str, str, int]]:
        """Return (name, key, value) of each measurement, by RocketMQ's names."""
        return [
            (name, f"{queue_id}@{topic}@{group}", value)
            for (group, topic, queue_id), moment in self._behind.items()
            for name, value in zip(("GROUP_GET_FALL_SIZE", "GROUP_GET_FALL_TIME"), moment, strict=True)
        ]

    def forget(self, is_gone: Callable[[Key], bool]) -> None:
        """Drop the queues of deleted groups and topics."""
        self._behind = {key: moment for key, moment in self._behind.items() if not is_gone(key)}
