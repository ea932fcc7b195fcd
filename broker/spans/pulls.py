"""TracingPulls: a PullProcessor that makes a span for each traced message that it hands out. It takes the place of the
other with tracesEndpoint: only then are the records of a response decoded."""

from __future__ import annotations

from typing import Final

from triomq.broker.configuration import Configuration
from triomq.broker.metrics.stats import BrokerStats
from triomq.broker.metrics.store_metrics import StoreMetrics
from triomq.broker.processors.pull import OffsetMoved, PullProcessor, Tried
from triomq.broker.pulls.selection import FilterChooser
from triomq.broker.spans.puts import Spans
from triomq.broker.tables.metadata import Metadata
from triomq.protocol.codes import ResponseCode
from triomq.protocol.command import RemotingCommand
from triomq.protocol.headers.pull import PullMessageRequestHeader
from triomq.remoting.connection import Connection
from triomq.remoting.processor_table import Pool
from triomq.store.message_store import DefaultMessageStore

_SUCCESS: Final = int(ResponseCode.SUCCESS)


class TracingPulls(PullProcessor):
    """See the module's docstring."""

    def __init__(
        self,
        configuration: Configuration,
        store: DefaultMessageStore,
        metadata: Metadata,
        filters: FilterChooser,
        stats: BrokerStats,
        pace: StoreMetrics,
        *,
        pool: Pool,
        offset_moved: OffsetMoved,
        spans: Spans,
    ) -> None:
        super().__init__(configuration, store, metadata, filters, stats, pace, pool=pool, offset_moved=offset_moved)
        self._spans = spans

    def _attempt(self, connection: Connection, request: RemotingCommand, header: PullMessageRequestHeader) -> Tried:
        began_ns = self._spans.now_ns()
        tried = super()._attempt(connection, request, header)
        if isinstance(tried, RemotingCommand) and tried.code == _SUCCESS:
            self._spans.delivered(began_ns, tried.body, header.consumer_group)
        return tried
