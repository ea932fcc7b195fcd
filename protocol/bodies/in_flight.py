"""What groups have received by POP and not acknowledged: QUERY_IN_FLIGHT (TrioMQ only)."""

from __future__ import annotations

from triomq.protocol.bodies.base import Body
from triomq.protocol.bounds import GroupName, Int32, Int64, QueueOffset, TopicName


class QueueInFlight(Body, frozen=True, kw_only=True):
    """One queue of a topic as a group receives it.

    `in_flight`: messages that were received and are invisible; `ready`: those that may be received, new ones and those
    that come again. `oldest_offset` is the first that was received and not acknowledged, -1 if there is none, and
    `oldest_age_ms` how long it has been stored. `most_attempts`: how often one of them was received at most.
    """

    consumer_group: GroupName | None = None
    in_flight: Int64 = 0
    most_attempts: Int32 = 0
    next_offset: QueueOffset = 0
    oldest_age_ms: Int64 = 0
    oldest_offset: QueueOffset = -1
    queue_id: Int32 = 0
    ready: Int64 = 0
    topic: TopicName | None = None


class QueryInFlightResponseBody(Body, frozen=True, kw_only=True):
    """QUERY_IN_FLIGHT response, by group, topic and queue. `left_out`: how many queues more there are."""

    left_out: Int32 = 0
    queues: list[QueueInFlight] = []
