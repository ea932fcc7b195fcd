"""RouteTable: which broker serves which topic, and which brokers are alive. Pure: no I/O, no clock.

    topics           broker name -> topic -> queues (topic_tables.py)
    brokers          names, addresses, clusters, and which of them are alive (brokers.py)

The theory (RocketMQ: RouteInfoManager). A broker name stands for a set of brokers with the same topics: a master (id 0)
and slaves. Only registrations of the master change topics, and only if its data version differs from the previous one;
topics missing from a registration stay, because a broker also registers single topics. The data version is forgotten
when a topic is deleted here, so that a broker that still has the topic brings it back. It is not when the write
permission is removed: that lasts until the broker's topics change. A broker address disappears when it unregisters,
when it has been silent for too long, or when its owner (the connection it registered over) closes. The last address of
a name takes the name and its topics with it.

With `is_protected` a live registration belongs to its origin: another origin can neither register the same address, nor
take the id of that broker, nor unregister it. Without it anybody may, as in RocketMQ; the processor then closes the
connection of the broker that lost its registration (`owners`), so that it notices and registers again.

What takes long for a large table is a generator that works until its next item. Its change is made in one step, the
last one: nobody sees half of it. If the table changes in between, it begins again. What is only to be cleaned up is
left to `work`.

The processor owns the table; only the event loop's thread may touch it. Nothing survives a restart: brokers register
again. `revision` changes with everything that a route response shows, so encoded responses may be cached. `now` is in
seconds of any monotonic clock.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from itertools import islice
from typing import TypeVar

from triomq.namesrv.brokers import SILENT_SECONDS, BrokerKey, BrokerTable, MasterAddress
from triomq.namesrv.departed import MOST_TOPICS
from triomq.namesrv.route_limits import ROUTE_COST, TOPIC_COST, RouteLimits
from triomq.namesrv.topic_tables import STEP_TOPICS, Incoming, TopicTables, route_memory
from triomq.protocol import permission
from triomq.protocol.bodies.base import replace
from triomq.protocol.bodies.departed import ContestedBroker, DepartedBroker, QueryDepartedBrokersResponseBody
from triomq.protocol.bodies.registration import Parts, RestOfRegistration, TopicQueues
from triomq.protocol.bodies.route import MASTER_ID, QueueData, TopicRouteData
from triomq.protocol.bodies.topic_config import DataVersion, TopicConfig
from triomq.protocol.codes import ResponseCode
from triomq.protocol.errors import RequestRefused
from triomq.remoting.table_memory import TableAccount, TableMemory

UNIT_FLAG = 1
UNIT_SUB_FLAG = 2
"""Bits of topicSysFlag (RocketMQ: TopicSysFlag)."""

MOST_ATTEMPTS = 3
"""So often a change in steps begins again because the table changed meanwhile; then it is made in one step."""


class RouteTable:
    """See the module's docstring. `owner` arguments are only compared by identity."""

    def __init__(
        self,
        limits: RouteLimits | None = None,
        account: TableAccount | None = None,
        incoming_account: TableAccount | None = None,
    ) -> None:
        self.limits = limits or RouteLimits()
        self._account = account if account is not None else TableMemory().account("routes")
        self.topics_of = TopicTables(incoming_account)
        self.brokers = BrokerTable(self._name_gone)
        self._revision = 0

    @property
    def is_protected(self) -> bool:
        return self.brokers.is_protected

    @is_protected.setter
    def is_protected(self, value: bool) -> None:
        self.brokers.is_protected = value

    @property
    def revision(self) -> int:
        return self._revision + self.brokers.revision

    @property
    def route_count(self) -> int:
        return self.topics_of.route_count

    def work(self) -> bool:
        """Do a step of what is left to do. Return whether there was any."""
        if not self.topics_of.has_chores:
            return False
        self.topics_of.work()
        self._count()
        return True

    def _name_gone(self, name: str) -> tuple[str, ...]:
        """Remove the topics of a broker name. Return some of them."""
        some = self.topics_of.some(name, MOST_TOPICS)
        self.topics_of.remove(name)
        return some

    # The life of brokers.

    def register(
        self,
        broker: BrokerKey,
        *,
        ha_address: str,
        data_version: DataVersion,
        topics: Mapping[str, TopicConfig],
        filter_servers: list[str],
        owner: object,
        now: float,
    ) -> MasterAddress:
        """Add or refresh a broker. Raises RequestRefused and changes nothing if a table is full or it is protected."""

        def read() -> Parts:
            yield {name: _queues(topic) for name, topic in topics.items()}
            return RestOfRegistration(data_version, filter_servers)

        return _finish(self.registering(broker, read, ha_address=ha_address, owner=owner, now=lambda: now))

    def registering(
        self,
        broker: BrokerKey,
        read: Callable[[], Parts],
        *,
        ha_address: str,
        owner: object,
        now: Callable[[], float],
    ) -> Generator[None, None, MasterAddress]:
        """Add or refresh a broker in steps, with topics that come in parts; otherwise like `register`. `read` begins to
        read them, and may be called again. Registrations of one name must not be in progress at once. Raises what
        reading raises, too."""
        attempt = 0
        while True:
            self.brokers.check_origin(broker)
            attempt += 1
            incoming = Incoming(self.topics_of, broker.name)
            try:
                steps = self._reading(broker, incoming, read, ha_address)
                if attempt < MOST_ATTEMPTS:
                    rest, takes_topics = yield from steps
                else:
                    rest, takes_topics = _finish(steps)
                if incoming.is_current and takes_topics == self._takes_topics(broker, rest.data_version):
                    self.brokers.check_origin(broker)
                    self.brokers.check_limits(broker, self.limits)
                    if takes_topics and incoming.commit():
                        self._revision += 1
                    is_whole = self._is_whole(broker, incoming.count)
                    return self.brokers.enter(broker, rest, ha_address, owner, now(), is_whole=is_whole)
            finally:
                incoming.end()
                self._count()

    def _reading(
        self, broker: BrokerKey, incoming: Incoming, read: Callable[[], Parts], ha_address: str
    ) -> Generator[None, None, tuple[RestOfRegistration, bool]]:
        """Read a registration and prepare the change. Return it without its topics, and whether they count."""
        parts = read()
        while True:
            try:
                part = next(parts)
            except StopIteration as stop:
                rest: RestOfRegistration = stop.value
                break
            if broker.id == MASTER_ID:
                topics = iter(part.items())
                while piece := part if len(part) <= STEP_TOPICS else dict(islice(topics, STEP_TOPICS)):
                    incoming.add(piece)
                    yield
                    if piece is part:
                        break
            else:
                yield
        takes_topics = self._takes_topics(broker, rest.data_version)
        if not takes_topics:
            incoming.changes.clear()
            incoming.new_routes = incoming.new_topics = incoming.new_bytes = 0
        incoming.reserve(0)
        self.brokers.check_limits(broker, self.limits)
        # Kept until the end: what is prepared counts as it is listed, and others are checked meanwhile.
        incoming.reserve(self._check_room(broker, rest, ha_address, incoming))
        for _ in incoming.prepare():
            self._count()
            yield
        return rest, takes_topics

    def _takes_topics(self, broker: BrokerKey, data_version: DataVersion) -> bool:
        is_new = not self.brokers.has(broker)
        return broker.id == MASTER_ID and (is_new or self.brokers.is_changed(broker.address, data_version))

    def _is_whole(self, broker: BrokerKey, topic_count: int) -> bool:
        """Return whether the data version of a registration counts. One that was forgotten stays so until the broker
        registers all its topics: a single one says nothing about what was taken away from the others."""
        if broker.id != MASTER_ID or not self.brokers.is_forgotten(broker.address):
            return True
        table = self.topics_of.tables.get(broker.name)
        return table is None or topic_count >= len(table.topics)

    def unregister(self, broker: BrokerKey) -> None:
        """Remove one broker. Another address that has since registered under the same id stays (RocketMQ drops it).
        Raises RequestRefused if the broker belongs to another origin."""
        self.brokers.check_origin(broker)
        self.brokers.leave(broker)
        self._count()

    def drop_owner(self, owner: object) -> list[str]:
        """Remove all brokers that registered last over `owner`; return their addresses. If they are many, the rest goes
        with `work`."""
        addresses = self.brokers.owned_by(owner)
        self._drop(addresses, lambda _, known: known is owner)
        return addresses

    def drop_silent(self, now: float) -> list[tuple[str, object]]:
        """Remove all brokers that were silent for more than SILENT_SECONDS; return their addresses and owners. If they
        are many, the rest goes with `work`."""
        silent = self.brokers.silent(now)
        self._drop([address for address, _ in silent], lambda last_seen, _: now - last_seen > SILENT_SECONDS)
        return silent

    def _drop(self, addresses: list[str], is_gone: Callable[[float, object], bool]) -> None:
        self.topics_of.do(self.brokers.dropping(addresses, is_gone))
        self._count()

    # Changes by administrators.

    def wipe_write_perm(self, broker_name: str) -> int:
        """Remove the write permission from all topics of a broker name, until it registers another data version; return
        their number."""
        return _finish(self.wiping_write_perm(broker_name))

    def wiping_write_perm(self, broker_name: str) -> Generator[None, None, int]:
        """Remove the write permission as `wipe_write_perm` does, in steps."""
        return self._changing_perm(broker_name, lambda perm: perm & ~permission.WRITE)

    def add_write_perm(self, broker_name: str) -> int:
        """Make all topics of a broker name readable and writable until the broker registers them again; return their
        number."""
        return _finish(self.adding_write_perm(broker_name))

    def adding_write_perm(self, broker_name: str) -> Generator[None, None, int]:
        """Make the topics readable and writable as `add_write_perm` does, in steps."""
        count = yield from self._changing_perm(broker_name, lambda _: permission.READ_WRITE)
        self.brokers.forget_version(broker_name)
        return count

    def _changing_perm(self, broker_name: str, change: Callable[[int], int]) -> Generator[None, None, int]:
        """Change the permissions of all topics of a broker name, in steps; return their number."""
        attempt = 0
        while True:
            attempt += 1
            table = self.topics_of.tables.get(broker_name)
            if table is None or not table.topics:
                return 0
            version = table.version
            changed: dict[TopicQueues, TopicQueues] = {}
            topics = table.topics.copy()  # the copy has room for all, so no step has to make it larger
            names = iter(list(topics))
            while chunk := list(islice(names, STEP_TOPICS)):
                for topic in chunk:
                    queues = topics[topic]
                    after = changed.get(queues)
                    if after is None:
                        after = changed[queues] = replace(queues, perm=change(queues.perm))
                    topics[topic] = after
                if attempt < MOST_ATTEMPTS and len(chunk) == STEP_TOPICS:
                    yield
            if self.topics_of.tables.get(broker_name) is table and table.version == version:
                self.topics_of.replace(broker_name, topics)
                self._revision += 1
                return len(topics)

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Remove a topic, everywhere or at the brokers of one cluster, until a broker registers it again. One that was
        away when the others deleted it still has it, and registers it with a data version that has not changed."""
        self._revision += 1
        members = self.brokers.members(cluster) if cluster else None
        for broker_name in self.topics_of.names(topic):
            if members is None or broker_name in members:
                self.topics_of.delete(broker_name, topic)
                self.brokers.forget_version(broker_name)
        self._count()

    # What clients ask.

    def route(self, topic: str) -> TopicRouteData | None:
        """Return queues and brokers of a topic; None without at least one of each."""
        names = self.topics_of.names(topic)
        if not names:
            return None
        brokers = [self.brokers.broker_data(name) for name in names]
        return TopicRouteData(
            broker_datas=brokers,
            queue_datas=[self._queue_data(name, topic) for name in names],
            filter_server_table=self.brokers.filter_servers_of(brokers),
        )

    def departed(self, now: float) -> QueryDepartedBrokersResponseBody:
        """Return the brokers that were here within a day and are not now, and those that displace each other."""
        brokers = [
            DepartedBroker(
                broker_addr=left.address,
                broker_id=left.id,
                broker_name=left.name,
                cluster=left.cluster,
                orderly=left.is_orderly,
                seen_ms_ago=max(0, int((now - left.last_seen) * 1000)),
                topics=[topic for topic in left.topics if not self.topics_of.names(topic)],
            )
            for left in self.brokers.departed.recent(now)
        ]
        contested = [
            ContestedBroker(broker_addrs=addresses, broker_id=broker_id, broker_name=name)
            for (name, broker_id), addresses in self.brokers.contests.recent(now).items()
        ]
        return QueryDepartedBrokersResponseBody(brokers=brokers, contested=contested)

    def topics(self) -> list[str]:
        return self.topics_of.topics()

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """Return topics with queues at any broker of the cluster; an unknown cluster has none."""
        names = self.brokers.members(cluster)
        return [topic for topic in self.topics_of.topics() if not names.isdisjoint(self.topics_of.names(topic))]

    def topics_by_flag(self, mask: int, flag: int) -> list[str]:
        """Return topics whose first queue data has topicSysFlag & mask == flag."""
        found = []
        for topic in self.topics_of.topics():
            for name in self.topics_of.names(topic)[:1]:
                if self._queue_data(name, topic).topic_sys_flag & mask == flag:
                    found.append(topic)
        return found

    def sizes(self) -> dict[str, int]:
        """Return entries per table, for the log."""
        brokers = self.brokers
        return {"topics": self.topics_of.topic_count, "broker_names": brokers.name_count, "brokers": brokers.live_count}

    def _check_room(self, broker: BrokerKey, rest: RestOfRegistration, ha_address: str, incoming: Incoming) -> int:
        """Return the bytes that a registration adds. Refuse one that would exceed the limit of topics or the memory."""
        topics = self.topics_of.topic_count + incoming.new_topics
        if incoming.new_topics and topics > self.limits.topic_count:
            reason = f"there would be {topics} topics, the limit (maxTopics) is {self.limits.topic_count}"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, reason)
        more = TOPIC_COST * incoming.new_topics + ROUTE_COST * incoming.new_routes + incoming.new_bytes
        more += self.brokers.more_bytes(broker, rest, ha_address)
        if more > 0:
            self._account.check(more, f"registration of broker {broker.name} with {incoming.count} topics")
        return max(more, 0)

    def _count(self) -> None:
        self._account.set(route_memory(self.topics_of) + self.brokers.held_bytes)

    def _queue_data(self, name: str, topic: str) -> QueueData:
        queues = self.topics_of.tables[name].topics[topic]
        return QueueData(
            broker_name=name,
            perm=queues.perm,
            read_queue_nums=queues.read_queue_nums,
            topic_sys_flag=queues.topic_sys_flag,
            write_queue_nums=queues.write_queue_nums,
        )


def _queues(topic: TopicConfig) -> TopicQueues:
    return TopicQueues(
        perm=topic.perm,
        read_queue_nums=topic.read_queue_nums,
        topic_sys_flag=topic.topic_sys_flag,
        write_queue_nums=topic.write_queue_nums,
    )


_T = TypeVar("_T")


def _finish(steps: Generator[None, None, _T]) -> _T:
    """Do all steps at once."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: _T = stop.value
            return result
