"""BrokerTable: the brokers that a NameServer knows, and which of them are alive. Pure; RouteTable owns it.

    brokers          broker name -> clusters, broker id -> address
    clusters         cluster -> broker names
    live             broker address -> when it last registered, its data version, its HA address, its owner
    filter servers   broker address -> addresses
    departed         what was here and is not now (departed.py)
    contests         addresses that take one name and id from each other (contests.py)

`held_bytes` is about the memory of all that: a cost for each entry, and the sizes of its texts.

An address may be under any number of names and ids; `_places` finds them without a search, `_owned` the addresses that
registered over a connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from triomq.namesrv.contests import Contests
from triomq.namesrv.departed import Departed, DepartedBroker
from triomq.namesrv.route_limits import BROKER_COST, RouteLimits, texts_bytes
from triomq.protocol.bodies.registration import RestOfRegistration
from triomq.protocol.bodies.route import MASTER_ID, BrokerData, ClusterInfo
from triomq.protocol.bodies.topic_config import DataVersion
from triomq.protocol.codes import ResponseCode
from triomq.protocol.errors import RequestRefused

SILENT_SECONDS = 120.0
"""A broker that has not registered within this time counts as dead (RocketMQ: BROKER_CHANNEL_EXPIRED_TIME)."""

STEP_BROKERS = 32
"""Brokers that are removed in one step."""


class BrokerKey(Struct, frozen=True):
    """The identity of a broker, sent with each registration. `origin` says where the request came from: the names of
    the client certificate, or without one the host."""

    cluster: str
    name: str
    id: int
    address: str
    origin: str = ""


class MasterAddress(Struct, frozen=True):
    """What a slave learns when it registers; both None while no master is alive."""

    address: str | None = None
    ha_address: str | None = None


class _BrokerSet:
    """All brokers of one name."""

    __slots__ = ("addresses", "cluster", "clusters")

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster  # the one that routes show: the first
        self.clusters: dict[str, None] = {}
        self.addresses: dict[int, str] = {}


class _LiveBroker:
    """One broker address that registered. `data_version` is None if its topics are no longer what it registered."""

    __slots__ = ("data_version", "ha_address", "last_seen", "origin", "owner")

    def __init__(
        self, last_seen: float, data_version: DataVersion | None, ha_address: str, owner: object, origin: str
    ) -> None:
        self.origin = origin
        self.last_seen = last_seen
        self.data_version = data_version
        self.ha_address = ha_address
        self.owner = owner


class BrokerTable:
    """See the module's docstring. `on_gone` is called with the name of a broker whose last address went; it returns
    some of the topics that the name had."""

    def __init__(self, on_gone: Callable[[str], tuple[str, ...]]) -> None:
        self.is_protected = False
        self.revision = 0
        self.departed = Departed()
        self.contests = Contests()
        self.held_bytes = 0
        self._on_gone = on_gone
        self._brokers: dict[str, _BrokerSet] = {}
        self._id_count = self._member_count = 0  # of all brokers, and of all clusters
        self._clusters: dict[str, set[str]] = {}
        self._live: dict[str, _LiveBroker] = {}
        self._owned: dict[int, dict[str, None]] = {}  # id of an owner -> its addresses in _live
        self._places: dict[str, dict[tuple[str, int], None]] = {}  # address -> its entries in _brokers
        self._filter_servers: dict[str, list[str]] = {}

    @property
    def name_count(self) -> int:
        return len(self._brokers)

    @property
    def live_count(self) -> int:
        return len(self._live)

    def is_live(self, address: str) -> bool:
        return address in self._live

    def has(self, broker: BrokerKey) -> bool:
        """Return whether the broker of this name and id is at this address."""
        brokers = self._brokers.get(broker.name)
        return brokers is not None and brokers.addresses.get(broker.id) == broker.address

    def owners(self, broker: BrokerKey) -> list[object]:
        """Return the owners of what a registration or unregistration of `broker` would replace or remove: the live
        registrations of its address and of its name and id."""
        brokers = self._brokers.get(broker.name)
        present = brokers.addresses.get(broker.id) if brokers is not None else None
        found = (self._live.get(address) for address in dict.fromkeys((broker.address, present)) if address is not None)
        return [live.owner for live in found if live is not None]

    def owned_by(self, owner: object) -> list[str]:
        """Return the addresses that registered last over `owner`."""
        return list(self._owned.get(id(owner), ()))

    def silent(self, now: float) -> list[tuple[str, object]]:
        """Return the brokers that were silent for more than SILENT_SECONDS: their addresses and owners."""
        return [(address, live.owner) for address, live in self._live.items() if now - live.last_seen > SILENT_SECONDS]

    def time_jumped(self, seconds: float) -> None:
        """Shift the brokers' timestamps: the clock jumped ahead, but the brokers were not silent during the jump."""
        for live in self._live.values():
            live.last_seen += seconds
        self.departed.time_jumped(seconds)
        self.contests.time_jumped(seconds)

    def forget_version(self, name: str) -> None:
        """Forget the data version of the master of this name: its topics are no longer those that it registered."""
        brokers = self._brokers.get(name)
        live = self._live.get(brokers.addresses.get(MASTER_ID, "")) if brokers is not None else None
        if live is not None:
            live.data_version = None

    def is_forgotten(self, address: str) -> bool:
        """Return whether this address is known and its data version is not."""
        live = self._live.get(address)
        return live is not None and live.data_version is None

    def is_changed(self, address: str, data_version: DataVersion) -> bool:
        """Return True if this address or its data version is unknown, or if it registered last with another one."""
        live = self._live.get(address)
        return live is None or live.data_version != data_version

    def seen(self, address: str, now: float) -> None:
        """Refresh the liveness of a known broker."""
        live = self._live.get(address)
        if live is not None:
            live.last_seen = now

    def last_seen(self, address: str) -> float | None:
        """Return when a live broker registered last."""
        live = self._live.get(address)
        return live.last_seen if live is not None else None

    def data_version(self, address: str) -> DataVersion | None:
        live = self._live.get(address)
        return live.data_version if live is not None else None

    def cluster_info(self) -> ClusterInfo:
        return ClusterInfo(
            broker_addr_table={name: self.broker_data(name) for name in self._brokers},
            cluster_addr_table={cluster: frozenset(names) for cluster, names in self._clusters.items()},
        )

    def broker_data(self, name: str) -> BrokerData:
        brokers = self._brokers[name]
        return BrokerData(broker_addrs=dict(brokers.addresses), broker_name=name, cluster=brokers.cluster)

    def filter_servers_of(self, brokers: list[BrokerData]) -> dict[str, list[str]]:
        """Return the filter servers of these brokers, by broker address."""
        if not self._filter_servers:
            return {}
        addresses = (address for broker in brokers for address in broker.broker_addrs.values())
        known = self._filter_servers
        return {address: list(known[address]) for address in addresses if address in known}

    def members(self, cluster: str) -> set[str]:
        """Return the names of the brokers of a cluster; an unknown one has none."""
        return self._clusters.get(cluster, set())

    def system_topics(self) -> list[str]:
        """Return clusters and their broker names: each is also the name of a topic."""
        found: dict[str, None] = {}
        for cluster, names in self._clusters.items():
            found[cluster] = None
            found.update(dict.fromkeys(sorted(names)))
        return list(found)

    def any_broker_address(self) -> str | None:
        return next((address for brokers in self._brokers.values() for address in brokers.addresses.values()), None)

    def check_origin(self, broker: BrokerKey) -> None:
        if not self.is_protected:
            return
        brokers = self._brokers.get(broker.name)
        present = brokers.addresses.get(broker.id) if brokers is not None else None
        for address in (broker.address, present):
            live = self._live.get(address) if address is not None else None
            if live is not None and live.origin != broker.origin:
                raise RequestRefused(
                    ResponseCode.SYSTEM_ERROR,
                    f"broker {broker.name} (id {broker.id}) is registered from {live.origin}; {broker.origin} cannot "
                    "change that while it is alive (protectRoutes)",
                )

    def check_limits(self, broker: BrokerKey, limits: RouteLimits) -> None:
        known = self._brokers.get(broker.name)
        for is_new, count, what in (
            (broker.address not in self._live, len(self._live), "brokers"),
            (known is None, len(self._brokers), "broker names"),
            (broker.cluster not in self._clusters, len(self._clusters), "cluster names"),
            # One address may come under any number of names, ids and clusters.
            (known is None or broker.id not in known.addresses, self._id_count, "ids of brokers"),
            (known is None or broker.cluster not in known.clusters, self._member_count, "broker names in clusters"),
        ):
            if is_new and count >= limits.broker_count:
                reason = f"{count} {what} are registered, the limit (maxBrokerAddresses)"
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, reason)

    def more_bytes(self, broker: BrokerKey, rest: RestOfRegistration, ha_address: str) -> int:
        """Return by how much a registration changes `held_bytes` at most. What it replaces at other ids or addresses
        may go as well."""
        known = self._brokers.get(broker.name)
        live = self._live.get(broker.address)
        more = _entry_bytes(broker.address, ha_address, broker.origin)
        more -= 0 if live is None else _entry_bytes(broker.address, live.ha_address, live.origin)
        more += texts_bytes(rest.filter_servers) - texts_bytes(self._filter_servers.get(broker.address, ()))
        more += _entry_bytes(broker.name) if known is None else 0
        more += _entry_bytes(broker.address) if known is None or broker.id not in known.addresses else 0
        more += _entry_bytes(broker.cluster) if known is None or broker.cluster not in known.clusters else 0
        return more

    def enter(
        self,
        broker: BrokerKey,
        rest: RestOfRegistration,
        ha_address: str,
        owner: object,
        now: float,
        *,
        is_whole: bool = True,
    ) -> MasterAddress:
        """Note that a broker registered; its data version counts only if `is_whole`. Return what it learns of its
        master."""
        self.departed.came(broker.address, broker.name, broker.id)
        members = self._clusters.setdefault(broker.cluster, set())
        if broker.name not in members:
            members.add(broker.name)
            self._member_count += 1
            self.held_bytes += _entry_bytes(broker.cluster)
        brokers = self._brokers.get(broker.name)
        if brokers is None:
            brokers = self._brokers[broker.name] = _BrokerSet(broker.cluster)
            self.held_bytes += _entry_bytes(broker.name)
            self.revision += 1
        brokers.clusters[broker.cluster] = None
        # A slave that became master registers the address it already had: one address has one id.
        for name, other_id in list(self._places.get(broker.address, ())):
            if name == broker.name and other_id != broker.id:
                self._vacate(brokers, name, other_id)
        for other_id in brokers.addresses:
            if other_id != broker.id:
                self.contests.gave_up(broker.name, other_id, broker.address)
        present = brokers.addresses.get(broker.id)
        if present != broker.address:
            if present is not None:
                self._vacate(brokers, broker.name, broker.id)
                if present in self._live:
                    self.contests.lost(broker.name, broker.id, present, now)
            brokers.addresses[broker.id] = broker.address
            self._id_count += 1
            self.held_bytes += _entry_bytes(broker.address)
            self.revision += 1
        self._places.setdefault(broker.address, {})[broker.name, broker.id] = None
        self._disown(broker.address)
        version = rest.data_version if is_whole else None
        self._live[broker.address] = _LiveBroker(now, version, ha_address, owner, broker.origin)
        self.held_bytes += _entry_bytes(broker.address, ha_address, broker.origin)
        self._owned.setdefault(id(owner), {})[broker.address] = None
        self._enter_filter_servers(broker.address, rest.filter_servers)
        return MasterAddress() if broker.id == MASTER_ID else self._master_of(brokers)

    def _vacate(self, brokers: _BrokerSet, name: str, broker_id: int) -> None:
        """Remove the address of a broker."""
        address = brokers.addresses.pop(broker_id)
        self._id_count -= 1
        self.held_bytes -= _entry_bytes(address)
        self.revision += 1
        places = self._places.get(address)
        if places is not None:
            places.pop((name, broker_id), None)
            if not places:
                del self._places[address]

    def _disown(self, address: str) -> None:
        live = self._live.pop(address, None)
        if live is not None:
            self.held_bytes -= _entry_bytes(address, live.ha_address, live.origin)
            owned = self._owned[id(live.owner)]
            del owned[address]
            if not owned:
                del self._owned[id(live.owner)]

    def _enter_filter_servers(self, address: str, filter_servers: list[str]) -> None:
        before = self._filter_servers.get(address, [])
        if before != filter_servers:
            self.revision += 1
            self.held_bytes += texts_bytes(filter_servers) - texts_bytes(before)
            if filter_servers:
                self._filter_servers[address] = filter_servers
            else:
                del self._filter_servers[address]

    def _master_of(self, brokers: _BrokerSet) -> MasterAddress:
        address = brokers.addresses.get(MASTER_ID)
        live = self._live.get(address) if address is not None else None
        return MasterAddress(address, live.ha_address) if live is not None else MasterAddress()

    def leave(self, broker: BrokerKey) -> None:
        """Remove one broker. Another address that has since registered under the same id stays."""
        self.contests.gave_up(broker.name, broker.id, broker.address)
        live = self._live.get(broker.address)
        self._forget_address(broker.address)
        brokers = self._brokers.get(broker.name)
        if brokers is not None and brokers.addresses.get(broker.id) == broker.address:
            self._remove(broker.name, brokers, broker.id, live, is_orderly=True)

    def dropping(self, addresses: list[str], is_gone: Callable[[float, object], bool]) -> Iterator[None]:
        """Remove brokers, in steps. One that registers meanwhile stays."""
        done = 0
        for address in addresses:
            live = self._live.get(address)
            if live is None or not is_gone(live.last_seen, live.owner):
                continue
            self._forget_address(address)
            done += 1
            for name, broker_id in self._places.pop(address, {}):
                brokers = self._brokers.get(name)
                is_again = (name, broker_id) in self._places.get(address, ())
                if brokers is not None and brokers.addresses.get(broker_id) == address and not is_again:
                    self._remove(name, brokers, broker_id, live, is_orderly=False)
                    done += 1
                if done >= STEP_BROKERS:
                    done = 0
                    yield

    def _forget_address(self, address: str) -> None:
        self._disown(address)
        self._enter_filter_servers(address, [])

    def _remove(
        self, name: str, brokers: _BrokerSet, broker_id: int, live: _LiveBroker | None, *, is_orderly: bool
    ) -> None:
        """Remove the broker of this name and id. `live`: its registration, as it was."""
        address = brokers.addresses[broker_id]
        self._vacate(brokers, name, broker_id)
        topics = () if brokers.addresses else self._remove_name(name, brokers)
        if live is not None:
            left = DepartedBroker(brokers.cluster, name, broker_id, address, live.last_seen, is_orderly, topics)
            self.departed.left(left)

    def _remove_name(self, name: str, brokers: _BrokerSet) -> tuple[str, ...]:
        """Remove a name without brokers. Return some of the topics that it had."""
        del self._brokers[name]
        self.held_bytes -= _entry_bytes(name)
        for cluster in brokers.clusters:
            self._clusters[cluster].discard(name)
            self._member_count -= 1
            self.held_bytes -= _entry_bytes(cluster)
            if not self._clusters[cluster]:
                del self._clusters[cluster]
        return self._on_gone(name)


def _entry_bytes(*texts: str) -> int:
    return BROKER_COST + texts_bytes(texts)
