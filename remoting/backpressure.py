"""How much one peer may leave unsent, and what is held for it in memory."""

from __future__ import annotations

import sys

import trio

from triomq.remoting.connection_settings import DEFAULT_HIGH_WATER_BYTES, TIGHT_HIGH_WATER_BYTES, ConnectionSettings
from triomq.remoting.memory import MemoryBudget, Owner, Share


class Backpressure:
    """Of one connection, which is the `owner` of its share of the memory budget.

    backlog    what the transport has accepted and the peer has not taken
    room       how much output a turn may add to it: less while memory is tight; negative above the high water mark

    Above the high water mark the peer is not read, until its backlog is at the low one.
    """

    __slots__ = (
        "_drained",
        "_has_ended",
        "_high_water_bytes",
        "_low_water_bytes",
        "_was_tight",
        "backlog_bytes",
        "memory",
        "room_bytes",
        "share",
    )

    def __init__(self, settings: ConnectionSettings, owner: Owner) -> None:
        self.memory = settings.memory or MemoryBudget(sys.maxsize)
        self.share = Share(self.memory, owner)
        self.backlog_bytes = 0
        self._high_water_bytes = settings.high_water_bytes or DEFAULT_HIGH_WATER_BYTES
        self._low_water_bytes = settings.low_water_bytes or self._high_water_bytes // 4
        self.room_bytes = self._high_water_bytes
        self._was_tight = False
        self._drained: trio.Event | None = None
        self._has_ended = False

    @property
    def is_drained(self) -> bool:
        """Whether the peer has taken enough to be read again."""
        return self.backlog_bytes <= self._low_water_bytes

    @property
    def is_over(self) -> bool:
        """Whether the backlog is above the high water mark."""
        return self.backlog_bytes > self._high_water_bytes

    def look_at_memory(self) -> None:
        """Compute the room again if memory has become tight, or is so no more."""
        if self.memory.is_tight is not self._was_tight:
            self._set_room()

    def set_backlog(self, count: int) -> None:
        """Note that the backlog has changed, and wake who waits for that."""
        self.backlog_bytes = count
        self.share.set_backlog(count)
        self._set_room()
        if self._drained is not None:
            self._drained.set()
            self._drained = None

    def _set_room(self) -> None:
        self._was_tight = self.memory.is_tight
        high = min(self._high_water_bytes, TIGHT_HIGH_WATER_BYTES) if self._was_tight else self._high_water_bytes
        self.room_bytes = high - self.backlog_bytes

    async def wait_drained(self, backlog_bytes: int | None = None) -> None:
        """Wait until at most `backlog_bytes` (None: the low water mark) are unsent, or the connection is closed."""
        limit = self._low_water_bytes if backlog_bytes is None else backlog_bytes
        while not self._has_ended and self.backlog_bytes > limit:
            if self._drained is None:
                self._drained = trio.Event()
            await self._drained.wait()

    def hold(self, count: int) -> bool:
        """Count these bytes (a negative number: no longer) as held for the peer. Return whether memory is tight."""
        if not self._has_ended:
            self.share.keep(count)
        return self.memory.is_tight

    def end(self) -> None:
        """The connection is about to be closed: wake who waits, and count nothing more."""
        self._has_ended = True
        if self._drained is not None:
            self._drained.set()
