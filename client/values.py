"""The public names that are the same in trio, asyncio and blocking programs: values, rules, results, errors, and the
interfaces that a program implements. `triomq`, `triomq.aio` and `triomq.blocking` export them all.

May not live here: what connects, which each kind of program has as its own class.
"""

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
    AcksFailed,
    BrokerRefused,
    BrokerUnknown,
    BrokerUnreachable,
    ClientClosed,
    ConfigurationError,
    InvalidMessage,
    InvisibleTimeOver,
    LocalOffsetsUnreadable,
    MQClientError,
    NameServersUnreachable,
    NoBroker,
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
from triomq.client.core.received_message import ReceivedMessage
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
from triomq.client.produce.request_reply import reply_to
from triomq.protocol.message import Message, MessageExt
from triomq.protocol.message_queue import MessageQueue

__all__ = [
    "AcksFailed",
    "Averagely",
    "AveragelyByCircle",
    "BrokerRefused",
    "BrokerUnknown",
    "BrokerUnreachable",
    "ByConfig",
    "ByMachineRoom",
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
    "EndTransactionContext",
    "EndTransactionHook",
    "FilterHook",
    "InvalidMessage",
    "InvisibleTimeOver",
    "LocalOffsetsUnreadable",
    "LocalTransactionState",
    "MQClientError",
    "MachineRoomNearby",
    "Message",
    "MessageExt",
    "MessageModel",
    "MessageQueue",
    "NameServersUnreachable",
    "NoBroker",
    "NoRoute",
    "NotSettled",
    "OperationTimeout",
    "PullResult",
    "PullStatus",
    "QueueSelector",
    "ReceivedMessage",
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
    "TransactionSendResult",
    "WrongPayload",
    "by_hash",
    "by_random",
    "reply_to",
]
