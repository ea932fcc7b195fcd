"""SQL92 filters that a broker persists (consumerFilter.json)."""

from __future__ import annotations

from triomq.protocol.bodies.base import Body
from triomq.protocol.bounds import Int32, Int64


class BloomFilterData(Body, frozen=True, kw_only=True):
    """The bits that represent one group in the bit map of an ext unit. `bit_num`: length of the map in bits."""

    bit_num: Int32 = 0
    bit_pos: list[Int32] = []


class ConsumerFilterData(Body, frozen=True, kw_only=True):
    """The filter of one group on one topic. Times in ms. `dead` is written but never read: the times determine it."""

    bloom_filter_data: BloomFilterData | None = None
    born_time: Int64 = 0
    client_version: Int64 = 0
    consumer_group: str | None = None
    dead: bool = False
    dead_time: Int64 = 0
    expression: str | None = None
    expression_type: str | None = None
    topic: str | None = None


class FilterDataMapByTopic(Body, frozen=True, kw_only=True):
    """The filters of one topic, by group."""

    group_filter_data: dict[str, ConsumerFilterData] = {}
    topic: str | None = None


class ConsumerFilterWrapper(Body, frozen=True, kw_only=True):
    """The whole file, by topic."""

    filter_data_by_topic: dict[str, FilterDataMapByTopic] = {}
