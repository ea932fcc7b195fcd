"""The client for plain blocking code: the classes of `triomq`, without `async`."""

from triomq.client.facades.blocking import (
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
