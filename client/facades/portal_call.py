"""One call that another thread has made in the portal's thread, and waits for.

It is lighter than a `concurrent.futures.Future`: all of its states change in the portal's thread, so it needs no lock.
The caller is woken at the end; a caller that goes away has `abandon` run in the portal's thread.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

import trio

from triomq.client.core.errors import ClientClosed
from triomq.client.instance.user_errors import concerns_one_call

T = TypeVar("T")


class PortalCall(Generic[T]):
    """See the module's docstring. `wake` is called in the portal's thread when there is an outcome."""

    __slots__ = ("_error", "_has_ended", "_is_abandoned", "_result", "_scope", "_wake", "function")

    def __init__(self, function: Callable[[], Awaitable[T]], wake: Callable[[], object]) -> None:
        self.function = function
        self._wake = wake
        self._scope: trio.CancelScope | None = None
        self._has_ended = False
        self._is_abandoned = False
        self._result: Any = None
        self._error: BaseException | None = None

    async def run(self) -> None:
        """Make the call, in a task of the portal's thread."""
        if self._is_abandoned:
            return
        with trio.CancelScope() as self._scope:
            try:
                self._result = await self.function()
            except BaseException as error:
                if not concerns_one_call(error):
                    self._error = ClientClosed("closed while this call was waiting")
                    raise
                self._error = error  # a SystemExit of a function that the caller gave is the caller's
            finally:
                self._end()

    def refuse(self, error: Exception) -> None:
        """End the call before it has begun."""
        self._error = error
        self._end()

    def _end(self) -> None:
        self._has_ended = True
        if self._is_abandoned:
            self._give_back()
        else:
            self._wake()

    def abandon(self) -> None:
        """Nobody waits any more: cancel the call, or give back what it has taken."""
        self._is_abandoned = True
        if self._has_ended:
            self._give_back()
        elif self._scope is not None:
            self._scope.cancel()

    def _give_back(self) -> None:
        give_back = getattr(self._result, "give_back", None)
        if give_back is not None:
            give_back()

    def outcome(self) -> T:
        """Return the result, or raise the error, after the caller was woken."""
        if self._error is not None:
            raise self._error
        result: T = self._result
        return result
