"""Lists of the clients connected to a broker."""

from __future__ import annotations

import msgspec

from triomq.protocol.bodies.base import Body
from triomq.protocol.bounds import Int32, Int64
from triomq.protocol.subscription import SubscriptionData


class Connection(Body, frozen=True, kw_only=True):
    """One client connection. `language` is the name of a LanguageCode, `version` an MQVersion ordinal."""

    client_addr: str | None = None
    client_id: str | None = None
    language: str | None = None
    version: Int32 = 0


class ConsumerConnection(Body, frozen=True, kw_only=True):
    """GET_CONSUMER_CONNECTION_LIST: the members of a group and what it subscribes to, by topic."""

    connection_set: list[Connection] = []
    consume_from_where: str | None = None
    consume_type: str | None = None
    message_model: str | None = None
    subscription_table: dict[str, SubscriptionData] = {}


class ProducerConnection(Body, frozen=True, kw_only=True):
    """GET_PRODUCER_CONNECTION_LIST."""

    connection_set: list[Connection] = []


class ProducerInfo(Body, frozen=True, kw_only=True):
    """One producer client. `remote_ip` is "/ip:port"; `last_update_timestamp`: ms, of its last heartbeat."""

    client_id: str | None = None
    language: str | None = None
    last_update_timestamp: Int64 = 0
    remote_ip: str | None = msgspec.field(default=None, name="remoteIP")
    version: Int32 = 0


class ProducerTableInfo(Body, frozen=True, kw_only=True):
    """GET_ALL_PRODUCER_INFO: the clients of each producer group."""

    data: dict[str, list[ProducerInfo]] = {}
