"""The figures of a load: counts, rates, and the times of requests. Several threads add to them."""

from __future__ import annotations

import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_TIMES = 1_000_000
MAX_KINDS_OF_ERRORS = 20


class Figures:
    """`count` messages so far; `errors` is text -> how often."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._times: list[float] = []
        self._first = self._last = 0.0
        self._bytes = 0
        self.count = 0
        self.errors: dict[str, int] = {}

    def done(self, count: int, size: int, began: float, ended: float) -> None:
        """Add a request for some messages."""
        with self._lock:
            self._first = min(self._first or began, began)
            self._last = max(self._last, ended)
            self.count += count
            self._bytes += size
            if len(self._times) < MAX_TIMES:
                self._times.append(ended - began)

    def failed(self, error: Exception) -> None:
        text = str(error)
        with self._lock:
            if text not in self.errors and len(self.errors) >= MAX_KINDS_OF_ERRORS:
                text = "other errors"
            self.errors[text] = self.errors.get(text, 0) + 1

    def item(self, kind: str, limits: dict[str, int]) -> dict[str, Any]:
        times = sorted(self._times)
        seconds = self._last - self._first
        return {
            "kind": kind,
            "connections": limits["connections"],
            "window": limits["window"] if kind == "send" else 1,
            "size": limits["size"],
            "messages": self.count,
            "seconds": round(seconds, 3),
            "messagesPerSecond": round(self.count / seconds, 1) if seconds else 0.0,
            "mebibytesPerSecond": round(self._bytes / 2**20 / seconds, 3) if seconds else 0.0,
            "p50Ms": percentile(times, 50),
            "p90Ms": percentile(times, 90),
            "p99Ms": percentile(times, 99),
            "maxMs": percentile(times, 100),
            "errors": sum(self.errors.values()),
        }


def percentile(times: list[float], percent: int) -> float | None:
    """Return the least of sorted times, in ms, that this share of them does not exceed; None without any."""
    if not times:
        return None
    return round(times[max(0, -(-len(times) * percent // 100) - 1)] * 1000, 3)
