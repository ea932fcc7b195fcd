"""Requests to a NameServer: routes, broker registration, its key-value table.

Field names and types: RocketMQ 4.9.7, classes of the same names.
"""

from __future__ import annotations

from triomq.protocol.bounds import (
    Address,
    BrokerId,
    BrokerName,
    Checksum,
    ClusterName,
    Int32,
    Namespace,
    TableKey,
    TableValue,
    TopicName,
)
from triomq.protocol.headers.base import Header


class PutKVConfigRequestHeader(Header, frozen=True, kw_only=True):
    """PUT_KV_CONFIG request."""

    namespace: Namespace
    key: TableKey
    value: TableValue


class GetKVConfigRequestHeader(Header, frozen=True, kw_only=True):
    """GET_KV_CONFIG request."""

    namespace: Namespace
    key: TableKey


class GetKVConfigResponseHeader(Header, frozen=True, kw_only=True):
    """GET_KV_CONFIG response."""

    value: str | None = None


class DeleteKVConfigRequestHeader(Header, frozen=True, kw_only=True):
    """DELETE_KV_CONFIG request."""

    namespace: Namespace
    key: TableKey


class RegisterBrokerRequestHeader(Header, frozen=True, kw_only=True):
    """REGISTER_BROKER request."""

    broker_name: BrokerName
    broker_addr: Address
    cluster_name: ClusterName
    ha_server_addr: Address  # "ip:port" of the replication port
    broker_id: BrokerId
    compressed: bool = False  # the body is RegisterBrokerBody in its compressed form
    body_crc32: Checksum = 0  # CRC-32 of the body & 0x7FFFFFFF; 0: not checked


class RegisterBrokerResponseHeader(Header, frozen=True, kw_only=True):
    """REGISTER_BROKER response."""

    ha_server_addr: Address | None = None
    master_addr: Address | None = None


class UnRegisterBrokerRequestHeader(Header, frozen=True, kw_only=True):
    """UNREGISTER_BROKER request."""

    broker_name: BrokerName
    broker_addr: Address
    cluster_name: ClusterName
    broker_id: BrokerId


class GetRouteInfoRequestHeader(Header, frozen=True, kw_only=True):
    """GET_ROUTEINFO_BY_TOPIC request."""

    topic: TopicName
    accept_standard_json_only: bool | None = None  # quote the number keys of the response


class WipeWritePermOfBrokerRequestHeader(Header, frozen=True, kw_only=True):
    """WIPE_WRITE_PERM_OF_BROKER request."""

    broker_name: BrokerName


class WipeWritePermOfBrokerResponseHeader(Header, frozen=True, kw_only=True):
    """WIPE_WRITE_PERM_OF_BROKER response."""

    wipe_topic_count: Int32


class DeleteTopicFromNamesrvRequestHeader(Header, frozen=True, kw_only=True):
    """DELETE_TOPIC_IN_NAMESRV request."""

    topic: TopicName
    cluster_name: ClusterName | None = None  # absent: at all brokers; else only at those of this cluster


class GetKVListByNamespaceRequestHeader(Header, frozen=True, kw_only=True):
    """GET_KVLIST_BY_NAMESPACE request."""

    namespace: Namespace


class GetTopicsByClusterRequestHeader(Header, frozen=True, kw_only=True):
    """GET_TOPICS_BY_CLUSTER request."""

    cluster: ClusterName


class QueryDataVersionRequestHeader(Header, frozen=True, kw_only=True):
    """QUERY_DATA_VERSION request."""

    broker_name: BrokerName
    broker_addr: Address
    cluster_name: ClusterName
    broker_id: BrokerId


class QueryDataVersionResponseHeader(Header, frozen=True, kw_only=True):
    """QUERY_DATA_VERSION response."""

    changed: bool


class AddWritePermOfBrokerRequestHeader(Header, frozen=True, kw_only=True):
    """ADD_WRITE_PERM_OF_BROKER request."""

    broker_name: BrokerName


class AddWritePermOfBrokerResponseHeader(Header, frozen=True, kw_only=True):
    """ADD_WRITE_PERM_OF_BROKER response."""

    add_topic_count: Int32
