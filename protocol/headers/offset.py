"""Consumer offsets, queue bounds, offset resets. Field names and types: RocketMQ 4.9.7, classes of the same names."""

from __future__ import annotations

import msgspec

from triomq.protocol.bounds import BrokerName, GroupList, GroupName, Int64, QueueId, QueueOffset, Timestamp, TopicName
from triomq.protocol.headers.base import Header


class QueryConsumerOffsetRequestHeader(Header, frozen=True, kw_only=True):
    """QUERY_CONSUMER_OFFSET request."""

    consumer_group: GroupName
    topic: TopicName
    queue_id: QueueId
    broker_name: BrokerName | None = msgspec.field(default=None, name="bname")


class QueryConsumerOffsetResponseHeader(Header, frozen=True, kw_only=True):
    """QUERY_CONSUMER_OFFSET response."""

    offset: Int64


class UpdateConsumerOffsetRequestHeader(Header, frozen=True, kw_only=True):
    """UPDATE_CONSUMER_OFFSET request."""

    consumer_group: GroupName
    topic: TopicName
    queue_id: QueueId
    commit_offset: QueueOffset
    broker_name: BrokerName | None = msgspec.field(default=None, name="bname")


class UpdateConsumerOffsetResponseHeader(Header, frozen=True, kw_only=True):
    """UPDATE_CONSUMER_OFFSET response: no fields."""


class SearchOffsetRequestHeader(Header, frozen=True, kw_only=True):
    """SEARCH_OFFSET_BY_TIMESTAMP request."""

    topic: TopicName
    queue_id: QueueId
    timestamp: Timestamp
    broker_name: BrokerName | None = msgspec.field(default=None, name="bname")


class SearchOffsetResponseHeader(Header, frozen=True, kw_only=True):
    """SEARCH_OFFSET_BY_TIMESTAMP response."""

    offset: Int64


class GetMaxOffsetRequestHeader(Header, frozen=True, kw_only=True):
    """GET_MAX_OFFSET request."""

    topic: TopicName
    queue_id: QueueId
    broker_name: BrokerName | None = msgspec.field(default=None, name="bname")


class GetMaxOffsetResponseHeader(Header, frozen=True, kw_only=True):
    """GET_MAX_OFFSET response."""

    offset: Int64


class GetMinOffsetRequestHeader(Header, frozen=True, kw_only=True):
    """GET_MIN_OFFSET request."""

    topic: TopicName
    queue_id: QueueId
    broker_name: BrokerName | None = msgspec.field(default=None, name="bname")


class GetMinOffsetResponseHeader(Header, frozen=True, kw_only=True):
    """GET_MIN_OFFSET response."""

    offset: Int64


class GetEarliestMsgStoretimeRequestHeader(Header, frozen=True, kw_only=True):
    """GET_EARLIEST_MSG_STORETIME request."""

    topic: TopicName
    queue_id: QueueId
    broker_name: BrokerName | None = msgspec.field(default=None, name="bname")


class GetEarliestMsgStoretimeResponseHeader(Header, frozen=True, kw_only=True):
    """GET_EARLIEST_MSG_STORETIME response."""

    timestamp: Int64


class CloneGroupOffsetRequestHeader(Header, frozen=True, kw_only=True):
    """CLONE_GROUP_OFFSET request."""

    src_group: GroupName
    dest_group: GroupName
    topic: TopicName | None = None
    offline: bool = False


class QueryCorrectionOffsetHeader(Header, frozen=True, kw_only=True):
    """QUERY_CORRECTION_OFFSET request."""

    filter_groups: GroupList | None = None  # comma-joined
    compare_group: GroupName
    topic: TopicName


class ResetOffsetRequestHeader(Header, frozen=True, kw_only=True):
    """RESET_CONSUMER_CLIENT_OFFSET, INVOKE_BROKER_TO_RESET_OFFSET request."""

    topic: TopicName
    group: GroupName
    timestamp: Timestamp = 0  # ms; -1: the end of the queue
    is_force: bool = False
    queue_id: QueueId | None = None  # these two since RocketMQ 5; none or -1: all queues
    offset: QueueOffset | None = None  # where the queue begins, whatever the timestamp; none or -1: by the timestamp
