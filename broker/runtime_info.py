"""RuntimeInfo: a table of text about the state of the broker (RocketMQ: GET_BROKER_RUNTIME_INFO).

Every value comes from the part that counts it; nothing is kept here. The keys are RocketMQ's. Some describe things that
this broker does not have (page cache lock, transient store pool); they get the value of an idle RocketMQ broker.
`own_values` add keys of TrioMQ's own.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Sequence

from triomq.broker.configuration import Configuration
from triomq.broker.metrics.stats import BrokerStats
from triomq.broker.metrics.store_metrics import StoreMetrics
from triomq.broker.pools import Pools
from triomq.protocol.bodies.fastjson_writer import double_text
from triomq.protocol.codes import V4_9_7, version_name
from triomq.store.message_store import DefaultMessageStore

NO_TRANSIENT_POOL = 2_147_483_647

DelayProgress = Callable[[], dict[int, tuple[int, int]]]
"""Delay level -> delivered and newest queue offset."""


class RuntimeInfo:
    """Collects the values."""

    def __init__(
        self,
        configuration: Configuration,
        store: DefaultMessageStore,
        stats: BrokerStats,
        pace: StoreMetrics,
        pools: Pools,
        delay_progress: DelayProgress,
        own_values: Sequence[Callable[[], dict[str, str]]] = (),
    ) -> None:
        self._configuration = configuration
        self._store = store
        self._stats = stats
        self._pace = pace
        self._pools = pools
        self._delay_progress = delay_progress
        self._own_values = tuple(own_values)

    def values(self) -> dict[str, str]:
        """Return key -> text."""
        table = self._pace.values()
        table.update(self._disk())
        for level, (delivered, newest) in sorted(self._delay_progress().items()):
            table[f"scheduleMessageOffset_{level}"] = f"{delivered},{newest}"
        table.update(self._store_values())
        table.update(self._totals())
        table.update(self._pool_values())
        for values in self._own_values:
            table.update(values())
        return table

    def _disk(self) -> dict[str, str]:
        files, paths = self._store.files, self._store.paths
        ratios = {path: files.disk_usage_ratio(path) for path in paths.commit_logs}
        table = {f"commitLogDiskRatio_{path}": _percent(ratio) for path, ratio in ratios.items()}
        table["commitLogDiskRatio"] = _percent(min(ratios.values(), default=-1.0))
        table["consumeQueueDiskRatio"] = _percent(files.disk_usage_ratio(paths.root))
        try:
            usage = shutil.disk_usage(paths.commit_logs[0])
        except OSError:
            table["commitLogDirCapacity"] = "Total : 0 B, Free : 0 B."
        else:
            table["commitLogDirCapacity"] = f"Total : {bytes_text(usage.total)}, Free : {bytes_text(usage.free)}."
        return table

    def _store_values(self) -> dict[str, str]:
        store = self._store
        behind_bytes = max(0, store.reading.max_physical_offset - store.flushed.value)
        return {
            "commitLogMinOffset": str(store.reading.min_physical_offset),
            "commitLogMaxOffset": str(store.reading.max_physical_offset),
            "brokerVersionDesc": version_name(V4_9_7),
            "brokerVersion": str(V4_9_7),
            "dispatchBehindBytes": "0",
            "pageCacheLockTimeMills": "0",
            "earliestMessageTimeStamp": str(store.reading.earliest_log_time()),
            "startAcceptSendRequestTimeStamp": str(self._configuration.broker.start_accept_send_request_time_stamp),
            "remainTransientStoreBufferNumbs": str(NO_TRANSIENT_POOL),
            "remainHowManyDataToFlush": bytes_text(behind_bytes),
        }

    def _totals(self) -> dict[str, str]:
        stats = self._stats
        return {
            "msgPutTotalYesterdayMorning": str(stats.put_total_yesterday_morning),
            "msgPutTotalTodayMorning": str(stats.put_total_today_morning),
            "msgPutTotalTodayNow": str(stats.stored_total),
            "msgGetTotalYesterdayMorning": str(stats.get_total_yesterday_morning),
            "msgGetTotalTodayMorning": str(stats.get_total_today_morning),
            "msgGetTotalTodayNow": str(stats.read_total),
        }

    def _pool_values(self) -> dict[str, str]:
        table: dict[str, str] = {}
        pools = self._pools
        for name, pool in (("send", pools.send), ("pull", pools.pull), ("query", pools.query)):
            table[f"{name}ThreadPoolQueueSize"] = str(pool.in_flight)
            table[f"{name}ThreadPoolQueueCapacity"] = str(pool.capacity)
            table[f"{name}ThreadPoolQueueHeadWaitTimeMills"] = str(pool.head_wait_ms())
        # Held pulls wait by request; they are not a backlog.
        table["pullThreadPoolQueueSize"] = table["pullThreadPoolQueueHeadWaitTimeMills"] = "0"
        table["EndTransactionQueueSize"] = str(pools.transaction.in_flight)
        table["EndTransactionThreadPoolQueueCapacity"] = str(pools.transaction.capacity)
        return table


def _percent(ratio: float) -> str:
    """Return a ratio in whole percent, rounded up as `df` does (RocketMQ: UtilAll.getDiskPartitionSpaceUsedPercent)."""
    return double_text(math.ceil(ratio * 100) / 100)


def bytes_text(count: int) -> str:
    """Return a number of bytes in RocketMQ's readable form: 0 B, 1.5 KiB, 252.0 GiB."""
    if count < 1024:
        return f"{count} B"
    power = min((count.bit_length() - 1) // 10, 6)
    return f"{count / (1 << 10 * power):.1f} {'KMGTPE'[power - 1]}iB"
