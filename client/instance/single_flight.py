"""Work that many tasks want at the same moment runs once, for all of them.

For look-ups whose result goes into a table that all of them read: a thousand sends to a new topic ask the name server
once, not a thousand times one after the other. Holds only what is in progress.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable

import trio


class _Flight:
    """One run of the work: whether it is done, and the error it ended with."""

    __slots__ = ("error", "is_done", "landed")

    def __init__(self) -> None:
        self.landed = trio.Event()
        self.is_done = False
        self.error: Exception | None = None


class SingleFlight:
    """Runs work once for all tasks that want it at the same moment. Used in one trio thread."""

    def __init__(self) -> None:
        self._flights: dict[Hashable, _Flight] = {}

    async def run(self, key: Hashable, work: Callable[[], Awaitable[object]]) -> None:
        """Do the work, or wait for the task that is already doing it under the same key. Raises what the work raised,
        in every waiting task; when the working task was cancelled, one of the waiting ones starts again."""
        while True:
            under_way = self._flights.get(key)
            if under_way is None:
                return await self._do(key, work)
            await under_way.landed.wait()
            if under_way.error is not None:
                raise under_way.error
            if under_way.is_done:
                return None

    async def _do(self, key: Hashable, work: Callable[[], Awaitable[object]]) -> None:
        flight = self._flights[key] = _Flight()
        try:
            await work()
            flight.is_done = True
        except Exception as error:
            flight.error = error
            raise
        finally:
            del self._flights[key]
            flight.landed.set()
