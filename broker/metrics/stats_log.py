"""StatsLog: the statistics as lines of stats.log, in RocketMQ's wording (RocketMQ: StatsItem, MomentStatsItem).

    [TOPIC_PUT_NUMS] [orders] Stats In One Minute, SUM: 120 TPS: 2.00 AVGPT: 1.00

Empty windows are left out, and so are lines beyond `MAX_LINES`. Printing yields to other tasks every few lines. Tasks
call it; it keeps no state.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import structlog
import trio

from triomq.broker.metrics.sampling import DAY, HOUR, MINUTE
from triomq.broker.metrics.stats import BrokerStats

log = structlog.get_logger("triomq.broker.stats")

MAX_LINES: Final = 20_000
_LINES_AT_A_TIME: Final = 100
_SPAN_TEXTS: Final = ("One Minute", "One Hour", "One Day")


class StatsLog:
    """Prints the statistics of a broker."""

    def __init__(self, stats: BrokerStats) -> None:
        self._stats = stats

    async def print_minute(self) -> None:
        """Print the minute's statistics; called at every full minute."""
        await _print(self._lines(MINUTE))

    async def print_hour(self) -> None:
        """Print the hour's statistics; called at every full hour."""
        await _print(self._lines(HOUR))

    async def print_day(self) -> None:
        """Print the day's statistics; called at every midnight."""
        await _print(self._lines(DAY))

    async def print_moments(self) -> None:
        """Print how far groups are behind; called every five minutes."""
        await _print(
            f"[{name}] [{key}] Stats Every 5 Minutes, Value: {value}"
            for name, key, value in self._stats.backlogs.moments()
        )

    def _lines(self, kind: int) -> Iterable[str]:
        span = self._stats.spans[kind]
        for name, key, flow, column in list(self._stats.named()):
            item = flow.window(kind, span, column)
            if item.sum or item.avgpt:
                figures = f"SUM: {item.sum} TPS: {item.tps:.2f} AVGPT: {item.avgpt:.2f}"
                yield f"[{name}] [{key}] Stats In {_SPAN_TEXTS[kind]}, {figures}"


async def _print(lines: Iterable[str]) -> None:
    for number, line in enumerate(lines):
        if number >= MAX_LINES:
            log.info("further statistics not printed", printed=MAX_LINES)
            return
        log.info(line)
        if number % _LINES_AT_A_TIME == 0:
            await trio.lowlevel.checkpoint()
