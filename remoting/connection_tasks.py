"""The tasks that the requests of one connection started. Closing the connection cancels them.

At most `MAX_TASKS` of them run. The others wait in order, and the socket with them. They begin one connection after
another (scheduling/step_line.py), so that the tasks of one connection hold up no other client.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

import trio

from triomq.remoting.log import get_logger
from triomq.remoting.scheduling.step_line import Steps

log = get_logger("triomq.remoting.connection")

MAX_TASKS: Final = 64
"""Requests of one connection that run at once. One may wait for a file, for a client or for another server."""

_Function = Callable[..., Awaitable[None]]


class Tasks:
    """See the module's docstring. `peer` names the connection in the log. `on_room` is called when none waits any more.
    `steps` are those of this connection."""

    def __init__(self, nursery: trio.Nursery, peer: str, on_room: Callable[[], None], steps: Steps) -> None:
        self._nursery = nursery
        self._peer = peer
        self._on_room = on_room
        self._steps = steps
        self._scopes: set[trio.CancelScope] = set()
        self._running = 0
        self._waiting: deque[tuple[_Function, tuple[Any, ...]]] = deque()
        self._is_cancelled = False

    def start(self, function: _Function, args: tuple[Any, ...]) -> bool:
        """Run an async function, or let it wait until others have ended. It must not raise. Return whether it waits."""
        if self._running < MAX_TASKS:
            self._running += 1
            self._nursery.start_soon(self._run_all, function, args)
            return False
        self._waiting.append((function, args))
        return True

    def cancel(self) -> None:
        """Cancel every task, and those that begin later at their first checkpoint."""
        self._is_cancelled = True
        self._on_room = _nothing  # it refers to the connection, which refers to this
        for scope in list(self._scopes):
            scope.cancel()

    async def _run_all(self, function: _Function, args: tuple[Any, ...]) -> None:
        """Run a function, and then those that wait, as long as there are any."""
        try:
            while True:
                await self._run(function, args)
                if not self._waiting:
                    return
                function, args = self._waiting.popleft()
                if not self._waiting:
                    self._on_room()
        finally:
            self._running -= 1
            if self._waiting:  # the server stops; they run up to their first checkpoint
                self.start(*self._waiting.popleft())

    async def _run(self, function: _Function, args: tuple[Any, ...]) -> None:
        await self._steps.begin()
        with trio.CancelScope() as scope:
            if self._is_cancelled:
                # Closed between `start` and now. The function still runs up to its first checkpoint, because its
                # caller relies on its `finally`.
                scope.cancel()
            self._scopes.add(scope)
            try:
                await function(*args)
            except Exception:
                log.exception("task of a connection failed", remote=self._peer)
            finally:
                self._scopes.discard(scope)


def _nothing() -> None:
    pass
