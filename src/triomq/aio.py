"""The client for asyncio programs: the classes of `triomq`, awaited in an asyncio event loop."""

from triomq.client.facades.aio import (
    Admin,
    LitePullConsumer,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
    TransactionProducer,
    reply_to,
)

__all__ = [
    "Admin",
    "LitePullConsumer",
    "Message",
    "MessageExt",
    "MessageQueue",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "TransactionProducer",
    "reply_to",
]
