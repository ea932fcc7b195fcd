"""WatermarkLog: the fill levels of the pools as lines of watermark.log (RocketMQ: BrokerController.printWaterMark).

    [WATERMARK] Send Queue Size: 3 SlowTimeMills: 12

Held pulls are no backlog and are not counted. A pool that is empty, and was empty at the previous call, gets no line. A
task calls it every second.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from triomq.broker.pools import Pools

log = structlog.get_logger("triomq.broker.watermark")


class WatermarkLog:
    """Prints how many requests are unfinished, and for how long the oldest."""

    def __init__(self, pools: Pools, held_pulls: Callable[[], int]) -> None:
        self._pools = pools
        self._held_pulls = held_pulls
        self._was_busy: set[str] = set()

    def print(self) -> None:
        """Print one line for each pool that has unfinished requests, or had some a second ago."""
        pools = self._pools
        pulls = max(0, pools.pull.in_flight - self._held_pulls())
        self._line("Send", pools.send.in_flight, pools.send.head_wait_ms())
        # The oldest request of the pull pool is nearly always a held one; the others get their response within their
        # turn.
        self._line("Pull", pulls, 0)
        self._line("Query", pools.query.in_flight, pools.query.head_wait_ms())
        self._line("Transaction", pools.transaction.in_flight, pools.transaction.head_wait_ms())

    def _line(self, name: str, size: int, head_wait_ms: int) -> None:
        if size or name in self._was_busy:
            log.info(f"[WATERMARK] {name} Queue Size: {size} SlowTimeMills: {head_wait_ms}")
        if size:
            self._was_busy.add(name)
        else:
            self._was_busy.discard(name)
