"""The consumers of the C++ client's Python wrapper."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from triomq.client.compat.messages import ReceivedMessage
from triomq.client.compat.named import Named
from triomq.client.compat.values import ConsumeStatus, MessageModel, PushConsumerStartFailed
from triomq.client.core.consume_rules import ConsumeRules
from triomq.client.core.results import ConsumeStatus as CoreConsumeStatus
from triomq.client.core.results import MessageModel as CoreMessageModel
from triomq.client.core.results import PullStatus
from triomq.client.facades import blocking
from triomq.protocol import message as core
from triomq.protocol.message_queue import MessageQueue


class PushConsumer(Named):
    """A push consumer: subscribe with a callback, then start."""

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
        """Do nothing: callbacks receive one message at a time, as they always did in Python."""

    def subscribe(self, topic: str, callback: Callable[[ReceivedMessage], Any], expression: str = "*") -> None:
        """Have `callback(message)` called for every message of a topic; it returns a ConsumeStatus or None."""
        self._callbacks[topic] = (callback, expression)
        if self._facade is not None:
            self._facade.subscribe(topic, expression)

    def _make(self) -> Any:
        consumer = blocking.PushConsumer(self._group, rules=ConsumeRules(**self._rules), **self._options)
        for topic, (_, expression) in self._callbacks.items():
            consumer.subscribe(topic, expression)
        consumer.listen(self._dispatch)
        return consumer

    def _dispatch(self, message: core.MessageExt) -> CoreConsumeStatus:
        callback, _ = self._callbacks[message.topic]
        returned = callback(ReceivedMessage(message))
        if (
            returned is None
            or returned is True
            or (returned == ConsumeStatus.CONSUME_SUCCESS and returned is not False)
        ):
            return CoreConsumeStatus.CONSUME_SUCCESS
        return CoreConsumeStatus.RECONSUME_LATER


class PullConsumer(Named):
    """A pull consumer: `pull` reads all messages of a topic from where it stopped the last time."""

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
        """Yield the messages that are stored now, queue after queue."""
        consumer = self._running()
        for queue in consumer.queues(topic):
            while True:
                result = consumer.pull(queue, expression, self.get_message_queue_offset(queue), max_count=max_num)
                self._offsets[queue] = result.next_begin_offset
                for message in result.messages:
                    yield ReceivedMessage(message)
                if result.status in (PullStatus.NO_NEW_MSG,) or result.next_begin_offset >= result.max_offset:
                    break
