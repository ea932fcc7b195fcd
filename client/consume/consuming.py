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
from enum import Enum
from typing import Any, Protocol

import trio

from triomq.client.consume.assigned import AssignedQueue
from triomq.client.consume.failed_messages import FailedMessages
from triomq.client.consume.offset_store import OffsetStore
from triomq.client.consume.payloads import Payloads, WrongMessage
from triomq.client.core.consume_rules import ConsumeRules
from triomq.client.core.errors import WrongPayload
from triomq.client.core.hooks import ConsumeContext, ConsumeHook
from triomq.client.core.log import get_logger
from triomq.client.core.results import ConsumeStatus, DeadLetter, RetryLater
from triomq.client.core.spans import ProcessSpan
from triomq.client.instance.client import Client
from triomq.client.instance.handlers import without_library_frames
from triomq.client.instance.user_errors import concerns_one_call
from triomq.protocol import system_topics
from triomq.protocol.bodies.running_info import ConsumeMessageDirectlyResult
from triomq.protocol.delay_levels import in_words
from triomq.protocol.message import MessageExt, note_began
from triomq.protocol.message_queue import MessageQueue

log = get_logger("triomq.client.consume")

FIRST_RETRY_LEVEL = 3
"""The delay level of the first retry; each further one has the next (RocketMQ: SendMessageProcessor)."""

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

    @property
    def payloads(self) -> Payloads[Any] | None: ...

    def start_soon(self, function: Callable[..., Awaitable[None]], *args: object) -> None: ...

    def consumed(self, topic: str, cost_ms: int, ok: int, failed: int) -> None:
        """Count messages in the statistics."""


def status_of(returned: object) -> ConsumeStatus:
    """Return what a listener says by returning this: its ConsumeStatus (an enumeration of another library that has the
    same names will do), RECONSUME_LATER for False. Anything else is a value that means nothing here: consumed."""
    if isinstance(returned, Enum):
        return ConsumeStatus.__members__.get(returned.name, ConsumeStatus.CONSUME_SUCCESS)
    return ConsumeStatus.RECONSUME_LATER if returned is False else ConsumeStatus.CONSUME_SUCCESS


