"""Configuration: all settings records of a running broker, with one owner.

The records are frozen and an update replaces them. A part that must see changes at run time keeps this object and reads
through it, never a copy of a record. Only the event loop touches it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from triomq.broker import optional
from triomq.broker.config import BrokerSettings
from triomq.broker.role import Role
from triomq.broker.settings.ha_tls import HaTlsSettings
from triomq.broker.settings.quotas import default_allowances
from triomq.daemon.configuration import ConfigurationLayers, similar_names
from triomq.protocol.command import JSON, ROCKETMQ
from triomq.protocol.settings import SettingError, bind, declarations
from triomq.remoting.config import ClientSettings, ServerSettings
from triomq.remoting.member_tls import MemberTlsSettings
from triomq.remoting.tls import TlsSettings
from triomq.store.config import BrokerRole, StoreSettings

if TYPE_CHECKING:
    from triomq.broker.settings.group import GroupSettings

BROKER_PORT = 10911
GRPC_PORT = 8081
"""Where mqbroker serves gRPC clients unless its configuration says otherwise; an embedded broker does not."""
HA_PORT_DISTANCE = 1
"""Slaves connect to the port one above the broker's."""
LAST_PORT = 65535
FAST_PORT_DISTANCE = -2
"""The fast port (VIP channel) is two below the broker's; it serves the same requests except pulls."""


