"""Single messages: find, look at, see who consumed them (mqadmin: queryMsgById, queryMsgByKey, queryCq, ...)."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

import trio

from triomq.client.administer.groups import GroupAdmin
from triomq.client.administer.topics import TopicAdmin
from triomq.client.core import requests
from triomq.client.core.errors import BrokerRefused, BrokerUnreachable, MQClientError, NoRoute
from triomq.protocol.bodies.consume_queue import QueryConsumeQueueResponseBody
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import new_request
from triomq.protocol.errors import ProtocolError
from triomq.protocol.headers.message_query import (
    UNIQUE_KEY_QUERY,
    QueryConsumeQueueRequestHeader,
    QueryMessageRequestHeader,
    ViewMessageRequestHeader,
)
from triomq.protocol.headers.transaction import ResumeCheckHalfMessageRequestHeader
from triomq.protocol.message import MessageExt
from triomq.protocol.message_id import parse_offset_message_id
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.record import decode_record, iterate_records

FOREVER_MS = 2**63 - 1
QUERY_SECONDS = 15.0


class TrackType(Enum):
    """What a group did with a message (RocketMQ: TrackType)."""

    CONSUMED = "CONSUMED"
    CONSUMED_BUT_FILTERED = "CONSUMED_BUT_FILTERED"
    PULL = "PULL"
    NOT_CONSUME_YET = "NOT_CONSUME_YET"
    NOT_ONLINE = "NOT_ONLINE"
    UNKNOWN = "UNKNOWN"


class MessageTrack(NamedTuple):
    """One group and one message; `error`: why it is UNKNOWN or NOT_ONLINE."""

    group: str
    track: TrackType
    error: str | None = None


class MessageAdmin(TopicAdmin, GroupAdmin):
    """Messages, as part of `Admin`."""

    async def message_by_offset_id(self, offset_message_id: str) -> MessageExt:
        """Return the message that an offset message id points at; the id names the broker. Raises MQClientError for
        text that is not such an id, BrokerRefused when there is no message."""
        try:
            host, physical_offset = parse_offset_message_id(offset_message_id)
        except ProtocolError as error:
            raise MQClientError(str(error)) from error
        return await self.message_at(host.text, physical_offset)

    async def message_at(self, broker_address: str, physical_offset: int) -> MessageExt:
        """Return the message at an offset of a broker's commit log. Raises BrokerRefused."""
        header = ViewMessageRequestHeader(offset=physical_offset)
        response = await self._broker(
            broker_address, RequestCode.VIEW_MESSAGE_BY_ID, header, timeout_seconds=QUERY_SECONDS
        )
        return decode_record(response.body)

    async def message_by_id(self, topic: str, message_id: str) -> MessageExt | None:
        """Return the message with this id, an offset message id or the id its sender gave it (UNIQ_KEY); None when it
        is not found."""
        try:
            return await self.message_by_offset_id(message_id)
        except (BrokerRefused, BrokerUnreachable, MQClientError):
            found = await self.messages_by_unique_key(topic, message_id)
            return found[0] if found else None

    async def messages_by_key(
        self, topic: str, key: str, *, max_count: int = 64, begin_ms: int = 0, end_ms: int = FOREVER_MS
    ) -> list[MessageExt]:
        """Return the messages with this key among their KEYS that were stored in that time, from all brokers, by store
        time."""
        found = await self._query(topic, key, max_count, begin_ms, end_ms, unique=False)
        return [message for message in found if key in message.key_list]

    async def messages_by_unique_key(
        self, topic: str, unique_key: str, *, max_count: int = 32, begin_ms: int = 0, end_ms: int = FOREVER_MS
    ) -> list[MessageExt]:
        """Return the messages with this UNIQ_KEY; a message that was sent twice and its retries share it."""
        found = await self._query(topic, unique_key, max_count, begin_ms, end_ms, unique=True)
        return [message for message in found if message.uniq_key == unique_key]

    async def _query(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int, *, unique: bool
    ) -> list[MessageExt]:
        header = QueryMessageRequestHeader(
            topic=topic, key=key, max_num=max_count, begin_timestamp=begin_ms, end_timestamp=end_ms
        )
        found: list[MessageExt] = []
        failures: list[MQClientError] = []

        async def one(broker_name: str, address: str) -> None:
            extra = {UNIQUE_KEY_QUERY: "true"} if unique else None
            request = new_request(RequestCode.QUERY_MESSAGE, header, ext_fields=extra)
            accept = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
            try:
                response = await self._client.ask(
                    address, request, "QUERY_MESSAGE", accept=accept, timeout_seconds=QUERY_SECONDS
                )
            except MQClientError as error:
                failures.append(error)
                return
            if response.code == ResponseCode.SUCCESS:
                for message in iterate_records(response.body):
                    message.broker_name = broker_name
                    found.append(message)

        masters = await self._masters_of_topic(topic)
        async with trio.open_nursery() as nursery:
            for name, address in masters.items():
                nursery.start_soon(one, name, address)
        if failures and not found:
            raise failures[0]
        return sorted(found, key=lambda message: (message.store_timestamp, message.physical_offset))

    # Queues.

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the queue offset of the oldest message."""
        address = await self._client.master_of(queue.broker_name, queue.topic)
        return await self._client.call(address, requests.min_offset(queue))

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the queue offset of the next message to be stored."""
        address = await self._client.master_of(queue.broker_name, queue.topic)
        return await self._client.call(address, requests.max_offset(queue))

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the queue offset of the first message stored at `timestamp_ms` or later, or the end of the queue
        (an Apache broker 4.9: of the message stored nearest to it)."""
        address = await self._client.master_of(queue.broker_name, queue.topic)
        return await self._client.call(address, requests.search_offset(queue, timestamp_ms))

    async def earliest_store_time_ms(self, queue: MessageQueue) -> int:
        """Return when the oldest message was stored, in ms; -1 when there is none."""
        address = await self._client.master_of(queue.broker_name, queue.topic)
        return await self._client.call(address, requests.earliest_store_time(queue))

    async def consume_queue(
        self, broker_address: str, topic: str, queue_id: int, index: int, count: int, group: str | None = None
    ) -> QueryConsumeQueueResponseBody | None:
        """Return the entries of a consume queue from `index` on, evaluated by the filter of a group; None when there is
        nothing at `index`."""
        header = QueryConsumeQueueRequestHeader(
            topic=topic, queue_id=queue_id, index=index, count=count, consumer_group=group
        )
        response = await self._broker(broker_address, RequestCode.QUERY_CONSUME_QUEUE, header)
        return QueryConsumeQueueResponseBody.decode(response.body) if response.body else None

    # Who consumed it.

    async def track(self, message: MessageExt) -> list[MessageTrack]:
        """Return what each group of the message's topic did with it (RocketMQ: messageTrackDetail)."""
        return [await self._track_of(group, message) for group in await self.groups_of_topic(message.topic)]

    async def _track_of(self, group: str, message: MessageExt) -> MessageTrack:
        try:
            connection = await self.consumer_connection(group)
        except BrokerRefused as error:
            if error.code == ResponseCode.CONSUMER_NOT_ONLINE:
                return MessageTrack(group, TrackType.NOT_ONLINE, f"CODE:{error.code} DESC:{error.remark}")
            return MessageTrack(group, TrackType.UNKNOWN, f"CODE:{error.code} DESC:{error.remark}")
        except MQClientError as error:
            return MessageTrack(group, TrackType.UNKNOWN, str(error))
        if connection.consume_type == "CONSUME_ACTIVELY":
            return MessageTrack(group, TrackType.PULL)
        try:
            consumed = await self._is_consumed(group, message)
        except (MQClientError, NoRoute) as error:
            return MessageTrack(group, TrackType.UNKNOWN, str(error))
        if not consumed:
            return MessageTrack(group, TrackType.NOT_CONSUME_YET)
        subscription = connection.subscription_table.get(message.topic)
        if subscription is not None and subscription.tags_set and message.tags not in subscription.tags_set:
            return MessageTrack(group, TrackType.CONSUMED_BUT_FILTERED)
        return MessageTrack(group, TrackType.CONSUMED)

    async def _is_consumed(self, group: str, message: MessageExt) -> bool:
        stats = await self.consume_stats(group, message.topic)
        masters = await self._masters_of_topic(message.topic)
        for queue, progress in stats.offset_table.items():
            if queue.topic != message.topic or queue.queue_id != message.queue_id:
                continue
            if masters.get(queue.broker_name) == message.store_host.text:
                return progress.consumer_offset > message.queue_offset
        return False

    async def resume_half_message(self, broker_address: str, offset_message_id: str) -> None:
        """Have the broker check a half message again that it had given up."""
        header = ResumeCheckHalfMessageRequestHeader(msg_id=offset_message_id)
        await self._broker(broker_address, RequestCode.RESUME_CHECK_HALF_MESSAGE, header)
