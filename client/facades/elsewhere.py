"""Calls of a listener in the application's threads, without a task of the portal for each.

The portal's thread posts the messages that may be consumed at this moment, and receives what became of each. An
`async def` runs in the asyncio loop that opened the consumer, a plain function in threads of the consumer.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any

import trio

from triomq.client.consume.consuming import OK, Verdict
from triomq.client.consume.delivery import Delivery
from triomq.client.consume.push_consumer import PushConsumer
from triomq.client.core.log import get_logger
from triomq.client.facades.callbacks import Put, Threads, begin_task, outcome_of, settled_here
from triomq.client.facades.inbox import run_each
from triomq.client.instance.user_errors import concerns_one_call

log = get_logger("triomq.client.consume")

Finish = Callable[[Delivery, Verdict], None]


class ListenerCall:
    """One call of the listener. All but the `run_` methods belongs to the portal's thread."""

    def __init__(self, calls: ListenerCalls, delivery: Delivery, finish: Finish) -> None:
        self._calls = calls
        self._delivery = delivery
        self._finish = finish
        # The function sees the context variables with which the consumer was opened, and the span of the message.
        self._context = copy_context()
        self._running: asyncio.Task[Any] | None = None
        self.is_cancelled = False

    def run_in_loop(self) -> None:
        """Start the coroutine, in the asyncio loop."""
        if self.is_cancelled:
            return
        try:
            self._running = begin_task(self._run, self._context)
        except Exception as error:  # of a task factory
            self.end(None, error)
        else:
            self._running.add_done_callback(self._ended)

    async def _run(self) -> Any:
        with self._delivery.span:
            return await settled_here(self._calls.function, (self._delivery.message,))

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._calls.end_in_loop(partial(self._ended_at_home, *outcome_of(task)))

    def run_here(self) -> None:
        """Call the function, in this thread."""
        try:
            result = None if self.is_cancelled else self._context.run(self._call)
        except BaseException as error:
            self.end(None, error)
        else:
            self.end(result, None)

    def _call(self) -> Any:
        with self._delivery.span:
            return self._calls.function(self._delivery.message)

    def end(self, result: Any, error: BaseException | None) -> None:
        """Have the portal's thread note how the call ended."""
        with suppress(trio.RunFinishedError):
            self._calls.home(lambda: self._ended_at_home(result, error))

    def _ended_at_home(self, result: Any, error: BaseException | None) -> None:
        if result is not None and inspect.isawaitable(result) and not self.is_cancelled:
            # A plain function may return an awaitable (a lambda around an async function).
            self._calls.start_soon(self._await, result)
            return
        self._calls.ended(self)
        if self.is_cancelled:
            return
        if error is None:
            verdict = OK if result is None else Verdict(result)
        else:
            verdict = Verdict(error=error)
        self._finish(self._delivery, verdict)

    async def _await(self, result: Awaitable[Any]) -> None:
        try:
            awaited = await self._calls.awaiting(result)
        except BaseException as error:
            if not concerns_one_call(error):
                raise
            self._ended_at_home(None, error)
        else:
            self._ended_at_home(awaited, None)

    def cancel_in_loop(self) -> None:
        """Cancel the coroutine, in the asyncio loop."""
        if self._running is not None:
            self._running.cancel()


class ListenerCalls:
    """The calls of one listener; `concurrent.Elsewhere`."""

    def __init__(
        self,
        core: PushConsumer[Any],
        function: Callable[..., Any],
        *,
        home: Put,
        away: Put | Threads,
        awaiting: Callable[[Awaitable[Any]], Awaitable[Any]],
    ) -> None:
        """`home` has a function run in the portal's thread, `away` a coroutine function in the asyncio loop, or a plain
        one in threads. `awaiting` awaits what a plain function returned, where that belongs."""
        self.function = function
        self.home = home
        self.awaiting = awaiting
        self.group = core.group
        self.start_soon = core.start_soon
        self._away = away
        self._running: set[ListenerCall] = set()
        # Calls cross together, and so do their ends: each wake-up costs more than a call, because the thread that
        # wakes another loses the interpreter to it.
        self._started: list[ListenerCall] = []
        self._ends: list[Callable[[], object]] = []

    @property
    def is_in_threads(self) -> bool:
        return isinstance(self._away, Threads)

    def start(self, delivery: Delivery, finish: Finish) -> None:
        call = ListenerCall(self, delivery, finish)
        self._running.add(call)
        if isinstance(self._away, Threads):
            self._away.begin(call)
            return
        self._started.append(call)

    def flush(self) -> None:
        started, self._started = self._started, []
        if not started or isinstance(self._away, Threads):
            return
        try:
            self._away(partial(run_each, [call.run_in_loop for call in started]))
        except RuntimeError as error:  # the loop has ended
            for call in started:
                call.end(None, error)

    def end_in_loop(self, end: Callable[[], object]) -> None:
        """Have the portal's thread note an end, with others of this turn of the asyncio loop."""
        self._ends.append(end)
        if len(self._ends) == 1:
            asyncio.get_running_loop().call_soon(self._deliver_ends)

    def _deliver_ends(self) -> None:
        ends, self._ends = self._ends, []
        with suppress(trio.RunFinishedError):
            self.home(partial(run_each, ends))

    def ended(self, call: ListenerCall) -> None:
        """A call has ended."""
        self._running.discard(call)
        if isinstance(self._away, Threads):
            self._away.ended(call)

    def stop(self) -> None:
        running, self._running = self._running, set()
        for call in running:
            call.is_cancelled = True
        if isinstance(self._away, Threads):
            if running:
                log.warning(
                    "listeners left behind in their threads; their messages are delivered again",
                    group=self.group,
                    count=len(running),
                )
            return
        for call in running:
            with suppress(RuntimeError):
                self._away(call.cancel_in_loop)
