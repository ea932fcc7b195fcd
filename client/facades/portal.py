"""One background thread that runs trio, for programs that do not: the blocking and the asyncio facade share it.

Why a thread, and not trio's guest mode inside the asyncio loop: one core serves both facades and plain threads
alike, and a callback that hogs the application's event loop cannot delay heartbeats, lock refreshes and offset
updates, so the group does not lose its queues. The price is two hops between threads for each call
(docs/internals/client-life.md has the figures).

The portal starts with the first object that needs it and ends with the last. `hold` keeps an `async with` block open
in a task of its own, because trio wants a block to be entered and left by the same task.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, wait
from contextlib import AbstractAsyncContextManager, suppress
from contextvars import Context, copy_context
from functools import partial
from typing import Any, ParamSpec, TypeVar

import trio

from triomq.client.core.errors import ClientClosed
from triomq.client.facades.inbox import Inbox
from triomq.client.facades.portal_call import PortalCall
from triomq.client.instance.inherited import INHERITED
from triomq.client.instance.opening import LeftByError
from triomq.client.instance.user_errors import concerns_one_call

P = ParamSpec("P")
T = TypeVar("T")


ENDED = "the client's thread has ended"
CLOSING_SECONDS = 20.0
"""How long the end of the interpreter waits for objects that close at that moment."""
MOST_IDLE = 64
"""Bound of the tasks that wait for further calls to make."""


class OpenContext:
    """An `async with` block that is open in the portal's thread."""

    def __init__(self) -> None:
        self.entered: Future[None] = Future()
        self.left: Future[None] = Future()
        self.leave = trio.Event()
        self.scope = trio.CancelScope()
        self.failed = False

    def give_back(self) -> None:
        """Leave the block: the caller that entered it has gone."""
        self.scope.cancel()


