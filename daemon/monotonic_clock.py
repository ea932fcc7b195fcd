"""The clock of a daemon's event loop.

The loop and the broker read it before each request. trio's own adds an offset in a function of Python, so that nobody
compares times of different clocks unnoticed; that function costs more than the system's clock behind it.
"""

import time
from typing import Final

import trio

_now: Final = time.perf_counter


class MonotonicClock(trio.abc.Clock):
    """Seconds that never go back, from an arbitrary start."""

    current_time = staticmethod(_now)

    def start_clock(self) -> None:
        """Do nothing: the system's clock runs."""

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return deadline - _now()
