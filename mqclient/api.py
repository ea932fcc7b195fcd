"""The names most programs need, in one place: `from mqclient.api import Producer, PushConsumer, Message`."""

from mqclient.config import ClientConfig, Credentials
from mqclient.consume_rules import ConsumeRules
from mqclient.errors import (
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
from mqclient.lite_pull_consumer import LitePullConsumer
from mqclient.outgoing import SendRules
from mqclient.producer import Producer
from mqclient.pull_consumer import PullConsumer
from mqclient.push_consumer import Delivery, PushConsumer
from mqclient.request_reply import reply_to
from mqclient.results import (
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
from mqclient.transaction_producer import TransactionProducer
from protocol.message import Message, MessageExt
from protocol.message_queue import MessageQueue

__all__ = [
    "BrokerRefused",
    "BrokerUnknown",
    "BrokerUnreachable",
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
