"""LoopLag: how late the event loop calls a timer, as a histogram, and the worst of the last half minute.

Its task exists only while the port for metrics is open.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import trio

from triomq.monitoring.health import Check
from triomq.monitoring.histogram import Histogram

PERIOD_SECONDS: Final = 0.1
RECENT: Final = 300
"""The number of measurements that `recent_seconds` looks at."""
MOST_SECONDS: Final = 2.0
"""A loop that was later than this within the last half minute is not ready for more clients."""


class LoopLag:
    def __init__(self) -> None:
        self.times = Histogram()
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._observer: Callable[[float], None] | None = None

    @property
    def recent_seconds(self) -> float:
        """The largest lag of the last half minute."""
        return max(self._recent, default=0.0)

    def observe(self, observer: Callable[[float], None]) -> None:
        """Call `observer` with the seconds of each measurement."""
        self._observer = observer

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            due = trio.current_time() + PERIOD_SECONDS
            await trio.sleep_until(due)
            self.took(trio.current_time() - due)

    def took(self, seconds: float) -> None:
        """Note one measurement."""
        self.times.observe(max(0.0, seconds))
        self._recent.append(seconds)
        if self._observer is not None:
            self._observer(seconds)

    def check(self) -> Check:
        """Return whether the loop keeps up."""
        worst = self.recent_seconds
        text = f"at most {worst * 1000:.1f} ms late within the last half minute"
        return Check("event loop", worst <= MOST_SECONDS, text)
