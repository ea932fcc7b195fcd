"""Work that many tasks want done at the same moment is done once, for all of them.

For questions whose answer lands in a table that all of them look into: a thousand sends to a new topic ask the name
server once, not a thousand times one after the other. Holds what is under way, and nothing after that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable

import trio


class _Flight:
    """One run of the work: over or not, and the error it ended with."""

    __slots__ = ("error", "is_done", "landed")

    def __init__(self) -> None:
        self.landed = trio.Event()
        self.is_done = False
        self.error: Exception | None = None


class SingleFlight:
    """See the module's text. Used in one trio thread."""

    def __init__(self) -> None:
        self._flights: dict[Hashable, _Flight] = {}

    async def run(self, key: Hashable, work: Callable[[], Awaitable[object]]) -> None:
        """Do the work, or wait for the task that is at it under the same key. Raises what the work raised, whoever did
        it; when that task was cancelled, another one of those that wait begins anew."""
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
