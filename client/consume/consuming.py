"""Calling the application with messages, and what follows from the outcome.

There are two ways to consume, each owned by one push consumer:

    concurrent   any number of calls at once, messages finish in any order. A failed message is sent back to the broker,
                 which delivers it again later; what cannot be sent back is tried again here (concurrent.py).
    ordered      one call at a time for each queue, in order. A failed message holds up its queue and is tried again
                 after a pause, or goes to the dead letter topic when it has failed too often (ordered.py).

Both take messages out of the queue's window only when they are settled, and move the offset on from there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import trio

from triomq.client.consume.assigned import AssignedQueue
from triomq.client.consume.failed_messages import FailedMessages
from triomq.client.consume.offset_store import OffsetStore
from triomq.client.core.consume_rules import ConsumeRules
from triomq.client.core.hooks import ConsumeContext, ConsumeHook
from triomq.client.core.log import get_logger
from triomq.client.core.results import ConsumeStatus, RetryLater
from triomq.client.instance.client import Client
from triomq.client.instance.handlers import without_library_frames
from triomq.protocol import property_names as names
from triomq.protocol.message import MessageExt
from triomq.protocol.message_queue import MessageQueue

log = get_logger("triomq.client.consume")

Listener = Callable[[Sequence[MessageExt]], Awaitable[ConsumeStatus | None]]
"""The listener in its uniform shape: takes one or more messages of one queue, returns a status or raises."""


class ConsumeOwner(Protocol):
    """The consumer, as consuming sees it."""

    @property
    def group(self) -> str: ...

    @property
    def is_paused(self) -> bool: ...

    @property
    def is_broadcasting(self) -> bool: ...

    def start_soon(self, function: Callable[..., Awaitable[None]], *args: object) -> None: ...

    def consumed(self, topic: str, cost_ms: int, ok: int, failed: int) -> None:
        """Count messages in the statistics."""


class Verdict:
    """The outcome of one listener call."""

    __slots__ = ("delay_level", "error", "ok", "returned_none", "status")

    def __init__(self, returned: object = None, error: Exception | None = None) -> None:
        self.error = error
        self.returned_none = error is None and returned is None
        self.delay_level = error.delay_level if isinstance(error, RetryLater) else 0
        self.ok = error is None and returned in (None, True, ConsumeStatus.CONSUME_SUCCESS)
        if isinstance(returned, ConsumeStatus):
            self.status = returned
        else:
            self.status = ConsumeStatus.CONSUME_SUCCESS if self.ok else ConsumeStatus.RECONSUME_LATER


OK = Verdict()
"""The usual outcome: the listener returned None."""


class Consuming:
    """What concurrent and ordered consuming share."""

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
        self._failed = FailedMessages(client, owner.group)
        self._clock: Callable[[], float] = trio.current_time

    def start(self) -> None:
        """Start; called once, when the consumer is open."""
        self._clock = trio.lowlevel.current_clock().current_time  # a third of what trio.current_time costs

    def opened(self, assigned: AssignedQueue) -> Callable[[AssignedQueue], Awaitable[None]] | None:
        """Return the task to run beside a queue's pull loop, if there is one."""
        return None

    async def call(self, queue: MessageQueue, messages: Sequence[MessageExt]) -> Verdict:
        """Call the listener; its exceptions become part of the outcome."""
        context = self._before(queue, messages)
        began = self._clock()
        try:
            returned = await self._listener(messages)
            verdict = OK if returned is None else Verdict(returned)
        except RetryLater as error:
            verdict = Verdict(error=error)
        except Exception as error:
            log.warning(
                "the listener raised; messages are delivered again later",
                group=self._owner.group,
                queue=str(queue),
                first_message_id=messages[0].msg_id,
                count=len(messages),
                exc_info=without_library_frames(error),
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
        """Advance the offset after messages have left the window; it never goes back."""
        if queue_offset is not None and not assigned.dropped:
            self._offsets.table.update(assigned.queue, queue_offset, increase_only=True)
        assigned.notify()
