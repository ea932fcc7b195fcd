"""When to say something again: at once, then once a minute as long as it lasts.

For many things, by key; `protocol.outage.Outage` is for one. Holds the time of the last line for each key, at most
MAX_KEYS of them. Pure: the caller passes milliseconds of one
clock, and logs.
"""

from __future__ import annotations

from typing import Final

REMIND_MS: Final = 60_000
MAX_KEYS: Final = 4096
"""Above it the oldest key is forgotten, and may be said too early."""


class Reminder:
    """See the module's docstring."""

    def __init__(self) -> None:
        self._said_ms: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._said_ms)

    def is_due(self, key: str, now_ms: int) -> bool:
        """Return whether to say this now; the caller does."""
        said_ms = self._said_ms.get(key)
        if said_ms is not None and 0 <= now_ms - said_ms < REMIND_MS:
            return False
        self._said_ms.pop(key, None)
        if len(self._said_ms) >= MAX_KEYS:
            del self._said_ms[next(iter(self._said_ms))]
        self._said_ms[key] = now_ms
        return True

    def forget(self, key: str) -> None:
        """It is over: say it at once the next time."""
        self._said_ms.pop(key, None)
