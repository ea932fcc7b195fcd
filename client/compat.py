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

It is a thin layer over `triomq.blocking`. Listeners are called in threads. As it was there, a received message's
tags, keys, body and properties are bytes, its topic and id are texts. New programs should use `triomq.blocking` or
`triomq`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum, IntEnum
from typing import Any, NamedTuple

from triomq.client.core.config import Credentials
from triomq.client.core.consume_rules import ConsumeRules
from triomq.client.core.errors import MQClientError
from triomq.client.core.outgoing import SendRules
from triomq.client.core.results import ConsumeStatus as CoreConsumeStatus
from triomq.client.core.results import LocalTransactionState, PullStatus
from triomq.client.core.results import MessageModel as CoreMessageModel
from triomq.client.core.results import SendStatus as CoreSendStatus
from triomq.client.facades import blocking
from triomq.protocol import message as core
from triomq.protocol import property_names as names
from triomq.protocol.message_queue import MessageQueue

RocketMQException = MQClientError


class ProducerException(RocketMQException):
    """A producer could not do what it was told; the reason is the `__cause__`."""


class ProducerStartFailed(ProducerException):
    pass


class ProducerSendSyncFailed(ProducerException):
    pass


class ProducerSendOnewayFailed(ProducerException):
    pass


class ProducerSendOrderlyFailed(ProducerException):
    pass


class ConsumerException(RocketMQException):
    """The same of a consumer."""


class PushConsumerStartFailed(ConsumerException):
    pass


@contextmanager
def _failing_as(kind: type[RocketMQException]) -> Iterator[None]:
    try:
        yield
    except MQClientError as error:
        raise kind(str(error)) from error


class SendStatus(IntEnum):
    """What is sure about a sent message; in all four cases it is stored."""

    OK = 0
    FLUSH_DISK_TIMEOUT = 1
    FLUSH_SLAVE_TIMEOUT = 2
    SLAVE_NOT_AVAILABLE = 3


_STATUSES = {
    CoreSendStatus.SEND_OK: SendStatus.OK,
    CoreSendStatus.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    CoreSendStatus.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    CoreSendStatus.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}


class MessageProperty(Enum):
    """Names of properties that RocketMQ sets itself, for `get_property`."""

    TRACE_SWITCH = names.TRACE_ON
    MSG_REGION = names.MSG_REGION
    KEYS = names.KEYS
    TAGS = names.TAGS
    WAIT_STORE_MSG_OK = names.WAIT
    DELAY_TIME_LEVEL = names.DELAY
    RETRY_TOPIC = names.RETRY_TOPIC
    REAL_TOPIC = names.REAL_TOPIC
    REAL_QUEUE_ID = names.REAL_QUEUE_ID
    TRANSACTION_PREPARED = names.TRANSACTION_PREPARED
    PRODUCER_GROUP = names.PRODUCER_GROUP
    MIN_OFFSET = names.MIN_OFFSET
    MAX_OFFSET = names.MAX_OFFSET
    BUYER_ID = names.BUYER_ID
    ORIGIN_MESSAGE_ID = names.ORIGIN_MESSAGE_ID
    TRANSFER_FLAG = names.TRANSFER_FLAG
    CORRECTION_FLAG = names.CORRECTION_FLAG
    MQ2_FLAG = names.MQ2_FLAG
    RECONSUME_TIME = names.RECONSUME_TIME
    UNIQ_CLIENT_MESSAGE_ID_KEYIDX = names.UNIQ_KEY
    MAX_RECONSUME_TIMES = names.MAX_RECONSUME_TIMES
    CONSUME_START_TIMESTAMP = names.CONSUME_START_TIME


class ConsumeStatus(IntEnum):
    """What a listener answers; True and None count as success, an exception or False as "later"."""

    CONSUME_SUCCESS = 0
    RECONSUME_LATER = 1


class MessageModel(IntEnum):
    BROADCASTING = 0
    CLUSTERING = 1


