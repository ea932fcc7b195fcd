"""Progress of consumers and bounds of queues: GET_CONSUME_STATS, GET_TOPIC_STATS_INFO and related codes."""

from __future__ import annotations

from typing import Annotated

from triomq.protocol.bodies.base import Body
from triomq.protocol.bounds import Int64, QueueOffset, Timestamp, in_frame
from triomq.protocol.message_queue import MessageQueue


class OffsetWrapper(Body, frozen=True, kw_only=True, gc=False):
    """One queue of a group: end of the queue, consumer offset, store time in ms of the last consumed message, and where
    the group pulls next (RocketMQ 5; a broker of 4.9 does not say)."""

    broker_offset: Int64 = 0
    consumer_offset: Int64 = 0
    last_timestamp: Int64 = 0
    pull_offset: Int64 | None = None


class ConsumeStats(Body, frozen=True, kw_only=True):
    """Progress of one group. `consume_tps`: messages per second over the last minute."""

    consume_tps: float = 0.0
    offset_table: dict[MessageQueue, OffsetWrapper] = {}

    def total_diff(self) -> int:
        """Return the lag of the group: messages not yet consumed, over all queues."""
        return sum(wrapper.broker_offset - wrapper.consumer_offset for wrapper in self.offset_table.values())


class ConsumeStatsList(Body, frozen=True, kw_only=True):
    """Progress of every group of a broker: one map {group: [ConsumeStats...]} per group."""

    broker_addr: str | None = None
    consume_stats_list: list[dict[str, list[ConsumeStats]]] = []
    total_diff: Int64 = 0


class TopicOffset(Body, frozen=True, kw_only=True, gc=False):
    """Bounds of one queue, and the store time in ms of its last message (0 if it is empty)."""

    last_update_timestamp: Timestamp = 0
    max_offset: QueueOffset = 0
    min_offset: QueueOffset = 0


class TopicStatsTable(Body, frozen=True, kw_only=True):
    """Bounds of all queues of a topic."""

    offset_table: Annotated[dict[MessageQueue, TopicOffset], in_frame("queues of a master's topic")] = {}


class QueueTimeSpan(Body, frozen=True, kw_only=True):
    """Store times in ms of a queue's first, last and last consumed message. Texts: local yyyy-MM-dd#HH:mm:ss:SSS."""

    consume_time_stamp: Int64 = 0
    consume_time_stamp_str: str | None = None
    delay_time: Int64 = 0
    max_time_stamp: Int64 = 0
    max_time_stamp_str: str | None = None
    message_queue: MessageQueue | None = None
    min_time_stamp: Int64 = 0
    min_time_stamp_str: str | None = None


class QueryConsumeTimeSpanBody(Body, frozen=True, kw_only=True):
    """QUERY_CONSUME_TIME_SPAN."""

    consume_time_span_set: list[QueueTimeSpan] = []
