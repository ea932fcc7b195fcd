"""Latencies: how late the event loop runs the periodic tasks, and how long syncs of the log take, over the last minute.

Nothing is done for it alone: the tasks of the schedule report how late they wake, at least two each second, and the
store reports each sync. Where the port for metrics is open, its finer measurement of the loop reports here, too.
GET_BROKER_RUNTIME_INFO has the values under keys of TrioMQ's own, which clients of RocketMQ ignore. Only the event loop
touches it.
"""

from __future__ import annotations

from typing import Final

from triomq.store.upkeep.flush import SyncObserver

KEYS: Final = ("eventLoopLagMax", "syncTimes", "syncLatency99", "syncLatencyMax")
LOG: Final = "commitlog"
_MOST_TENTHS: Final = 100_000
"""Syncs are counted by tenths of a millisecond up to this limit, 10 s. They follow one another, so a minute has at most
about a thousand different ones."""


class SyncTimes:
    """Durations of syncs, counted by tenths of a millisecond, rounded up."""

    __slots__ = ("_tenths", "count", "max_ms")

    def __init__(self) -> None:
        self.count = 0
        self.max_ms = 0.0
        self._tenths: dict[int, int] = {}

    def add(self, seconds: float) -> None:
        self.count += 1
        self.max_ms = max(self.max_ms, seconds * 1000)
        tenths = min(int(seconds * 10_000) + 1, _MOST_TENTHS)
        self._tenths[tenths] = self._tenths.get(tenths, 0) + 1

    def percentile_ms(self, percent: int) -> float:
        """Return the time in ms within which that share of the syncs completed; 0 without syncs."""
        wanted = -(-self.count * percent // 100)
        seen = 0
        for tenths in sorted(self._tenths):
            seen += self._tenths[tenths]
            if seen >= wanted:
                return tenths / 10
        return 0.0


class Latencies:
    """See the module's docstring."""

    def __init__(self) -> None:
        self._late_seconds = self._late_before = 0.0
        self._syncs = SyncTimes()
        self._syncs_before: SyncTimes | None = None
        self._sync_observer: SyncObserver | None = None

    def observe_syncs(self, observer: SyncObserver) -> None:
        """Call `observer` with each sync: of what, its seconds, and whether it failed."""
        self._sync_observer = observer

    def woke_late(self, seconds: float) -> None:
        """Record how long after its time the loop woke a task."""
        if seconds > self._late_seconds:
            self._late_seconds = seconds

    def synced(self, what: str, seconds: float, has_failed: bool) -> None:
        """Record a sync; those of the consume queues, for which no client waits, count for the observer only."""
        if what == LOG:
            self._syncs.add(seconds)
        if self._sync_observer is not None:
            self._sync_observer(what, seconds, has_failed)

    def turn_minute(self) -> None:
        """Begin a new minute; called every minute."""
        self._late_before, self._late_seconds = self._late_seconds, 0.0
        self._syncs_before, self._syncs = self._syncs, SyncTimes()

    def values(self) -> dict[str, str]:
        """Return key -> text for the runtime info, times in ms. Syncs are those of the last full minute, or of the
        current one until the first is over. The lag is the worst of both minutes, so that one is seen at once."""
        syncs = self._syncs_before or self._syncs
        return {
            "eventLoopLagMax": f"{max(self._late_seconds, self._late_before) * 1000:.2f}",
            "syncTimes": str(syncs.count),
            "syncLatency99": f"{syncs.percentile_ms(99):.2f}",
            "syncLatencyMax": f"{syncs.max_ms:.2f}",
        }