class TransactionStatus(IntEnum):
    COMMIT = 0
    ROLLBACK = 1
    UNKNOWN = 2


class SendResult(NamedTuple):
    """`status`: the SendStatus; `offset`: queue offset."""

    status: SendStatus
    msg_id: str
    offset: int


class Message:
    """A message to send."""

    def __init__(self, topic: str) -> None:
        self._message = core.Message(topic)

    def set_keys(self, keys: str) -> None:
        self._message.keys = keys

    def set_tags(self, tags: str) -> None:
        self._message.tags = tags

    def set_body(self, body: str | bytes) -> None:
        self._message.body = body.encode() if isinstance(body, str) else body

    def set_property(self, key: str, value: str) -> None:
        self._message.properties[key] = value

    def set_delay_time_level(self, delay_time_level: int) -> None:
        self._message.delay_level = delay_time_level


class ReceivedMessage:
    """A message received. Tags, keys and properties that it does not have are empty."""

    def __init__(self, message: core.MessageExt) -> None:
        self.raw = message

    @property
    def topic(self) -> str:
        return self.raw.topic

    @property
    def tags(self) -> bytes:
        return self.get_property(MessageProperty.TAGS)

    @property
    def keys(self) -> bytes:
        return self.get_property(MessageProperty.KEYS)

    @property
    def body(self) -> bytes:
        return self.raw.body

    @property
    def id(self) -> str:
        return self.raw.msg_id

    @property
    def delay_time_level(self) -> int:
        return self.raw.delay_level

    @property
    def queue_id(self) -> int:
        return self.raw.queue_id

    @property
    def reconsume_times(self) -> int:
        return self.raw.reconsume_times

    @property
    def store_size(self) -> int:
        return self.raw.store_size_bytes

    @property
    def born_timestamp(self) -> int:
        return self.raw.born_timestamp

    @property
    def store_timestamp(self) -> int:
        return self.raw.store_timestamp

    @property
    def queue_offset(self) -> int:
        return self.raw.queue_offset

    @property
    def commit_log_offset(self) -> int:
        return self.raw.physical_offset

    @property
    def prepared_transaction_offset(self) -> int:
        return self.raw.prepared_transaction_offset

    def get_property(self, prop: str | bytes | MessageProperty) -> bytes:
        if isinstance(prop, MessageProperty):
            prop = prop.value
        name = prop.decode() if isinstance(prop, bytes) else prop
        return self.raw.properties.get(name, "").encode()

    def __getitem__(self, key: str | bytes | MessageProperty) -> bytes:
        return self.get_property(key)

    def __str__(self) -> str:
        return self.body.decode("utf-8", "replace")

    def __bytes__(self) -> bytes:
        return self.body

    def __repr__(self) -> str:
        return f"<ReceivedMessage topic={self.topic!r} id={self.id!r} body={self.body!r}>"


RecvMessage = ReceivedMessage
"""What it was called at first."""


class _Named:
    """What producers and consumers have in common: they are configured first and started then."""

    _start_failed: type[RocketMQException] = ConsumerException

    def __init__(self, group_id: str) -> None:
        self._group = group_id
        self._options: dict[str, Any] = {}
        self._face: Any = None

    def set_name_server_address(self, addr: str) -> None:
        self._options["name_server"] = addr

    def set_namesrv_addr(self, addr: str) -> None:
        self._options["name_server"] = addr

    def set_name_server_domain(self, domain: str) -> None:
        """Where the list of name servers is published: "http://host:8080/rocketmq/nsaddr", or just the host."""
        port = "" if ":" in domain else ":8080"
        self._options["name_server"] = domain if "/" in domain else f"http://{domain}{port}/rocketmq/nsaddr"

    set_namesrv_domain = set_name_server_domain

    def set_session_credentials(self, access_key: str, access_secret: str, channel: str = "") -> None:
        self._options["credentials"] = Credentials(access_key, access_secret)

    def set_instance_name(self, name: str) -> None:
        self._options["instance_name"] = name

    def set_group(self, group_id: str) -> None:
        self._group = group_id

    def _make(self) -> Any:
        raise NotImplementedError

    def start(self) -> None:
        with _failing_as(self._start_failed):
            self._face = self._make().start()

    def shutdown(self) -> None:
        if self._face is not None:
            self._face.close()
            self._face = None

    def _running(self) -> Any:
        if self._face is None:
            raise RocketMQException("not started: call start() first")
        return self._face

    def __enter__(self) -> Any:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()


