"""StoreMetrics: put and get rates of the store, as GET_BROKER_RUNTIME_INFO reports them (RocketMQ: StoreStatsService).

Rates come from one sample per second of the totals in BrokerStats, kept for ten minutes. Put latencies come from
commits: every message of a turn waits from its append until the commit at the end of the turn, so one clock reading
serves all of them. The latency distribution is that of the last full minute, or of the current one until the first is
over. Only the event loop touches it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

import structlog
import trio

from triomq.broker.metrics.stats import BrokerStats
from triomq.protocol.bodies.fastjson_writer import double_text
from triomq.protocol.clock import NowMs

log = structlog.get_logger("triomq.store.pace")

SAMPLES: Final = 601  # one per second
RATE_SECONDS: Final[tuple[int, ...]] = (10, 60, 600)

_EDGES_MS: Final[tuple[int, ...]] = (0, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000)
_BUCKET_TEXTS: Final[tuple[str, ...]] = (
    "[<=0ms]",
    "[0~10ms]",
    "[10~50ms]",
    "[50~100ms]",
    "[100~200ms]",
    "[200~500ms]",
    "[500ms~1s]",
    "[1~2s]",
    "[2~3s]",
    "[3~4s]",
    "[4~5s]",
    "[5~10s]",
    "[10s~]",
)
_FINE_MS: Final = 1000
"""Put times up to this limit are counted per ms, for the percentiles."""

_Sample: TypeAlias = tuple[int, int, int, int, int]
_PUT, _FOUND, _MISSED, _TRANSFERRED = 1, 2, 3, 4


class PutTimes:
    """Durations of puts: a count for each bucket of RocketMQ's text, and for each ms."""

    __slots__ = ("buckets", "count", "fine")

    def __init__(self) -> None:
        self.count = 0
        self.buckets = [0] * len(_BUCKET_TEXTS)
        self.fine: dict[int, int] = {}

    def add(self, elapsed_ms: int, count: int) -> None:
        self.count += count
        self.buckets[bisect_left(_EDGES_MS, elapsed_ms)] += count
        elapsed_ms = min(elapsed_ms, _FINE_MS)
        self.fine[elapsed_ms] = self.fine.get(elapsed_ms, 0) + count

    def percentile_ms(self, part: float) -> float:
        """Return the time in ms within which that part of the puts completed; 0 without puts."""
        left = part * self.count
        for elapsed_ms in sorted(self.fine):
            left -= self.fine[elapsed_ms]
            if left <= 0:
                return float(elapsed_ms)
        return 0.0

    def text(self) -> str:
        return "".join(f"{text}:{count} " for text, count in zip(_BUCKET_TEXTS, self.buckets, strict=True))


