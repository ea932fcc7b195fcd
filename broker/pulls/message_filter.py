"""Message filters in the shape that the store expects (store.results.MessageFilter).

Sources: ExpressionMessageFilter, ExpressionForRetryMessageFilter. A tag filter only reads consume queue entries (the
consumer compares the tag text again, since different tags may share a code). An SQL92 filter reads the entry's bit map
if there is one, then the properties of the record.
"""

from __future__ import annotations

from functools import lru_cache
from struct import pack
from typing import TYPE_CHECKING, Final

from triomq.broker.filters.bloom import has_bits
from triomq.broker.tables.filters import ConsumerFilter, FilterTable
from triomq.protocol import property_names as names
from triomq.protocol.properties import parse_bytes
from triomq.protocol.record import read_fields
from triomq.protocol.subscription import SUB_ALL, SubscriptionData
from triomq.protocol.system_topics import group_of_retry_topic, is_retry_topic

if TYPE_CHECKING:
    from triomq.store.results import ExtUnit, MessageFilter

MAX_SORTED_CODES: Final = 256


class TagFilter:
    """Passes entries whose tags code is subscribed."""

    __slots__ = ("_codes", "conditions", "cost", "tag_codes")

    def __init__(self, codes: frozenset[int]) -> None:
        self._codes = codes
        self.cost = 0
        self.tag_codes = pack_tag_codes(codes)
        self.conditions = b""

    def matches_entry(self, tags_code: int, ext: ExtUnit | None) -> bool:
        low = tags_code & 0xFFFFFFFF
        return (low - 0x1_0000_0000 if low & 0x8000_0000 else low) in self._codes

    def matches_record(self, record: bytes) -> bool:
        return True


COST_IN_PYTHON: Final = 5
"""How much longer an expression takes that C does not evaluate."""


class SqlFilter:
    """Passes messages whose properties satisfy the expression."""

    __slots__ = ("_filter", "conditions", "cost", "tag_codes")

    def __init__(self, consumer_filter: ConsumerFilter) -> None:
        self._filter = consumer_filter
        self.conditions = consumer_filter.conditions
        self.cost = len(consumer_filter.expression) * (1 if self.conditions else COST_IN_PYTHON)
        self.tag_codes = b""

    def matches_entry(self, tags_code: int, ext: ExtUnit | None) -> bool:
        bits = self._filter.bits
        if bits is None or ext is None or ext.bit_map is None or ext.store_timestamp <= self._filter.born_time:
            return True
        return len(ext.bit_map) * 8 != bits.bit_num or has_bits(ext.bit_map, bits)

    def matches_record(self, record: bytes) -> bool:
        return self._filter.matches(_properties(record))


class RetrySqlFilter:
    """On a retry topic: passes messages that pass the group's filter on the topic they come from."""

    __slots__ = ("_group", "_table", "conditions", "cost", "tag_codes")

    def __init__(self, table: FilterTable, group: str) -> None:
        self._table = table
        self._group = group
        self.cost = 0
        self.tag_codes = b""
        self.conditions = b""

    def matches_entry(self, tags_code: int, ext: ExtUnit | None) -> bool:
        return True

    def matches_record(self, record: bytes) -> bool:
        properties = _properties(record)
        consumer_filter = self._table.get(properties.get(names.RETRY_TOPIC, ""), self._group)
        if consumer_filter is None:
            self.cost = 0
            return True
        self.cost = len(consumer_filter.expression) * COST_IN_PYTHON
        return consumer_filter.matches(properties)


def message_filter(
    subscription: SubscriptionData,
    consumer_filter: ConsumerFilter | None,
    table: FilterTable | None = None,
    *,
    support_retry: bool = False,
) -> MessageFilter | None:
    """Return the filter of a pull, None if everything passes.

    `consumer_filter` is the compiled filter of an SQL92 subscription.
    With `support_retry`, the filter of the topic each message comes from applies on retry topics.
    """
    if subscription.class_filter_mode:
        return None
    if support_retry and table is not None and is_retry_topic(subscription.topic):
        return RetrySqlFilter(table, group_of_retry_topic(subscription.topic))
    if subscription.is_tag:
        return None if subscription.sub_string == SUB_ALL else tag_filter(subscription.code_set)
    return None if consumer_filter is None else SqlFilter(consumer_filter)


def tag_filter(codes: frozenset[int]) -> TagFilter:
    """Return the filter for these codes, which nothing changes: the most recently used ones are kept."""
    return _kept_tag_filter(codes) if len(codes) <= MAX_SORTED_CODES else TagFilter(codes)


_kept_tag_filter = lru_cache(maxsize=256)(TagFilter)  # at most 10 MiB


def pack_tag_codes(codes: frozenset[int]) -> bytes:
    """Return the codes that an entry can have as `take_records` of store/ takes them: int32, big endian, ascending.
    A pull may have to sort them, so there is a limit, above which b"" is returned."""
    if len(codes) > MAX_SORTED_CODES:
        return b""
    possible = sorted(code for code in codes if -(1 << 31) <= code < 1 << 31)
    return pack(f">{len(possible)}i", *possible)


def _properties(record: bytes) -> dict[str, str]:
    return parse_bytes(read_fields(record, 0, len(record)).properties)
