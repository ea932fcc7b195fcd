"""Topics of a broker: create, delete, list, statistics.

Field names and types: RocketMQ 4.9.7, classes of the same names.
"""

from __future__ import annotations

from triomq.protocol.headers.base import Header, Int32


class CreateTopicRequestHeader(Header, frozen=True, kw_only=True):
    """UPDATE_AND_CREATE_TOPIC request."""

    topic: str
    default_topic: str  # ignored
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32  # bits of protocol.permission
    topic_filter_type: str  # SINGLE_TAG or MULTI_TAG
    topic_sys_flag: Int32 | None = None
    order: bool = False  # ignored


class GetAllTopicConfigResponseHeader(Header, frozen=True, kw_only=True):
    """GET_ALL_TOPIC_CONFIG response: no fields."""


class GetTopicStatsInfoRequestHeader(Header, frozen=True, kw_only=True):
    """GET_TOPIC_STATS_INFO request."""

    topic: str


class DeleteTopicRequestHeader(Header, frozen=True, kw_only=True):
    """DELETE_TOPIC_IN_BROKER request."""

    topic: str


class QueryTopicConsumeByWhoRequestHeader(Header, frozen=True, kw_only=True):
    """QUERY_TOPIC_CONSUME_BY_WHO request."""

    topic: str


class QueryConsumeTimeSpanRequestHeader(Header, frozen=True, kw_only=True):
    """QUERY_CONSUME_TIME_SPAN request."""

    topic: str
    group: str
