"""The times of a broker's writes, as its runtime table has them: `[<=0ms]:7 [0~10ms]:2 [10~50ms]:0 ...`, the number of
writes in each bucket. TrioMQ counts those of the last minute, and reports its syncs and the lag of its event loop in
keys of its own, which no other broker has.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# The longest time of each bucket; the last one has no end.
EDGES_MS = (0, 10, 50, 100, 200, 500, 1_000, 2_000, 3_000, 4_000, 5_000, 10_000)
_BUCKET = re.compile(r"\]:(\d{1,18})")


def counts_of(table: Mapping[str, str]) -> list[int]:
    """Return the number of writes in each bucket; nothing for a broker that does not count them."""
    return [int(count) for count in _BUCKET.findall(table.get("putMessageDistributeTime", ""))][: len(EDGES_MS) + 1]


def longer_than(counts: list[int], milliseconds: int) -> int:
    """Return how many writes took longer than one of the edges."""
    return sum(counts[EDGES_MS.index(milliseconds) + 1 :])


def percentile_ms(counts: list[int], percent: int) -> int | None:
    """Return the edge that this share of the writes does not exceed; None without writes. Beyond the last edge it is
    the last edge.
    """
    wanted = -(-sum(counts) * percent // 100)
    if not wanted:
        return None
    seen = 0
    for edge, count in zip(EDGES_MS, counts, strict=False):
        seen += count
        if seen >= wanted:
            return edge
    return EDGES_MS[-1]


def own_number(table: Mapping[str, str], key: str) -> float | None:
    """Return the value of one of TrioMQ's own keys; None for a broker that does not report it."""
    try:
        return float(table[key])
    except (KeyError, TypeError, ValueError):
        return None


def sync_p99_ms(table: Mapping[str, str], at_least: int = 1) -> float | None:
    """Return the time that 99 % of the syncs did not exceed; None for fewer than `at_least` syncs in that minute."""
    count = own_number(table, "syncTimes")
    return own_number(table, "syncLatency99") if count is not None and count >= at_least else None
