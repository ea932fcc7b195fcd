"""Consumer offsets, queue bounds, offset resets. Field names and types: RocketMQ 4.9.7, classes of the same names."""

from __future__ import annotations

import msgspec

from triomq.protocol.headers.base import Header, Int32, Int64


class QueryConsumerOffsetRequestHeader(Header, frozen=True, kw_only=True):
    """QUERY_CONSUMER_OFFSET request."""

    consumer_group: str
    topic: str
    queue_id: Int32
    broker_name: str | None = msgspec.field(default=None, name="bname")


class QueryConsumerOffsetResponseHeader(Header, frozen=True, kw_only=True):
    """QUERY_CONSUMER_OFFSET response."""

    offset: Int64


class UpdateConsumerOffsetRequestHeader(Header, frozen=True, kw_only=True):
    """UPDATE_CONSUMER_OFFSET request."""

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Int64
    broker_name: str | None = msgspec.field(default=None, name="bname")


class UpdateConsumerOffsetResponseHeader(Header, frozen=True, kw_only=True):
    """UPDATE_CONSUMER_OFFSET response: no fields."""


class SearchOffsetRequestHeader(Header, frozen=True, kw_only=True):
    """SEARCH_OFFSET_BY_TIMESTAMP request."""

    topic: str
    queue_id: Int32
    timestamp: Int64
    broker_name: str | None = msgspec.field(default=None, name="bname")


class SearchOffsetResponseHeader(Header, frozen=True, kw_only=True):
    """SEARCH_OFFSET_BY_TIMESTAMP response."""

    offset: Int64


class GetMaxOffsetRequestHeader(Header, frozen=True, kw_only=True):
    """GET_MAX_OFFSET request."""

    topic: str
    queue_id: Int32
    broker_name: str | None = msgspec.field(default=None, name="bname")


class GetMaxOffsetResponseHeader(Header, frozen=True, kw_only=True):
    """GET_MAX_OFFSET response."""

    offset: Int64


class GetMinOffsetRequestHeader(Header, frozen=True, kw_only=True):
    """GET_MIN_OFFSET request."""

    topic: str
    queue_id: Int32
    broker_name: str | None = msgspec.field(default=None, name="bname")


class GetMinOffsetResponseHeader(Header, frozen=True, kw_only=True):
    """GET_MIN_OFFSET response."""

    offset: Int64


class GetEarliestMsgStoretimeRequestHeader(Header, frozen=True, kw_only=True):
    """GET_EARLIEST_MSG_STORETIME request."""

    topic: str
    queue_id: Int32
    broker_name: str | None = msgspec.field(default=None, name="bname")


class GetEarliestMsgStoretimeResponseHeader(Header, frozen=True, kw_only=True):
    """GET_EARLIEST_MSG_STORETIME response."""

    timestamp: Int64


class CloneGroupOffsetRequestHeader(Header, frozen=True, kw_only=True):
    """CLONE_GROUP_OFFSET request."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


class QueryCorrectionOffsetHeader(Header, frozen=True, kw_only=True):
    """QUERY_CORRECTION_OFFSET request."""

    filter_groups: str | None = None  # comma-joined
    compare_group: str
    topic: str


class ResetOffsetRequestHeader(Header, frozen=True, kw_only=True):
    """RESET_CONSUMER_CLIENT_OFFSET, INVOKE_BROKER_TO_RESET_OFFSET request."""

    topic: str
    group: str
    timestamp: Int64 = 0  # ms; -1: the end of the queue
    is_force: bool = False
