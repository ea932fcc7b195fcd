"""Parts: everything that one broker is made of, by name, and who handles which request.

This is the only place that knows all parts. They are made in the order in which they need each other, each gets by name
the few others that it needs, and none gets this object. Tables exist from the start; `build` makes what needs the
port or a client for the NameServers; `register` fills the processor tables; `start` begins what runs beside requests.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import structlog
import trio

from triomq.broker.acl.access_control import AccessControl
from triomq.broker.acl.access_table import DEFAULT_FILE, AccessTable
from triomq.broker.acl.errors import AclFileError
from triomq.broker.address_server import AddressServer
from triomq.broker.client_notifier import ClientNotifier
from triomq.broker.configuration import HA_PORT_DISTANCE, Configuration
from triomq.broker.configuration_update import ConfigurationUpdate
from triomq.broker.delay import DelayedDelivery, DelayOffsets
from triomq.broker.extensions import AccessValidator, Extensions
from triomq.broker.filters.bloom import BloomFilter
from triomq.broker.filters.selection import FilterChooser
from triomq.broker.limits import Limits
from triomq.broker.message_writer import MessageWriter
from triomq.broker.metrics.stats import BrokerStats
from triomq.broker.metrics.stats_log import StatsLog
from triomq.broker.metrics.store_metrics import StoreMetrics
from triomq.broker.metrics.watermark_log import WatermarkLog
from triomq.broker.offset_moved import OffsetMovedEvents
from triomq.broker.pools import Pools
from triomq.broker.processors.acl import AclProcessor
from triomq.broker.processors.client import ClientProcessor
from triomq.broker.processors.consume_admin import ConsumeAdminProcessor
from triomq.broker.processors.end_transaction import EndTransactionProcessor, ResumeCheckProcessor
from triomq.broker.processors.group_admin import GroupAdminProcessor
from triomq.broker.processors.offset_admin import OffsetAdminProcessor
from triomq.broker.processors.offsets import OffsetProcessor
from triomq.broker.processors.producer_admin import ProducerAdminProcessor
from triomq.broker.processors.pull import PullProcessor
from triomq.broker.processors.query import QueryProcessor
from triomq.broker.processors.queue_locks import QueueLockProcessor
from triomq.broker.processors.reply import ReplyProcessor
from triomq.broker.processors.reset import ResetProcessor
from triomq.broker.processors.runtime import RuntimeProcessor
from triomq.broker.processors.send import SendProcessor
from triomq.broker.processors.send_back import SendBackProcessor
from triomq.broker.processors.topic_admin import TopicAdminProcessor
from triomq.broker.protection import Protection
from triomq.broker.registration import Registration
from triomq.broker.replication.log_follower import LogFollower
from triomq.broker.replication.log_server import LogServer
from triomq.broker.replication.master_tables import MasterTables
from triomq.broker.runtime_info import RuntimeInfo
from triomq.broker.tables.client_channel import ClientChannel
from triomq.broker.tables.consumers import ConsumerTable
from triomq.broker.tables.filters import FilterTable
from triomq.broker.tables.groups import GroupTable
from triomq.broker.tables.offsets import OffsetTable
from triomq.broker.tables.producers import ProducerTable
from triomq.broker.tables.queue_locks import QueueLockTable
from triomq.broker.tables.stored_file import StoredFile
from triomq.broker.tables.topics import TopicTable, built_in_topics
from triomq.broker.tasks import Schedule
from triomq.broker.transactions import ProducerChecks, TransactionChecks, TransactionLog
from triomq.daemon.errors import StartError
from triomq.protocol.address import HostPort
from triomq.protocol.clock import NowMs
from triomq.protocol.codes import RequestCode
from triomq.remoting.client import RemotingClient
from triomq.remoting.connection import Connection
from triomq.remoting.processor_table import BeforeHook, Pool, Processor, ProcessorTable
from triomq.remoting.turn import Turn
from triomq.store.config import BrokerRole
from triomq.store.disk.files import Files
from triomq.store.disk.own_thread import Offload
from triomq.store.message_store import MessageStore

log = structlog.get_logger("triomq.broker.parts")


class Handles(Protocol):
    """A processor of several request codes."""

    def processors(self) -> dict[int, Processor]: ...


class Parts:
    """See the module's text. It also hears of connections, for the tables that remember them."""

    def __init__(
        self,
        configuration: Configuration,
        files: Files,
        offload: Offload | None,
        turn: Turn,
        now_ms: NowMs,
        extensions: Extensions | None = None,
    ) -> None:
        broker = configuration.broker
        self.extensions = extensions or Extensions()
        self.hooks = self.extensions.hooks()
        self.configuration = configuration
        self.turn = turn
        self.now_ms = now_ms
        self.pools = Pools(broker)
        store = MessageStore(configuration.store, now_ms=now_ms, files=files, offload=offload)
        self.store = self.extensions.wrap_store(store, configuration)
        config = Path(configuration.store.store_path_root_dir) / "config"

        def kept(name: str) -> StoredFile:
            return StoredFile(files, str(config / name))

        self.topics = TopicTable(
            kept("topics.json"),
            now_ms=now_ms,
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
        )
        self.groups = GroupTable(
            kept("subscriptionGroup.json"),
            now_ms=now_ms,
            auto_create=lambda: configuration.broker.auto_create_subscription_group,
        )
        lmq = configuration.store.enable_lmq
        self.offsets = OffsetTable(kept("lmqConsumerOffset.json" if lmq else "consumerOffset.json"), enable_lmq=lmq)
        self.filters = FilterTable(
            BloomFilter(broker.max_error_rate_of_bloom_filter, broker.expect_consumer_num_use_filter),
            kept("consumerFilter.json"),
            now_ms=now_ms,
            clean_after_ms=lambda: configuration.broker.filter_data_clean_time_span_ms,
        )
        if configuration.store.enable_consume_queue_ext:
            self.store.compute_bit_maps(self._bit_map)
        self.delay_offsets = DelayOffsets(kept("delayOffset.json"))
        self.notifier = ClientNotifier(configuration)
        self.producers = ProducerTable(now_ms)
        self.consumers = ConsumerTable(
            now_ms, on_change=self._group_changed, on_register=self.filters.register, on_gone=self.filters.group_gone
        )
        self.queue_locks = QueueLockTable(now_ms, expiry_ms=configuration.broker.queue_lock_lifetime_ms)
        self.stats = BrokerStats(broker.broker_cluster_name, now_ms=now_ms, detail=broker.enable_detail_stat)
        self.pace = StoreMetrics(self.stats, now_ms=now_ms)
        has_buffer = configuration.store.transient_store_pool_enable
        self.limits = Limits(
            configuration,
            self.pools,
            turn,
            has_stuck_buffer=(lambda: self.store.has_stuck_buffer) if has_buffer else None,
        )
        turn.before_flush(self.pace.timed(self.store.commit, self.limits.commit_took))
        self.schedule = Schedule(configuration, now_ms=now_ms)
        self.access = _access_table(configuration, now_ms) if broker.acl_enable else None

    def load_tables(self) -> None:
        """Topics, groups and offsets from the store's config directory; accounts from RocketMQ's home. Filters are
        loaded before the store, whose recovery asks them for bit maps."""
        for table in (self.topics, self.groups, self.offsets):
            table.load()
        if self.access is not None:
            try:
                self.access.load()
            except AclFileError as error:
                raise StartError(str(error)) from None

    def persist_tables(self) -> None:
        """What tasks write from time to time, for the last time."""
        self.offsets.persist()
        self.filters.persist()

    def build(self, port: int, client: RemotingClient) -> None:
        """The parts that need the port or a client of the NameServers."""
        configuration, store, now_ms = self.configuration, self.store, self.now_ms
        broker = configuration.broker
        self.host = HostPort(_literal(broker.broker_ip1), port)
        store_host = self.host.packed
        self.address = f"{broker.broker_ip1}:{port}"
        self.registration = Registration(
            configuration,
            self.topics,
            client,
            address=self.address,
            ha_address=f"{broker.broker_ip2}:{port + HA_PORT_DISTANCE}",
            address_server=AddressServer.from_properties(configuration.properties),
            on_master=self._master_known,
        )
        self.topics.on_change = self.registration.topic_changed
        self.topics.on_created_by_use = self.registration.register_soon
        self.log_server = LogServer(configuration, store)
        self.follower = LogFollower(configuration, store, on_cut=self.log_server.close_links)
        self.master_tables = MasterTables(
            client,
            self.topics,
            self.groups,
            self.offsets,
            self.delay_offsets,
            is_trusted=lambda: self.follower.agrees,
        )
        self.writer = MessageWriter(configuration, store, self.turn.wake, self.log_server, self.stats)
        self.send = SendProcessor(
            configuration,
            self.topics,
            self.groups,
            self.writer,
            self.stats,
            store_host=store_host,
            now_ms=now_ms,
            pool=self.pools.send,
            disk_text=lambda: store.refusal or "",
        )
        self.pull = PullProcessor(
            configuration,
            store,
            self.topics,
            self.groups,
            self.offsets,
            FilterChooser(configuration, self.consumers, self.groups, self.filters, now_ms=now_ms),
            self.stats,
            self.pace,
            pool=self.pools.pull,
            offset_moved=OffsetMovedEvents(self.writer, broker.broker_name, store_host, now_ms),
        )
        self.delivery = DelayedDelivery(
            configuration, store, self.writer, self.delay_offsets, now_ms=now_ms, stats=self.stats
        )
        self.transactions = self.extensions.wrap_transactions(
            TransactionLog(
                store,
                self.writer,
                self.topics,
                self.offsets,
                store_host=store_host,
                now_ms=now_ms,
                stats=self.stats,
            ),
            configuration,
        )
        self.producer_checks = ProducerChecks(self.producers, self.transactions)
        listener = self.extensions.wrap_listener(self.producer_checks, configuration)
        self.checks = TransactionChecks(configuration, self.transactions, listener, now_ms=now_ms)
        self.protection = Protection(configuration, store, self.offsets, self.groups, self.stats, now_ms=now_ms)
        self.update = ConfigurationUpdate(configuration, now_ms=now_ms)
        self.update.on_change(self._settings_changed)
        self._schedule_tasks()

    def register(self, table: ProcessorTable, fast_table: ProcessorTable) -> None:
        """Who handles what. The fast port takes everything but pulls, so that sends never wait behind them."""
        configuration, store, pools = self.configuration, self.store, self.pools
        both = (table, fast_table)
        send_back = SendBackProcessor(configuration, self.topics, self.groups, store, self.writer, self.stats)
        end_transaction = EndTransactionProcessor(configuration, self.transactions, pool=pools.transaction)
        for each in both:
            each.register(RequestCode.SEND_MESSAGE, self.send, pools.send)
            each.register(RequestCode.SEND_MESSAGE_V2, self.send, pools.send)
            each.register(RequestCode.SEND_BATCH_MESSAGE, self.send, pools.send)
            each.register(RequestCode.CONSUMER_SEND_MSG_BACK, send_back, pools.send)
            each.register(RequestCode.END_TRANSACTION, end_transaction, pools.transaction)
            each.register(RequestCode.RESUME_CHECK_HALF_MESSAGE, ResumeCheckProcessor(self.transactions), pools.admin)
        table.register(RequestCode.PULL_MESSAGE, self.pull, pools.pull)
        reply = ReplyProcessor(
            configuration,
            self.send,
            self.producers,
            self.writer,
            self.stats,
            store_host=self.host,
            now_ms=self.now_ms,
        )
        _register(both, reply, pools.reply)
        client = ClientProcessor(configuration, self.topics, self.groups, self.consumers, self.producers)
        _register(both, client, pools.client)
        for each in both:
            each.register(RequestCode.HEART_BEAT, client.heartbeat, pools.heartbeat)
        _register(both, OffsetProcessor(configuration, self.offsets, self.consumers, store), pools.consumer)
        _register(both, QueryProcessor(configuration, store), pools.query)
        consume_admin = ConsumeAdminProcessor(
            configuration,
            self.topics,
            self.groups,
            self.consumers,
            self.offsets,
            self.filters,
            store,
            self.stats,
            now_ms=self.now_ms,
            broker_addr=self.address,
        )
        for admin in (
            QueueLockProcessor(self.queue_locks),
            OffsetAdminProcessor(store, self.offsets, lambda: dict(self.delay_offsets.items())),
            TopicAdminProcessor(configuration, self.topics, store, self.stats, self.registration),
            GroupAdminProcessor(configuration, self.groups, self.offsets, self.stats),
            ProducerAdminProcessor(self.producers),
            ResetProcessor(configuration, self.topics, self.consumers, self.offsets, store),
            consume_admin,
            RuntimeProcessor(
                self.update,
                RuntimeInfo(configuration, store, self.stats, self.pace, pools, self.delivery.progress),
                self.stats,
                store,
            ),
        ):
            _register(both, admin, pools.admin)
        _register(both, AclProcessor(configuration, self.access, address=lambda: self.address), pools.admin)
        if self.access is not None:
            control = AccessControl(self.access)
            for each in both:
                each.before(control)
                for validator in self.extensions.access_validators:
                    each.before(_validation(validator))
        if self.hooks:
            for each in both:
                each.before(self.hooks.before)

    def start(self, background: trio.Nursery, ha_socket: socket.socket) -> None:
        """Everything that runs beside the requests. Slaves connect to `ha_socket`."""
        background.start_soon(self.log_server.run, ha_socket)
        background.start_soon(self.writer.run)
        background.start_soon(self.topics.run)
        background.start_soon(self.groups.run)
        background.start_soon(self.pull.long_polling.run)
        background.start_soon(self.registration.run)
        background.start_soon(self.notifier.run)
        background.start_soon(self.schedule.run)
        if self.access is not None:
            background.start_soon(self.access.run)
        if self.configuration.store.broker_role is BrokerRole.SLAVE:
            background.start_soon(self.follower.run)
        else:
            background.start_soon(self.delivery.run)
            background.start_soon(self.checks.run)

    def _schedule_tasks(self) -> None:
        """Who does what broker/tasks.py has a time for."""
        stats_log = StatsLog(self.stats)
        self._watermarks = WatermarkLog(self.pools, lambda: len(self.pull.long_polling))
        add = self.schedule.add
        add("persist consumerOffset.json", self.offsets.persist_offloaded)
        add("persist consumerFilter.json", self.filters.persist)
        add("ClientHousekeepingService", self._expire_clients)
        if self.configuration.store.broker_role is BrokerRole.SLAVE:
            add("SlaveSynchronize.syncAll", self.master_tables.sync)
        else:
            add("printMasterAndSlaveDiff", self.log_server.log_lag)
            add("half messages without a producer", self.producer_checks.log_unasked)
        add("registerBrokerAll", self.registration.register_all)
        add("update name server list", self.registration.update_nameservers)
        add("fetch name server list", self.registration.fetch_nameservers)
        add("protectBroker", self.protection.protect)
        add("printWaterMark", self._print_watermarks)
        add("BrokerStats.record", self.stats.record)
        add("StatsItemSet sample minute", self.stats.sample_minute)
        add("StatsItemSet sample hour", self.stats.sample_hour)
        add("StatsItemSet sample day", self.stats.sample_day)
        add("StatsItemSet print minute", stats_log.print_minute)
        add("StatsItemSet print hour", stats_log.print_hour)
        add("StatsItemSet print day", stats_log.print_day)
        add("MomentStatsItemSet print", self._print_moments)
        add("StoreStatsService sample", self.pace.sample)
        add("StoreStatsService print", self.pace.turn_minute)

    def _settings_changed(self, keys: frozenset[str]) -> None:
        """What an administrator changed at run time, for the parts that keep a copy or tell others."""
        self.store.change_settings(self.configuration.store)
        self.limits.settings_changed()
        if "brokerPermission" in keys:
            self.topics.bump_version()
        if not keys.isdisjoint({"brokerPermission", "namesrvAddr"}):
            self.registration.register_all_soon()

    async def _print_moments(self) -> None:
        await self.protection.measure()
        await StatsLog(self.stats).print_moments()

    def _bit_map(self, topic: str, stored_properties: bytes) -> bytes | None:
        """The bit map of a message for its ext unit, as long as enableCalcFilterBitMap says so."""
        if not self.configuration.broker.enable_calc_filter_bit_map:
            return None
        return self.filters.stored_bit_map(topic, stored_properties)

    def _print_watermarks(self) -> None:
        self._watermarks.print()
        self.limits.log_refusals()

    def _master_known(self, address: str | None, ha_address: str | None) -> None:
        """A NameServer told this slave of its master."""
        self.master_tables.master_known(address)
        self.follower.master_known(ha_address)

    def _expire_clients(self) -> None:
        self.producers.expire()
        self.consumers.expire()

    def time_jumped(self, seconds: float) -> None:
        """The clock jumped ahead (only where a test owns it); what is about clients counts their time."""
        self.producers.time_jumped(seconds)
        self.consumers.time_jumped(seconds)
        self.queue_locks.time_jumped(seconds)
        self.pull.long_polling.time_jumped(seconds)

    def _group_changed(self, group: str, members: list[ClientChannel]) -> None:
        config = self.groups.get(group)
        if config is None or config.notify_consumer_ids_changed_enable:
            self.notifier.consumer_ids_changed(group, members)

    # Comings and goings of clients (remoting.connection.ConnectionEvents).

    def connection_opened(self, connection: Connection) -> None:
        if self.hooks:
            connection.on_answer = self.hooks.answered

    def connection_closed(self, connection: Connection) -> None:
        """A client is gone: it is no member of any group any more, and nobody waits for its pulls."""
        self.producers.connection_closed(connection)
        self.consumers.connection_closed(connection)
        self.pull.long_polling.connection_closed(connection)


def _register(tables: Iterable[ProcessorTable], part: Handles, pool: Pool) -> None:
    for code, processor in part.processors().items():
        for table in tables:
            table.register(code, processor, pool)


def _validation(validator: AccessValidator) -> BeforeHook:
    return lambda connection, request: validator.validate(connection.remote, request)


def _access_table(configuration: Configuration, now_ms: NowMs) -> AccessTable:
    default_file = configuration.properties.get("rocketmq.acl.plain.file") or DEFAULT_FILE
    return AccessTable(Path(configuration.broker.rocketmq_home or "."), now_ms=now_ms, default_file=default_file)


def _literal(host: str) -> str:
    """brokerIP1 may be a name; records hold an address."""
    try:
        return HostPort(host, 0).ip
    except ValueError:
        try:
            return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
        except OSError as error:
            raise StartError(f"brokerIP1={host} is no address and does not resolve: {error.strerror}") from None
