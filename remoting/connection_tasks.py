"""The tasks that the requests of one connection started. Closing the connection cancels them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio

from triomq.remoting.log import get_logger

log = get_logger("triomq.remoting.connection")


class Tasks:
    """See the module's docstring. `peer` names the connection in the log."""

    def __init__(self, nursery: trio.Nursery, peer: str) -> None:
        self._nursery = nursery
        self._peer = peer
        self._scopes: set[trio.CancelScope] = set()
        self._is_cancelled = False

    def start(self, function: Callable[..., Awaitable[None]], args: tuple[Any, ...]) -> None:
        """Run an async function. It must not raise."""
        self._nursery.start_soon(self._run, function, args)

    def cancel(self) -> None:
        """Cancel every task, and those that are started later at their first checkpoint."""
        self._is_cancelled = True
        for scope in list(self._scopes):
            scope.cancel()

    async def _run(self, function: Callable[..., Awaitable[None]], args: tuple[Any, ...]) -> None:
        with trio.CancelScope() as scope:
            if self._is_cancelled:
                # Closed between `start` and now. The function still runs up to its first checkpoint, because its
                # caller relies on its `finally`.
                scope.cancel()
            self._scopes.add(scope)
            try:
                await function(*args)
            except Exception:
                log.exception("a task of a connection failed", remote=self._peer)
            finally:
                self._scopes.discard(scope)
