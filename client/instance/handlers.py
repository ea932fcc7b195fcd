"""Calling the application: async functions are awaited, plain functions run in a thread so that they may block."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import trio

from triomq.client.core.errors import ConfigurationError
from triomq.client.instance.opening import ThreadWaits


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether this is an `async def` function, a partial of one, or an object with an async `__call__`."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def check_takes(function: Callable[..., Any], *arguments: str) -> None:
    """Raise ConfigurationError if this cannot be called with these positional arguments. What does not tell its
    parameters is taken as it is."""
    parameters = parameters_of(function)
    if parameters is None:
        return
    try:
        inspect.Signature(parameters).bind(*arguments)
    except TypeError as error:
        wanted = ", ".join(arguments)
        raise ConfigurationError(
            f"{name_of(function)} cannot be called as {name_of(function)}({wanted}): {error}; it must accept ({wanted})"
        ) from None


def parameters_of(function: Callable[..., Any]) -> Sequence[inspect.Parameter] | None:
    """Return the parameters of a function, None for one that does not tell. Raises ConfigurationError for what cannot
    be called."""
    if not callable(function):
        raise ConfigurationError(f"a handler is a function, not {function!r}")
    try:
        return tuple(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function; of a partial that of its function, of an object that of its class."""
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__qualname__", None) or type(function).__qualname__


class Handler:
    """One function of the application, callable from trio. `limit` bounds the threads it may use at once; `waits` are
    those of the object to which the function belongs."""

    __slots__ = ("_async", "_function", "_limiter", "_waits")

    def __init__(self, function: Callable[..., Any], waits: ThreadWaits, limit: int = 20) -> None:
        self._function = function
        self._waits = waits
        self._async = is_async(function)
        self._limiter = None if self._async else trio.CapacityLimiter(limit)

    async def __call__(self, *args: Any) -> Any:
        """Call the function; return what it returns. A thread that runs cannot be cancelled: its call is waited for."""
        if self._async:
            return await self._function(*args)
        result = await self._waits.wait(self._in_thread, *args)
        # A plain function may return an awaitable (a lambda around an async function): await it here.
        return await result if inspect.isawaitable(result) else result

    async def _in_thread(self, *args: Any) -> Any:
        return await trio.to_thread.run_sync(self._function, *args, limiter=self._limiter, abandon_on_cancel=True)


E = TypeVar("E", bound=BaseException)

_LIBRARIES = frozenset({"triomq", "trio", "outcome", "asyncio", "concurrent"})


def without_library_frames(error: E) -> E:
    """Cut the frames of this client and of the event loop off the beginning of a traceback, so that a logged error of
    the application begins at the application's own line. Return the same error."""
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_globals.get("__name__", "").partition(".")[0] in _LIBRARIES:
        frame = frame.tb_next
    return error if frame is None else error.with_traceback(frame)
