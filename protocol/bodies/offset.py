"""Consumer offsets: whole tables, resets, and offsets that clients report. All of them are queue offsets."""

from __future__ import annotations

from triomq.protocol.bodies.base import Body, Int32, Int64
from triomq.protocol.message_queue import MessageQueue


class ConsumerOffsetSerializeWrapper(Body, frozen=True, kw_only=True):
    """GET_ALL_CONSUMER_OFFSET, consumerOffset.json: "topic@group" -> queue id -> offset.

    `lmq_offset_table` ("%LMQ%queue@%LMQ%group" -> offset) is present only with enableLmq (lmqConsumerOffset.json).
    """

    lmq_offset_table: dict[str, Int64] | None = None
    offset_table: dict[str, dict[Int32, Int64]] = {}


class DelayOffsetSerializeWrapper(Body, frozen=True, kw_only=True):
    """GET_ALL_DELAY_OFFSET, delayOffset.json: delay level (from 1) -> offset in the queue of that level."""

    offset_table: dict[Int32, Int64] = {}


class ResetOffsetBody(Body, frozen=True, kw_only=True):
    """RESET_CONSUMER_CLIENT_OFFSET request, INVOKE_BROKER_TO_RESET_OFFSET response: the new offset of each queue."""

    offset_table: dict[MessageQueue, Int64] = {}


class MessageQueueForC(Body, frozen=True, kw_only=True, gc=False):
    """One queue and its new offset, for C++ clients, which cannot read object keys."""

    broker_name: str = ""
    offset: Int64 = 0
    queue_id: Int32 = 0
    topic: str = ""


class ResetOffsetBodyForC(Body, frozen=True, kw_only=True):
    """`ResetOffsetBody` for clients whose language is CPP."""

    offset_table: list[MessageQueueForC] = []

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

    consumer_table: dict[str, dict[MessageQueue, Int64]] = {}
    message_queue_table: dict[MessageQueue, Int64] = {}


class QueryCorrectionOffsetBody(Body, frozen=True, kw_only=True):
    """QUERY_CORRECTION_OFFSET: queue id -> offset."""

    correction_offsets: dict[Int32, Int64] = {}
