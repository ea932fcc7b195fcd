"""What a NameServer does in the background: it finishes removals, forgets silent brokers, logs its table."""

from __future__ import annotations

from collections import Counter

import structlog
import trio

from triomq.namesrv.kv_config import KvConfig
from triomq.namesrv.routes import RouteTable
from triomq.remoting.connection import Connection
from triomq.remoting.scheduling.step_line import NO_LINE

log = structlog.get_logger("triomq.namesrv")

SCAN_FIRST_SECONDS = 5.0
SCAN_PERIOD_SECONDS = 10.0
KV_LOG_FIRST_SECONDS = 60.0
KV_LOG_PERIOD_SECONDS = 600.0
LINES_IN_A_STEP = 8
"""Lines of the log that are written in one step."""


class RouteUpkeep:
    """Finishes in steps what the route table has left to do."""

    def __init__(self, routes: RouteTable) -> None:
        self._routes = routes
        self._wakeup = trio.Event()
        routes.topics_of.on_chore = lambda: self._wakeup.set()

    async def run(self) -> None:
        while True:
            while self._routes.work():
                await NO_LINE.next()
            await self._wakeup.wait()
            self._wakeup = trio.Event()


async def scan_silent_brokers(routes: RouteTable, dropped: Counter[str]) -> None:
    """Every ten seconds, forget brokers that have not registered for two minutes and close their connections. `dropped`
    counts them."""
    await trio.sleep(SCAN_FIRST_SECONDS)
    while True:
        for number, (address, owner) in enumerate(routes.drop_silent(trio.current_time())):
            dropped["timeout"] += 1
            log.warning("broker removed: it has not registered for too long", address=address)
            if isinstance(owner, Connection):
                owner.close("the broker has not registered for too long")
            if number % LINES_IN_A_STEP == LINES_IN_A_STEP - 1:
                await NO_LINE.next()
        await trio.sleep(SCAN_PERIOD_SECONDS)


async def log_kv_config(kv_config: KvConfig) -> None:
    """Log the key-value table every ten minutes."""
    await trio.sleep(KV_LOG_FIRST_SECONDS)
    while True:
        for namespace, key, value in kv_config.items():
            log.info("key-value entry listed", namespace=namespace, key=key, value=value)
            await NO_LINE.next()
        await trio.sleep(KV_LOG_PERIOD_SECONDS)
