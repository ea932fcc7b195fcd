"""The producers of the C++ client's Python wrapper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from triomq.client.compat.messages import Message, ReceivedMessage
from triomq.client.compat.named import Named
from triomq.client.compat.values import (
    STATES,
    ProducerSendOnewayFailed,
    ProducerSendOrderlyFailed,
    ProducerSendSyncFailed,
    ProducerStartFailed,
    SendResult,
    TransactionStatus,
    failing_as,
    result_of,
)
from triomq.client.core.outgoing import SendRules
from triomq.client.core.results import LocalTransactionState
from triomq.client.facades import blocking
from triomq.protocol import message as core
from triomq.protocol import property_names as names
from triomq.protocol.message_queue import MessageQueue


class Producer(Named):
    """A producer. `orderly` has no effect: give a sharding key to the send."""

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
        """Set the time limit of a send, in milliseconds."""
        self._options["send_timeout_seconds"] = timeout / 1000

    def set_compress_level(self, level: int) -> None:
        self._rules["compression_level"] = level

    def set_max_message_size(self, max_size: int) -> None:
        self._rules["max_message_bytes"] = max_size

    def _make(self) -> Any:
        return blocking.Producer(self._group, rules=SendRules(**self._rules), **self._options)

    def send_sync(self, msg: Message) -> SendResult:
        running = self._running()
        with failing_as(ProducerSendSyncFailed):
            return result_of(running.send(msg.core))

    def send_oneway(self, msg: Message) -> None:
        running = self._running()
        with failing_as(ProducerSendOnewayFailed):
            running.send_oneway(msg.core)

    def send_orderly(
        self, msg: Message, arg: object, retry_times: int = 0, queue_select_callback: Any = None
    ) -> SendResult:
        """Send to the queue whose number `queue_select_callback(queue_count, message, arg)` returns; without a
        callback, messages with the same `arg` go to the same queue."""
        select = queue_select_callback or (lambda count, _message, key: hash(key) % count)
        return self._select(msg, lambda count: select(count, msg, arg))

    def send_orderly_with_sharding_key(self, msg: Message, sharding_key: str) -> SendResult:
        running = self._running()
        with failing_as(ProducerSendOrderlyFailed):
            return result_of(running.send(msg.core, sharding_key=sharding_key))

    def _select(self, msg: Message, choose: Callable[[int], int]) -> SendResult:
        running = self._running()
        with failing_as(ProducerSendOrderlyFailed):
            queues: list[MessageQueue] = running.queues(msg.core.topic)
            return result_of(running.send(msg.core, queue=queues[choose(len(queues)) % len(queues)]))


class TransactionMQProducer(Producer):
    """A transaction producer. `checker_callback(message)` returns a TransactionStatus when the broker asks for the
    outcome of a local transaction."""

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
            return STATES[TransactionStatus(callback(ReceivedMessage(half), user_args))]

        def check(message: core.MessageExt) -> LocalTransactionState:
            return STATES[TransactionStatus(self._checker(ReceivedMessage(message)))]

        return blocking.TransactionProducer(
            self._group, execute, check, rules=SendRules(**self._rules), **self._options
        )

    def send_message_in_transaction(
        self,
        message: Message,
        local_execute: Callable[[ReceivedMessage, object], TransactionStatus],
        user_args: object = None,
    ) -> SendResult:
        """Send a half message and run `local_execute(message, user_args)`, the local transaction."""
        running = self._running()
        with failing_as(ProducerSendSyncFailed):
            return result_of(running.send_in_transaction(message.core, (local_execute, user_args)).send)
