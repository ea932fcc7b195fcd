"""Functions of the application that the portal's thread calls, each where it belongs: `async def` in the asyncio loop
that opened the object, plain functions in threads of the object.

A call crosses together with others that come at the same time, and so does its result (inbox.py).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError
from contextlib import suppress
from contextvars import Context, copy_context
from queue import SimpleQueue
from typing import Any, Protocol

import trio

from triomq.client.instance.opening import ThreadWaits

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

    def forget(self, _: Any) -> trio.lowlevel.Abort:
        """Wait no more for a thread, which runs on."""
        self._waiting = None
        return trio.lowlevel.Abort.SUCCEEDED

    def run_in_loop(self) -> None:
        """Start the coroutine, in the asyncio loop."""
        if self._waiting is None:
            return
        try:
            self._running = begin_task(self._call, self._context)
        except Exception as error:  # of a task factory
            self._end(None, error)
        else:
            self._running.add_done_callback(self._ended)

    async def _call(self) -> Any:
        return await settled_here(self._function, self._args)

    def run_here(self) -> None:
        """Call the function, in this thread."""
        try:
            result = self._context.run(self._function, *self._args)
        except BaseException as error:
            self._end(None, error)
        else:
            self._end(result, None)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._end(*outcome_of(task))

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


class Failed(Exception):
    """Carries an error that asyncio would not keep in its task, and end the loop with: SystemExit."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


async def settled_here(function: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> Any:
    """Call a coroutine function in a task of asyncio, which SystemExit must not end. Raises Failed with it."""
    try:
        return await function(*args)
    except SystemExit as error:
        raise Failed(error) from None


def begin_task(function: Callable[[], Coroutine[Any, Any, Any]], context: Context) -> asyncio.Task[Any]:
    """Start a coroutine in the running asyncio loop. It sees these context variables, also with a task factory as they
    were before Python 3.11, which takes no context."""
    loop = asyncio.get_running_loop()
    coroutine = function()
    try:
        if loop.get_task_factory() is None:
            return loop.create_task(coroutine, context=context)
        return context.run(loop.create_task, coroutine)
    except BaseException:
        coroutine.close()
        raise


def outcome_of(task: asyncio.Task[Any]) -> tuple[Any, BaseException | None]:
    """Return result and error of a task that has ended."""
    if task.cancelled():
        return None, CancelledError()
    error = task.exception()
    if isinstance(error, Failed):
        error = error.error
    return (None, error) if error is not None else (task.result(), None)


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

    def __init__(self, waits: ThreadWaits) -> None:
        """`waits` are those of the object."""
        self._waits = waits
        self._calls: SimpleQueue[RunsHere | None] = SimpleQueue()
        self._running: set[RunsHere] = set()
        self._count = 0

    async def call(self, function: Callable[..., Any], args: tuple[Any, ...], *, home: Put) -> Any:
        """Call a plain function in a thread, and wait for it: a thread cannot be cancelled."""
        call = _Call(function, args, home)
        self.begin(call)
        try:
            return await self._waits.wait(call.wait, call.forget)
        finally:
            self.ended(call)

    def begin(self, call: RunsHere) -> None:
        """Have a call run in a thread; `ended` is to be called afterwards."""
        self._running.add(call)
        if len(self._running) > self._count and self._count < MOST_THREADS:
            self._count += 1
            name = f"triomq-calls-{self._count}"
            threading.Thread(target=_work, args=(self._calls,), name=name, daemon=True).start()
        self._calls.put(call)

    def ended(self, call: RunsHere) -> None:
        """A call has ended."""
        self._running.discard(call)

    def stop(self) -> None:
        """End the threads: the object is closed, nothing is called any more. One that is left behind in a call ends
        after that."""
        for _ in range(self._count):
            self._calls.put(None)
        self._calls, self._running, self._count = SimpleQueue(), set(), 0


def _work(calls: SimpleQueue[RunsHere | None]) -> None:
    while (call := calls.get()) is not None:
        call.run_here()
