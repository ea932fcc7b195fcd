"""Consumers and their offsets: QUERY_CONSUMER_OFFSET, UPDATE_CONSUMER_OFFSET, GET_CONSUMER_LIST_BY_GROUP (RocketMQ:
ConsumerManageProcessor)."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from typing import Any

from triomq.broker.configuration import Configuration
from triomq.broker.tables.consumers import ConsumerTable
from triomq.broker.tables.offsets import OffsetTable
from triomq.protocol.bodies.name_list import GetConsumerListByGroupResponseBody
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_response
from triomq.protocol.errors import RequestRefused
from triomq.protocol.headers.client import GetConsumerListByGroupRequestHeader
from triomq.protocol.headers.offset import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from triomq.remoting.connection import Connection
from triomq.remoting.processor_table import Processor
from triomq.store.message_store import DefaultMessageStore

_FIRST_BOOT = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"


class Recency:
    """Whether the first message of a queue is likely to be in memory. `memory_bytes` is the physical memory of the
    machine; without it the operating system is queried."""

    def __init__(
        self, configuration: Configuration, store: DefaultMessageStore, memory_bytes: int | None = None
    ) -> None:
        self._configuration = configuration
        self._store = store
        self._memory_bytes = _physical_memory_bytes() if memory_bytes is None else memory_bytes

    def is_recent(self, topic: str, queue_id: int) -> bool:
        """Return whether the queue's first message is not too far back in the log; True for an empty queue."""
        entries = self._store.reading.queue_entries(topic, queue_id, 0, 1)
        if not entries:
            return True
        behind_bytes = self._store.reading.max_physical_offset - entries[0][0]
        ratio = self._configuration.store.access_message_in_memory_max_ratio_percent / 100
        return behind_bytes <= self._memory_bytes * ratio


class OffsetProcessor:
    """Handles offset commits and queries of consumers."""

    def __init__(
        self,
        configuration: Configuration,
        offsets: OffsetTable,
        consumers: ConsumerTable,
        store: DefaultMessageStore,
        *,
        memory_bytes: int | None = None,
        is_outlived: Callable[[str, int, int], bool] = lambda topic, queue_id, queue_offset: False,
    ) -> None:
        """`memory_bytes` as in Recency. `is_outlived` returns whether an offset of a queue belongs to an earlier life
        of its topic (topic_lives.py)."""
        self._offsets = offsets
        self._consumers = consumers
        self._store = store
        self._is_outlived = is_outlived
        self._recency = Recency(configuration, store, memory_bytes)

    def processors(self) -> dict[int, Processor]:
        """Return request code -> processor."""
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: self.query,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.update,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.list_consumers,
        }

    def query(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | Coroutine[Any, Any, RemotingCommand]:
        """Handle QUERY_CONSUMER_OFFSET: return the committed offset, or 0 for a new group on a queue whose first
        message is recent enough. In a group the offset is one that a quorum has."""
        log = self._offsets.log
        if log is not None and log.leads and not log.is_settled:
            return self._query_settled(request)
        return self._query(request)

    async def _query_settled(self, request: RemotingCommand) -> RemotingCommand:
        await self._offsets.settled()
        return self._query(request)

    def _query(self, request: RemotingCommand) -> RemotingCommand:
        header = request.header(QueryConsumerOffsetRequestHeader)
        queue_offset = self._offsets.query(header.consumer_group, header.topic, header.queue_id)
        if queue_offset < 0:
            # A new group starts at the beginning only if that is still recent. Otherwise the client decides where to
            # start.
            first = self._store.reading.min_offset(header.topic, header.queue_id)
            if first > 0 or not self._recency.is_recent(header.topic, header.queue_id):
                raise RequestRefused(ResponseCode.QUERY_NOT_FOUND, _FIRST_BOOT)
            queue_offset = 0
        return new_response(request, header=QueryConsumerOffsetResponseHeader(offset=queue_offset))

    def update(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | Coroutine[Any, Any, RemotingCommand]:
        """Handle UPDATE_CONSUMER_OFFSET: store the offset without checks. One of a deleted topic, or of an earlier life
        of the topic, means nothing: its consumer does not know yet. In a group the response, if the client wants one,
        waits until a quorum has the offset."""
        header = request.header(UpdateConsumerOffsetRequestHeader)
        if self._is_outlived(header.topic, header.queue_id, header.commit_offset):
            return new_response(request)
        self._offsets.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
        self._consumers.committed(header.consumer_group, connection, header.topic, header.queue_id)
        if self._offsets.log is not None and not request.is_oneway:
            return self._settled(request)
        return new_response(request)

    async def _settled(self, request: RemotingCommand) -> RemotingCommand:
        await self._offsets.settled()
        return new_response(request)

    def list_consumers(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle GET_CONSUMER_LIST_BY_GROUP: return the client ids of a group's members, for rebalancing."""
        header = request.header(GetConsumerListByGroupRequestHeader)
        group = self._consumers.get(header.consumer_group)
        client_ids = group.client_ids() if group is not None else []
        if not client_ids:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {header.consumer_group}")
        return new_response(request, body=GetConsumerListByGroupResponseBody(consumer_id_list=client_ids).encode())


def _physical_memory_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 8 * 1024**3
