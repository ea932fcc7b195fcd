"""What becomes of received messages: ACK_MESSAGE, BATCH_ACK_MESSAGE, CHANGE_MESSAGE_INVISIBLETIME (RocketMQ:
AckMessageProcessor, ChangeInvisibleTimeProcessor).

An acknowledgement is answered when it is in the log of messages in flight, and with SYNC_FLUSH when that is on the
disk; in a group of brokers, when a quorum has the offset that it commits. One of what is done already succeeds: clients
repeat requests whose responses they lost.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Coroutine
from typing import Any, Final

from triomq.broker.configuration import Configuration
from triomq.broker.pop.deliveries import Deliveries
from triomq.broker.pop.group_queues import Key
from triomq.broker.pop.log import InFlightLog
from triomq.broker.processors.pop import check_invisible_time, check_is_master
from triomq.broker.put_responses import FAQ
from triomq.broker.tables.metadata import Metadata
from triomq.protocol.bodies.batch_ack import BatchAck, BatchAckMessageRequestBody
from triomq.protocol.codes import INVALID_PARAMETER, RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_response
from triomq.protocol.errors import RequestRefused
from triomq.protocol.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
)
from triomq.protocol.receipt_handle import ReceiptHandle, ReceiptHandleError, parse_handle
from triomq.remoting.connection import Connection
from triomq.remoting.processor_table import Processor
from triomq.store.config import FlushDiskType
from triomq.store.message_store import DefaultMessageStore

MAX_ACKS: Final = 4096
"""Acknowledgements, one for each receive and queue, in one request."""

Answer = RemotingCommand | Coroutine[Any, Any, RemotingCommand]


class AckProcessor:
    """Handles acknowledgements and changes of invisible times."""

    def __init__(
        self,
        configuration: Configuration,
        metadata: Metadata,
        store: DefaultMessageStore,
        deliveries: Deliveries,
        log: InFlightLog,
    ) -> None:
        self._configuration = configuration
        self._topics = metadata.topics
        self._offsets = metadata.offsets
        self._store = store
        self._reading = store.reading
        self._deliveries = deliveries
        self._log = log

    def processors(self) -> dict[int, Processor]:
        """Return request code -> processor."""
        return {
            RequestCode.ACK_MESSAGE: self.acknowledge,
            RequestCode.BATCH_ACK_MESSAGE: self.acknowledge_many,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self.change_invisible_time,
        }

    def acknowledge(self, connection: Connection, request: RemotingCommand) -> Answer:
        """Handle ACK_MESSAGE."""
        header = request.header(AckMessageRequestHeader)
        handle = _handle(header.extra_info)
        key = self._key(header.topic, header.consumer_group, header.queue_id)
        self._check_stored(key, header.offset)
        if self._deliveries.acknowledge(key, [header.offset], handle.popped_ms):
            raise _void(header.topic, header.queue_id, header.offset)
        return self._when_durable(new_response(request))

    def acknowledge_many(self, connection: Connection, request: RemotingCommand) -> Answer:
        """Handle BATCH_ACK_MESSAGE. Handles that are not valid any more are left out, as RocketMQ does."""
        acks = BatchAckMessageRequestBody.decode_request(request.body).acks if request.body else []
        if not acks:
            raise RequestRefused(ResponseCode.NO_MESSAGE, "the request acknowledges nothing")
        if len(acks) > MAX_ACKS:
            raise RequestRefused(INVALID_PARAMETER, f"{len(acks)} acknowledgements in one request, up to {MAX_ACKS}")
        for ack, offsets in [(ack, _offsets_of(ack)) for ack in acks]:
            key = self._key(ack.topic or "", ack.consumer_group or "", ack.queue_id)
            self._deliveries.acknowledge(key, offsets, ack.pop_time)
        return self._when_durable(new_response(request))

    def change_invisible_time(self, connection: Connection, request: RemotingCommand) -> Answer:
        """Handle CHANGE_MESSAGE_INVISIBLETIME: the handle of the request is not valid any more, that of the response
        is."""
        header = request.header(ChangeInvisibleTimeRequestHeader)
        handle = _handle(header.extra_info)
        check_invisible_time(header.invisible_time)
        key = self._key(header.topic, header.consumer_group, header.queue_id)
        self._check_stored(key, header.offset)
        changed_ms = self._deliveries.change_invisible_time(key, header.offset, handle.popped_ms, header.invisible_time)
        if changed_ms is None:
            raise _void(header.topic, header.queue_id, header.offset)
        changed = ChangeInvisibleTimeResponseHeader(
            pop_time=changed_ms, invisible_time=header.invisible_time, revive_qid=handle.revive_queue_id
        )
        return new_response(request, header=changed)

    def _when_durable(self, response: RemotingCommand) -> Answer:
        log_of_group = self._offsets.log
        if log_of_group is not None:
            return response if log_of_group.is_settled else self._respond_settled(response)
        if self._configuration.store.flush_disk_type is not FlushDiskType.SYNC_FLUSH:
            return response
        return self._respond_durably(response, self._log.appended)

    async def _respond_durably(self, response: RemotingCommand, appended: int) -> RemotingCommand:
        await self._log.synced.wait_beyond(appended - 1)
        return response

    async def _respond_settled(self, response: RemotingCommand) -> RemotingCommand:
        await self._offsets.settled()
        return response

    def _key(self, topic_name: str, group: str, queue_id: int) -> Key:
        check_is_master(self._configuration, self._store)
        topic = self._topics.get(topic_name)
        if topic is None:
            raise RequestRefused(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic_name}] not exist, apply first please! \n{FAQ}"
            )
        if not 0 <= queue_id < topic.read_queue_nums:
            raise RequestRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"queueId[{queue_id}] is illegal, topic:[{topic_name}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}]",
            )
        return Key(topic_name, group, queue_id)

    def _check_stored(self, key: Key, queue_offset: int) -> None:
        first = self._reading.min_offset(key.topic, key.queue_id)
        end = self._reading.max_offset(key.topic, key.queue_id)
        if not first <= queue_offset <= end:
            raise RequestRefused(
                ResponseCode.NO_MESSAGE,
                f"offset is illegal, key:{key.topic}@{key.queue_id}, commit:{queue_offset}, store:{first}~{end}",
            )


def _handle(text: str) -> ReceiptHandle:
    try:
        return parse_handle(text)
    except ReceiptHandleError as error:
        raise RequestRefused(INVALID_PARAMETER, str(error)) from None


def _void(topic: str, queue_id: int, queue_offset: int) -> RequestRefused:
    return RequestRefused(
        ResponseCode.NO_MESSAGE,
        f"the receipt handle of {topic} queue {queue_id} offset {queue_offset} is not valid any more: the message was "
        "received again, its invisible time was changed, or its group was moved",
    )


def _offsets_of(ack: BatchAck) -> list[int]:
    """Return the queue offsets whose bits are set. Raises RequestRefused."""
    try:
        bits = int.from_bytes(b64decode(ack.bits or "", validate=True), "little")
    except ValueError as error:
        raise RequestRefused(INVALID_PARAMETER, f"the bits of an acknowledgement are no base64: {error}") from None
    return [ack.start_offset + bit for bit in range(bits.bit_length()) if bits >> bit & 1]
