"""What a client knows of its topics: their queues, and the addresses of their brokers.

Holds, for each topic (`update`), the route data and what follows from it. Owned by one client; written when a name
server has responded, read by everything that sends or pulls, all in one thread. Bounded by the topics that a process
uses (`forget` drops one). May not live here: requests to name servers, the choice of a queue (latency.py,
producer.py).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from triomq.client.core.latency import LatencyFaults
from triomq.protocol import permission
from triomq.protocol.bodies.route import BrokerData, QueueData, TopicRouteData
from triomq.protocol.message_queue import MessageQueue

MASTER_ID = 0


def parse_order_conf(conf: str) -> dict[str, int]:
    """Return the number of queues of each broker in an order configuration, "b-a:4;b-b:4". Raises ValueError."""
    queues: dict[str, int] = {}
    for item in conf.split(";"):
        name, colon, count = item.strip().partition(":")
        if not name and not colon:
            continue
        if not colon or not count.isascii() or not count.isdigit():
            raise ValueError(f"{item!r} in the order configuration {conf!r} is not broker:count")
        queues[name] = int(count)
    return queues


def publish_queues(topic: str, route: TopicRouteData) -> list[MessageQueue]:
    """Return the queues a producer may send to: writable ones of brokers with a master. For a topic with an order
    configuration these are exactly the queues it names, in its order, so that a queue stays where it is while its
    broker is down (RocketMQ: MQClientInstance.topicRouteData2TopicPublishInfo)."""
    if route.order_topic_conf:
        return [
            MessageQueue(topic, name, number)
            for name, count in parse_order_conf(route.order_topic_conf).items()
            for number in range(count)
        ]
    masters = {broker.broker_name for broker in route.broker_datas if MASTER_ID in broker.broker_addrs}
    return [
        MessageQueue(topic, data.broker_name, number)
        for data in _by_name(route.queue_datas)
        if permission.is_writeable(data.perm) and data.broker_name in masters
        for number in range(data.write_queue_nums)
    ]


def subscribe_queues(topic: str, route: TopicRouteData) -> list[MessageQueue]:
    """Return the queues a consumer reads from: all read queues of readable topics, sorted."""
    return [
        MessageQueue(topic, data.broker_name, number)
        for data in _by_name(route.queue_datas)
        if permission.is_readable(data.perm)
        for number in range(data.read_queue_nums)
    ]


def _by_name(datas: Iterable[QueueData]) -> list[QueueData]:
    return sorted(datas, key=lambda data: data.broker_name)


def template_route(route: TopicRouteData, max_queues: int) -> TopicRouteData:
    """Turn the route of the template topic (TBW102) into that of a topic which the first send will create: at most
    `max_queues` queues at each broker, since that is what the broker creates."""

    def capped(data: QueueData) -> QueueData:
        count = min(max_queues, data.read_queue_nums)
        return QueueData(
            broker_name=data.broker_name,
            read_queue_nums=count,
            write_queue_nums=count,
            perm=data.perm,
            topic_sys_flag=data.topic_sys_flag,
        )

    return TopicRouteData(
        broker_datas=route.broker_datas,
        queue_datas=[capped(data) for data in route.queue_datas],
        filter_server_table=route.filter_server_table,
    )


def first_turn() -> int:
    """Return where a producer begins its round: anywhere, so that many short-lived producers do not all send to the
    first queue."""
    return random.randrange(1 << 16)


@dataclass(slots=True)
class TopicRoute:
    """One topic: its route data, the queues that follow from it, and whose turn is next."""

    topic: str
    data: TopicRouteData
    publish: list[MessageQueue]
    subscribe: list[MessageQueue]
    is_template: bool = False
    """True when no name server knows the topic yet and this is the template's route."""
    turn: Iterator[int] = field(default_factory=lambda: itertools.count(first_turn()))

    @property
    def is_ordered(self) -> bool:
        return bool(self.data.order_topic_conf)

    @property
    def lacks_master(self) -> bool:
        """Whether a broker with queues to write to has no master now: it restarts, or another one takes over."""
        masters = {broker.broker_name for broker in self.data.broker_datas if MASTER_ID in broker.broker_addrs}
        writeable = (data.broker_name for data in self.data.queue_datas if permission.is_writeable(data.perm))
        return any(name not in masters for name in writeable)

    def next_queue(self, faults: LatencyFaults, now_ms: int, avoid: Collection[str] = ()) -> MessageQueue | None:
        """Return the queue of the next send: round robin over those whose broker is available and is not in `avoid`
        (names of brokers that just failed); when none is left, one of the least bad broker; otherwise any. None when
        the topic has no queue."""
        queues = self.publish
        if not queues:
            return None
        start = next(self.turn)
        for step in range(len(queues)):
            queue = queues[(start + step) % len(queues)]
            if queue.broker_name not in avoid and faults.is_available(queue.broker_name, now_ms):
                return queue
        names = sorted({queue.broker_name for queue in queues if queue.broker_name not in avoid})
        best = faults.least_bad(names, now_ms)
        candidates = [queue for queue in queues if queue.broker_name == best] or queues
        return candidates[start % len(candidates)]


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Where one broker listens; `broker_id` 0 is the master."""

    broker_name: str
    broker_id: int
    address: str

    @property
    def is_master(self) -> bool:
        return self.broker_id == MASTER_ID


class RouteTable:
    """The routes of all topics this client uses, and the brokers they name."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicRoute] = {}
        self._brokers: dict[str, dict[int, str]] = {}

    def topics(self) -> list[str]:
        return sorted(self._topics)

    def get(self, topic: str) -> TopicRoute | None:
        return self._topics.get(topic)

    def update(self, topic: str, data: TopicRouteData, *, is_template: bool = False) -> bool:
        """Store what a name server returned. Return whether anything changed (queues or addresses)."""
        known = self._topics.get(topic)
        for broker in data.broker_datas:
            self._brokers[broker.broker_name] = dict(broker.broker_addrs)
        if known is not None and known.is_template == is_template and _same(known.data, data):
            return False
        self._topics[topic] = TopicRoute(
            topic,
            data,
            publish=publish_queues(topic, data),
            subscribe=subscribe_queues(topic, data),
            is_template=is_template,
        )
        if known is not None:
            self._topics[topic].turn = known.turn
        return True

    def forget(self, topic: str) -> None:
        """Forget a topic, and the brokers that no other topic names."""
        self._topics.pop(topic, None)
        named = {broker.broker_name for route in self._topics.values() for broker in route.data.broker_datas}
        for name in [name for name in self._brokers if name not in named]:
            del self._brokers[name]

    def brokers(self) -> list[BrokerAddress]:
        """Return every known address, masters first."""
        found = [
            BrokerAddress(name, broker_id, address)
            for name, addresses in self._brokers.items()
            for broker_id, address in addresses.items()
        ]
        return sorted(found, key=lambda one: (one.broker_id, one.broker_name))

    def master(self, broker_name: str) -> str | None:
        """Return the address of the master of this broker name."""
        return self._brokers.get(broker_name, {}).get(MASTER_ID)

    def readable(self, broker_name: str, preferred_id: int = MASTER_ID) -> BrokerAddress | None:
        """Return where to pull from: the preferred broker, else the master, else any replica."""
        addresses = self._brokers.get(broker_name)
        if not addresses:
            return None
        for broker_id in (preferred_id, MASTER_ID, min(addresses)):
            if broker_id in addresses:
                return BrokerAddress(broker_name, broker_id, addresses[broker_id])
        return None

    def naming(self, broker_name: str) -> TopicRoute | None:
        """Return a route that names this broker, preferably of a topic that exists."""
        routes = [
            route
            for route in self._topics.values()
            if any(broker.broker_name == broker_name for broker in route.data.broker_datas)
        ]
        return min(routes, key=lambda route: route.is_template, default=None)

    def any_broker_of(self, topic: str, turn: int = 0) -> BrokerAddress | None:
        """Return one broker of the topic, preferably a master; `turn` spreads the calls."""
        route = self._topics.get(topic)
        if route is None:
            return None
        brokers = sorted(
            (data for data in route.data.broker_datas if data.broker_addrs), key=lambda data: data.broker_name
        )
        if not brokers:
            return None
        chosen = brokers[turn % len(brokers)]
        return self.readable(chosen.broker_name)


def _same(one: TopicRouteData, other: TopicRouteData) -> bool:
    """Return whether both are equal but for the order of the lists."""
    return (
        one.order_topic_conf == other.order_topic_conf
        and _by_name(one.queue_datas) == _by_name(other.queue_datas)
        and _brokers_by_name(one.broker_datas) == _brokers_by_name(other.broker_datas)
    )


def _brokers_by_name(datas: Iterable[BrokerData]) -> list[BrokerData]:
    return sorted(datas, key=lambda data: data.broker_name)
