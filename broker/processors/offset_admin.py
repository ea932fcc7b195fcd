"""Bounds of queues and whole offset tables: GET_MAX_OFFSET, GET_MIN_OFFSET, SEARCH_OFFSET_BY_TIMESTAMP,
GET_EARLIEST_MSG_STORETIME, GET_ALL_CONSUMER_OFFSET, GET_ALL_DELAY_OFFSET (RocketMQ: AdminBrokerProcessor)."""

from __future__ import annotations

from collections.abc import Callable

from triomq.broker.tables.offsets import OffsetTable
from triomq.protocol.bodies.offset import DelayOffsetSerializeWrapper
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import RemotingCommand, new_response
from triomq.protocol.headers.offset import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
)
from triomq.remoting.connection import Connection
from triomq.remoting.processor_table import Processor
from triomq.store.message_store import DefaultMessageStore


class OffsetAdminProcessor:
    """Handles queries about offsets. `delay_offsets` returns delay level -> delivered offset."""

    def __init__(
        self, store: DefaultMessageStore, offsets: OffsetTable, delay_offsets: Callable[[], dict[int, int]]
    ) -> None:
        self._store = store
        self._offsets = offsets
        self._delay_offsets = delay_offsets

    def processors(self) -> dict[int, Processor]:
        """Return request code -> processor."""
        return {
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.by_time,
            RequestCode.GET_MAX_OFFSET: self.max_offset,
            RequestCode.GET_MIN_OFFSET: self.min_offset,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.earliest_store_time,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.all_consumer_offsets,
            RequestCode.GET_ALL_DELAY_OFFSET: self.all_delay_offsets,
        }

    def by_time(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle SEARCH_OFFSET_BY_TIMESTAMP."""
        header = request.header(SearchOffsetRequestHeader)
        queue_offset = self._store.reading.queue_offset_by_time(header.topic, header.queue_id, header.timestamp)
        return new_response(request, header=SearchOffsetResponseHeader(offset=queue_offset))

    def max_offset(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle GET_MAX_OFFSET."""
        header = request.header(GetMaxOffsetRequestHeader)
        queue_offset = self._store.reading.max_offset(header.topic, header.queue_id)
        return new_response(request, header=GetMaxOffsetResponseHeader(offset=queue_offset))

    def min_offset(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle GET_MIN_OFFSET."""
        header = request.header(GetMinOffsetRequestHeader)
        queue_offset = self._store.reading.min_offset(header.topic, header.queue_id)
        return new_response(request, header=GetMinOffsetResponseHeader(offset=queue_offset))

    def earliest_store_time(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle GET_EARLIEST_MSG_STORETIME: return the time in ms, -1 for an empty queue."""
        header = request.header(GetEarliestMsgStoretimeRequestHeader)
        timestamp = self._store.reading.earliest_store_time(header.topic, header.queue_id)
        return new_response(request, header=GetEarliestMsgStoretimeResponseHeader(timestamp=timestamp))

    def all_consumer_offsets(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle GET_ALL_CONSUMER_OFFSET, sent by slaves; an empty table is a valid response."""
        return new_response(request, body=self._offsets.encode())

    def all_delay_offsets(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle GET_ALL_DELAY_OFFSET, sent by slaves; an empty table is a valid response."""
        return new_response(request, body=DelayOffsetSerializeWrapper(offset_table=self._delay_offsets()).encode())
