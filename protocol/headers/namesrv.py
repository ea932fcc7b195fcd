"""Requests to a NameServer: routes, broker registration, its key-value table.

Field names and types: RocketMQ 4.9.7, classes of the same names.
"""

from __future__ import annotations

from triomq.protocol.headers.base import Header, Int32, Int64


class PutKVConfigRequestHeader(Header, frozen=True, kw_only=True):
    """PUT_KV_CONFIG request."""

    namespace: str
    key: str
    value: str


class GetKVConfigRequestHeader(Header, frozen=True, kw_only=True):
    """GET_KV_CONFIG request."""

    namespace: str
    key: str


class GetKVConfigResponseHeader(Header, frozen=True, kw_only=True):
    """GET_KV_CONFIG response."""

    value: str | None = None


class DeleteKVConfigRequestHeader(Header, frozen=True, kw_only=True):
    """DELETE_KV_CONFIG request."""

    namespace: str
    key: str


class RegisterBrokerRequestHeader(Header, frozen=True, kw_only=True):
    """REGISTER_BROKER request."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str  # "ip:port" of the replication port
    broker_id: Int64
    compressed: bool = False  # the body is RegisterBrokerBody in its compressed form
    body_crc32: Int32 = 0  # CRC-32 of the body & 0x7FFFFFFF; 0: not checked


class RegisterBrokerResponseHeader(Header, frozen=True, kw_only=True):
    """REGISTER_BROKER response."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnRegisterBrokerRequestHeader(Header, frozen=True, kw_only=True):
    """UNREGISTER_BROKER request."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class GetRouteInfoRequestHeader(Header, frozen=True, kw_only=True):
    """GET_ROUTEINFO_BY_TOPIC request."""

    topic: str
    accept_standard_json_only: bool | None = None  # quote the number keys of the response


class WipeWritePermOfBrokerRequestHeader(Header, frozen=True, kw_only=True):
    """WIPE_WRITE_PERM_OF_BROKER request."""

    broker_name: str


class WipeWritePermOfBrokerResponseHeader(Header, frozen=True, kw_only=True):
    """WIPE_WRITE_PERM_OF_BROKER response."""

    wipe_topic_count: Int32


class DeleteTopicFromNamesrvRequestHeader(Header, frozen=True, kw_only=True):
    """DELETE_TOPIC_IN_NAMESRV request."""

    topic: str
    cluster_name: str | None = None  # absent: at all brokers; else only at those of this cluster


class GetKVListByNamespaceRequestHeader(Header, frozen=True, kw_only=True):
    """GET_KVLIST_BY_NAMESPACE request."""

    namespace: str


class GetTopicsByClusterRequestHeader(Header, frozen=True, kw_only=True):
    """GET_TOPICS_BY_CLUSTER request."""

    cluster: str


class QueryDataVersionRequestHeader(Header, frozen=True, kw_only=True):
    """QUERY_DATA_VERSION request."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class QueryDataVersionResponseHeader(Header, frozen=True, kw_only=True):
    """QUERY_DATA_VERSION response."""

    changed: bool


class AddWritePermOfBrokerRequestHeader(Header, frozen=True, kw_only=True):
    """ADD_WRITE_PERM_OF_BROKER request."""

    broker_name: str


class AddWritePermOfBrokerResponseHeader(Header, frozen=True, kw_only=True):
    """ADD_WRITE_PERM_OF_BROKER response."""

    add_topic_count: Int32
