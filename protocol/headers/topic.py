"""Topics of a broker: create, delete, list, statistics.

Field names and types: RocketMQ 4.9.7, classes of the same names.
"""

from __future__ import annotations

from triomq.protocol.bounds import FilterType, Flags, GroupName, Permission, QueueCount, TopicName
from triomq.protocol.headers.base import Header


class CreateTopicRequestHeader(Header, frozen=True, kw_only=True):
    """UPDATE_AND_CREATE_TOPIC request."""

    topic: TopicName
    default_topic: TopicName  # ignored
    read_queue_nums: QueueCount
    write_queue_nums: QueueCount
    perm: Permission  # bits of protocol.permission
    topic_filter_type: FilterType  # SINGLE_TAG or MULTI_TAG
    topic_sys_flag: Flags | None = None
    order: bool = False  # ignored


class GetAllTopicConfigResponseHeader(Header, frozen=True, kw_only=True):
    """GET_ALL_TOPIC_CONFIG response: no fields."""


class GetTopicConfigRequestHeader(Header, frozen=True, kw_only=True):
    """GET_TOPIC_CONFIG request (RocketMQ 5)."""

    topic: TopicName


class GetTopicStatsInfoRequestHeader(Header, frozen=True, kw_only=True):
    """GET_TOPIC_STATS_INFO request."""

    topic: TopicName


class DeleteTopicRequestHeader(Header, frozen=True, kw_only=True):
    """DELETE_TOPIC_IN_BROKER request."""

    topic: TopicName


class QueryTopicConsumeByWhoRequestHeader(Header, frozen=True, kw_only=True):
    """QUERY_TOPIC_CONSUME_BY_WHO request."""

    topic: TopicName


class QueryConsumeTimeSpanRequestHeader(Header, frozen=True, kw_only=True):
    """QUERY_CONSUME_TIME_SPAN request."""

    topic: TopicName
    group: GroupName
