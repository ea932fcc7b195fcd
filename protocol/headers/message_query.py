"""Queries for single messages and consume queue entries.

Field names and types: RocketMQ 4.9.7, classes of the same names.
"""

from __future__ import annotations

from triomq.protocol.bounds import (
    EntryCount,
    FoundCount,
    GroupName,
    Int64,
    MessageKey,
    PhysicalOffset,
    QueueId,
    QueueOffset,
    Timestamp,
    TopicName,
)
from triomq.protocol.headers.base import Header

UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
"""Extra field of QUERY_MESSAGE: "true" if the key is a UNIQ_KEY. RocketMQ's broker leaves it out of the signed text."""


class QueryMessageRequestHeader(Header, frozen=True, kw_only=True):
    """QUERY_MESSAGE request."""

    topic: TopicName
    key: MessageKey  # one message key, or a UNIQ_KEY with _UNIQUE_KEY_QUERY
    max_num: FoundCount
    begin_timestamp: Timestamp
    end_timestamp: Timestamp


class QueryMessageResponseHeader(Header, frozen=True, kw_only=True):
    """QUERY_MESSAGE response."""

    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64  # physical offset


class ViewMessageRequestHeader(Header, frozen=True, kw_only=True):
    """VIEW_MESSAGE_BY_ID request."""

    offset: PhysicalOffset  # physical offset in the commit log


class QueryConsumeQueueRequestHeader(Header, frozen=True, kw_only=True):
    """QUERY_CONSUME_QUEUE request."""

    topic: TopicName | None = None
    queue_id: QueueId = 0
    index: QueueOffset = 0  # queue offset of the first entry
    count: EntryCount = 0
    consumer_group: GroupName | None = None
