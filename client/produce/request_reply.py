"""Request and reply over topics: a message that waits for a reply, and the reply that returns to the requester.

    reply = await producer.request(Message("Rpc", b"ping"), timeout_seconds=3)

    async for message in consumer:
        await producer.send(reply_to(message, b"pong"))

The reply goes to the broker, which pushes it straight to the requesting client; no consumer is needed there.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable

import trio

from triomq.client.core.errors import InvalidMessage, RequestTimedOut
from triomq.client.instance.pending_replies import PendingReplies
from triomq.protocol import property_names as names
from triomq.protocol import system_topics
from triomq.protocol.message import Message, MessageExt

__all__ = ["reply_to", "request"]


async def request(
    send: Callable[[Message], Awaitable[object]],
    message: Message,
    client_id: str,
    replies: PendingReplies,
    *,
    timeout_seconds: float,
) -> MessageExt:
    """Send `message` and wait for its reply, which arrives at `client_id` and is taken from `replies`. Raises
    RequestTimedOut, and what `send` raises."""
    correlation_id = str(uuid.uuid4())
    asking = Message(message.topic, message.body, flag=message.flag, properties=message.properties)
    asking.properties[names.CORRELATION_ID] = correlation_id
    asking.properties[names.REPLY_TO_CLIENT] = client_id
    asking.properties[names.TTL] = str(int(timeout_seconds * 1000))
    pending = replies.open(correlation_id)
    deadline = trio.current_time() + timeout_seconds
    try:
        await send(asking)
        with trio.move_on_at(deadline):
            await pending.arrived.wait()
    finally:
        replies.close(correlation_id)
    if pending.reply is None:
        raise RequestTimedOut(
            f"no reply to the request in topic {message.topic!r} within {timeout_seconds:g} s "
            f"(correlation id {correlation_id}); is a consumer replying there?"
        )
    return pending.reply


def reply_to(asked: MessageExt, body: bytes, *, tags: str | None = None) -> Message:
    """Return the reply to a request, to be sent with any producer's `send`. Raises InvalidMessage when `asked` is not a
    request."""
    cluster = asked.properties.get(names.CLUSTER)
    correlation_id = asked.properties.get(names.CORRELATION_ID)
    client_id = asked.properties.get(names.REPLY_TO_CLIENT)
    if not cluster or not correlation_id or not client_id:
        raise InvalidMessage(
            "this message is not a request: it lacks "
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
    reply = Message(system_topics.reply_topic(cluster), body, tags=tags)
    reply.properties[names.MSG_TYPE] = names.MSG_TYPE_REPLY
    reply.properties[names.CORRELATION_ID] = correlation_id
    reply.properties[names.REPLY_TO_CLIENT] = client_id
    if asked.properties.get(names.TTL):
        reply.properties[names.TTL] = asked.properties[names.TTL]
    return reply
