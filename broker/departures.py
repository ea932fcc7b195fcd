"""Departures: clients whose connection closed leave their groups.

A client has up to `maxGroupsPerClient` groups, and each that it leaves may have members to notify and filters that end.
So it leaves a few at once and the rest in steps, between which other tasks run. Until then a member has a closed
connection, which nobody sends anything to. Only the event loop touches this.
"""

from __future__ import annotations

from typing import Final, Protocol

import trio

from triomq.remoting.connection import Connection

GROUPS_IN_A_STEP: Final = 16


class Members(Protocol):
    """A table of clients and their groups."""

    def leave(self, connection: Connection, most: int) -> bool:
        """Remove a connection from at most this number of its groups. Return whether it has more."""


class Departures:
    """See the module's docstring. Without `run` clients leave all their groups at once."""

    def __init__(self, *tables: Members) -> None:
        self._tables = tables
        self._leaving: dict[Connection, None] = {}
        self._is_running = False
        self._wakeup = trio.Event()

    def __len__(self) -> int:
        return len(self._leaving)

    def connection_closed(self, connection: Connection) -> None:
        """Let a client leave, now or soon."""
        while self._leave(connection):
            if self._is_running:
                self._leaving[connection] = None
                self._wakeup.set()
                return

    def _leave(self, connection: Connection) -> bool:
        has_more = False
        for table in self._tables:
            has_more |= table.leave(connection, GROUPS_IN_A_STEP)
        return has_more

    async def run(self) -> None:
        """Let one client after another leave, until cancelled."""
        self._is_running = True
        try:
            while True:
                await self._wakeup.wait()
                self._wakeup = trio.Event()
                while self._leaving:
                    connection = next(iter(self._leaving))
                    if not self._leave(connection):
                        del self._leaving[connection]
                    await trio.lowlevel.checkpoint()
        finally:
            self._is_running = False
