"""The names most programs need, in one place: `from triomq.client.api import Producer, PushConsumer, Message`."""

from triomq.client.administer.admin import Admin
from triomq.client.consume.lite_pull_consumer import LitePullConsumer
from triomq.client.consume.pull_consumer import PullConsumer
from triomq.client.consume.push_consumer import Delivery, PushConsumer
from triomq.client.core.config import ClientConfig, Credentials
from triomq.client.core.consume_rules import ConsumeRules
from triomq.client.core.errors import (
    BrokerRefused,
    BrokerUnknown,
    BrokerUnreachable,
    ClientClosed,
    ConfigurationError,
    InvalidMessage,
    MQClientError,
    NameServersUnreachable,
    NoRoute,
    OperationTimeout,
    RequestTimedOut,
    SendFailed,
)
from triomq.client.core.outgoing import SendRules
from triomq.client.core.results import (
    ConsumeFromWhere,
    ConsumeStatus,
    LocalTransactionState,
    MessageModel,
    PullResult,
    PullStatus,
    RetryLater,
    SendResult,
    SendStatus,
    TransactionSendResult,
)
from triomq.client.instance.client import Client
from triomq.client.produce.producer import Producer
from triomq.client.produce.request_reply import reply_to
from triomq.client.produce.transaction_producer import TransactionProducer
from triomq.protocol.message import Message, MessageExt
from triomq.protocol.message_queue import MessageQueue

__all__ = [
    "Admin",
    "BrokerRefused",
    "BrokerUnknown",
    "BrokerUnreachable",
    "Client",
    "ClientClosed",
    "ClientConfig",
    "ConfigurationError",
    "ConsumeFromWhere",
    "ConsumeRules",
    "ConsumeStatus",
    "Credentials",
    "Delivery",
    "InvalidMessage",
    "LitePullConsumer",
    "LocalTransactionState",
    "MQClientError",
    "Message",
    "MessageExt",
    "MessageModel",
    "MessageQueue",
    "NameServersUnreachable",
    "NoRoute",
    "OperationTimeout",
    "Producer",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "RequestTimedOut",
    "RetryLater",
    "SendFailed",
    "SendResult",
    "SendRules",
    "SendStatus",
    "TransactionProducer",
    "TransactionSendResult",
    "reply_to",
]
