"""The API of the old `rocketmq-client-python` (a wrapper of the C++ client), for programs that were written for it.

    from triomq.client.compat import ConsumeStatus, Message, Producer, PushConsumer
                                                           # was: from rocketmq.client import ...

    producer = Producer("PID-XXX")
    producer.set_name_server_address("127.0.0.1:9876")
    producer.start()
    message = Message("YOUR-TOPIC")
    message.set_keys("XXX"); message.set_tags("XXX"); message.set_body("XXXX")
    result = producer.send_sync(message)
    print(result.status, result.msg_id, result.offset)
    producer.shutdown()

It is a thin layer over `triomq.blocking`. Listeners are called in threads. As in the original, tags, keys, body and
properties of a received message are bytes, its topic and id are strings. New programs should use `triomq.blocking` or
`triomq`.
"""

from __future__ import annotations

from triomq.client.compat.consumers import (
    PullConsumer,
    PushConsumer,
)
from triomq.client.compat.messages import (
    Message,
    ReceivedMessage,
    RecvMessage,
)
from triomq.client.compat.producers import (
    Producer,
    TransactionMQProducer,
)
from triomq.client.compat.values import (
    ConsumerException,
    ConsumeStatus,
    MessageModel,
    MessageProperty,
    ProducerException,
    ProducerSendOnewayFailed,
    ProducerSendOrderlyFailed,
    ProducerSendSyncFailed,
    ProducerStartFailed,
    PushConsumerStartFailed,
    RocketMQException,
    SendResult,
    SendStatus,
    TransactionStatus,
)

__all__ = [
    "ConsumeStatus",
    "ConsumerException",
    "Message",
    "MessageModel",
    "MessageProperty",
    "Producer",
    "ProducerException",
    "ProducerSendOnewayFailed",
    "ProducerSendOrderlyFailed",
    "ProducerSendSyncFailed",
    "ProducerStartFailed",
    "PullConsumer",
    "PushConsumer",
    "PushConsumerStartFailed",
    "ReceivedMessage",
    "RecvMessage",
    "RocketMQException",
    "SendResult",
    "SendStatus",
    "TransactionMQProducer",
    "TransactionStatus",
]
