"""Clients of a broker: registration, group members, connections, requests that the broker forwards to a client.

Field names and types: RocketMQ 4.9.7, classes of the same names.
"""

from __future__ import annotations

import msgspec

from triomq.protocol.bounds import Address, BrokerName, Checksum, ClassName, ClientId, GroupName, MessageId, TopicName
from triomq.protocol.headers.base import Header


class UnregisterClientRequestHeader(Header, frozen=True, kw_only=True):
    """UNREGISTER_CLIENT request."""

    client_id: ClientId = msgspec.field(name="clientID")
    producer_group: GroupName | None = None
    consumer_group: GroupName | None = None


class UnregisterClientResponseHeader(Header, frozen=True, kw_only=True):
    """UNREGISTER_CLIENT response: no fields."""


class GetConsumerListByGroupRequestHeader(Header, frozen=True, kw_only=True):
    """GET_CONSUMER_LIST_BY_GROUP request."""

    consumer_group: GroupName


class GetConsumerListByGroupResponseHeader(Header, frozen=True, kw_only=True):
    """GET_CONSUMER_LIST_BY_GROUP response: no fields."""


class NotifyConsumerIdsChangedRequestHeader(Header, frozen=True, kw_only=True):
    """NOTIFY_CONSUMER_IDS_CHANGED request."""

    consumer_group: GroupName


class GetConsumerConnectionListRequestHeader(Header, frozen=True, kw_only=True):
    """GET_CONSUMER_CONNECTION_LIST request."""

    consumer_group: GroupName


class GetProducerConnectionListRequestHeader(Header, frozen=True, kw_only=True):
    """GET_PRODUCER_CONNECTION_LIST request."""

    producer_group: GroupName


class GetConsumerStatusRequestHeader(Header, frozen=True, kw_only=True):
    """GET_CONSUMER_STATUS_FROM_CLIENT, INVOKE_BROKER_TO_GET_CONSUMER_STATUS request."""

    topic: TopicName
    group: GroupName
    client_addr: ClientId | None = None  # a client id; blank means all clients


class GetConsumerRunningInfoRequestHeader(Header, frozen=True, kw_only=True):
    """GET_CONSUMER_RUNNING_INFO request."""

    consumer_group: GroupName
    client_id: ClientId
    jstack_enable: bool = False


class ConsumeMessageDirectlyResultRequestHeader(Header, frozen=True, kw_only=True):
    """CONSUME_MESSAGE_DIRECTLY request."""

    consumer_group: GroupName
    client_id: ClientId | None = None
    msg_id: MessageId | None = None  # the offset message id
    broker_name: BrokerName | None = None  # the broker adds it when it forwards the request


class GetAllProducerInfoRequestHeader(Header, frozen=True, kw_only=True):
    """GET_ALL_PRODUCER_INFO request: no fields."""


class RegisterFilterServerRequestHeader(Header, frozen=True, kw_only=True):
    """REGISTER_FILTER_SERVER request."""

    filter_server_addr: Address


class RegisterMessageFilterClassRequestHeader(Header, frozen=True, kw_only=True):
    """REGISTER_MESSAGE_FILTER_CLASS request."""

    consumer_group: GroupName
    topic: TopicName
    class_name: ClassName
    class_crc: Checksum = msgspec.field(name="classCRC")
