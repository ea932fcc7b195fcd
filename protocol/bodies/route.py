"""Routes of topics: TopicRouteData (GET_ROUTEINFO_BY_TOPIC) and ClusterInfo (GET_BROKER_CLUSTER_INFO).

Broker ids are map keys and numbers, so fastjson writes them without quotes. Only clients that request standard JSON, or
whose version is V4_9_4 or newer, receive them quoted, and only in TopicRouteData.
"""

from __future__ import annotations

from typing import Annotated, Final

from triomq.protocol.bodies import fastjson
from triomq.protocol.bodies.base import Body
from triomq.protocol.bounds import (
    Address,
    BrokerId,
    BrokerName,
    ClusterName,
    Flags,
    RegisteredPermission,
    RegisteredQueueCount,
    in_frame,
)

MASTER_ID: Final = 0


class BrokerData(Body, frozen=True, kw_only=True):
    """The addresses ("ip:port") of one broker name, by broker id; 0 is the master."""

    broker_addrs: Annotated[dict[BrokerId, Address], in_frame("brokers of one name")] = {}
    broker_name: BrokerName = ""
    cluster: ClusterName | None = None


class QueueData(Body, frozen=True, kw_only=True, gc=False):
    """The number of queues of a topic at one broker name, and their permissions."""

    broker_name: BrokerName = ""
    perm: RegisteredPermission = 0
    read_queue_nums: RegisteredQueueCount = 0
    topic_sys_flag: Flags = 0
    write_queue_nums: RegisteredQueueCount = 0


class TopicRouteData(Body, frozen=True, kw_only=True):
    """The route of one topic. Only ordered topics have an `order_topic_conf` ("b-a:4;b-b:4")."""

    broker_datas: Annotated[list[BrokerData], in_frame("brokers of a topic")] = []
    filter_server_table: Annotated[
        dict[Address, Annotated[list[Address], in_frame("filter servers")]], in_frame("brokers with filter servers")
    ] = {}
    order_topic_conf: Annotated[str, in_frame("the queues of an ordered topic, as text")] | None = None
    queue_datas: Annotated[list[QueueData], in_frame("brokers with queues of a topic")] = []

    def encode_standard(self) -> bytes:
        """Return standard JSON: broker ids quoted, maps sorted, ASCII only."""
        return fastjson.dumps_standard(self)


class ClusterInfo(Body, frozen=True, kw_only=True):
    """All brokers by name, and the broker names of each cluster."""

    broker_addr_table: Annotated[dict[BrokerName, BrokerData], in_frame("names of brokers")] = {}
    cluster_addr_table: Annotated[
        dict[ClusterName, Annotated[frozenset[BrokerName], in_frame("brokers")]], in_frame("clusters")
    ] = {}
