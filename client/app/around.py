"""What is done around each call of a handler: middleware, and publishing what it returns.

    bill(message) -> first middleware -> second middleware -> the handler -> its result, back the same way -> publish_to

All of it is awaited where the application runs; a plain handler runs in a thread, as it does without.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, suppress
from contextvars import copy_context
from functools import partial
from inspect import isawaitable
from typing import Any, TypeAlias

import trio

from triomq.client.core.errors import ConfigurationError
from triomq.client.core.results import ConsumeStatus
from triomq.client.instance.handlers import Handler, check_takes, is_async, name_of
from triomq.client.instance.opening import ThreadWaits
from triomq.protocol.message import Message, MessageExt

CallNext: TypeAlias = Callable[[MessageExt], Awaitable[Any]]
Middleware: TypeAlias = Callable[[MessageExt, CallNext], Awaitable[Any]]


def check_middleware(function: Callable[..., Any]) -> None:
    """Raise ConfigurationError for what cannot be awaited with a message and the next function."""
    check_takes(function, "message", "call_next")
    if not is_async(function):
        raise ConfigurationError(f"{name_of(function)} must be an async function: it awaits call_next(message)")


def through(middleware: Sequence[Middleware], call: CallNext) -> CallNext:
    """Return a function that passes a message through all of these, the first one outermost."""
    for each in reversed(middleware):
        call = partial(_one, each, call)
    return call


async def _one(middleware: Middleware, call_next: CallNext, message: MessageExt) -> Any:
    return await middleware(message, call_next)


def awaited(call: Callable[..., Any], limit: int, threads: ExitStack, consumer: Any) -> CallNext:
    """Return an async function for a handler: it is awaited, or if it is a plain one, run in one of some
    threads, at most `limit` in trio, which end with the stack. `consumer` calls it."""
    if is_async(call):
        return call
    if trio.lowlevel.in_trio_run():
        return Handler(call, consumer.thread_waits, limit)
    return _in_threads(call, threads)


def _in_threads(call: Callable[..., Any], stack: ExitStack) -> CallNext:
    """Return an async function of asyncio for a plain handler. Its threads hold up neither the end of the application
    nor that of the interpreter, as those of asyncio's executors do: one that is stuck is left behind."""
    from triomq.client.facades.callbacks import Threads

    threads = Threads(ThreadWaits())  # used in the thread of this event loop alone
    stack.callback(threads.stop)

    async def in_thread(message: MessageExt) -> Any:
        one = _InThread(call, message)
        threads.begin(one)
        try:
            result, error = await one.ends
        finally:
            threads.ended(one)
        if error is not None:
            raise error
        return await result if isawaitable(result) else result

    return in_thread


class _InThread:
    """One call of a plain handler, for which a task of asyncio waits."""

    def __init__(self, call: Callable[..., Any], message: MessageExt) -> None:
        self._loop = asyncio.get_running_loop()
        self.ends: asyncio.Future[tuple[Any, BaseException | None]] = self._loop.create_future()
        # The handler sees the context variables of the middleware around it, the current span among them.
        self._call = partial(copy_context().run, call, message)

    def run_here(self) -> None:
        """Call the handler, in this thread."""
        if self.ends.cancelled():
            return
        try:
            result = self._call()
        except BaseException as error:
            self._end(None, error)
        else:
            self._end(result, None)

    def _end(self, result: Any, error: BaseException | None) -> None:
        with suppress(RuntimeError):  # of a loop that has ended
            self._loop.call_soon_threadsafe(self._settle, result, error)

    def _settle(self, result: Any, error: BaseException | None) -> None:
        if not self.ends.done():
            self.ends.set_result((result, error))  # a future takes no StopIteration as its exception


def publishing(
    call: CallNext, topic: str, make: Callable[..., Message], send: Callable[[Message], Awaitable[Any]]
) -> CallNext:
    """Return a function that sends what the call returns, before its message counts as consumed: a value, of which
    `make` makes a message with the keys of the one that was handled, or a Message as it is. None, and what has the
    message delivered again, is not sent."""

    async def publish(message: MessageExt) -> Any:
        result = await call(message)
        if result is None or result is False or isinstance(result, ConsumeStatus):
            return result
        await send(result if isinstance(result, Message) else make(topic, result, keys=message.keys))
        return None

    return publish
