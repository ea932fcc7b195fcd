"""Metadata: the tables of topics, groups and clients. Nearly every processor needs several of them."""

from __future__ import annotations

from msgspec import Struct

from triomq.broker.tables.consumers import ConsumerTable
from triomq.broker.tables.filters import FilterTable
from triomq.broker.tables.groups import GroupTable
from triomq.broker.tables.offsets import OffsetTable
from triomq.broker.tables.producers import ProducerTable
from triomq.broker.tables.topics import TopicTable


class Metadata(Struct, frozen=True):
    """The tables of one broker. Each enforces its own rules; only the event loop touches them."""

    topics: TopicTable
    groups: GroupTable
    consumers: ConsumerTable
    producers: ProducerTable
    offsets: OffsetTable
    filters: FilterTable
