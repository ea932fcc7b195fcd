"""TrioMQ: a message broker, a NameServer and a client that speak Apache RocketMQ 4.9's protocol.

    from triomq import Message, Producer, PushConsumer    # on trio
    from triomq.aio import Producer                       # in asyncio programs
    from triomq.blocking import Producer                  # in plain code
    from triomq.testing import LocalCluster               # a cluster inside of a test
    import triomq.spark                                   # topics and store directories in Spark

These five modules are the public interface; every other module is private and may change in any release. Importing
`triomq` loads nothing else: a name is imported when it is first used.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers take it for true; importing `typing` costs as much as starting Python

if TYPE_CHECKING:
    from typing import Any

    from triomq.client.api import (
        Admin as Admin,
    )
    from triomq.client.api import (
        BrokerRefused as BrokerRefused,
    )
    from triomq.client.api import (
        BrokerUnknown as BrokerUnknown,
    )
    from triomq.client.api import (
        BrokerUnreachable as BrokerUnreachable,
    )
    from triomq.client.api import (
        Client as Client,
    )
    from triomq.client.api import (
        ClientClosed as ClientClosed,
    )
    from triomq.client.api import (
        ClientConfig as ClientConfig,
    )
    from triomq.client.api import (
        ConfigurationError as ConfigurationError,
    )
    from triomq.client.api import (
        ConsumeFromWhere as ConsumeFromWhere,
    )
    from triomq.client.api import (
        ConsumeRules as ConsumeRules,
    )
    from triomq.client.api import (
        ConsumeStatus as ConsumeStatus,
    )
    from triomq.client.api import (
        Credentials as Credentials,
    )
    from triomq.client.api import (
        Delivery as Delivery,
    )
    from triomq.client.api import (
        InvalidMessage as InvalidMessage,
    )
    from triomq.client.api import (
        LitePullConsumer as LitePullConsumer,
    )
    from triomq.client.api import (
        LocalTransactionState as LocalTransactionState,
    )
    from triomq.client.api import (
        Message as Message,
    )
    from triomq.client.api import (
        MessageExt as MessageExt,
    )
    from triomq.client.api import (
        MessageModel as MessageModel,
    )
    from triomq.client.api import (
        MessageQueue as MessageQueue,
    )
    from triomq.client.api import (
        MQClientError as MQClientError,
    )
    from triomq.client.api import (
        NameServersUnreachable as NameServersUnreachable,
    )
    from triomq.client.api import (
        NoRoute as NoRoute,
    )
    from triomq.client.api import (
        OperationTimeout as OperationTimeout,
    )
    from triomq.client.api import (
        Producer as Producer,
    )
    from triomq.client.api import (
        PullConsumer as PullConsumer,
    )
    from triomq.client.api import (
        PullResult as PullResult,
    )
    from triomq.client.api import (
        PullStatus as PullStatus,
    )
    from triomq.client.api import (
        PushConsumer as PushConsumer,
    )
    from triomq.client.api import (
        RequestTimedOut as RequestTimedOut,
    )
    from triomq.client.api import (
        RetryLater as RetryLater,
    )
    from triomq.client.api import (
        SendFailed as SendFailed,
    )
    from triomq.client.api import (
        SendResult as SendResult,
    )
    from triomq.client.api import (
        SendRules as SendRules,
    )
    from triomq.client.api import (
        SendStatus as SendStatus,
    )
    from triomq.client.api import (
        TransactionProducer as TransactionProducer,
    )
    from triomq.client.api import (
        TransactionSendResult as TransactionSendResult,
    )
    from triomq.client.api import (
        reply_to as reply_to,
    )

__version__ = "0.1.0"

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
    "__version__",
    "reply_to",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from triomq.client import api

        return getattr(api, name)
    raise AttributeError(f"module 'triomq' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