class Portal:
    """The thread and its trio run. Methods may be called from any other thread."""

    def __init__(self) -> None:
        self._process_id = os.getpid()
        self._token: trio.lowlevel.TrioToken | None = None
        self._inbox: Inbox | None = None
        self._nursery: trio.Nursery | None = None
        self._stop: trio.Event | None = None
        self._idle: list[trio.lowlevel.Task] = []
        self._given: dict[trio.lowlevel.Task, PortalCall[Any]] = {}
        self._started: Future[None] = Future()
        self.users = 0
        """How many objects use this portal; guarded by the lock of `acquire`."""
        self.has_ended = False
        self._thread = threading.Thread(target=self._run, name="triomq-client", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._started.result()

    def stop(self) -> None:
        """Cancel what still runs, and end the thread."""
        if self._token is not None and self._stop is not None and os.getpid() == self._process_id:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._stop.set)
            if threading.current_thread() is not self._thread:
                self._thread.join()

    def begin(self, call: PortalCall[Any]) -> None:
        """Have a call made. Raises ClientClosed."""
        # The call sees the context variables of its caller, the current span among them.
        self._put_from_outside(partial(self._make, call, copy_context()))

    def _put_from_outside(self, call: Callable[[], object]) -> None:
        if threading.current_thread() is self._thread:
            raise RuntimeError("a blocking call inside the client's own thread would wait for itself; await instead")
        self.check_process()
        try:
            self.put(call)
        except trio.RunFinishedError:
            raise ClientClosed(ENDED) from None

    def check_process(self) -> None:
        """Raise ClientClosed in a process that was forked from the portal's."""
        if os.getpid() != self._process_id:
            raise ClientClosed(INHERITED)

    def put(self, call: Callable[[], object]) -> None:
        """Have a plain function run in the portal's thread, after those that were put before. Raises
        RunFinishedError."""
        assert self._inbox is not None
        self._inbox.put(call)

    def run(self, function: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any) -> T:
        """Run an async function in the portal's thread and wait for it; an interrupt (Ctrl-C) cancels it."""
        has_ended = threading.Lock()
        has_ended.acquire()
        call: PortalCall[T] = PortalCall(partial(function, *args, **kwargs), has_ended.release)
        try:
            # Inside: an interrupt may come before the wait has begun.
            self.begin(call)
            has_ended.acquire()
        except BaseException:
            self.abandon(call)
            raise
        return call.outcome()

    def abandon(self, call: PortalCall[Any]) -> None:
        """Nobody waits for this call any more: cancel it, or give back what it has taken."""
        with suppress(trio.RunFinishedError):
            self.put(call.abandon)

    def call(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Run a plain function in the portal's thread and wait for it."""

        async def once() -> T:
            return function(*args, **kwargs)

        return self.run(once)

    # Blocks that stay open.

    async def hold(self, block: AbstractAsyncContextManager[Any]) -> OpenContext:
        """Enter a block, as the function of a call; a cancelled call leaves it."""
        held = OpenContext()
        assert self._nursery is not None
        self._nursery.start_soon(self._keep, block, held)
        try:
            await wait_future(held.entered)
        except trio.Cancelled:
            held.scope.cancel()
            raise
        return held

    def leave(self, held: OpenContext, *, failed: bool) -> Future[None]:
        """Leave a block; the future is done when it is left. Raises ClientClosed."""

        def leave() -> None:
            held.failed = failed
            held.leave.set()

        self.check_process()
        try:
            self.put(leave)
        except trio.RunFinishedError:
            raise ClientClosed(ENDED) from None
        return held.left

    @property
    def is_here(self) -> bool:
        """Whether the caller runs in the portal's thread."""
        return threading.current_thread() is self._thread

    async def _keep(self, block: AbstractAsyncContextManager[Any], held: OpenContext) -> None:
        with held.scope:
            try:
                async with block:
                    held.entered.set_result(None)
                    await held.leave.wait()
                    if held.failed:
                        raise LeftByError
            except LeftByError:
                held.left.set_result(None)
            except BaseException as error:
                waiting = held.left if held.entered.done() else held.entered
                if not concerns_one_call(error):
                    waiting.set_exception(ClientClosed(ENDED))
                    raise
                waiting.set_exception(error)
            else:
                held.left.set_result(None)

    # The thread.

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as error:
            if not self._started.done():
                self._started.set_exception(error)
            raise
        finally:
            self.has_ended = True

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._inbox = Inbox(self._token.run_sync_soon)
        self._stop = trio.Event()
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self._started.set_result(None)
            await self._stop.wait()
            nursery.cancel_scope.cancel()

    def _make(self, call: PortalCall[Any], context: Context) -> None:
        if self._idle:
            task = self._idle.pop()
            task.context = context
            self._given[task] = call
            trio.lowlevel.reschedule(task)
            return
        assert self._nursery is not None
        try:
            context.run(self._nursery.start_soon, self._work, call)
        except RuntimeError:  # the nursery is closed
            call.refuse(ClientClosed(ENDED))

    async def _work(self, call: PortalCall[Any]) -> None:
        """Make calls, one after the other: to start a task for each would cost more than most calls do. `_make` gives
        the task the context of each call."""
        task = trio.lowlevel.current_task()

        def leave(_: Any) -> trio.lowlevel.Abort:
            self._idle.remove(task)
            return trio.lowlevel.Abort.SUCCEEDED

        while True:
            await call.run()
            if len(self._idle) >= MOST_IDLE:
                return
            del call  # with its result
            task.context = Context()
            self._idle.append(task)
            await trio.lowlevel.wait_task_rescheduled(leave)
            call = self._given.pop(task)


async def wait_future(future: Future[T]) -> T:
    """Wait in trio for a future that another thread completes; a cancelled wait cancels it."""
    token = trio.lowlevel.current_trio_token()
    done = trio.Event()

    def wake(_: Future[T]) -> None:
        try:
            token.run_sync_soon(done.set)
        except trio.RunFinishedError:
            return

    future.add_done_callback(wake)
    try:
        await done.wait()
    except trio.Cancelled:
        future.cancel()
        raise
    return future.result()


# The one portal that all facades of this process share.
_lock = threading.Lock()
_shared: Portal | None = None


def acquire() -> Portal:
    """Return the shared portal; the first user starts it."""
    global _shared
    with _lock:
        if _shared is None or _shared.has_ended:
            portal = Portal()
            portal.start()
            _shared = portal
        _shared.users += 1
        return _shared


def _forget_after_fork() -> None:
    """The child has no thread of the parent's portal: its first client starts one of its own."""
    global _lock, _shared
    _lock = threading.Lock()
    _shared = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)


_closings: set[Future[None]] = set()


def close_later(function: Callable[[], None]) -> Future[None]:
    """Run what closes an object in a thread. The end of the interpreter waits for it."""
    closing = in_thread(function)
    _closings.add(closing)
    closing.add_done_callback(_closings.discard)
    return closing


atexit.register(lambda: wait(list(_closings), CLOSING_SECONDS))


def in_thread(function: Callable[[], T]) -> Future[T]:
    """Run a function that blocks in a thread of its own. It cannot be cancelled: `cancel` returns False."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="triomq-portal", daemon=True).start()
    return future


def release(portal: Portal) -> None:
    """Stop using a portal; the last user ends its thread."""
    global _shared
    with _lock:
        portal.users -= 1
        if portal.users == 0:
            portal.stop()
            if _shared is portal:
                _shared = None
