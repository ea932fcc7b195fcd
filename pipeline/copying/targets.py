"""Topics and groups of the target: what they are like at the source, and making those that are missing."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from triomq.client.core.requests import Call
from triomq.client.core.routes import TopicRoute
from triomq.protocol import permission
from triomq.protocol.bodies.route import ClusterInfo, QueueData
from triomq.protocol.bodies.subscription_group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import new_request
from triomq.protocol.headers.topic import CreateTopicRequestHeader
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.system_topics import AUTO_CREATE_TOPIC
from triomq.spark.cluster import Cluster
from triomq.spark.errors import Unreachable

ROUTE_SECONDS: Final = 10.0
"""How long a name server may take to know a new topic."""


def readable_queues(route: TopicRoute) -> list[MessageQueue]:
    """Return the queues of a source topic that may be read, sorted."""
    return sorted(
        MessageQueue(route.topic, data.broker_name, number)
        for data in route.data.queue_datas
        if permission.is_readable(data.perm)
        for number in range(data.read_queue_nums)
    )


def queues_of(route: TopicRoute) -> list[MessageQueue]:
    """Return the queues of a target topic that may be written, sorted."""
    return sorted(
        MessageQueue(route.topic, data.broker_name, number)
        for data in route.data.queue_datas
        if permission.is_writeable(data.perm)
        for number in range(max(data.write_queue_nums, data.read_queue_nums))
    )


def planned(route: TopicRoute, brokers: Iterable[str]) -> dict[str, QueueData]:
    """Return target broker -> settings of the topic that is to be made there. Brokers of the same name, or as many of
    them as the source has, get the same settings each; otherwise the queues are spread over all of them."""
    names = sorted(brokers)
    ours = sorted(route.data.queue_datas, key=lambda data: data.broker_name)
    if {data.broker_name for data in ours} <= set(names):
        return {data.broker_name: data for data in ours}
    if len(names) >= len(ours):
        return dict(zip(names, ours, strict=False))
    counts = [sum(getattr(data, name) for data in ours) for name in ("read_queue_nums", "write_queue_nums")]
    read, write = (math.ceil(count / len(names)) for count in counts)
    whole = QueueData(
        perm=ours[0].perm, topic_sys_flag=ours[0].topic_sys_flag, read_queue_nums=read, write_queue_nums=write
    )
    return dict.fromkeys(names, whole)


def widened(route: TopicRoute, wanted: dict[str, QueueData]) -> dict[str, QueueData]:
    """Return target broker -> settings of a topic that gets more queues: nowhere fewer than `route` says. Brokers that
    have enough are left out."""
    present = {data.broker_name: data for data in route.data.queue_datas}
    found = {}
    for broker, data in wanted.items():
        old = present.get(broker)
        if old is None:
            found[broker] = data
        elif data.read_queue_nums > old.read_queue_nums or data.write_queue_nums > old.write_queue_nums:
            found[broker] = QueueData(
                perm=old.perm,
                topic_sys_flag=old.topic_sys_flag,
                read_queue_nums=max(data.read_queue_nums, old.read_queue_nums),
                write_queue_nums=max(data.write_queue_nums, old.write_queue_nums),
            )
    return found


def make_topic(cluster: Cluster, topic: str, plan: dict[str, QueueData], masters: dict[str, str]) -> None:
    """Create a topic, or change it, and wait until a name server knows all of it. Raises BrokerError."""
    for broker, data in plan.items():
        header = CreateTopicRequestHeader(
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=data.read_queue_nums,
            write_queue_nums=data.write_queue_nums,
            perm=data.perm | permission.WRITE,  # the copies are written to it
            topic_filter_type="SINGLE_TAG",
            topic_sys_flag=data.topic_sys_flag,
            order=False,
        )
        _done(cluster, masters[broker], RequestCode.UPDATE_AND_CREATE_TOPIC, f"creating topic {topic!r}", header=header)
    deadline = cluster.clock() + ROUTE_SECONDS
    while cluster.clock() < deadline:
        cluster.forget_routes()
        route = cluster.find_route(topic)
        known = {data.broker_name: data for data in route.data.queue_datas} if route is not None else {}
        if all(
            broker in known and known[broker].read_queue_nums >= data.read_queue_nums for broker, data in plan.items()
        ):
            return
        cluster.pause(0.05)
    raise Unreachable(f"no name server knows the new topic {topic!r} after {ROUTE_SECONDS:.0f} s")


def groups_at(cluster: Cluster, address: str) -> dict[str, SubscriptionGroupConfig]:
    """Return the groups of one broker with their settings."""

    def asked() -> Call[SubscriptionGroupWrapper]:
        request = new_request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        return Call(request, "asking for the groups", lambda response: SubscriptionGroupWrapper.decode(response.body))

    table = cluster.until_done("asking for the groups", lambda: cluster.call(address, asked()))
    return dict(table.subscription_group_table)


def make_group(cluster: Cluster, config: SubscriptionGroupConfig, address: str) -> None:
    """Create a group at one broker. Raises BrokerError."""
    action = f"creating group {config.group_name!r}"
    _done(cluster, address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, action, body=config.encode())


def _done(
    cluster: Cluster,
    address: str,
    code: RequestCode,
    action: str,
    *,
    header: CreateTopicRequestHeader | None = None,
    body: bytes = b"",
) -> None:
    def attempt() -> None:
        call: Call[None] = Call(new_request(code, header, body), action, lambda response: None)
        cluster.call(address, call)

    cluster.until_done(action, attempt)


def masters_of(info: ClusterInfo) -> dict[str, str]:
    """Return broker name -> address of its master."""
    return {
        name: data.broker_addrs[0] for name, data in sorted(info.broker_addr_table.items()) if 0 in data.broker_addrs
    }


def common_brokers(ours: ClusterInfo, theirs: ClusterInfo) -> list[str]:
    """Return the names of brokers that both name servers know at the same address: it is one cluster."""
    others = masters_of(theirs)
    return [name for name, address in masters_of(ours).items() if others.get(name) == address]
