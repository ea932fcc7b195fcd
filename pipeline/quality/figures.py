"""What is known of the messages of a topic: counts, sizes, latencies and repeats, in total and by hour. Pure.

Times are milliseconds since 1970. Memory does not grow with the number of messages, except for the identities that
`Seen` compares, which have a bound.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

HOUR_MS: Final = 3_600_000
SHARES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
_GROWTH: Final = math.log(1.02)


class Spread:
    """Percentiles of latencies, each at most 2 % too high. Latencies below 0 come from clocks that differ: they count
    as 0, and are counted."""

    def __init__(self) -> None:
        self._steps: Counter[int] = Counter()
        self.most = 0
        self.below_zero = 0

    def add(self, latencies_ms: Any) -> None:
        """Add an Arrow array of whole numbers."""
        if not len(latencies_ms):
            return
        self.most = max(self.most, pc.max(latencies_ms).as_py())
        self.below_zero += pc.sum(pc.less(latencies_ms, 0)).as_py()
        positive = pc.max_element_wise(latencies_ms, 0).cast(pa.float64())
        steps = pc.floor(pc.divide(pc.log1p(positive), _GROWTH)).cast(pa.int32())
        for one in pc.value_counts(steps).to_pylist():
            self._steps[one["values"]] += one["counts"]

    def include(self, other: Spread) -> None:
        """Add what another one has."""
        self._steps += other._steps
        self.most = max(self.most, other.most)
        self.below_zero += other.below_zero

    def item(self) -> dict[str, int] | None:
        """Return the percentiles and the longest in ms; None without a latency."""
        total = sum(self._steps.values())
        if not total:
            return None
        found: dict[str, int] = {}
        seen = 0
        wanted = list(SHARES.items())
        for step in sorted(self._steps):
            seen += self._steps[step]
            while wanted and seen >= wanted[0][1] * total:
                found[wanted.pop(0)[0]] = min(math.floor(math.exp((step + 1) * _GROWTH) - 1), self.most)
        return {**found, "max": self.most}


@dataclass(slots=True)
class Figures:
    """Of some messages of a topic. `repeated_keys` and `repeated_ids`: messages whose key, or id of the producer, an
    earlier one had; the first counts for none. `consumed`: group -> stored to consumed, by traces."""

    messages: int = 0
    bytes: int = 0
    least_bytes: int | None = None
    most_bytes: int = 0
    repeated_keys: int = 0
    repeated_ids: int = 0
    stored: Spread = field(default_factory=Spread)
    consumed: dict[str, Spread] = field(default_factory=dict)

    def add(self, sizes: Any, latencies_ms: Any) -> None:
        """Add messages: Arrow arrays of the sizes of their bodies, and of the ms from born to stored."""
        least, most = pc.min_max(sizes).as_py().values()
        self.messages += len(sizes)
        self.bytes += pc.sum(sizes).as_py()
        self.least_bytes = least if self.least_bytes is None else min(self.least_bytes, least)
        self.most_bytes = max(self.most_bytes, most)
        self.stored.add(latencies_ms)

    def include(self, other: Figures) -> None:
        """Add what another one has."""
        if other.least_bytes is not None:
            self.least_bytes = min(other.least_bytes, self.least_bytes or other.least_bytes)
        self.messages += other.messages
        self.bytes += other.bytes
        self.most_bytes = max(self.most_bytes, other.most_bytes)
        self.repeated_keys += other.repeated_keys
        self.repeated_ids += other.repeated_ids
        self.stored.include(other.stored)
        for group, spread in other.consumed.items():
            self.consumed.setdefault(group, Spread()).include(spread)

    def item(self) -> dict[str, Any]:
        return {
            "messages": self.messages,
            "bytes": self.bytes,
            "minBytes": self.least_bytes,
            "maxBytes": self.most_bytes,
            "repeatedKeys": self.repeated_keys,
            "repeatedIds": self.repeated_ids,
            "bornToStoredMs": self.stored.item(),
            "bornAfterStored": self.stored.below_zero,
            "storedToConsumedMs": {group: spread.item() for group, spread in sorted(self.consumed.items())},
        }


class Seen:
    """Identities of messages, as hashes with the hour and time of their store. Sixteen bytes and a quarter each, at
    most `limit`; later ones are not looked at, and `left_out` counts them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[Any] = []
        self.count = self.left_out = 0

    def add(self, texts: Iterable[str], stored_ms: Any) -> None:
        """Add the texts of messages and an Arrow array of their store times."""
        hashes = pa.array(map(hash, texts), pa.int64())
        kept = min(len(hashes), self._limit - self.count)
        self.left_out += len(hashes) - kept
        self.count += kept
        if kept:
            self._parts.append(pa.table({"hash": hashes[:kept], "stored": stored_ms[:kept]}))

    def table(self) -> Any:
        """Return the columns hash and stored, in the order of `add`."""
        empty = pa.table({"hash": pa.array([], pa.int64()), "stored": pa.array([], pa.int64())})
        return pa.concat_tables(self._parts) if self._parts else empty

    def repeats(self) -> Counter[int]:
        """Return hour -> identities that are there again: all of one identity but for the one that was stored first."""
        ordered = self.table().sort_by([("hash", "ascending"), ("stored", "ascending")])
        hashes = ordered["hash"].combine_chunks()
        if len(hashes) < 2:
            return Counter()
        again = pc.equal(hashes[1:], hashes[:-1])
        hours = pc.divide(ordered["stored"].combine_chunks()[1:].filter(again), HOUR_MS)
        return Counter({one["values"]: one["counts"] for one in pc.value_counts(hours).to_pylist()})


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets [begin, end) of a queue that have no message."""

    broker: str
    queue_id: int
    begin: int
    end: int

    @property
    def missing(self) -> int:
        return self.end - self.begin


def gaps_between(offsets: Any, expected: int) -> Iterator[tuple[int, int]]:
    """Yield the offsets [begin, end) that are missing from `expected` on within an ascending Arrow array."""
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    if first > expected:
        yield expected, first
    if last - first + 1 != len(offsets):
        before = offsets[:-1]
        jumps = pc.greater(pc.subtract(offsets[1:], before), 1)
        for begin, end in zip(before.filter(jumps).to_pylist(), offsets[1:].filter(jumps).to_pylist(), strict=True):
            yield begin + 1, end


def total_of(hours: Mapping[int, Figures]) -> Figures:
    """Return the figures of all hours together."""
    total = Figures()
    for figures in hours.values():
        total.include(figures)
    return total
