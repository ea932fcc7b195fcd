"""The public names of the client, which `triomq` exports: what a program needs to send, consume and administer.

`triomq.aio` and `triomq.blocking` have the same classes for asyncio and for blocking programs.
"""

from triomq.client.administer.admin import Admin
from triomq.client.app.application import TrioMQ
from triomq.client.consume.delivery import Delivery
from triomq.client.consume.lite_pull_consumer import LitePullConsumer
from triomq.client.consume.pull_consumer import PullConsumer
from triomq.client.consume.push_consumer import PushConsumer
from triomq.client.core.allocation import (
    Averagely,
    AveragelyByCircle,
    ByConfig,
    ByMachineRoom,
    ConsistentHash,
    MachineRoomNearby,
    Strategy,
)
from triomq.client.core.config import ClientConfig, Credentials
from triomq.client.core.consume_rules import ConsumeRules
from triomq.client.core.errors import (
    BrokerRefused,
    BrokerUnknown,
    BrokerUnreachable,
    ClientClosed,
    ConfigurationError,
    InvalidMessage,
    LocalOffsetsUnreadable,
    MQClientError,
    NameServersUnreachable,
    NoRoute,
    NotSettled,
    OperationTimeout,
    RegistryFailed,
    RequestTimedOut,
    SendFailed,
    WrongPayload,
)
from triomq.client.core.hooks import (
    ConsumeContext,
    ConsumeHook,
    EndTransactionContext,
    EndTransactionHook,
    FilterHook,
    RequestHook,
    SendContext,
    SendHook,
)
from triomq.client.core.outgoing import SendRules
from triomq.client.core.queue_choice import QueueSelector, by_hash, by_random
from triomq.client.core.results import (
    ConsumeFromWhere,
    ConsumeStatus,
    DeadLetter,
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
from triomq.client.produce.trace import TraceSender
from triomq.client.produce.transaction_producer import TransactionProducer
from triomq.protocol.message import Message, MessageExt
from triomq.protocol.message_queue import MessageQueue

__all__ = [
    "Admin",
    "Averagely",
    "AveragelyByCircle",
    "BrokerRefused",
    "BrokerUnknown",
    "BrokerUnreachable",
    "ByConfig",
    "ByMachineRoom",
    "Client",
    "ClientClosed",
    "ClientConfig",
    "ConfigurationError",
    "ConsistentHash",
    "ConsumeContext",
    "ConsumeFromWhere",
    "ConsumeHook",
    "ConsumeRules",
    "ConsumeStatus",
    "Credentials",
    "DeadLetter",
    "Delivery",
    "EndTransactionContext",
    "EndTransactionHook",
    "FilterHook",
    "InvalidMessage",
    "LitePullConsumer",
    "LocalOffsetsUnreadable",
    "LocalTransactionState",
    "MQClientError",
    "MachineRoomNearby",
    "Message",
    "MessageExt",
    "MessageModel",
    "MessageQueue",
    "NameServersUnreachable",
    "NoRoute",
    "NotSettled",
    "OperationTimeout",
    "Producer",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "QueueSelector",
    "RegistryFailed",
    "RequestHook",
    "RequestTimedOut",
    "RetryLater",
    "SendContext",
    "SendFailed",
    "SendHook",
    "SendResult",
    "SendRules",
    "SendStatus",
    "Strategy",
    "TraceSender",
    "TransactionProducer",
    "TransactionSendResult",
    "TrioMQ",
    "WrongPayload",
    "by_hash",
    "by_random",
    "reply_to",
]
