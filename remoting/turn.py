"""A turn is one tick of the event loop: the requests that one wake-up brings are handled and finished as one batch.

A driver reads all ready sockets and handles their requests in order of arrival. `end` then does the expensive work once
for all of them: first it runs the `before_flush` hooks (the broker's store writes what the turn appended, which
completes the sends), then it sends once per connection that has output.

A turn has a time limit. What a connection cannot handle within it waits, and the task in `run` continues with it, one
connection after another and one turn after another; between two of its turns the drivers and all other tasks run.

Output produced outside of a turn (by an async processor or a timer) is batched in the same way: the first response
wakes the task in `run`, which ends a turn of its own.

Only the event loop's thread may touch a turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from typing import Protocol

import trio

# A turn sends its responses at its end, and no other task runs before. After this time what remains waits for the next
# turn: whole sockets stay unread, so that senders see TCP back-pressure, and so do the other requests of one read.
LONG_TURN_SECONDS = 0.05


class HasOutput(Protocol):
    """A connection, as a turn sees it."""

    def work(self) -> bool:
        """Handle requests that wait, until the turn is over. Return whether there are more for the next turn."""

    def flush(self) -> None:
        """Pass the output of this turn to the transport."""


class Turn:
    """The connections that have output or postponed requests, and the hooks that run before output is sent.

    `began` is trio's time at which a driver began the turn. The age of a request counts from `arrived`: the same time,
    or for a postponed request as much earlier as the requests ahead of it in its own read have taken. `limit_seconds`
    is the time limit of a turn. `failure` is what a hook raised: its work will never be finished, so responses that
    claim success must never be sent."""

    def __init__(self) -> None:
        self.began = inf
        self.arrived = inf
        self.limit_seconds = LONG_TURN_SECONDS
        self._dirty: list[HasOutput] = []
        self._before_flush: list[Callable[[], None]] = []
        self._running = False
        self._wakeup: trio.Event = trio.Event()
        self._postponed: deque[HasOutput] = deque()
        self._clock: Callable[[], float] | None = None
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

    def postpone(self, connection: HasOutput) -> None:
        """Call `connection.work` in a later turn, until it returns False."""
        self._postponed.append(connection)
        self._wakeup.set()

    def is_over(self) -> bool:
        """Return whether this turn has lasted long enough. Outside of a turn it never has."""
        if not self._running:
            return False
        if self._clock is None:
            self._clock = trio.lowlevel.current_clock().current_time  # a third of the cost of trio.current_time
        return self._clock() - self.began > self.limit_seconds

    def begin(self) -> None:
        self.began = self.arrived = trio.current_time()
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
        """Run turns for output produced outside of a driver's turn and for postponed requests, until cancelled."""
        while True:
            await self._wakeup.wait()
            self._wakeup = trio.Event()
            if self._postponed:
                self._go_on()
            self.end()

    def _go_on(self) -> None:
        """Let each connection with postponed requests work, in the order of arrival, for at most one turn's time."""
        self.begin()
        postponed = self._postponed
        for _ in range(len(postponed)):
            connection = postponed.popleft()
            if connection.work():
                postponed.append(connection)
            self.arrived = self.began
            if self.is_over():
                break
        if postponed:
            self._wakeup.set()
