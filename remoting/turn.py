"""A turn is one tick of the event loop: the requests that one wake-up brings are handled and finished as one batch.

A driver reads all ready sockets and handles their requests in order of arrival. `end` then does the expensive work once
for all of them: first it runs the `before_flush` hooks (the broker's store writes what the turn appended, which
completes the sends), then it sends once per connection that has output.

Output produced outside of a turn (by an async processor or a timer) is batched in the same way: the first response
wakes the task in `run`, which ends a turn of its own.

Only the event loop's thread may touch a turn.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Protocol

import trio


class HasOutput(Protocol):
    """A connection, as a turn sees it."""

    def flush(self) -> None:
        """Pass the output of this turn to the transport."""


class Turn:
    """The connections that have output, and the hooks that run before it is sent. `began` is trio's time at which a
    driver began the turn; all of its requests had arrived by then. `failure` is what a hook raised: its work will never
    be finished, so responses that claim success must never be sent."""

    def __init__(self) -> None:
        self.began = inf
        self._dirty: list[HasOutput] = []
        self._before_flush: list[Callable[[], None]] = []
        self._running = False
        self._wakeup: trio.Event = trio.Event()
        self.failure: BaseException | None = None

    def before_flush(self, hook: Callable[[], None]) -> None:
        """Call `hook` at the end of every turn, before anything is sent. It must not await. If it raises, nothing of
        this or a later turn is sent, and `end` raises the exception, which ends the server."""
        self._before_flush.append(hook)

    def mark(self, connection: HasOutput) -> None:
        """Send the output of `connection` at the end of this turn. If no turn is running, start one soon."""
        self._dirty.append(connection)
        if not self._running:
            self._wakeup.set()

    def wake(self) -> None:
        """Start a turn soon, so that the hooks run although there may be no output yet."""
        if not self._running:
            self._wakeup.set()

    def begin(self) -> None:
        self.began = trio.current_time()
        self._running = True

    def end(self) -> None:
        """Finish the turn. If a hook raises, raise its exception now and at every later call."""
        if self.failure is not None:
            raise self.failure
        self._running = True
        try:
            for hook in self._before_flush:
                hook()
        except BaseException as error:
            self.failure = error
            self._dirty.clear()
            raise
        dirty = self._dirty
        while dirty:
            self._dirty = []
            for connection in dirty:
                connection.flush()
            dirty = self._dirty
        self._running = False

    async def run(self) -> None:
        """Run turns for output produced outside of a driver's turn, until cancelled."""
        while True:
            await self._wakeup.wait()
            self._wakeup = trio.Event()
            self.end()
