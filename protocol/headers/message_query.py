"""Queries for single messages and consume queue entries.

Field names and types: RocketMQ 4.9.7, classes of the same names.
"""

from __future__ import annotations

from triomq.protocol.headers.base import Header, Int32, Int64

UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
"""Extra field of QUERY_MESSAGE: "true" if the key is a UNIQ_KEY. RocketMQ's broker leaves it out of the signed text."""


class QueryMessageRequestHeader(Header, frozen=True, kw_only=True):
    """QUERY_MESSAGE request."""

    topic: str
    key: str  # one message key, or a UNIQ_KEY with _UNIQUE_KEY_QUERY
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64


class QueryMessageResponseHeader(Header, frozen=True, kw_only=True):
    """QUERY_MESSAGE response."""

    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64  # physical offset


class ViewMessageRequestHeader(Header, frozen=True, kw_only=True):
    """VIEW_MESSAGE_BY_ID request."""

    offset: Int64  # physical offset in the commit log


class QueryConsumeQueueRequestHeader(Header, frozen=True, kw_only=True):
    """QUERY_CONSUME_QUEUE request."""

    topic: str | None = None
    queue_id: Int32 = 0
    index: Int64 = 0  # queue offset of the first entry
    count: Int32 = 0
    consumer_group: str | None = None
