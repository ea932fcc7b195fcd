"""Which servers cannot be reached, and when that was last said: one warning, then one a minute, however often they are
tried.

Holds one entry for each address that did not respond the last time; a response removes it. Pure: the caller passes
seconds of one monotonic clock, and logs. Owned by one client.
"""

from __future__ import annotations

REMIND_SECONDS = 60.0
MAX_ADDRESSES = 4096
"""Above it the oldest absence is forgotten."""


class Absences:
    """See the module's docstring."""

    def __init__(self) -> None:
        self._warned: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._warned)

    def failed(self, address: str, now: float) -> bool:
        """Note that a server was not reached; return whether to warn about it now."""
        warned = self._warned.get(address)
        if warned is not None and now - warned < REMIND_SECONDS:
            return False
        if warned is None and len(self._warned) >= MAX_ADDRESSES:
            del self._warned[next(iter(self._warned))]
        self._warned[address] = now
        return True

    def responded(self, address: str) -> bool:
        """Note that a server responds; return whether it was absent."""
        return self._warned.pop(address, None) is not None
