"""Calling the application with messages, and what follows from its answer.

Two ways (RocketMQ: ConsumeMessageConcurrentlyService, ConsumeMessageOrderlyService), each owned by one push consumer:

    concurrent   any number of calls at once, messages finish in any order. A failed message is sent back to the broker,
                 which delivers it again later; what cannot be sent back is tried again here (concurrent.py).
    ordered      one call at a time for each queue, in order. A failed message holds up its queue and is tried again
                 after a pause, or goes to the dead letter topic when it has failed too often.

Both take messages out of the queue's window only when they are settled, and move the offset on from there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import trio

from triomq.client.consume.assigned import AssignedQueue
from triomq.client.consume.offset_store import OffsetStore
from triomq.client.core import requests
from triomq.client.core.consume_rules import ConsumeRules
from triomq.client.core.errors import MQClientError
from triomq.client.core.hooks import ConsumeContext, ConsumeHook
from triomq.client.core.log import get_logger
from triomq.client.core.results import ConsumeStatus, RetryLater
from triomq.client.instance.client import Client
from triomq.client.produce.sender import Sender
from triomq.protocol import property_names as names
from triomq.protocol import system_topics
from triomq.protocol.message import Message, MessageExt
from triomq.protocol.message_queue import MessageQueue

log = get_logger("triomq.client.consume")

DEFAULT_MAX_RECONSUME_TIMES = 16

Listener = Callable[[Sequence[MessageExt]], Awaitable[ConsumeStatus | None]]
"""The application, made uniform: gets one or more messages of one queue, answers or raises."""


class ConsumeOwner(Protocol):
    """What consuming asks its consumer."""

    @property
    def group(self) -> str: ...

    @property
    def is_paused(self) -> bool: ...

    @property
    def is_broadcasting(self) -> bool: ...

    def start_soon(self, function: Callable[..., Awaitable[None]], *args: object) -> None: ...

    def consumed(self, topic: str, cost_ms: int, ok: int, failed: int) -> None:
        """For the statistics."""


class Verdict:
    """How one call of the application ended."""

    __slots__ = ("delay_level", "error", "ok", "returned_none", "status")

    def __init__(self, answer: object = None, error: Exception | None = None) -> None:
        self.error = error
        self.returned_none = error is None and answer is None
        self.delay_level = error.delay_level if isinstance(error, RetryLater) else 0
        self.ok = error is None and answer in (None, True, ConsumeStatus.CONSUME_SUCCESS)
        if isinstance(answer, ConsumeStatus):
            self.status = answer
        else:
            self.status = ConsumeStatus.CONSUME_SUCCESS if self.ok else ConsumeStatus.RECONSUME_LATER


OK = Verdict()
"""The usual one: the listener returned nothing."""


class Consuming:
    """What both ways share."""

    def __init__(
        self,
        client: Client,
        owner: ConsumeOwner,
        offsets: OffsetStore,
        rules: ConsumeRules,
        listener: Listener,
        hooks: Sequence[ConsumeHook],
    ) -> None:
        self._client = client
        self._owner = owner
        self._offsets = offsets
        self._rules = rules
        self._listener = listener
        self._hooks = hooks
        self._retry_sender = Sender(client, system_topics.CLIENT_INNER_PRODUCER_GROUP)
        self._clock: Callable[[], float] = trio.current_time

    def start(self) -> None:
        """Called once, when the consumer is open."""
        self._clock = trio.lowlevel.current_clock().current_time  # a third of what trio.current_time costs

    def opened(self, assigned: AssignedQueue) -> Callable[[AssignedQueue], Awaitable[None]] | None:
        """The task to run beside a queue's pull loop, if there is one."""
        return None

    async def call(self, queue: MessageQueue, messages: Sequence[MessageExt]) -> Verdict:
        """Call the application; never raises its exceptions."""
        context = self._before(queue, messages)
        began = self._clock()
        try:
            answer = await self._listener(messages)
            verdict = OK if answer is None else Verdict(answer)
        except RetryLater as error:
            verdict = Verdict(error=error)
        except Exception as error:
            log.warning(
                "the listener raised, messages are delivered again later",
                group=self._owner.group,
                queue=str(queue),
                first_message_id=messages[0].msg_id,
                count=len(messages),
                exc_info=error,
            )
            verdict = Verdict(error=error)
        self._after(queue, len(messages), verdict, began, context)
        return verdict

    def _before(self, queue: MessageQueue, messages: Sequence[MessageExt]) -> ConsumeContext | None:
        context = None
        now_ms = self._client.config.now_ms()
        if self._hooks:
            context = ConsumeContext(self._owner.group, messages, queue, now_ms)
            self._run_hooks("before_consume", context)
        text = str(now_ms)
        for message in messages:
            message.properties[names.CONSUME_START_TIME] = text
        return context

    def _after(
        self, queue: MessageQueue, count: int, verdict: Verdict, began: float, context: ConsumeContext | None
    ) -> None:
        cost_ms = int((self._clock() - began) * 1000)
        self._owner.consumed(queue.topic, cost_ms, count if verdict.ok else 0, 0 if verdict.ok else count)
        if context is not None:
            context.success, context.status, context.cost_ms = verdict.ok, verdict.status.value, cost_ms
            self._run_hooks("after_consume", context)

    def _run_hooks(self, name: str, context: ConsumeContext) -> None:
        for hook in self._hooks:
            try:
                getattr(hook, name)(context)
            except Exception:
                log.exception("a consume hook failed")

    def _settled(self, assigned: AssignedQueue, queue_offset: int | None) -> None:
        """Messages left the window: move the offset on."""
        if queue_offset is not None and not assigned.dropped:
            self._offsets.table.update(assigned.queue, queue_offset, increase_only=True)
        assigned.notify()

    async def _send_back(self, message: MessageExt, broker_name: str, delay_level: int, max_times: int) -> bool:
        """Hand a failed message to its broker, or else to any broker as a new message of the retry topic; False
        (logged) when neither worked."""
        try:
            address = await self._client.master_of(broker_name)
            await self._client.call(
                address,
                requests.send_back(
                    self._owner.group,
                    message,
                    delay_level=delay_level,
                    max_reconsume_times=max_times,
                    unit_mode=self._client.config.unit_mode,
                ),
            )
            return True
        except MQClientError as error:
            log.warning("message not sent back", group=self._owner.group, id=message.msg_id, error=str(error))
        try:
            await self._retry_sender.send(retry_message(self._owner.group, message, delay_level, max_times))
        except MQClientError as error:
            log.warning("message is tried again here", group=self._owner.group, id=message.msg_id, error=str(error))
            return False
        return True