class Verdict:
    """The outcome of one listener call. `wrong`: messages that the listener did not get, because of their bodies."""

    __slots__ = ("delay_level", "error", "is_false", "ok", "reason", "returned_none", "status", "wrong")

    def __init__(
        self, returned: object = None, error: BaseException | None = None, wrong: Sequence[WrongMessage] = ()
    ) -> None:
        self.error = error
        self.reason = error.reason if isinstance(error, DeadLetter) else None
        self.wrong = wrong
        self.returned_none = error is None and returned is None
        self.delay_level = error.delay_level if isinstance(error, RetryLater) else 0
        self.is_false = returned is False
        self.status = status_of(returned) if error is None else ConsumeStatus.RECONSUME_LATER
        self.ok = self.status is ConsumeStatus.CONSUME_SUCCESS

    @property
    def all_consumed(self) -> bool:
        """Whether nothing is left to do with the messages."""
        return self.ok and not self.wrong

    @property
    def failure(self) -> tuple[str | None, str]:
        """Why messages are left, for traces: the kind of failure, None when there is none, and its text."""
        if self.error is not None:
            return type(self.error).__name__, str(self.error)
        if self.wrong:
            return WrongPayload.__name__, self.wrong[0][1]
        return (None, "") if self.ok else (self.status.name, "the listener returned it")

    @property
    def is_mistake(self) -> bool:
        """Whether the listener failed, and did not just ask for a later delivery."""
        return self.is_false or (self.error is not None and not isinstance(self.error, RetryLater))

    def reason_of(self, message: MessageExt, *, is_last: bool = False) -> str | None:
        """Return why a message goes to the dead letter topic, None if it does not. `is_last`: it has had its last
        try."""
        for wrong, reason in self.wrong:
            if wrong is message:
                return reason
        if self.ok:
            return None
        if self.reason is not None or self.delay_level < 0 or not is_last:
            return self.reason
        if self.is_false:
            return "the listener returned False"
        kind, text = self.failure
        return f"{kind}: {text}" if text else kind

    def directly(self, *, ordered: bool, cost_ms: int) -> ConsumeMessageDirectlyResult:
        """Return the response to an administrator who had one message consumed."""
        remark = None
        if self.wrong:
            outcome, remark = "CR_THROW_EXCEPTION", self.wrong[0][1]
        elif self.error is not None and not isinstance(self.error, RetryLater):
            outcome = "CR_THROW_EXCEPTION"
            remark = f"{type(self.error).__name__}: {self.error}"
        else:
            outcome = "CR_SUCCESS" if self.ok else "CR_LATER"
        return ConsumeMessageDirectlyResult(
            consume_result=outcome, order=ordered, remark=remark, spent_time_mills=cost_ms
        )


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

    async def call(self, queue: MessageQueue, messages: Sequence[MessageExt], *, is_single: bool = False) -> Verdict:
        """Call the listener with the messages whose bodies are right; its exceptions become part of the outcome.
        `is_single`: there is no other try, whatever the outcome."""
        context = self._before(queue, messages)
        began = self._clock()
        wrong: Sequence[WrongMessage] = ()
        with self.span(queue, messages) as span:
            try:
                if self._owner.payloads is None:
                    returned = await self._listener(messages)
                else:
                    right, wrong = await self._owner.payloads.sort_out(messages)
                    returned = await self._listener(right) if right else None
                verdict = OK if returned is None and not wrong else Verdict(returned, wrong=wrong)
            except BaseException as error:
                if not concerns_one_call(error):
                    raise
                verdict = Verdict(error=error, wrong=wrong)
            span.end(*verdict.failure)
        if verdict.is_mistake:
            self._log_mistake(queue, messages, verdict, is_single=is_single)
        self._after(queue, len(messages), verdict, began, context)
        return verdict

    def span(self, queue: MessageQueue, messages: Sequence[MessageExt]) -> ProcessSpan:
        """Return the span of a call with these messages."""
        owner = self._owner
        return self._client.spans.processing(owner.group, queue, messages, is_broadcasting=owner.is_broadcasting)

    def _before(self, queue: MessageQueue, messages: Sequence[MessageExt]) -> ConsumeContext | None:
        context = None
        now_ms = self._client.config.now_ms()
        if self._hooks:
            context = ConsumeContext(self._owner.group, messages, queue, now_ms)
            self._run_hooks("before_consume", context)
        note_began(messages, now_ms)
        return context

    def _after(
        self, queue: MessageQueue, count: int, verdict: Verdict, began: float, context: ConsumeContext | None
    ) -> None:
        cost_ms = int((self._clock() - began) * 1000)
        failed = len(verdict.wrong) if verdict.ok else count
        self._owner.consumed(queue.topic, cost_ms, count - failed, failed)
        if context is not None:
            context.success = verdict.all_consumed
            context.status = verdict.status.value
            context.cost_ms = cost_ms
            self._run_hooks("after_consume", context)

    @property
    def retry_limit(self) -> int | None:
        """How often a message is delivered again before it goes to the dead letter topic; None: without a limit."""
        raise NotImplementedError

    def pause_before_retry(self, message: MessageExt, verdict: Verdict) -> str:
        """Return how long it takes until the next try, in words."""
        level = verdict.delay_level or FIRST_RETRY_LEVEL + message.reconsume_times
        return in_words(level)

    def is_last_try(self, message: MessageExt) -> bool:
        """Whether the message goes to the dead letter topic if this try fails."""
        limit = self.retry_limit
        return limit is not None and message.reconsume_times >= limit

    def _log_mistake(
        self, queue: MessageQueue, messages: Sequence[MessageExt], verdict: Verdict, *, is_single: bool = False
    ) -> None:
        """Log what a listener raised (or its False), which try it was, and what becomes of the messages."""
        first = messages[0]
        limit = self.retry_limit
        attempt = f"{first.reconsume_times + 1}" if limit is None else f"{first.reconsume_times + 1} of {limit + 1}"
        following = {"attempt": attempt}
        if is_single:
            following = {"attempt": "by hand"}
        elif self._owner.is_broadcasting:
            following = {"attempt": "the only one: broadcast messages are dropped"}
        elif self.is_last_try(first):
            following["next"] = f"none: to {system_topics.dlq_topic(self._owner.group)}"
        else:
            following["next"] = f"in {self.pause_before_retry(first, verdict)}"
        log.warning(
            "listener returned False" if verdict.is_false else "listener failed",
            group=self._owner.group,
            queue=str(queue),
            first_message_id=first.msg_id,
            count=len(messages),
            **following,
            exc_info=None if verdict.error is None else without_library_frames(verdict.error),
        )

    def _run_hooks(self, name: str, context: ConsumeContext) -> None:
        for hook in self._hooks:
            try:
                getattr(hook, name)(context)
            except BaseException as error:
                if not concerns_one_call(error):
                    raise
                log.exception("consume hook failed")

    def _settled(self, assigned: AssignedQueue, queue_offset: int | None) -> None:
        """Advance the offset after messages have left the window; it never goes back."""
        if queue_offset is not None and not assigned.dropped:
            self._offsets.table.update(assigned.queue, queue_offset, increase_only=True)
        assigned.notify()
