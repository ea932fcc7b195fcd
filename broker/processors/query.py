"""Message lookup: QUERY_MESSAGE by key, VIEW_MESSAGE_BY_ID (RocketMQ: QueryMessageProcessor).

RocketMQ sends found messages directly from the page cache, with a header in the server's codec instead of the
request's. These responses do the same.
"""

from __future__ import annotations

from triomq.broker.acl.names import SUB, TopicCheck
from triomq.broker.configuration import Configuration
from triomq.broker.record_border import topic_at, topic_of
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_response
from triomq.protocol.errors import RequestRefused
from triomq.protocol.headers.message_query import (
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)
from triomq.remoting.connection import Connection
from triomq.remoting.processor_table import Processor
from triomq.store.message_store import DefaultMessageStore

UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"


class QueryProcessor:
    """Looks up messages by key and by physical offset. `check_topic` is None without access control."""

    def __init__(
        self, configuration: Configuration, store: DefaultMessageStore, check_topic: TopicCheck | None = None
    ) -> None:
        self._configuration = configuration
        self._store = store
        self._check_topic = check_topic

    def processors(self) -> dict[int, Processor]:
        """Return request code -> processor."""
        return {RequestCode.QUERY_MESSAGE: self.by_key, RequestCode.VIEW_MESSAGE_BY_ID: self.by_offset}

    def by_key(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle QUERY_MESSAGE: return the records whose key hash matches; the client compares the keys."""
        header = request.header(QueryMessageRequestHeader)
        is_unique = (request.ext_fields or {}).get(UNIQUE_KEY_QUERY, "").lower() == "true"
        result = self._store.reading.query_by_key(
            header.topic,
            header.key,
            self._configuration.store.default_query_max_num if is_unique else header.max_num,
            header.begin_timestamp,
            header.end_timestamp,
        )
        known = QueryMessageResponseHeader(
            index_last_update_timestamp=result.index_end_timestamp,
            index_last_update_phyoffset=result.index_end_physical_offset,
        )
        records = result.records
        if self._check_topic is not None:
            # The index has hashes only, and a key of one topic can be made to collide with a key of another.
            records = [record for record in records if topic_of(record) == header.topic]
        if not records:
            return new_response(
                request,
                ResponseCode.QUERY_NOT_FOUND,
                "can not find message, maybe time range not correct",
                header=known,
            )
        response = new_response(request, header=known, body=b"".join(records))
        response.serialize_type = connection.serialize_type
        return response

    def by_offset(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle VIEW_MESSAGE_BY_ID: return the record at a physical offset."""
        header = request.header(ViewMessageRequestHeader)
        record = self._store.reading.record_at(header.offset)
        if record is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {header.offset}")
        if self._check_topic is not None:
            self._check_topic(connection, request, topic_at(self._store.reading, header.offset, record), SUB)
        response = new_response(request, body=record)
        response.serialize_type = connection.serialize_type
        return response
