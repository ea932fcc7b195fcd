"""Functions of the application that the portal's thread calls, each where it belongs: `async def` in the asyncio loop
that opened the object, plain functions in threads of the object.

A call crosses together with others that come at the same time, and so does its result (inbox.py).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError
from contextlib import suppress
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any, Protocol

import trio

Put = Callable[[Callable[[], object]], None]
"""Has a function run in another thread, soon."""

MOST_THREADS = 64
"""Bound of the threads of one object. A consumer makes `ConsumeRules.concurrency` calls at once, 20 unless set; calls
above the bound wait for a thread."""


class _Call:
    """One call, for which a task of the portal's thread waits."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], home: Put) -> None:
        """`home` has the result delivered in the portal's thread."""
        self._function = function
        self._args = args
        self._home = home
        # The function sees the context variables of its caller, the current span among them.
        self._context = copy_context()
        self._waiting: trio.lowlevel.Task | None = trio.lowlevel.current_task()
        self._running: asyncio.Task[Any] | None = None
        self._result: Any = None
        self._error: BaseException | None = None

    async def wait(self, abort: Callable[[Any], trio.lowlevel.Abort]) -> Any:
        await trio.lowlevel.wait_task_rescheduled(abort)
        if self._error is not None:
            raise self._error
        return self._result

    def cancel_in(self, loop: Put) -> Callable[[Any], trio.lowlevel.Abort]:
        """Return what cancels the coroutine when the wait for it is cancelled."""

        def abort(_: Any) -> trio.lowlevel.Abort:
            self._waiting = None
            with suppress(RuntimeError):  # of a loop that has ended
                loop(self._cancel)
            return trio.lowlevel.Abort.SUCCEEDED

        return abort

    def run_in_loop(self) -> None:
        """Start the coroutine, in the asyncio loop."""
        if self._waiting is None:
            return
        try:
            coroutine = self._context.run(self._function, *self._args)
            self._running = asyncio.get_running_loop().create_task(coroutine, context=self._context)
        except Exception as error:  # arguments that do not fit
            self._end(None, error)
        else:
            self._running.add_done_callback(self._ended)

    def run_here(self) -> None:
        """Call the function, in this thread."""
        try:
            result = self._context.run(self._function, *self._args)
        except BaseException as error:
            self._end(None, error)
        else:
            self._end(result, None)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            self._end(None, CancelledError())
        elif (error := task.exception()) is not None:
            self._end(None, error)
        else:
            self._end(task.result(), None)

    def _end(self, result: Any, error: BaseException | None) -> None:
        self._result = result
        self._error = error
        with suppress(trio.RunFinishedError):
            self._home(self._resume)

    def _resume(self) -> None:
        if self._waiting is not None:
            trio.lowlevel.reschedule(self._waiting)

    def _cancel(self) -> None:
        if self._running is not None:
            self._running.cancel()


async def call_in_loop(function: Callable[..., Awaitable[Any]], args: tuple[Any, ...], *, home: Put, loop: Put) -> Any:
    """Call an `async def` in the asyncio loop that `loop` leads to; in the portal's thread, which `home` leads to.
    Cancelling this cancels the call."""
    call = _Call(function, args, home)
    loop(call.run_in_loop)
    return await call.wait(call.cancel_in(loop))


class RunsHere(Protocol):
    """A call for a thread."""

    def run_here(self) -> None: ...


class Threads:
    """The threads in which the plain functions of one object run. They start when they are needed; used in the portal's
    thread, but for `stop`."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[RunsHere | None] = SimpleQueue()
        self._running = 0
        self._count = 0

    async def call(self, function: Callable[..., Any], args: tuple[Any, ...], *, home: Put) -> Any:
        """Call a plain function in a thread, and wait for it: a thread cannot be cancelled."""
        call = _Call(function, args, home)
        self.begin(call)
        try:
            return await call.wait(lambda _: trio.lowlevel.Abort.FAILED)
        finally:
            self.ended()

    def begin(self, call: RunsHere) -> None:
        """Have a call run in a thread; `ended` is to be called afterwards."""
        self._running += 1
        if self._running > self._count and self._count < MOST_THREADS:
            self._count += 1
            threading.Thread(target=self._work, name=f"triomq-calls-{self._count}", daemon=True).start()
        self._calls.put(call)

    def ended(self) -> None:
        """A call has ended."""
        self._running -= 1

    def stop(self) -> None:
        """End the threads: the object is closed, nothing is called any more."""
        for _ in range(self._count):
            self._calls.put(None)
        self._count = 0

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call.run_here()
