"""Tables: the parts of a broker that exist before it has a port, a loaded store or a connection.

`build_tables` makes the parts that only need the configuration and the seams to the operating system: the store (not
yet loaded), the tables, the pools, the limits and the statistics. Nothing here awaits; `load_tables` and
`persist_tables` read and write files. The remaining parts are in serving.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import structlog
import trio
from msgspec import Struct

from triomq.broker import optional
from triomq.broker.acl.errors import AclFileError
from triomq.broker.acl.names import DEFAULT_FILE
from triomq.broker.assembly.listeners import Listeners
from triomq.broker.client_notifier import ClientNotifier
from triomq.broker.configuration import Configuration
from triomq.broker.departures import Departures
from triomq.broker.extensions import Extensions
from triomq.broker.filters.bloom import BloomFilter
from triomq.broker.hooks import Hooks
from triomq.broker.limits import Limits
from triomq.broker.metrics.latencies import Latencies
from triomq.broker.metrics.stats import MAX_FLOWS, BrokerStats
from triomq.broker.metrics.store_metrics import StoreMetrics
from triomq.broker.pools import Pools
from triomq.broker.quotas.overrides import Overrides
from triomq.broker.replication.copied import COPIED_FILE, decode_copied
from triomq.broker.tables import entry_costs
from triomq.broker.tables.built_in_topics import built_in_topics
from triomq.broker.tables.client_channel import ClientChannel
from triomq.broker.tables.consumers import ConsumerTable, GroupChanged
from triomq.broker.tables.delay_offsets import DelayOffsets
from triomq.broker.tables.filters import FilterTable
from triomq.broker.tables.groups import GroupTable
from triomq.broker.tables.metadata import Metadata
from triomq.broker.tables.offsets import OffsetTable
from triomq.broker.tables.producers import ProducerTable
from triomq.broker.tables.queue_locks import QueueLockTable
from triomq.broker.tables.request_modes import RequestModes
from triomq.broker.tables.stored_file import StoredFile
from triomq.broker.tables.topics import TopicTable
from triomq.daemon.errors import StartError
from triomq.daemon.stopping import Stopping
from triomq.protocol.clock import NowMs
from triomq.protocol.stored_properties import StoredProperties
from triomq.remoting.table_memory import TableMemory
from triomq.remoting.turn import Turn
from triomq.store.disk.files import Files
from triomq.store.disk.worker_thread import Offload
from triomq.store.message_store import DefaultMessageStore

if TYPE_CHECKING:
    from triomq.broker.acl.access_table import AccessTable
    from triomq.broker.group.log import GroupStore
    from triomq.broker.spans.puts import Spans

log = structlog.get_logger("triomq.broker.tables")

FLOWS_SHARE = 8
"""The part of the tables' memory that statistics may take: beyond it new topics and groups are not counted."""


class Surroundings(Struct, frozen=True):
    """What a broker receives from outside: its configuration, the end of a turn, clocks, the seams to the
    system, and what its tables may take."""

    configuration: Configuration
    turn: Turn
    now_ms: NowMs
    files: Files
    offload: Offload | None
    extensions: Extensions
    table_memory: TableMemory = msgspec.field(default_factory=TableMemory)
    spans: Spans | None = None
    """What makes the broker's own spans; None without tracesEndpoint."""

    @property
    def in_thread(self) -> Offload:
        return self.offload or trio.to_thread.run_sync


class Tables(Struct, frozen=True):
    """See the module's docstring. `access` is None without aclEnable."""

    surroundings: Surroundings
    hooks: Hooks
    pools: Pools
    store: DefaultMessageStore
    metadata: Metadata
    delay_offsets: DelayOffsets
    queue_locks: QueueLockTable
    notifier: ClientNotifier
    stats: BrokerStats
    store_metrics: StoreMetrics
    latencies: Latencies
    limits: Limits
    access: AccessTable | None
    listeners: Listeners
    quota_overrides: Overrides
    request_modes: RequestModes
    departures: Departures
    group: GroupStore | None
    """The log of this broker's group; None without enableDLegerCommitLog."""
    absent: list[str] = msgspec.field(default_factory=list)
    """Files of tables that were absent at the start although the log has messages."""

    @property
    def configuration(self) -> Configuration:
        return self.surroundings.configuration

    @property
    def now_ms(self) -> NowMs:
        return self.surroundings.now_ms

    def absent_values(self) -> dict[str, str]:
        """Return the absent files as runtime information has them; nothing without any."""
        return {"absentTables": ",".join(self.absent)} if self.absent else {}


