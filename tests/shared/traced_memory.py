"""How much memory a piece of code takes, as tracemalloc counts it."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

REPEATS = 5


def least_bytes(measured: Callable[[], int]) -> int:
    """Return the least of several results of `measured`, each with its own trace: what other threads of the process
    meanwhile is counted as well, and the threads of earlier tests may still work.
    """
    found = []
    for _ in range(REPEATS):
        tracemalloc.start()
        try:
            found.append(measured())
        finally:
            tracemalloc.stop()
    return min(found)
