"""Serving: the parts of a broker that exist once it has its port and its store is loaded.

`build_serving` makes the parts that need the port or a client for the NameServers, in order of dependency. `start`
starts the background tasks; events.py has who tells whom, processors.py which part handles which request, timetable.py
what runs periodically.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import trio
from msgspec import Struct

from triomq.broker import optional
from triomq.broker.acl.names import TOOLS_FILE
from triomq.broker.assembly.pop_on_demand import PopOnDemand
from triomq.broker.assembly.tables import Tables, kept
from triomq.broker.configuration import HA_PORT_DISTANCE, Configuration
from triomq.broker.configuration_update import ConfigurationUpdate, KeptValue
from triomq.broker.delay import DelayedDelivery
from triomq.broker.message_writer import MessageWriter
from triomq.broker.nameservers.address_server import AddressServer
from triomq.broker.nameservers.nameserver_list import NameServerList
from triomq.broker.nameservers.registration import Registration
from triomq.broker.processors.pull import PullProcessor
from triomq.broker.processors.send import SendProcessor
from triomq.broker.protection import Protection
from triomq.broker.pulls.offset_moved import OffsetMovedEvents
from triomq.broker.pulls.selection import FilterChooser
from triomq.broker.quotas.overrides import KEY as QUOTA_OVERRIDES
from triomq.broker.quotas.quotas import Quotas
from triomq.broker.replication.copied import COPIED_FILE, CopiedPart
from triomq.broker.replication.ha_tls import HaTls
from triomq.broker.replication.log_follower import LogFollower
from triomq.broker.replication.log_server import LogServer
from triomq.broker.replication.master_account import MasterAccount
from triomq.broker.replication.master_tables import MasterTables
from triomq.broker.replication.queue_ends import QueueEnds
from triomq.broker.replication.slave_access import SlaveAccess
from triomq.broker.tasks import Schedule
from triomq.broker.topic_deletion import TopicDeletion
from triomq.broker.transactions.interfaces import TransactionStore
from triomq.broker.transactions.producer_checks import ProducerChecks, TransactionChecks
from triomq.broker.transactions.transactions import TransactionLog
from triomq.broker.undeliverable import Undeliverable
from triomq.daemon.errors import StartError
from triomq.protocol.address import HostPort
from triomq.remoting import network
from triomq.remoting.client import RemotingClient
from triomq.remoting.tls import TlsError, TlsSettings
from triomq.store.message_store import DefaultMessageStore

if TYPE_CHECKING:
    from triomq.broker.acl.access_control import AccessControl
    from triomq.broker.group.roles import GroupRoles


class Replication(Struct, frozen=True):
    """Both sides: a master serves its log, a slave follows one and copies its tables."""

    access: SlaveAccess
    tls: HaTls
    log_server: LogServer
    follower: LogFollower
    master_tables: MasterTables


class Transactions(Struct, frozen=True):
    """The store of half messages, the listener that asks their producers, and the check task."""

    log: TransactionStore
    producer_checks: ProducerChecks
    checks: TransactionChecks


class Serving(Struct, frozen=True):
    """See the module's docstring. `host` is the store host of the broker's messages. `access_control` is None without
    aclEnable."""

    tables: Tables
    access_control: AccessControl | None
    host: HostPort
    registration: Registration
    replication: Replication
    writer: MessageWriter
    send: SendProcessor
    pull: PullProcessor
    pop: PopOnDemand
    undeliverable: Undeliverable
    delivery: DelayedDelivery
    transactions: Transactions
    protection: Protection
    quotas: Quotas
    update: ConfigurationUpdate
    schedule: Schedule
    group: GroupRoles | None
    """This broker as a member of a DLedger group; None without enableDLegerCommitLog."""
    nameservers: NameServerList
    client: RemotingClient
    """For calls to NameServers and other brokers."""
    closed_ports: list[str] = msgspec.field(default_factory=list)
    """Why metricsPort or dashboardPort could not be opened, a sentence for each."""

    @property
    def store(self) -> DefaultMessageStore:
        return self.tables.store

    @property
    def address(self) -> str:
        """Return the address that the broker registers, "ip:port"."""
        return f"{self.tables.configuration.broker.broker_ip1}:{self.host.port}"

    async def prepare(self) -> None:
        """Do what a master must have done before requests arrive. In a group that is done when this broker leads."""
        if self.group is not None:
            await self.group.table_log.load()
        elif not self.tables.configuration.role.is_slave:
            metadata = self.tables.metadata
            copied = self.replication.follower.copied
            if copied.is_known():
                metadata.offsets.set_back(self.store.reading.max_offset)
                await metadata.offsets.save()  # before this broker forgets that it was a slave
                copied.leads()
            await TopicDeletion(metadata.topics, metadata.offsets, self.store).complete()
            self.tables.request_modes.keep_only(
                lambda topic: metadata.topics.get(topic) is not None,
                lambda group: metadata.groups.get(group) is not None,
            )
            await self.transactions.log.load()
        await self.pop.load()

    def start(self, background: trio.Nursery, ha_port: network.Listening | None) -> None:
        """Start the background tasks. Slaves connect to `ha_port`; a member of a group has none."""
        tables = self.tables
        if ha_port is not None:
            background.start_soon(self.replication.tls.watch)
            background.start_soon(self.replication.log_server.run, ha_port)
        background.start_soon(self.writer.run)
        background.start_soon(tables.metadata.topics.run)
        background.start_soon(tables.metadata.groups.run)
        background.start_soon(tables.metadata.topics.new_names.run, self.registration.in_routes)
        background.start_soon(tables.metadata.groups.new_names.run)
        background.start_soon(tables.queue_locks.run)
        background.start_soon(tables.quota_overrides.run)
        background.start_soon(tables.request_modes.run)
        background.start_soon(self.pull.long_polling.run)
        self.pop.start(background)
        background.start_soon(self.registration.run)
        background.start_soon(tables.notifier.run)
        background.start_soon(tables.departures.run)
        background.start_soon(self.schedule.run)
        if tables.access is not None:
            background.start_soon(tables.access.run)
        if self.group is not None:
            return  # its tasks come and go with its role
        if tables.configuration.role.is_slave:
            background.start_soon(self.replication.follower.run)
            background.start_soon(self.replication.master_tables.run, tables.store)
        else:
            background.start_soon(self.delivery.run, tables.surroundings.turn)
            background.start_soon(self.transactions.checks.run)


def build_serving(tables: Tables, port: int, client: RemotingClient) -> Serving:
    """Build the rest of a broker that listens on `port`. Raises StartError if brokerIP1 is not an address."""
    configuration = tables.configuration
    now_ms = tables.now_ms
    store = tables.store
    metadata = tables.metadata
    broker = configuration.broker
    host = HostPort(literal(broker.broker_ip1), port)
    nameservers = NameServerList(configuration, AddressServer.from_properties(configuration.properties))
    replication = _replication(tables, client, nameservers)
    writer = _writer(tables, replication)
    send = SendProcessor(
        configuration,
        metadata,
        writer,
        tables.stats,
        store_host=host.packed,
        now_ms=now_ms,
        pool=tables.pools.send,
    )
    filters = _filters(tables)
    pull = _pull(tables, filters, OffsetMovedEvents(writer, broker.broker_name, host.packed, now_ms))
    access_control = _access_control(tables)
    undeliverable = Undeliverable(writer, metadata.topics)
    registration = _registration(tables, client, nameservers, replication, port)
    transactions = _transactions(tables, writer, undeliverable, host.packed, access_control)
    delivery = _delivery(tables, writer, undeliverable)
    group = _group(tables, registration, replication, transactions, delivery, host)
    return Serving(
        tables=tables,
        access_control=access_control,
        host=host,
        registration=registration,
        replication=replication,
        writer=writer,
        send=send,
        pull=pull,
        pop=PopOnDemand(tables, pull, filters, writer),
        undeliverable=undeliverable,
        delivery=delivery,
        transactions=transactions,
        protection=Protection(configuration, store, metadata.offsets, metadata.groups, tables.stats, now_ms=now_ms),
        quotas=_quotas(tables, access_control, pull),
        update=_update(tables, group),
        schedule=Schedule(configuration, now_ms=now_ms, woke_late=tables.latencies.woke_late),
        group=group,
        nameservers=nameservers,
        client=client,
    )


def _writer(tables: Tables, replication: Replication) -> MessageWriter:
    surroundings = tables.surroundings
    new_topics = tables.metadata.topics.new_names
    parts = tables.configuration, tables.store, surroundings.turn.wake, replication.log_server, tables.stats, new_topics
    if surroundings.spans is None:
        return MessageWriter(*parts)
    return optional.traced_puts.TracingWriter(*parts, spans=surroundings.spans)


def _filters(tables: Tables) -> FilterChooser:
    metadata = tables.metadata
    return FilterChooser(
        tables.configuration,
        metadata.consumers,
        metadata.groups,
        metadata.filters,
        now_ms=tables.now_ms,
        account=tables.surroundings.table_memory.account("compiled filters"),
    )


def _pull(tables: Tables, filters: FilterChooser, offset_moved: OffsetMovedEvents) -> PullProcessor:
    configuration, metadata, spans = tables.configuration, tables.metadata, tables.surroundings.spans
    parts = configuration, tables.store, metadata, filters, tables.stats, tables.store_metrics
    pool = tables.pools.pull
    if spans is None:
        pull = PullProcessor(*parts, pool=pool, offset_moved=offset_moved)
    else:
        pull = optional.traced_pulls.TracingPulls(*parts, pool=pool, offset_moved=offset_moved, spans=spans)
    tables.listeners.on_close(pull.long_polling.connection_closed)
    tables.listeners.on_jump(pull.long_polling.time_jumped)
    return pull


def _group(
    tables: Tables,
    registration: Registration,
    replication: Replication,
    transactions: Transactions,
    delivery: DelayedDelivery,
    host: HostPort,
) -> GroupRoles | None:
    settings = tables.configuration.group
    if settings is None or tables.group is None:
        return None
    as_master = [delivery.run, transactions.checks.run]
    return optional.group.build_group(
        tables, settings, tables.group, registration, replication.master_tables, transactions.log, as_master, host
    )


def _update(tables: Tables, group: GroupRoles | None) -> ConfigurationUpdate:
    kept_values: dict[str, KeptValue] = {QUOTA_OVERRIDES: tables.quota_overrides}
    if group is not None:
        kept_values |= optional.group.leadership_of(group)
    return ConfigurationUpdate(tables.configuration, now_ms=tables.now_ms, kept=kept_values)


def _delivery(tables: Tables, writer: MessageWriter, undeliverable: Undeliverable) -> DelayedDelivery:
    return DelayedDelivery(
        tables.configuration,
        tables.store,
        writer,
        tables.delay_offsets,
        tables.metadata.topics,
        undeliverable,
        now_ms=tables.now_ms,
        stats=tables.stats,
    )


def _registration(
    tables: Tables, client: RemotingClient, nameservers: NameServerList, replication: Replication, port: int
) -> Registration:
    configuration = tables.configuration
    broker = configuration.broker

    def master_known(address: str | None, ha_address: str | None) -> None:
        replication.master_tables.master_known(address)
        replication.follower.master_known(ha_address)

    return Registration(
        configuration,
        tables.metadata.topics,
        client,
        address=f"{broker.broker_ip1}:{port}",
        ha_address=f"{broker.broker_ip2}:{port + HA_PORT_DISTANCE}",
        nameservers=nameservers,
        on_master=master_known,
        is_held=tables.group is not None,
    )


def account_of(tables: Tables) -> MasterAccount:
    """Return the account of this broker at others."""
    home = Path(tables.configuration.broker.rocketmq_home or ".")
    return MasterAccount(home / TOOLS_FILE, tables.now_ms)


def _replication(tables: Tables, client: RemotingClient, nameservers: NameServerList) -> Replication:
    metadata = tables.metadata
    access = SlaveAccess(tables.configuration, client.invoke, nameservers.addresses)
    tls = _ha_tls(tables.configuration)
    log_server = LogServer(tables.configuration, tables.store, access, tls.accept if tls.accepts_tls else None)
    copied = CopiedPart(kept(tables.surroundings, COPIED_FILE))
    follower = LogFollower(
        tables.configuration, tables.store, tls.connect, copied=copied, on_cut=log_server.close_links
    )
    master_tables = MasterTables(
        client,
        metadata.topics,
        metadata.groups,
        metadata.offsets,
        tables.delay_offsets,
        is_trusted=lambda: tables.group is not None or follower.agrees,
        sign=account_of(tables).sign,
        ends=QueueEnds(metadata.topics, tables.store),
    )
    return Replication(access, tls, log_server, follower, master_tables)


def _ha_tls(configuration: Configuration) -> HaTls:
    tls = TlsSettings.from_values(configuration.properties)
    try:
        return HaTls(configuration.ha_tls, tls, is_slave=configuration.role.is_slave)
    except TlsError as error:
        raise StartError(f"TLS of the HA port: {error}") from None


def _access_control(tables: Tables) -> AccessControl | None:
    if tables.access is None:
        return None
    return optional.access_control.build_access_control(tables.access, tables.configuration, tables.now_ms)


def _quotas(tables: Tables, access: AccessControl | None, pull: PullProcessor) -> Quotas:
    groups = tables.metadata.groups
    quotas = Quotas(
        tables.configuration,
        tables.quota_overrides,
        account_of=access.account_of if access is not None else None,
        knows_group=lambda group: groups.get(group) is not None,
        clock=trio.current_time,
    )
    tables.listeners.on_close(quotas.connection_closed)
    quotas.on_change(lambda: pull.use_quotas(quotas if quotas.is_on else None))
    return quotas


def _transactions(
    tables: Tables,
    writer: MessageWriter,
    undeliverable: Undeliverable,
    store_host: bytes,
    access: AccessControl | None,
) -> Transactions:
    configuration = tables.configuration
    extensions = tables.surroundings.extensions
    metadata = tables.metadata
    log = extensions.wrap_transactions(
        TransactionLog(
            tables.store,
            writer,
            metadata.topics,
            metadata.offsets,
            undeliverable,
            store_host=store_host,
            now_ms=tables.now_ms,
            stats=tables.stats,
        ),
        configuration,
    )
    producer_checks = ProducerChecks(metadata.producers, log, access.may_send if access is not None else None)
    listener = extensions.wrap_listener(producer_checks, configuration)
    return Transactions(log, producer_checks, TransactionChecks(configuration, log, listener, now_ms=tables.now_ms))


def literal(host: str) -> str:
    """Return an address for brokerIP1, which may be a name; records hold an address."""
    try:
        return HostPort(host, 0).ip
    except ValueError:
        try:
            return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
        except OSError as error:
            raise StartError(f"brokerIP1={host} is not an address and does not resolve: {error.strerror}") from None
