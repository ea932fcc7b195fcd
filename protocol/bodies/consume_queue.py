"""QUERY_CONSUME_QUEUE: entries of a consume queue, with the data that filters use."""

from __future__ import annotations

from triomq.protocol.bodies.base import Body
from triomq.protocol.bounds import Int32, Int64
from triomq.protocol.subscription import SubscriptionData


class ConsumeQueueData(Body, frozen=True, kw_only=True):
    """One entry. `eval`: whether it passes the filter of the group. `bit_map`: digits 0 and 1, highest bit first.

    `extend_data_json`: the ext unit as JSON. `msg`: why the message could not be read.
    """

    bit_map: str | None = None
    eval: bool = False
    extend_data_json: str | None = None
    msg: str | None = None
    physic_offset: Int64 = 0
    physic_size: Int32 = 0
    tags_code: Int64 = 0


class QueryConsumeQueueResponseBody(Body, frozen=True, kw_only=True):
    """Entries and bounds of a queue. `filter_data`: "null", JSON of ConsumerFilterData, or a sentence."""

    filter_data: str | None = None
    max_queue_index: Int64 = 0
    min_queue_index: Int64 = 0
    queue_data: list[ConsumeQueueData] = []
    subscription_data: SubscriptionData | None = None
