"""The name servers of one client, and which of them to ask first.

Name servers know nothing of each other and each holds everything, so any of them will do. Holds which one responded
last; a client starts at a random one, so that many clients spread over them. Pure; asking belongs to the drivers.
"""

from __future__ import annotations

import random
from collections.abc import Sequence


class NameServerList:
    """The addresses given by the application (or by an address server), and the one to ask first."""

    def __init__(self, addresses: Sequence[str], *, start: int | None = None) -> None:
        self.addresses = tuple(addresses)
        self._chosen = random.randrange(max(1, len(self.addresses))) if start is None else start % len(self.addresses)

    @property
    def chosen(self) -> str:
        """The one that responded last."""
        return self.addresses[self._chosen]

    def in_turn(self) -> list[str]:
        """Return the addresses in the order to ask them: the one that responded last comes first."""
        return [*self.addresses[self._chosen :], *self.addresses[: self._chosen]]

    def responded(self, address: str) -> None:
        """Ask this one first from now on."""
        if address in self.addresses:
            self._chosen = self.addresses.index(address)

    def replace(self, addresses: Sequence[str]) -> None:
        """Take another list (not empty); the one that responded last stays first as long as it is on the list."""
        last = self.chosen if self.addresses else ""
        self.addresses = tuple(addresses)
        self._chosen = random.randrange(len(self.addresses))
        self.responded(last)