class Producer(_Named):
    """`orderly` has no effect: give a sharding key."""

    _start_failed = ProducerStartFailed

    def __init__(
        self,
        group_id: str,
        orderly: bool = False,
        timeout: int | None = None,
        compress_level: int | None = None,
        max_message_size: int | None = None,
    ) -> None:
        super().__init__(group_id)
        self._rules: dict[str, int] = {}
        if timeout is not None:
            self.set_timeout(timeout)
        if compress_level is not None:
            self.set_compress_level(compress_level)
        if max_message_size is not None:
            self.set_max_message_size(max_message_size)

    def set_timeout(self, timeout: int) -> None:
        """Milliseconds."""
        self._options["send_timeout_seconds"] = timeout / 1000

    def set_compress_level(self, level: int) -> None:
        self._rules["compression_level"] = level

    def set_max_message_size(self, max_size: int) -> None:
        self._rules["max_message_bytes"] = max_size

    def _make(self) -> Any:
        return blocking.Producer(self._group, rules=SendRules(**self._rules), **self._options)

    def send_sync(self, msg: Message) -> SendResult:
        running = self._running()
        with _failing_as(ProducerSendSyncFailed):
            return _result(running.send(msg._message))

    def send_oneway(self, msg: Message) -> None:
        running = self._running()
        with _failing_as(ProducerSendOnewayFailed):
            running.send_oneway(msg._message)

    def send_orderly(
        self, msg: Message, arg: object, retry_times: int = 0, queue_select_callback: Any = None
    ) -> SendResult:
        """`queue_select_callback(queue_count, message, arg)` answers a queue number; without one, messages with the
        same `arg` go to the same queue."""
        select = queue_select_callback or (lambda count, _message, key: hash(key) % count)
        return self._select(msg, lambda count: select(count, msg, arg))

    def send_orderly_with_sharding_key(self, msg: Message, sharding_key: str) -> SendResult:
        running = self._running()
        with _failing_as(ProducerSendOrderlyFailed):
            return _result(running.send(msg._message, sharding_key=sharding_key))

    def _select(self, msg: Message, choose: Callable[[int], int]) -> SendResult:
        running = self._running()
        with _failing_as(ProducerSendOrderlyFailed):
            queues: list[MessageQueue] = running.queues(msg._message.topic)
            return _result(running.send(msg._message, queue=queues[choose(len(queues)) % len(queues)]))


def _result(result: Any) -> SendResult:
    return SendResult(_STATUSES[result.status], result.message_id, result.queue_offset)


_STATES = {
    TransactionStatus.COMMIT: LocalTransactionState.COMMIT_MESSAGE,
    TransactionStatus.ROLLBACK: LocalTransactionState.ROLLBACK_MESSAGE,
    TransactionStatus.UNKNOWN: LocalTransactionState.UNKNOW,
}


