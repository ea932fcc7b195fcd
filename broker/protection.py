"""Protection: measures the lag of consumer groups, and stops groups that lag too far behind (RocketMQ:
BrokerController.protectBroker, MomentStatsItemSet, diskFallRecorded).

A group that reads gigabytes behind the end of the log reads from disk and slows everyone down. A task measures the
distance from the message at a queue's committed offset to the end of the log, for the queues that the group pulled from
since the broker started. Pulls themselves pay nothing for it.
"""

from __future__ import annotations

from typing import Final

import structlog
import trio

from triomq.broker.configuration import Configuration
from triomq.broker.metrics.stats import BrokerStats
from triomq.broker.tables.groups import GroupTable
from triomq.broker.tables.offsets import OffsetTable
from triomq.protocol.clock import NowMs
from triomq.store.message_store import DefaultMessageStore

log = structlog.get_logger("triomq.broker.protection")

QUEUES_AT_A_TIME: Final = 200


class Protection:
    """Tasks call it; the statistics hold its results."""

    def __init__(
        self,
        configuration: Configuration,
        store: DefaultMessageStore,
        offsets: OffsetTable,
        groups: GroupTable,
        stats: BrokerStats,
        *,
        now_ms: NowMs,
    ) -> None:
        self._configuration = configuration
        self._store = store
        self._offsets = offsets
        self._groups = groups
        self._stats = stats
        self._now_ms = now_ms

    async def measure(self) -> None:
        """Record how far every group is behind in every queue it read (diskFallRecorded)."""
        if not self._configuration.store.disk_fall_recorded:
            return
        for number, (group, topic, queue_id) in enumerate(self._stats.queues_read()):
            behind_bytes, behind_ms = self._distance(group, topic, queue_id)
            self._stats.backlogs.note((group, topic, queue_id), behind_bytes, behind_ms)
            if number % QUEUES_AT_A_TIME == 0:
                # Safe across this await, because the list is a copy: a queue deleted meanwhile has no entries, so no
                # group is behind in it.
                await trio.lowlevel.checkpoint()

    async def protect(self) -> None:
        """Stop groups that are behind by more than consumerFallbehindThreshold, if that is enabled."""
        broker = self._configuration.broker
        if not broker.disable_consume_if_consumer_read_slowly:
            return
        await self.measure()
        limit_bytes = broker.consumer_fallbehind_threshold_bytes
        for group, behind_bytes in self._stats.backlogs.groups_behind(limit_bytes).items():
            if self._groups.disable_consuming(group):
                log.warning("group stopped: it is too far behind", group=group, behind_bytes=behind_bytes)

    def _distance(self, group: str, topic: str, queue_id: int) -> tuple[int, int]:
        """Return the distance (bytes, ms) from the next message of the group to the end of the log; zeros if it has
        consumed all."""
        queue_offset = max(self._offsets.query(group, topic, queue_id), self._store.reading.min_offset(topic, queue_id))
        entries = self._store.reading.queue_entries(topic, queue_id, queue_offset, 1)
        if not entries:
            return 0, 0
        behind_bytes = max(0, self._store.reading.max_physical_offset - entries[0][0])
        stored_ms = self._store.reading.store_time_at(topic, queue_id, queue_offset)
        return behind_bytes, max(0, self._now_ms() - stored_ms) if stored_ms > 0 else 0