@dataclass
class Configuration:
    """The four settings records of RocketMQ's broker. unknown: keys of the file that no record has. path: that file.
    properties: all configured values, system properties included, for parts that read their own (TLS). ha_tls: the keys
    for TLS of the HA port, which are TrioMQ's own."""

    broker: BrokerSettings = field(default_factory=BrokerSettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    server: ServerSettings = field(default_factory=lambda: ServerSettings(listen_port=BROKER_PORT))
    client: ClientSettings = field(default_factory=ClientSettings)
    unknown: dict[str, str] = field(default_factory=dict)
    path: Path | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    ha_tls: HaTlsSettings = field(default_factory=HaTlsSettings)
    member_tls: MemberTlsSettings = field(default_factory=MemberTlsSettings)
    is_grpc_port_chosen: bool = True
    """Whether the configuration says grpcServerPort. A default port that is taken, by another broker of this machine,
    does not keep a broker from its start."""
    group: GroupSettings | None = None
    """The DLedger group that the broker is a member of."""
    role: Role = field(init=False)
    """What the broker is at present; in a group that is not what the records say."""

    def __post_init__(self) -> None:
        self.role = Role(self.store.broker_role, self.broker.broker_id)

    @classmethod
    def from_layers(cls, layers: ConfigurationLayers) -> Configuration:
        """Bind RocketMQ's keys. Raises SettingError naming source, key and reason."""
        configuration = cls(
            layers.bind(BrokerSettings),
            layers.bind(StoreSettings),
            layers.bind(ServerSettings),
            layers.bind(ClientSettings),
            path=layers.file,
            properties=layers.values,
            ha_tls=layers.read(HaTlsSettings),
            member_tls=layers.read(MemberTlsSettings),
            is_grpc_port_chosen=layers.source("grpcServerPort") != "default",
        )
        layers.expect(TlsSettings)
        configuration.unknown = layers.unknown_values()
        configuration.check()
        return configuration

    @classmethod
    def from_values(cls, values: Mapping[str, str], *, source: str = "values") -> Configuration:
        """Return a configuration from a plain mapping, for embedded brokers; unknown keys are refused."""
        given = {"listenPort": str(BROKER_PORT), **values}
        broker, used_broker = bind(BrokerSettings, given, source=source)
        store, used_store = bind(StoreSettings, given, source=source)
        server, used_server = bind(ServerSettings, given, source=source)
        client, used_client = bind(ClientSettings, given, source=source)
        unknown = sorted(given.keys() - (used_broker | used_store | used_server | used_client))
        if unknown:
            records = (BrokerSettings, StoreSettings, ServerSettings, ClientSettings)
            known = [each.key for record in records for each in declarations(record)]
            near = similar_names(unknown[:1], known)[unknown[0]]
            hint = f"; did you mean {near}?" if near else ""
            raise SettingError(source, unknown[0], f"is not a key of the broker{hint}")
        configuration = cls(broker, store, server, client)
        configuration.check()
        return configuration

    def check(self) -> None:
        """Check the rules between records (RocketMQ: BrokerStartup): a master has the id 0, a slave another id. Also
        settle with what role the broker begins, and whether calls use TLS, so that listings show both."""
        if self.group is None:  # else the group decides which of its members is the master
            is_slave = self.store.broker_role is BrokerRole.SLAVE
            if is_slave and self.broker.broker_id <= 0:
                raise SettingError("configuration", "brokerId", "a SLAVE needs a brokerId above 0")
            if not is_slave and self.broker.broker_id != 0:
                self.broker = replace(self.broker, broker_id=0)
            self.role.take(self.store.broker_role, self.broker.broker_id)
            self._join_group()
        tls = TlsSettings.from_values(self.properties)
        self.ha_tls.check(tls)
        self.member_tls.check(tls)
        if self.client.use_tls is None:
            self.client = replace(self.client, use_tls=tls.use_for_clients())
        default_allowances(self.broker)
        if self.server.listen_port:  # overrides the file's haListenPort; port 0 is not known yet
            self._check_ports_beside(self.server.listen_port)
            ha_port = self.server.listen_port + HA_PORT_DISTANCE
            self.store = replace(self.store, ha_listen_port=ha_port)
        if self.store.duplication_enable:
            # In RocketMQ 4.9 only a store plug-in sets the confirm offset, which begins at -1. Without one, such a
            # broker accepts messages but delivers none.
            raise SettingError(
                "configuration",
                "duplicationEnable",
                "true delivers only messages below the confirm offset, which only a Java store plug-in sets; without "
                "one RocketMQ itself delivers none. Set it to false; a SLAVE keeps copies",
            )

    def _check_ports_beside(self, port: int) -> None:
        """Check that the ports which follow from listenPort are ports."""
        most = LAST_PORT if self.group is not None else LAST_PORT - HA_PORT_DISTANCE  # a member has no HA port
        if not -FAST_PORT_DISTANCE < port <= most:
            beside = f"{port + FAST_PORT_DISTANCE} is the fast port" + (
                "" if self.group is not None else f" and {port + HA_PORT_DISTANCE} the HA port"
            )
            text = f"{port} is outside of {1 - FAST_PORT_DISTANCE}..{most}: {beside}"
            raise SettingError("configuration", "listenPort", text)

    def check_start_with(self, records: tuple[BrokerSettings, ServerSettings, ClientSettings, StoreSettings]) -> None:
        """Check the rules between records as a start with these would. This configuration stays as it is. Raises
        SettingError."""
        broker, server, client, store = records
        dataclasses.replace(self, broker=broker, server=server, client=client, store=store, group=None).check()

    def _join_group(self) -> None:
        """With enableDLegerCommitLog a broker begins as a slave of its group, whatever brokerId and brokerRole say."""
        if not self.store.enable_dleger_commit_log:
            return
        self.group = optional.group_settings.GroupSettings.of(self.store)
        # The write buffer would hold back what the quorum waits for; the next file is made by the ledger.
        self.store = replace(self.store, transient_store_pool_enable=False, warm_mapped_file_enable=False)
        self.role.take(BrokerRole.SLAVE, self.group.number + 1)

    def records(self) -> tuple[BrokerSettings, ServerSettings, ClientSettings, StoreSettings]:
        """Return all records in the order of RocketMQ's listings."""
        return self.broker, self.server, self.client, self.store

    def listed_records(self) -> tuple[BrokerSettings, ServerSettings, ClientSettings, StoreSettings]:
        """Return all records as listings show them: with the present role, as RocketMQ writes an elected one there."""
        broker = replace(self.broker, broker_id=self.role.broker_id)
        return broker, self.server, self.client, self.store_in_role()

    def store_in_role(self) -> StoreSettings:
        """Return the settings that the store works by: with the present role."""
        return replace(self.store, broker_role=self.role.broker_role)

    @property
    def serialize_type(self) -> int:
        """Return the header codec of requests that the broker originates (rocketmq.serialize.type); responses use their
        request's."""
        return ROCKETMQ if self.properties.get("rocketmq.serialize.type", "").upper() == "ROCKETMQ" else JSON

    @property
    def log_subdirectory(self) -> str:
        """Return the subdirectory of the log files: with isolateLogEnable every broker of a machine has its own."""
        broker = self.broker
        return f"{broker.broker_name}_{self.role.broker_id}" if broker.isolate_log_enable else ""