class TransactionMQProducer(Producer):
    """`checker_callback(message)` answers a TransactionStatus when the broker asks."""

    def __init__(
        self,
        group_id: str,
        checker_callback: Callable[[ReceivedMessage], TransactionStatus],
        user_args: object = None,
        timeout: int | None = None,
        compress_level: int | None = None,
        max_message_size: int | None = None,
    ) -> None:
        super().__init__(group_id, False, timeout, compress_level, max_message_size)
        self._checker = checker_callback

    def _make(self) -> Any:
        def execute(message: core.Message, argument: Any) -> LocalTransactionState:
            callback, user_args = argument
            half = core.MessageExt(message.topic, message.body, properties=message.properties)
            half.properties[names.UNIQ_KEY] = message.transaction_id or ""
            return _STATES[TransactionStatus(callback(ReceivedMessage(half), user_args))]

        def check(message: core.MessageExt) -> LocalTransactionState:
            return _STATES[TransactionStatus(self._checker(ReceivedMessage(message)))]

        return blocking.TransactionProducer(
            self._group, execute, check, rules=SendRules(**self._rules), **self._options
        )

    def send_message_in_transaction(
        self,
        message: Message,
        local_execute: Callable[[ReceivedMessage, object], TransactionStatus],
        user_args: object = None,
    ) -> SendResult:
        """`local_execute(message, user_args)` is the local transaction."""
        running = self._running()
        with _failing_as(ProducerSendSyncFailed):
            return _result(running.send_in_transaction(message._message, (local_execute, user_args)).send)


class PushConsumer(_Named):
    """Subscribe with a callback, then start."""

    _start_failed = PushConsumerStartFailed

    def __init__(
        self, group_id: str, orderly: bool = False, message_model: MessageModel = MessageModel.CLUSTERING
    ) -> None:
        super().__init__(group_id)
        self._options["ordered"] = orderly
        self.set_message_model(message_model)
        self._rules: dict[str, Any] = {}
        self._callbacks: dict[str, tuple[Callable[[ReceivedMessage], Any], str]] = {}

    def set_message_model(self, message_model: MessageModel) -> None:
        self._options["model"] = CoreMessageModel[MessageModel(message_model).name]

    def set_thread_count(self, thread_count: int) -> None:
        self._rules["concurrency"] = thread_count

    def set_message_batch_max_size(self, max_size: int) -> None:
        """Has no effect: callbacks get one message at a time, as they always did in Python."""

    def subscribe(self, topic: str, callback: Callable[[ReceivedMessage], Any], expression: str = "*") -> None:
        """`callback(message)` answers a ConsumeStatus (or nothing)."""
        self._callbacks[topic] = (callback, expression)
        if self._face is not None:
            self._face.subscribe(topic, expression)

    def _make(self) -> Any:
        consumer = blocking.PushConsumer(self._group, rules=ConsumeRules(**self._rules), **self._options)
        for topic, (_, expression) in self._callbacks.items():
            consumer.subscribe(topic, expression)
        consumer.listen(self._dispatch)
        return consumer

    def _dispatch(self, message: core.MessageExt) -> CoreConsumeStatus:
        callback, _ = self._callbacks[message.topic]
        answer = callback(ReceivedMessage(message))
        if answer is None or answer is True or (answer == ConsumeStatus.CONSUME_SUCCESS and answer is not False):
            return CoreConsumeStatus.CONSUME_SUCCESS
        return CoreConsumeStatus.RECONSUME_LATER


class PullConsumer(_Named):
    """`pull` goes through all messages of a topic from where it stopped the last time."""

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self._offsets: dict[MessageQueue, int] = {}

    def _make(self) -> Any:
        return blocking.PullConsumer(self._group, **self._options)

    def set_message_queue_offset(self, queue: MessageQueue, offset: int) -> None:
        self._offsets[queue] = offset

    def get_message_queue_offset(self, queue: MessageQueue) -> int:
        return self._offsets.get(queue, 0)

    def pull(self, topic: str, expression: str = "*", max_num: int = 32) -> Iterator[ReceivedMessage]:
        """The messages that are there now, queue after queue."""
        consumer = self._running()
        for queue in consumer.queues(topic):
            while True:
                result = consumer.pull(queue, expression, self.get_message_queue_offset(queue), max_count=max_num)
                self._offsets[queue] = result.next_begin_offset
                for message in result.messages:
                    yield ReceivedMessage(message)
                if result.status in (PullStatus.NO_NEW_MSG,) or result.next_begin_offset >= result.max_offset:
                    break
