"""Outage: when to log that something keeps failing: once when it begins, then once a minute, and once when it ended.

Pure: the caller passes seconds of one monotonic clock, and logs.
"""

from __future__ import annotations

from typing import Final

REMIND_SECONDS: Final = 60.0
MAX_KEYS: Final = 4096
"""Above it the oldest key is forgotten, and may be logged too early."""
CALM_SECONDS: Final = 10.0
"""An outage ends with the first success that comes later than this after a failure: in a shortage both alternate."""


class Outage:
    """Holds when the thing failed last, and when that was last logged. `is_on`: the end is not logged yet; where each
    call counts, read it before a clock."""

    __slots__ = ("_failed_at", "_logged_at", "is_on")

    def __init__(self) -> None:
        self.is_on = False
        self._failed_at = 0.0
        self._logged_at = 0.0

    def failed(self, now: float) -> bool:
        """Note a failure. Return whether to log it."""
        self._failed_at = now
        if self.is_on and now - self._logged_at < REMIND_SECONDS:
            return False
        self.is_on = True
        self._logged_at = now
        return True

    def worked(self, now: float) -> bool:
        """Note a success. Return whether to log that an outage ended."""
        if not self.is_on or now - self._failed_at < CALM_SECONDS:
            return False
        self.is_on = False
        return True


class Outages:
    """The outages of many things of a kind, by key. Holds when the failure of each was last logged. Unlike an
    `Outage`, one ends with the first success. There is an entry for each key that fails, at most MAX_KEYS."""

    __slots__ = ("_logged_at",)

    def __init__(self) -> None:
        self._logged_at: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._logged_at)

    def failed(self, key: str, now: float) -> bool:
        """Note a failure. Return whether to log it. A clock that was set back does not silence it."""
        logged_at = self._logged_at.get(key)
        if logged_at is not None and 0 <= now - logged_at < REMIND_SECONDS:
            return False
        if logged_at is None and len(self._logged_at) >= MAX_KEYS:
            del self._logged_at[next(iter(self._logged_at))]
        self._logged_at[key] = now
        return True

    def worked(self, key: str) -> bool:
        """Note a success. Return whether it ended an outage."""
        return self._logged_at.pop(key, None) is not None
