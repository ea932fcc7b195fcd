"""The periodic tasks of a broker's parts (broker/tasks.py has their periods), and how parts follow changed settings."""

from __future__ import annotations

import trio

from triomq.broker.assembly.serving import Serving
from triomq.broker.metrics.stats_log import StatsLog
from triomq.broker.metrics.watermark_log import WatermarkLog
from triomq.broker.tables import entry_costs


def add_tasks(serving: Serving) -> None:
    """Fill the broker's schedule."""
    tables, registration = serving.tables, serving.registration
    metadata = tables.metadata
    stats = tables.stats
    store_metrics = tables.store_metrics
    stats_log = StatsLog(stats)
    watermarks = WatermarkLog(tables.pools, lambda: len(serving.pull.long_polling))
    memory = tables.surroundings.table_memory
    queues = memory.account("consume queues")
    statistics = memory.account("statistics")

    async def expire_clients() -> None:
        for expire in (metadata.producers.expire, metadata.consumers.expire):
            for _ in expire():
                await trio.lowlevel.checkpoint()

    def print_watermarks() -> None:
        watermarks.print()
        tables.limits.log_refusals()
        serving.quotas.refusals.log_refusals()
        # Neither refuses anything itself: they leave less to the tables that do.
        queues.set(entry_costs.CONSUME_QUEUE * tables.store.reading.queue_count)
        statistics.set(entry_costs.FLOW * stats.flow_count())

    def turn_minute() -> None:
        store_metrics.turn_minute()
        tables.latencies.turn_minute()

    async def print_moments() -> None:
        await serving.protection.measure()
        await stats_log.print_moments()

    add = serving.schedule.add
    add("persist consumerOffset.json", metadata.offsets.persist)
    add("persist consumerFilter.json", metadata.filters.persist)
    add("keep queueLocks.json", tables.queue_locks.still_alive)
    add("ClientHousekeepingService", expire_clients)
    if serving.group is not None:  # a slave of a group copies the tables more often, as long as it is one
        add("half messages without a producer", serving.transactions.producer_checks.log_unasked)
    elif tables.configuration.role.is_slave:
        add("SlaveSynchronize.syncAll", serving.replication.master_tables.sync)
    else:
        add("printMasterAndSlaveDiff", serving.replication.log_server.log_lag)
        add("half messages without a producer", serving.transactions.producer_checks.log_unasked)
    add("registerBrokerAll", registration.register_all)
    add("update name server list", registration.update_nameservers)
    add("fetch name server list", serving.nameservers.fetch)
    add("protectBroker", serving.protection.protect)
    add("printWaterMark", print_watermarks)
    add("BrokerStats.record", stats.record)
    add("StatsItemSet sample minute", stats.sample_minute)
    add("StatsItemSet sample hour", stats.sample_hour)
    add("StatsItemSet sample day", stats.sample_day)
    add("StatsItemSet print minute", stats_log.print_minute)
    add("StatsItemSet print hour", stats_log.print_hour)
    add("StatsItemSet print day", stats_log.print_day)
    add("MomentStatsItemSet print", print_moments)
    add("StoreStatsService sample", store_metrics.sample)
    add("StoreStatsService print", turn_minute)


def follow_settings(serving: Serving) -> None:
    """Have the parts that keep a copy of a setting, or announce it, follow configuration changes."""
    tables, registration = serving.tables, serving.registration

    def changed(keys: frozenset[str]) -> None:
        tables.store.change_settings(tables.configuration.store_in_role())
        tables.limits.settings_changed()
        if any(key.startswith("quota") for key in keys):
            serving.quotas.settings_changed()
        if "brokerPermission" in keys:
            tables.metadata.topics.bump_version()
        if "preferredLeaderId" in keys and serving.group is not None:
            serving.group.prefer(tables.configuration.store.preferred_leader_id)
        if not keys.isdisjoint({"brokerPermission", "namesrvAddr"}):
            registration.register_all_soon()

    serving.update.on_change(changed)
