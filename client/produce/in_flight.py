"""A bound on the sends of one producer that wait for their responses.

Holds a count and the senders waiting for their turn, first come first served. Used in one trio thread.
"""

from __future__ import annotations

from collections import deque

import trio

from triomq.client.core.errors import OperationTimeout


class InFlight:
    """At most `limit` sends between `enter` and `leave`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0
        self._waiting: deque[trio.Event] = deque()

    def enter_nowait(self) -> bool:
        """Take a place if there is one."""
        if self._count >= self._limit:
            return False
        self._count += 1
        return True

    async def enter(self, deadline: float) -> None:
        """Wait for a place, until `deadline` (trio's clock). Raises OperationTimeout."""
        if self.enter_nowait():
            return
        turn = trio.Event()
        self._waiting.append(turn)
        try:
            with trio.move_on_at(deadline):
                await turn.wait()
        except trio.Cancelled:
            if turn.is_set():
                self.leave()  # the place came when this send had been cancelled, before it could run
            raise
        finally:
            if not turn.is_set():
                self._waiting.remove(turn)
        if not turn.is_set():
            raise OperationTimeout(f"{self._limit} sends of this producer are waiting for their responses")

    def leave(self) -> None:
        """Give the place to the next waiting send, so the count stays, or free it."""
        if self._waiting:
            self._waiting.popleft().set()
        else:
            self._count -= 1
