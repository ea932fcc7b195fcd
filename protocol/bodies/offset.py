"""Consumer offsets: whole tables, resets, and offsets that clients report. All of them are queue offsets."""

from __future__ import annotations

from typing import Annotated

from triomq.protocol.bodies.base import Body
from triomq.protocol.bounds import (
    BrokerName,
    ClientId,
    DelayLevel,
    Int32,
    Int64,
    QueueId,
    QueueOffset,
    TopicName,
    in_frame,
)
from triomq.protocol.message_queue import MessageQueue

OffsetKey = Annotated[str, in_frame("a topic and a group")]
QueueOffsets = Annotated[dict[QueueId, QueueOffset], in_frame("queues")]
QueuesAndOffsets = Annotated[dict[MessageQueue, QueueOffset], in_frame("queues")]


class ConsumerOffsetSerializeWrapper(Body, frozen=True, kw_only=True):
    """GET_ALL_CONSUMER_OFFSET, consumerOffset.json: "topic@group" -> queue id -> offset.

    `lmq_offset_table` ("%LMQ%queue@%LMQ%group" -> offset) is present only with enableLmq (lmqConsumerOffset.json).
    """

    lmq_offset_table: Annotated[dict[OffsetKey, QueueOffset], in_frame("light queues of a master")] | None = None
    offset_table: Annotated[dict[OffsetKey, QueueOffsets], in_frame("offsets of a master")] = {}


class DelayOffsetSerializeWrapper(Body, frozen=True, kw_only=True):
    """GET_ALL_DELAY_OFFSET, delayOffset.json: delay level (from 1) -> offset in the queue of that level."""

    offset_table: Annotated[dict[DelayLevel, QueueOffset], in_frame("delay levels of a master")] = {}


class ResetOffsetBody(Body, frozen=True, kw_only=True):
    """RESET_CONSUMER_CLIENT_OFFSET request, INVOKE_BROKER_TO_RESET_OFFSET response: the new offset of each queue."""

    offset_table: QueuesAndOffsets = {}


class MessageQueueForC(Body, frozen=True, kw_only=True, gc=False):
    """One queue and its new offset, for C++ clients, which cannot read object keys."""

    broker_name: BrokerName = ""
    offset: QueueOffset = 0
    queue_id: QueueId = 0
    topic: TopicName = ""


class ResetOffsetBodyForC(Body, frozen=True, kw_only=True):
    """`ResetOffsetBody` for clients whose language is CPP."""

    offset_table: Annotated[list[MessageQueueForC], in_frame("queues")] = []

    @classmethod
    def of(cls, body: ResetOffsetBody) -> ResetOffsetBodyForC:
        """Convert `body` to this form."""
        return cls(
            offset_table=[
                MessageQueueForC(
                    broker_name=queue.broker_name, offset=offset, queue_id=queue.queue_id, topic=queue.topic
                )
                for queue, offset in body.offset_table.items()
            ]
        )


class GetConsumerStatusBody(Body, frozen=True, kw_only=True):
    """Consumer offsets of clients: a client fills `message_queue_table`, a broker `consumer_table` (by client id)."""

    consumer_table: Annotated[dict[ClientId, QueuesAndOffsets], in_frame("clients")] = {}
    message_queue_table: QueuesAndOffsets = {}


class QueryCorrectionOffsetBody(Body, frozen=True, kw_only=True):
    """QUERY_CORRECTION_OFFSET: queue id -> offset."""

    correction_offsets: dict[Int32, Int64] = {}
