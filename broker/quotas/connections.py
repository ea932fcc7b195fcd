"""CountedConnections: which connections count for which accounts and addresses. It holds only open connections, each
once for its address and once for each account that it signed for. Touched only on the event loop."""

from __future__ import annotations

from triomq.remoting.connection import Connection

Counted = tuple[str, str]
"""Kind and name of what connections are counted for."""


class CountedConnections:
    """See the module's docstring. A connection that has its place keeps it until it closes."""

    def __init__(self) -> None:
        self._places: dict[Connection, set[Counted]] = {}
        self._numbers: dict[Counted, int] = {}

    def __len__(self) -> int:
        return len(self._places)

    def count(self, counted: Counted) -> int:
        """Return how many connections count for an account or an address."""
        return self._numbers.get(counted, 0)

    def has_room(self, connection: Connection, counted: Counted, limit: int) -> bool:
        """Return whether a connection has a place, or may have one."""
        return counted in self._places.get(connection, ()) or self.count(counted) < limit

    def enter(self, connection: Connection, counted: Counted) -> None:
        """Give an open connection its place."""
        places = self._places.setdefault(connection, set())
        if counted not in places:
            places.add(counted)
            self._numbers[counted] = self.count(counted) + 1

    def closed(self, connection: Connection) -> None:
        """Free the places of a closed connection."""
        for counted in self._places.pop(connection, ()):
            self._numbers[counted] -= 1
            if not self._numbers[counted]:
                del self._numbers[counted]
