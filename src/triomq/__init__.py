"""TrioMQ: a message broker, a NameServer and a client that speak Apache RocketMQ 4.9's protocol.

    from triomq import Message, Producer, PushConsumer    # on trio
    from triomq.aio import Producer                       # in asyncio programs
    from triomq.blocking import Producer                  # in plain code
    from triomq.testing import LocalCluster               # a cluster inside of a test
    from triomq.serializers import Json                   # typed messages
    import triomq.spark                                   # topics and store directories in Spark

These six modules are the public interface; every other module is private and may change in any release. Importing
`triomq` loads nothing else: a name is imported when it is first used.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers assume it is true; importing `typing` costs as much as starting Python

if TYPE_CHECKING:
    from typing import Any

    from triomq.client.api import (
        AcksFailed,
        Admin,
        Averagely,
        AveragelyByCircle,
        BrokerRefused,
        BrokerUnknown,
        BrokerUnreachable,
        ByConfig,
        ByMachineRoom,
        Client,
        ClientClosed,
        ClientConfig,
        ConfigurationError,
        ConsistentHash,
        ConsumeContext,
        ConsumeFromWhere,
        ConsumeHook,
        ConsumeRules,
        ConsumeStatus,
        Credentials,
        DeadLetter,
        Delivery,
        EndTransactionContext,
        EndTransactionHook,
        FilterHook,
        InvalidMessage,
        InvisibleTimeOver,
        LitePullConsumer,
        LocalOffsetsUnreadable,
        LocalTransactionState,
        MachineRoomNearby,
        Message,
        MessageExt,
        MessageModel,
        MessageQueue,
        MQClientError,
        NameServersUnreachable,
        NoBroker,
        NoRoute,
        NotSettled,
        OperationTimeout,
        Producer,
        PullConsumer,
        PullResult,
        PullStatus,
        PushConsumer,
        QueueSelector,
        ReceivedMessage,
        RegistryFailed,
        RequestHook,
        RequestTimedOut,
        RetryLater,
        Router,
        SendContext,
        SendFailed,
        SendHook,
        SendResult,
        SendRules,
        SendStatus,
        SimpleConsumer,
        Strategy,
        TraceSender,
        TransactionProducer,
        TransactionSendResult,
        TrioMQ,
        WrongPayload,
        by_hash,
        by_random,
        reply_to,
    )

    __version__: str


__all__ = [
    "AcksFailed",
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
    "InvisibleTimeOver",
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
    "NoBroker",
    "NoRoute",
    "NotSettled",
    "OperationTimeout",
    "Producer",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "QueueSelector",
    "ReceivedMessage",
    "RegistryFailed",
    "RequestHook",
    "RequestTimedOut",
    "RetryLater",
    "Router",
    "SendContext",
    "SendFailed",
    "SendHook",
    "SendResult",
    "SendRules",
    "SendStatus",
    "SimpleConsumer",
    "Strategy",
    "TraceSender",
    "TransactionProducer",
    "TransactionSendResult",
    "TrioMQ",
    "WrongPayload",
    "__version__",
    "by_hash",
    "by_random",
    "reply_to",
]


_MODULES = {
    "Admin": "administer.admin",
    "Client": "instance.client",
    "Delivery": "consume.delivery",
    "LitePullConsumer": "consume.lite_pull_consumer",
    "Producer": "produce.producer",
    "PullConsumer": "consume.pull_consumer",
    "PushConsumer": "consume.push_consumer",
    "Router": "app.router",
    "SimpleConsumer": "consume.simple_consumer",
    "TraceSender": "produce.trace",
    "TransactionProducer": "produce.transaction_producer",
    "TrioMQ": "app.application",
}
"""Where the names of triomq.client.api are that are no values."""


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from triomq._version import version

        globals()[name] = found = version()
        return found
    if name in __all__:
        from importlib import import_module

        return getattr(import_module(f"triomq.client.{_MODULES.get(name, 'values')}"), name)
    raise AttributeError(f"module 'triomq' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
