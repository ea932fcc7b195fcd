"""A broker's tables in memory, for tests that need several of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from triomq.broker.filters.bloom import BloomFilter
from triomq.broker.tables.consumers import ConsumerTable
from triomq.broker.tables.filters import FilterTable
from triomq.broker.tables.groups import GroupTable
from triomq.broker.tables.metadata import Metadata
from triomq.broker.tables.offsets import OffsetTable
from triomq.broker.tables.producers import ProducerTable
from triomq.broker.tables.topics import TopicTable


def metadata(now_ms: Callable[[], int], **given: Any) -> Metadata:
    """Return empty tables, except those that the caller passes."""
    tables: dict[str, Any] = {
        "topics": TopicTable(now_ms=now_ms),
        "groups": GroupTable(now_ms=now_ms),
        "consumers": ConsumerTable(now_ms),
        "producers": ProducerTable(now_ms),
        "offsets": OffsetTable(),
        "filters": FilterTable(BloomFilter(20, 32), now_ms=now_ms),
    }
    return Metadata(**{**tables, **given})
