"""A turn: everything that one wake-up of the event loop brought, handled in a row and finished together.

A driver reads all ready sockets, their requests are handled in order of arrival, and `end` then does once for all of
them what is dear one at a time: first the `before_flush` hooks (the broker's store writes what the turn appended, which
answers the senders), then one send for each connection that has output.

Who produces output outside of a turn (an async processor, a timer) gets the same treatment: the first answer wakes
the task in `run`, which ends a turn of its own. So answers of one wake-up still leave together.

Only the event loop's thread may touch a turn.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from triomq.remoting.connection import Connection


class Turn:
    """The connections with output of this turn, and what must happen before it leaves. `began` is trio's time at which
    a driver began it: since then all requests that it brought were there to be read. `failure` is what a hook raised:
    what it was to finish is unfinished for good, so the answers that say otherwise must never leave."""

    def __init__(self) -> None:
        self.began = inf
        self._dirty: list[Connection] = []
        self._before_flush: list[Callable[[], None]] = []
        self._running = False
        self._wakeup: trio.Event = trio.Event()
        self.failure: BaseException | None = None

    def before_flush(self, hook: Callable[[], None]) -> None:
        """Have `hook` called at the end of every turn, before anything is sent. It must not await. When it raises,
        nothing of this turn or of a later one is sent, and whoever ended the turn gets the exception: a server ends."""
        self._before_flush.append(hook)

    def mark(self, connection: Connection) -> None:
        """`connection` has output: it leaves at the end of this turn, or very soon when none is running."""
        self._dirty.append(connection)
        if not self._running:
            self._wakeup.set()

    def wake(self) -> None:
        """Have a turn end soon, for the hooks' sake, although there may be no output yet."""
        if not self._running:
            self._wakeup.set()

    def begin(self) -> None:
        self.began = trio.current_time()
        self._running = True

    def end(self) -> None:
        """Finish the turn. Raises what a hook raises, and raises it again ever after."""
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
        """End the turns of those who produce output outside of a driver's turn; runs until cancelled."""
        while True:
            await self._wakeup.wait()
            self._wakeup = trio.Event()
            self.end()
