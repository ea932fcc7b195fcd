"""Histogram: how often a value fell between two edges, and their sum. To observe one is a search and two additions.

Counts only grow. Touched only on the event loop.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import inf
from typing import Final

SECONDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Edges for durations that matter to an event loop."""
REQUESTS: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)


class Histogram:
    """See the module's docstring. A value at an edge belongs to the bucket below it (`le`)."""

    __slots__ = ("_counts", "_edges", "total")

    def __init__(self, edges: Sequence[float] = SECONDS) -> None:
        self._edges = tuple(edges)
        self._counts = [0] * (len(edges) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._edges, value)] += 1
        self.total += value

    def observe_many(self, value: float, count: int) -> None:
        """Observe a value that often."""
        self._counts[bisect_left(self._edges, value)] += count
        self.total += value * count

    @classmethod
    def of(cls, edges: Sequence[float], counts: Sequence[int], total: float) -> Histogram:
        """Return one of values that were counted elsewhere: `counts` are those of each bucket, the
        last of them beyond all edges."""
        found = cls(edges)
        found._counts = list(counts)
        found.total = total
        return found

    @property
    def count(self) -> int:
        return sum(self._counts)

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Yield each upper edge, the last of them infinite, with the number of values up to it."""
        return zip((*self._edges, inf), accumulate(self._counts), strict=True)
