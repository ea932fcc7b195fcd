"""RouteTable: which broker serves which topic, and which brokers are alive. Pure: no I/O, no clock.

    queues           topic -> broker name -> QueueData
    brokers          broker name -> cluster, broker id -> address
    clusters         cluster -> broker names
    live             broker address -> when it last registered, its data version, its HA address, its owner
    filter servers   broker address -> addresses

The theory (RocketMQ: RouteInfoManager). A broker name stands for a set of brokers with the same topics: a master (id 0)
and slaves. Only registrations of the master write `queues`, and only if its data version differs from the previous one;
topics missing from a registration stay, because a broker also registers single topics. A broker address disappears when
it unregisters, when it has been silent for too long, or when its owner (the connection it registered over) closes. The
last address of a name takes the name and its queue data with it.

With `is_protected` a live registration belongs to its origin: another origin can neither register the same address, nor
take the id of that broker, nor unregister it. Without it anybody may, as in RocketMQ; the processor then closes the
connection of the broker that lost its registration (`owners`), so that it notices and registers again.

The processor owns the table; only the event loop's thread may touch it. Nothing survives a restart: brokers register
again. `revision` changes with everything that a route response shows, so encoded responses may be cached. `now` is in
seconds of any monotonic clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from triomq.namesrv.route_limits import BROKER_COST, ROUTE_COST, TOPIC_COST, RouteLimits, route_cost
from triomq.protocol import permission
from triomq.protocol.bodies.base import replace
from triomq.protocol.bodies.route import MASTER_ID, BrokerData, ClusterInfo, QueueData, TopicRouteData
from triomq.protocol.bodies.topic_config import DataVersion, TopicConfig
from triomq.protocol.codes import ResponseCode
from triomq.protocol.errors import RequestRefused
from triomq.remoting.table_memory import TableAccount, TableMemory

SILENT_SECONDS = 120.0
"""A broker that has not registered within this time counts as dead (RocketMQ: BROKER_CHANNEL_EXPIRED_TIME)."""

UNIT_FLAG = 1
UNIT_SUB_FLAG = 2
"""Bits of topicSysFlag (RocketMQ: TopicSysFlag)."""


@dataclass(frozen=True, slots=True)
class BrokerKey:
    """The identity of a broker, sent with each registration. `origin` says where the request came from: the names of
    the client certificate, or without one the host."""

    cluster: str
    name: str
    id: int
    address: str
    origin: str = ""


@dataclass(frozen=True, slots=True)
class MasterAddress:
    """What a slave learns when it registers; both None while no master is alive."""

    address: str | None = None
    ha_address: str | None = None


class _BrokerSet:
    """All brokers of one name."""

    __slots__ = ("addresses", "cluster")

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self.addresses: dict[int, str] = {}


class _LiveBroker:
    """One broker address that registered."""

    __slots__ = ("data_version", "ha_address", "last_seen", "origin", "owner")

    def __init__(
        self, last_seen: float, data_version: DataVersion, ha_address: str, owner: object, origin: str
    ) -> None:
        self.origin = origin
        self.last_seen = last_seen
        self.data_version = data_version
        self.ha_address = ha_address
        self.owner = owner


class RouteTable:
    """See the module's docstring. `owner` arguments are only compared by identity."""

    def __init__(self, limits: RouteLimits | None = None, account: TableAccount | None = None) -> None:
        self.limits = limits or RouteLimits()
        self._account = account if account is not None else TableMemory().account("routes")
        self.is_protected = False
        self.revision = 0
        self._queues: dict[str, dict[str, QueueData]] = {}
        self.route_count = 0  # entries of all inner tables of _queues
        self._brokers: dict[str, _BrokerSet] = {}
        self._clusters: dict[str, set[str]] = {}
        self._live: dict[str, _LiveBroker] = {}
        self._filter_servers: dict[str, list[str]] = {}

    # The life of brokers.

    def register(
        self,
        broker: BrokerKey,
        *,
        ha_address: str,
        data_version: DataVersion,
        topics: Mapping[str, TopicConfig],
        filter_servers: Iterable[str],
        owner: object,
        now: float,
    ) -> MasterAddress:
        """Add or refresh a broker. Raises RequestRefused and changes nothing if a table is full or it is protected."""
        self._check_origin(broker)
        brokers = self._brokers.get(broker.name)
        is_new = brokers is None or brokers.addresses.get(broker.id) is None
        takes_topics = broker.id == MASTER_ID and (is_new or self.is_changed(broker.address, data_version))
        self._check_limits(broker, topics if takes_topics else {})
        brokers = self._enter(broker)
        if takes_topics:
            for name, topic in topics.items():
                self._enter_queues(broker.name, name, topic)
        self._live[broker.address] = _LiveBroker(now, data_version, ha_address, owner, broker.origin)
        self._enter_filter_servers(broker.address, list(filter_servers))
        self._count()
        return MasterAddress() if broker.id == MASTER_ID else self._master_of(brokers)

    def unregister(self, broker: BrokerKey) -> None:
        """Remove one broker. Another address that has since registered under the same id stays (RocketMQ drops it).
        Raises RequestRefused if the broker belongs to another origin."""
        self._check_origin(broker)
        self._forget_address(broker.address)
        brokers = self._brokers.get(broker.name)
        if brokers is not None and brokers.addresses.get(broker.id) == broker.address:
            self._remove(broker.name, brokers, broker.id)
        self._count()

    def owners(self, broker: BrokerKey) -> list[object]:
        """Return the owners of what a registration or unregistration of `broker` would replace or remove: the live
        registrations of its address and of its name and id."""
        brokers = self._brokers.get(broker.name)
        present = brokers.addresses.get(broker.id) if brokers is not None else None
        found = (self._live.get(address) for address in dict.fromkeys((broker.address, present)) if address is not None)
        return [live.owner for live in found if live is not None]

    def drop_owner(self, owner: object) -> list[str]:
        """Remove all brokers that registered last over `owner`; return their addresses."""
        return self._drop(lambda live: live.owner is owner)

    def drop_silent(self, now: float) -> list[tuple[str, object]]:
        """Remove all brokers that were silent for more than SILENT_SECONDS; return their addresses and owners."""
        silent = [(address, live) for address, live in self._live.items() if now - live.last_seen > SILENT_SECONDS]
        self._drop(lambda live: now - live.last_seen > SILENT_SECONDS)
        return [(address, live.owner) for address, live in silent]

    def time_jumped(self, seconds: float) -> None:
        """Shift the brokers' timestamps: the clock jumped ahead, but the brokers were not silent during the jump."""
        for live in self._live.values():
            live.last_seen += seconds

    def is_changed(self, address: str, data_version: DataVersion) -> bool:
        """Return True if this address is unknown or registered last with another data version."""
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

    # Changes by administrators.

    def wipe_write_perm(self, broker_name: str) -> int:
        """Remove the write permission from all topics of a broker name; return their number."""
        return self._set_perm(broker_name, lambda perm: perm & ~permission.WRITE)

    def add_write_perm(self, broker_name: str) -> int:
        """Make all topics of a broker name readable and writable; return their number."""
        return self._set_perm(broker_name, lambda _: permission.READ_WRITE)

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Remove a topic, everywhere or at the brokers of one cluster, until a broker registers it again."""
        self.revision += 1
        names = self._clusters.get(cluster, set()) if cluster else set(self._queues.get(topic, ()))
        for broker_name in names:
            self._drop_queues(topic, broker_name)
        self._count()

    # What clients ask.

    def route(self, topic: str) -> TopicRouteData | None:
        """Return queues and brokers of a topic; None without at least one of each."""
        queues = self._queues.get(topic)
        if not queues:
            return None
        brokers = [self._broker_data(name) for name in queues if name in self._brokers]
        if not brokers:
            return None
        filter_servers = {}
        if self._filter_servers:
            for broker in brokers:
                for address in broker.broker_addrs.values():
                    if address in self._filter_servers:
                        filter_servers[address] = list(self._filter_servers[address])
        return TopicRouteData(
            broker_datas=brokers, queue_datas=list(queues.values()), filter_server_table=filter_servers
        )

    def cluster_info(self) -> ClusterInfo:
        return ClusterInfo(
            broker_addr_table={name: self._broker_data(name) for name in self._brokers},
            cluster_addr_table={cluster: frozenset(names) for cluster, names in self._clusters.items()},
        )

    def topics(self) -> list[str]:
        return list(self._queues)

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """Return topics with queues at any broker of the cluster; an unknown cluster has none."""
        names = self._clusters.get(cluster, set())
        return [topic for topic, queues in self._queues.items() if not names.isdisjoint(queues)]

    def system_topics(self) -> list[str]:
        """Return clusters and their broker names: each is also the name of a topic."""
        found: dict[str, None] = {}
        for cluster, names in self._clusters.items():
            found[cluster] = None
            found.update(dict.fromkeys(sorted(names)))
        return list(found)

    def any_broker_address(self) -> str | None:
        return next((address for brokers in self._brokers.values() for address in brokers.addresses.values()), None)

    def topics_by_flag(self, mask: int, flag: int) -> list[str]:
        """Return topics whose first queue data has topicSysFlag & mask == flag."""
        firsts = ((topic, next(iter(queues.values()))) for topic, queues in self._queues.items())
        return [topic for topic, first in firsts if first.topic_sys_flag & mask == flag]

    def sizes(self) -> dict[str, int]:
        """Return entries per table, for the log."""
        return {"topics": len(self._queues), "broker_names": len(self._brokers), "brokers": len(self._live)}

    def _check_origin(self, broker: BrokerKey) -> None:
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

    def _check_limits(self, broker: BrokerKey, topics: Mapping[str, TopicConfig]) -> None:
        known = self._brokers.get(broker.name)
        new_id = known is None or broker.id not in known.addresses
        new_member = broker.name not in self._clusters.get(broker.cluster, ())
        for is_new, count, what in (
            (broker.address not in self._live, len(self._live), "brokers"),
            (known is None, len(self._brokers), "broker names"),
            (broker.cluster not in self._clusters, len(self._clusters), "cluster names"),
            # One address may come under any number of names, ids and clusters.
            (new_id, sum(len(one.addresses) for one in self._brokers.values()) if new_id else 0, "ids of brokers"),
            (new_member, sum(map(len, self._clusters.values())) if new_member else 0, "broker names in clusters"),
        ):
            if is_new and count >= self.limits.broker_count:
                reason = f"{count} {what} are registered, the limit (maxBrokerAddresses)"
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, reason)
        if self.route_count + len(topics) > self.limits.route_count:
            after = self.route_count + sum(broker.name not in self._queues.get(name, ()) for name in topics)
            if after > self.limits.route_count:
                reason = f"there would be {after} routes, the limit (maxRoutes) is {self.limits.route_count}"
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, reason)
        if len(self._queues) + len(topics) > self.limits.topic_count:
            after = len(self._queues) + sum(name not in self._queues for name in topics)
            if after > self.limits.topic_count:
                reason = f"there would be {after} topics, the limit (maxTopics) is {self.limits.topic_count}"
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, reason)
        more = sum([route_cost(broker.name, self._queues.get(name)) for name in topics])
        more += 0 if broker.address in self._live else 2 * BROKER_COST
        if more:
            self._account.check(more, f"registration of broker {broker.name} with {len(topics)} topics")

    def _enter(self, broker: BrokerKey) -> _BrokerSet:
        self._clusters.setdefault(broker.cluster, set()).add(broker.name)
        brokers = self._brokers.get(broker.name)
        if brokers is None:
            brokers = self._brokers[broker.name] = _BrokerSet(broker.cluster)
            self.revision += 1
        # A slave that became master registers the address it already had: one address has one id.
        for other_id in [id for id, address in brokers.addresses.items() if address == broker.address]:
            if other_id != broker.id:
                del brokers.addresses[other_id]
                self.revision += 1
        if brokers.addresses.get(broker.id) != broker.address:
            brokers.addresses[broker.id] = broker.address
            self.revision += 1
        return brokers

    def _enter_queues(self, broker_name: str, topic_name: str, topic: TopicConfig) -> None:
        data = QueueData(
            broker_name=broker_name,
            perm=topic.perm,
            read_queue_nums=topic.read_queue_nums,
            topic_sys_flag=topic.topic_sys_flag,
            write_queue_nums=topic.write_queue_nums,
        )
        queues = self._queues.setdefault(topic_name, {})
        self.route_count += broker_name not in queues
        if queues.get(broker_name) != data:
            queues[broker_name] = data
            self.revision += 1

    def _enter_filter_servers(self, address: str, filter_servers: list[str]) -> None:
        if self._filter_servers.get(address, []) != filter_servers:
            self.revision += 1
            if filter_servers:
                self._filter_servers[address] = filter_servers
            else:
                del self._filter_servers[address]

    def _master_of(self, brokers: _BrokerSet) -> MasterAddress:
        address = brokers.addresses.get(MASTER_ID)
        live = self._live.get(address) if address is not None else None
        return MasterAddress(address, live.ha_address) if live is not None else MasterAddress()

    def _set_perm(self, broker_name: str, change: Callable[[int], int]) -> int:
        count = 0
        for queues in self._queues.values():
            data = queues.get(broker_name)
            if data is not None:
                count += 1
                queues[broker_name] = replace(data, perm=change(data.perm))
        if count:
            self.revision += 1
        return count

    def _drop(self, is_gone: Callable[[_LiveBroker], bool]) -> list[str]:
        gone = [address for address, live in self._live.items() if is_gone(live)]
        for address in gone:
            self._forget_address(address)
            for name, brokers in list(self._brokers.items()):
                for broker_id in [id for id, known in brokers.addresses.items() if known == address]:
                    self._remove(name, brokers, broker_id)
        self._count()
        return gone

    def _forget_address(self, address: str) -> None:
        self._live.pop(address, None)
        if self._filter_servers.pop(address, None) is not None:
            self.revision += 1

    def _remove(self, name: str, brokers: _BrokerSet, broker_id: int) -> None:
        del brokers.addresses[broker_id]
        self.revision += 1
        if brokers.addresses:
            return
        del self._brokers[name]
        for cluster in [cluster for cluster, names in self._clusters.items() if name in names]:
            self._clusters[cluster].discard(name)
            if not self._clusters[cluster]:
                del self._clusters[cluster]
        for topic in [topic for topic, queues in self._queues.items() if name in queues]:
            self._drop_queues(topic, name)

    def _drop_queues(self, topic: str, broker_name: str) -> None:
        queues = self._queues.get(topic, {})
        if queues.pop(broker_name, None) is not None:
            self.route_count -= 1
            if not queues:
                del self._queues[topic]

    def _count(self) -> None:
        queues = TOPIC_COST * len(self._queues) + ROUTE_COST * self.route_count
        self._account.set(queues + BROKER_COST * (len(self._brokers) + len(self._live)))

    def _broker_data(self, name: str) -> BrokerData:
        brokers = self._brokers[name]
        return BrokerData(broker_addrs=dict(brokers.addresses), broker_name=name, cluster=brokers.cluster)
