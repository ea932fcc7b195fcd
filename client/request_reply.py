"""Request and reply over topics: a message that waits for an answer, and the answer that finds its way back.

    reply = await request(producer, Message("Rpc", b"ping"), timeout_seconds=3)

    async for message in consumer:
        await producer.send(reply_to(message, b"pong"))

The answer goes to the broker, which pushes it straight to the requesting client (no consumer is needed there).
"""

from __future__ import annotations

import uuid

import trio

from triomq.client.errors import InvalidMessage, RequestTimedOut
from triomq.client.producer import Producer
from triomq.protocol import property_names as names
from triomq.protocol import system_topics
from triomq.protocol.message import Message, MessageExt

__all__ = ["reply_to", "request"]


async def request(
    producer: Producer, message: Message, *, timeout_seconds: float = 3.0, sharding_key: str | None = None
) -> MessageExt:
    """Send `message` and wait for its reply. Raises RequestTimedOut, and what `send` raises."""
    correlation_id = str(uuid.uuid4())
    asking = Message(message.topic, message.body, flag=message.flag, properties=message.properties)
    asking.properties[names.CORRELATION_ID] = correlation_id
    asking.properties[names.REPLY_TO_CLIENT] = producer.client.client_id
    asking.properties[names.TTL] = str(int(timeout_seconds * 1000))
    replies = producer.client.replies
    pending = replies.open(correlation_id)
    deadline = trio.current_time() + timeout_seconds
    try:
        # The broker pushes the reply to a client it knows by its heartbeats.
        await producer.make_known(message.topic)
        await producer.send(asking, timeout_seconds=timeout_seconds, sharding_key=sharding_key)
        with trio.move_on_at(deadline):
            await pending.arrived.wait()
    finally:
        replies.close(correlation_id)
    if pending.reply is None:
        raise RequestTimedOut(
            f"no reply to the request in topic {message.topic!r} within {timeout_seconds:g} s "
            f"(correlation id {correlation_id}); is a consumer answering there?"
        )
    return pending.reply


def reply_to(asked: MessageExt, body: bytes, *, tags: str | None = None) -> Message:
    """The answer to a request, to be sent with any producer's `send`. Raises InvalidMessage when `asked` is no
    request."""
    cluster = asked.properties.get(names.CLUSTER)
    correlation_id = asked.properties.get(names.CORRELATION_ID)
    client_id = asked.properties.get(names.REPLY_TO_CLIENT)
    if not cluster or not correlation_id or not client_id:
        raise InvalidMessage(
            "this message is no request: it lacks "
            + ", ".join(
                name
                for name, value in (
                    (names.CLUSTER, cluster),
                    (names.CORRELATION_ID, correlation_id),
                    (names.REPLY_TO_CLIENT, client_id),
                )
                if not value
            )
        )
    answer = Message(system_topics.reply_topic(cluster), body, tags=tags)
    answer.properties[names.MSG_TYPE] = names.MSG_TYPE_REPLY
    answer.properties[names.CORRELATION_ID] = correlation_id
    answer.properties[names.REPLY_TO_CLIENT] = client_id
    if asked.properties.get(names.TTL):
        answer.properties[names.TTL] = asked.properties[names.TTL]
    return answer