def build_tables(surroundings: Surroundings) -> Tables:
    """Build everything that needs no port. Nothing is written yet."""
    configuration = surroundings.configuration
    now_ms = surroundings.now_ms
    turn = surroundings.turn
    broker = configuration.broker
    pools = Pools(broker, turn.time)
    group = _group_store(surroundings)
    store = surroundings.extensions.wrap_store(
        DefaultMessageStore(
            group.settings(configuration.store_in_role()) if group is not None else configuration.store,
            now_ms=now_ms,
            files=surroundings.files,
            offload=surroundings.offload,
            make_log=group.make_log if group is not None else None,
        ),
        configuration,
    )
    notifier = ClientNotifier(configuration)
    metadata = _metadata(surroundings, store, notifier)
    if configuration.store.enable_consume_queue_ext:
        compute_bit_maps(configuration, store, metadata.filters)
    memory = surroundings.table_memory
    most_flows = min(MAX_FLOWS, memory.limit_bytes // FLOWS_SHARE // entry_costs.FLOW)
    stats = BrokerStats(
        broker.broker_cluster_name, now_ms=now_ms, detail=broker.enable_detail_stat, max_flows=most_flows
    )
    store_metrics = StoreMetrics(stats, now_ms=now_ms)
    latencies = Latencies()
    store.observe_syncs(latencies.synced)
    has_buffer = configuration.store.transient_store_pool_enable
    limits = Limits(configuration, pools, turn, stuck_buffer=(lambda: store.stuck_buffer) if has_buffer else None)
    turn.before_flush(store_metrics.timed(store.commit, limits.commit_took, turn.current_time))
    tables = Tables(
        surroundings,
        surroundings.extensions.hooks(),
        pools,
        store,
        metadata,
        DelayOffsets(kept(surroundings, "delayOffset.json"), covered=store.cover, offload=surroundings.in_thread),
        QueueLockTable(
            now_ms,
            file=kept(surroundings, "queueLocks.json"),
            expiry_ms=broker.queue_lock_lifetime_ms,
            account=memory.account("queue locks"),
        ),
        notifier,
        stats,
        store_metrics,
        latencies,
        limits,
        access_table(configuration, now_ms) if broker.acl_enable else None,
        Listeners(),
        Overrides(kept(surroundings, "quotas.json")),
        RequestModes(kept(surroundings, "messageRequestMode.json"), account=memory.account("request modes")),
        Departures(metadata.producers, metadata.consumers),
        group,
    )
    _listen(tables)
    return tables


def _group_store(surroundings: Surroundings) -> GroupStore | None:
    configuration = surroundings.configuration
    if configuration.group is None:
        return None
    return optional.group_log.GroupStore(configuration, configuration.group, surroundings.files)


def load_tables(tables: Tables) -> None:
    """Read all tables of the store's config directory. This is done before the store is opened: its recovery asks the
    filters for bit maps, and lets queues begin behind what the offsets say. Raises StoreRefused for one that cannot be
    read."""
    metadata = tables.metadata
    for table in (metadata.topics, metadata.groups, metadata.offsets, metadata.filters, tables.delay_offsets):
        table.load()
    tables.queue_locks.load()
    tables.quota_overrides.load()
    tables.request_modes.load()
    kept(tables.surroundings, COPIED_FILE).load(decode_copied)
    tables.absent.extend(name for name in _of_clients(tables) if kept(tables.surroundings, name).is_absent)


def warn_of_absent_tables(tables: Tables) -> None:
    """Warn of tables that were absent although the log has messages. They are written now: a table that is absent later
    was lost."""
    if tables.store.reading.max_physical_offset <= 0:
        tables.absent.clear()
    for name in tables.absent:
        _of_clients(tables)[name].mark_unsaved()
        log.warning(
            "file of a table not found beside a log with messages; the table starts empty",
            path=f"{tables.store.paths.config}/{name}",
        )


def _of_clients(tables: Tables) -> dict[str, TopicTable | GroupTable | OffsetTable]:
    """Return file -> table, of those that every broker with clients has."""
    metadata = tables.metadata
    return {
        "topics.json": metadata.topics,
        "subscriptionGroup.json": metadata.groups,
        _offset_file(tables.configuration): metadata.offsets,
    }


def load_accounts(tables: Tables) -> None:
    """Read the accounts from RocketMQ's home. Raises StartError."""
    if tables.access is not None:
        try:
            tables.access.load()
        except AclFileError as error:
            raise StartError(str(error)) from None


async def persist_tables(tables: Tables, stopping: Stopping) -> None:
    """Write the tables that tasks write periodically, for the last time. A store that has failed covers no offsets, so
    those stay as they are, and after the next start groups consume some messages again."""
    with stopping.part("the consumer offsets"):
        await tables.metadata.offsets.persist()
    with stopping.part("the delay offsets"):
        await tables.delay_offsets.persist()
    with stopping.part("the filters"):
        tables.metadata.filters.persist()


async def save_tables(tables: Tables) -> None:
    """Write what has changed so far in the tables that go through the log of a group. Raises OSError."""
    metadata = tables.metadata
    for background in (
        *(metadata.topics, metadata.groups),
        *(tables.quota_overrides, tables.queue_locks, tables.request_modes),
    ):
        await background.wait_written()
    if not await tables.store.cover():
        raise OSError(tables.store.refusal or "the log is not on the disk")
    await metadata.offsets.save()
    await tables.delay_offsets.save()


def are_saved(tables: Tables) -> bool:
    """Return whether the files of the tables have all changes."""
    metadata = tables.metadata
    written = (
        *(metadata.topics.is_written, metadata.groups.is_written, metadata.offsets.is_written),
        *(tables.delay_offsets.is_written, tables.quota_overrides.is_written, tables.queue_locks.is_written),
        tables.request_modes.is_written,
    )
    return all(written)


def compute_bit_maps(configuration: Configuration, store: DefaultMessageStore, filters: FilterTable) -> None:
    """Store the bit map of the filters that a message passes in its ext unit, while enableCalcFilterBitMap is on."""

    def bit_map(topic: str, properties: StoredProperties) -> bytes | None:
        if not configuration.broker.enable_calc_filter_bit_map:
            return None
        return filters.stored_bit_map(topic, properties)

    store.compute_bit_maps(bit_map)


def kept(surroundings: Surroundings, name: str) -> StoredFile:
    """Return a file of the store's config directory."""
    config = Path(surroundings.configuration.store.store_path_root_dir) / "config"
    takes_loss = surroundings.configuration.broker.start_without_unreadable_tables
    return StoredFile(surroundings.files, str(config / name), takes_loss=takes_loss)


def _offset_file(configuration: Configuration) -> str:
    return "lmqConsumerOffset.json" if configuration.store.enable_lmq else "consumerOffset.json"


def _metadata(surroundings: Surroundings, store: DefaultMessageStore, notifier: ClientNotifier) -> Metadata:
    configuration, now_ms = surroundings.configuration, surroundings.now_ms
    broker, memory = configuration.broker, surroundings.table_memory
    groups = GroupTable(
        kept(surroundings, "subscriptionGroup.json"),
        now_ms=now_ms,
        auto_create=lambda: configuration.broker.auto_create_subscription_group,
        max_table_bytes=lambda: configuration.broker.max_group_table_bytes,
    )
    groups.count_on(memory.account("subscription groups"))
    filters = FilterTable(
        BloomFilter(broker.max_error_rate_of_bloom_filter, broker.expect_consumer_num_use_filter),
        kept(surroundings, "consumerFilter.json"),
        now_ms=now_ms,
        clean_after_ms=lambda: configuration.broker.filter_data_clean_time_span_ms,
        account=memory.account("SQL92 filters"),
    )
    topics = _topics(surroundings, store)
    topics.count_on(memory.account("topics"))
    lmq = configuration.store.enable_lmq
    return Metadata(
        topics=topics,
        groups=groups,
        consumers=ConsumerTable(
            now_ms,
            on_change=_group_changed(groups, notifier),
            on_register=filters.register,
            on_gone=filters.group_gone,
            account=memory.account("consumers"),
        ),
        producers=ProducerTable(now_ms, account=memory.account("producers")),
        offsets=OffsetTable(
            kept(surroundings, _offset_file(surroundings.configuration)),
            enable_lmq=lmq,
            max_table_bytes=lambda: configuration.broker.max_offset_table_bytes,
            account=memory.account("consumer offsets"),
            covered=store.cover,
            offload=surroundings.in_thread,
        ),
        filters=filters,
    )


def _topics(surroundings: Surroundings, store: DefaultMessageStore) -> TopicTable:
    configuration = surroundings.configuration
    broker = configuration.broker

    async def covered() -> bool:
        await store.cover()
        return True  # a store that takes nothing more keeps no topic from its file

    return TopicTable(
        kept(surroundings, "topics.json"),
        now_ms=surroundings.now_ms,
        built_in=built_in_topics(
            cluster=broker.broker_cluster_name,
            broker_name=broker.broker_name,
            default_queue_count=broker.default_topic_queue_nums,
            auto_create=broker.auto_create_topic_enable,
            cluster_topic_enable=broker.cluster_topic_enable,
            broker_topic_enable=broker.broker_topic_enable,
            trace_topic=broker.msg_trace_topic_name if broker.trace_topic_enable else None,
        ),
        auto_create=lambda: configuration.broker.auto_create_topic_enable,
        covered=covered,
        max_table_bytes=lambda: configuration.broker.max_topic_table_bytes,
    )


def _group_changed(groups: GroupTable, notifier: ClientNotifier) -> GroupChanged:
    def changed(group: str, members: list[ClientChannel]) -> None:
        config = groups.get(group)
        if config is None or config.notify_consumer_ids_changed_enable:
            notifier.consumer_ids_changed(group, members)

    return changed


def access_table(configuration: Configuration, now_ms: NowMs) -> AccessTable:
    """Return the table of the access control files that the configuration names; nothing is read yet."""
    default_file = configuration.properties.get("rocketmq.acl.plain.file") or DEFAULT_FILE
    home = Path(configuration.broker.rocketmq_home or ".")
    return optional.access_table.AccessTable(home, now_ms=now_ms, default_file=default_file)


def _listen(tables: Tables) -> None:
    """Register the clients' tables for closed connections and for jumps of the clock."""
    listeners = tables.listeners
    metadata = tables.metadata
    hooks = tables.hooks
    if hooks:
        listeners.on_open(hooks.opened)
    listeners.on_close(tables.departures.connection_closed)
    for table in (metadata.producers, metadata.consumers, tables.queue_locks):
        listeners.on_jump(table.time_jumped)