class StoreMetrics:
    """See the module's docstring."""

    def __init__(self, stats: BrokerStats, *, now_ms: NowMs) -> None:
        self._stats = stats
        self._now_ms = now_ms
        self._samples: deque[_Sample] = deque(maxlen=SAMPLES)
        self._timed_puts = 0
        self._times = PutTimes()
        self._last_minute: PutTimes | None = None
        self.boot_ms = now_ms()
        self.put_max_ms = 0
        self.get_max_ms = 0
        self._commit_observer: Callable[[float], None] | None = None

    def timed(
        self,
        commit: Callable[[], None],
        on_commit: Callable[[float], None],
        clock: Callable[[], float] = trio.current_time,
    ) -> Callable[[], None]:
        """Return `commit` with its duration measured; `on_commit` receives the duration in ms. `clock` returns trio's
        time."""

        def timed_commit() -> None:
            began = clock()
            commit()
            elapsed_ms = (clock() - began) * 1000
            self.commit_took(elapsed_ms)
            on_commit(elapsed_ms)

        return timed_commit

    def observe_commits(self, observer: Callable[[float], None]) -> None:
        """Call `observer` with the seconds of each commit that stored something."""
        self._commit_observer = observer

    def commit_took(self, elapsed_ms: float) -> None:
        """Record the duration of a commit of the store; the messages counted since the previous commit were in it."""
        puts = self._stats.stored_total
        count = puts - self._timed_puts
        if count > 0:
            self._timed_puts = puts
            if self._commit_observer is not None:
                self._commit_observer(elapsed_ms / 1000)
            self._times.add(int(elapsed_ms), count)
            if elapsed_ms > self.put_max_ms:
                self.put_max_ms = int(elapsed_ms)

    def get_took(self, elapsed_ms: float) -> None:
        """Record the duration of a read of the store."""
        if elapsed_ms > self.get_max_ms:
            self.get_max_ms = int(elapsed_ms)

    def sample(self) -> None:
        """Take a sample; called every second."""
        stats = self._stats
        now_ms = self._now_ms()
        self._samples.append(
            (now_ms, stats.stored_total, stats.get_found_times, stats.get_missed_times, stats.read_total)
        )

    def turn_minute(self) -> None:
        """Start a new distribution of put times and log the rates; called every minute."""
        self._last_minute = self._times
        self._times = PutTimes()
        times = self._last_minute
        if times.count:
            log.info("[STORETPS] puts", tps=self._rates(_PUT), p99_ms=times.percentile_ms(0.99), times=times.text())
        if self._rate(_FOUND, 60) or self._rate(_MISSED, 60):
            log.info("[STORETPS] gets", found_tps=self._rates(_FOUND), miss_tps=self._rates(_MISSED))

    def values(self) -> dict[str, str]:
        """Return key -> text for the runtime info."""
        stats = self._stats
        times = self._last_minute or self._times
        puts = max(1, stats.stored_total)
        return {
            "bootTimestamp": str(self.boot_ms),
            "runtime": _runtime_text(self._now_ms() - self.boot_ms),
            "putMessageEntireTimeMax": str(self.put_max_ms),
            "putMessageTimesTotal": str(puts),
            "putMessageFailedTimes": str(stats.put_failed_times),
            "putMessageSizeTotal": str(stats.stored_size_total_bytes),
            "putMessageDistributeTime": times.text(),
            "putMessageAverageSize": double_text(stats.stored_size_total_bytes / puts),
            "dispatchMaxBuffer": "0",
            "getMessageEntireTimeMax": str(self.get_max_ms),
            "putTps": self._rates(_PUT),
            "getFoundTps": self._rates(_FOUND),
            "getMissTps": self._rates(_MISSED),
            "getTotalTps": " ".join(
                double_text(self._rate(_FOUND, seconds) + self._rate(_MISSED, seconds)) for seconds in RATE_SECONDS
            ),
            "getTransferedTps": self._rates(_TRANSFERRED),
            "putLatency99": f"{times.percentile_ms(0.99):.2f}",
            "putLatency999": f"{times.percentile_ms(0.999):.2f}",
        }

    def _rates(self, column: int) -> str:
        """Return the rates over 10, 60 and 600 s as text; empty where there are too few samples yet."""
        return " ".join(
            double_text(self._rate(column, seconds)) if len(self._samples) > seconds else "" for seconds in RATE_SECONDS
        )

    def _rate(self, column: int, seconds: int) -> float:
        if len(self._samples) <= seconds:
            return 0.0
        last, before = self._samples[-1], self._samples[-1 - seconds]
        elapsed_ms = last[0] - before[0]
        return (last[column] - before[column]) / elapsed_ms * 1000 if elapsed_ms > 0 else 0.0


def _runtime_text(elapsed_ms: int) -> str:
    seconds = max(0, elapsed_ms) // 1000
    days = seconds // 86_400
    hours = seconds // 3600 % 24
    minutes = seconds // 60 % 60
    return f"[ {days:,} days, {hours} hours, {minutes} minutes, {seconds % 60} seconds ]"