def retry_message(group: str, failed: MessageExt, delay_level: int, max_times: int) -> Message:
    """The new message that stands for a failed one when its broker cannot send it back (RocketMQ: sendMessageBack)."""
    properties = dict(failed.properties)
    for name in (names.TRANSACTION_PREPARED, names.CONSUME_START_TIME, names.WAIT):
        properties.pop(name, None)
    properties.setdefault(names.ORIGIN_MESSAGE_ID, failed.msg_id)
    properties[names.RETRY_TOPIC] = failed.topic
    times = max_times if delay_level < 0 else failed.reconsume_times + 1
    properties[names.RECONSUME_TIME] = str(times)
    properties[names.MAX_RECONSUME_TIMES] = str(max_times)
    properties[names.DELAY] = str(delay_level if delay_level > 0 else 3 + failed.reconsume_times)
    return Message(system_topics.retry_topic(group), failed.body, flag=failed.flag, properties=properties)


class OrderedConsuming(Consuming):
    """One task for each held queue."""

    ordered = True

    def __init__(
        self,
        client: Client,
        owner: ConsumeOwner,
        offsets: OffsetStore,
        rules: ConsumeRules,
        listener: Listener,
        hooks: Sequence[ConsumeHook],
    ) -> None:
        super().__init__(client, owner, offsets, rules, listener, hooks)
        self._limit = trio.CapacityLimiter(rules.concurrency)

    def opened(self, assigned: AssignedQueue) -> Callable[[AssignedQueue], Awaitable[None]] | None:
        return self.run

    async def submit(self, assigned: AssignedQueue, messages: Sequence[MessageExt]) -> None:
        """The queue's task was woken by `notify`."""

    async def run(self, assigned: AssignedQueue) -> None:
        """Consume one queue until it is dropped."""
        while not assigned.dropped:
            if self._owner.is_paused or not assigned.may_run or not self._may_consume(assigned):
                await assigned.wait_change(1)
                continue
            messages = assigned.window.take(self._rules.batch_max_size)
            if not messages:
                await assigned.wait_change(60)
                continue
            assigned.busy += 1
            try:
                async with self._limit:
                    pause_seconds = await self._consume(assigned, messages)
            finally:
                assigned.busy -= 1
                assigned.notify()
            if pause_seconds > 0:
                await trio.sleep(pause_seconds)

    def _may_consume(self, assigned: AssignedQueue) -> bool:
        return self._owner.is_broadcasting or assigned.holds_lock(_now_ms())

    async def _consume(self, assigned: AssignedQueue, messages: Sequence[MessageExt]) -> float:
        """Returns how long the queue pauses."""
        assigned.window.last_consume_ms = _now_ms()
        verdict = await self.call(assigned.queue, messages)
        if assigned.dropped:
            return 0
        if verdict.ok:
            self._settled(assigned, assigned.window.settle())
            return 0
        hopeless = [message for message in messages if self._failed_too_often(message) or verdict.delay_level < 0]
        if hopeless:
            buried = [
                message for message in hopeless if await self._send_back(message, assigned.queue.broker_name, -1, 0)
            ]
            self._settled(assigned, assigned.window.remove(buried))
        for message in messages:
            message.reconsume_times += 1
        assigned.window.put_back()
        return 0 if hopeless and len(hopeless) == len(messages) else self._rules.suspend_seconds

    def _failed_too_often(self, message: MessageExt) -> bool:
        limit = self._rules.max_reconsume_times
        return 0 <= limit <= message.reconsume_times and not self._owner.is_broadcasting


def _now_ms() -> int:
    return int(trio.current_time() * 1000)
