"""History: what a daemon did in the last hour (a point each 10 s) and day (a point each minute), for the charts.

Two rings of numbers of a fixed size. A sample is the daemon's counters since its start; a point is what they grew by a
second, or for a gauge its value. It is loaded with the daemon, since nobody can ask for the past later; its memory is
POINTS x series x 8 bytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import trio

SAMPLE_SECONDS: Final = 10
HOUR_POINTS: Final = 360
DAY_POINTS: Final = 1440
SAMPLES_OF_A_DAY_POINT: Final = 6


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a chart. A counter is shown by its growth a second, a gauge as it is."""

    name: str
    unit: str
    read: Callable[[], float]
    is_counter: bool = True


class Ring:
    """The last `size` points of some series."""

    def __init__(self, size: int, width: int) -> None:
        self._size = size
        self._columns = [array("d") for _ in range(width)]
        self._next = 0

    def add(self, point: Sequence[float]) -> None:
        for column, value in zip(self._columns, point, strict=True):
            if len(column) < self._size:
                column.append(value)
            else:
                column[self._next] = value
        self._next = (self._next + 1) % self._size

    def column(self, number: int) -> list[float]:
        """Return the points of one series, oldest first."""
        column = self._columns[number]
        at = self._next if len(column) == self._size else 0
        return [*column[at:], *column[:at]]


class History:
    """See the module's docstring. `run` samples; everybody may read."""

    def __init__(self, series: Sequence[Series]) -> None:
        self.series = list(series)
        self.hour = Ring(HOUR_POINTS, len(self.series))
        self.day = Ring(DAY_POINTS, len(self.series))
        self._before = [one.read() for one in self.series]
        self._minute = list(self._before)
        self._samples = 0

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            await trio.sleep(SAMPLE_SECONDS)
            self.sample()

    def sample(self) -> None:
        """Take one sample now."""
        now = [one.read() for one in self.series]
        self.hour.add(self._point(now, self._before, SAMPLE_SECONDS))
        self._before = now
        self._samples += 1
        if self._samples % SAMPLES_OF_A_DAY_POINT == 0:
            self.day.add(self._point(now, self._minute, SAMPLE_SECONDS * SAMPLES_OF_A_DAY_POINT))
            self._minute = now

    def _point(self, now: list[float], before: list[float], seconds: int) -> list[float]:
        return [
            max(0.0, value - was) / seconds if one.is_counter else value
            for one, value, was in zip(self.series, now, before, strict=True)
        ]
