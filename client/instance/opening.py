"""How a client object opens and closes: `async with`, or `start` and `close`.

    CLOSED --start, async with--> OPEN --close, end of the block--> CLOSING ----> CLOSED ...

`start` keeps the block open in a task of its own, because trio wants a block to be entered and left by one task; so
`close` may be called from any task. A handler that closes the object that called it would wait for itself: then closing
begins, and `close` returns. docs/internals/client-life.md has the states of all facades.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar, copy_context
from types import TracebackType
from typing import Any, Self

import trio

from triomq.client.core.errors import ClientClosed, ConfigurationError
from triomq.remoting.process_bound import ProcessBound

inside: ContextVar[object] = ContextVar("inside", default=None)
"""The client object one of whose functions of the application runs."""


class LeftByError(Exception):
    """Stands for the application's exception inside of an open block, which only needs to know that there was one."""


class OpenBlock:
    """An `async with` block that a task of its own keeps open."""

    def __init__(self, block: AbstractAsyncContextManager[Any]) -> None:
        self._block = block
        self._entered = trio.Event()
        self._leave = trio.Event()
        self._left = trio.Event()
        self._scope = trio.CancelScope()
        self._failed = False
        self._error: BaseException | None = None

    async def enter(self) -> None:
        """Enter the block. Raises what that raises; a call that is cancelled leaves it."""
        trio.lowlevel.spawn_system_task(self._keep, context=copy_context())
        try:
            await self._entered.wait()
        except trio.Cancelled:
            self._scope.cancel()
            with trio.CancelScope(shield=True):
                await self._left.wait()
            raise
        if self._error is not None:
            raise self._error

    def begin_to_leave(self, *, failed: bool) -> None:
        """Have the block left, with an exception if the application has `failed`."""
        self._failed |= failed
        self._leave.set()

    async def wait_left(self) -> None:
        """Wait until the block is left. Raises what that raised."""
        await self._left.wait()
        if self._error is not None:
            raise self._error

    async def _keep(self) -> None:
        try:
            with self._scope:
                async with self._block:
                    self._entered.set()
                    await self._leave.wait()
                    if self._failed:
                        raise LeftByError
        except trio.Cancelled:
            raise  # the run ends
        except LeftByError:
            return
        except BaseException as error:  # in a system task it would end the run
            self._error = error
        finally:
            self._entered.set()
            self._left.set()


class Opened(ProcessBound):
    """Base of the objects that an application opens."""

    _kept_open: OpenBlock | None = None
    _opening_task: trio.lowlevel.Task | None = None
    """The task that has opened this, while it is open."""

    async def __aenter__(self) -> Self:
        raise NotImplementedError

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        raise NotImplementedError

    @property
    def _is_open(self) -> bool:
        return self._opening_task is not None

    def _begin_to_close(self) -> None:
        """Begin nothing new: this closes in a moment."""

    async def start(self) -> Self:
        """Open without `async with`; `close` it then. Raises what opening raises."""
        if self._kept_open is not None:
            if self._is_open:
                raise ClientClosed(f"this {type(self).__name__} is already open")
            await self._kept_open.wait_left()  # it closes at present
        block = OpenBlock(self)
        await block.enter()
        self._kept_open = block
        return self

    async def close(self, *, failed: bool = False) -> None:
        """Leave the group, store offsets, disconnect, as the end of an `async with` block does. May be called twice,
        and by any task if `start` has opened this: inside of a function that this object calls it returns when closing
        has begun, which waits for that function. `failed`: leave as after an exception, so that messages in progress
        are not waited for."""
        if self._kept_open is not None:
            self._begin_to_close()
            self._kept_open.begin_to_leave(failed=failed)
            if inside.get() is not self:
                block = self._kept_open
                await block.wait_left()
                if self._kept_open is block:
                    self._kept_open = None
        elif self._is_open:
            if trio.lowlevel.current_task() is not self._opening_task:
                name = type(self).__name__
                raise ConfigurationError(
                    f"this {name} is open in an `async with` block of another task: leave the block, or open it with "
                    "start() to close it from anywhere"
                )
            error = LeftByError() if failed else None
            await self.__aexit__(type(error) if error is not None else None, error, None)


class ThreadWaits:
    """Waits for functions that run in threads. A thread cannot be cancelled, so its call is waited for, also by a task
    that is cancelled: until the object to which the function belongs has closed for long enough."""

    def __init__(self) -> None:
        self._scopes: set[trio.CancelScope] = set()
        self._has_given_up = False

    @property
    def count(self) -> int:
        """How many functions run."""
        return len(self._scopes)

    def open(self) -> None:
        """Wait again: the object is opened."""
        self._has_given_up = False

    async def wait(self, call: Callable[..., Any], *args: Any) -> Any:
        """Await `call(*args)`, which waits for a thread and may be cancelled."""
        with trio.CancelScope(shield=not self._has_given_up) as scope:
            self._scopes.add(scope)
            try:
                return await call(*args)
            finally:
                self._scopes.discard(scope)
        await trio.lowlevel.checkpoint_if_cancelled()
        raise ClientClosed("closed while a function of the application still ran")

    def give_up(self) -> int:
        """End all waits, present and future: the threads are left behind. Return how many."""
        self._has_given_up = True
        for scope in self._scopes:
            scope.cancel()
        return len(self._scopes)
