"""The memory that the tables of a daemon take. It is part of what peers can make it hold (remoting/memory.py): half of
maxRequestBytes at most, and the rest is for frames, requests and responses.

Each table has an account. It computes its memory from the number and the lengths of its entries, with costs that are
declared beside the tables, and sets the account after each change. Before an entry that a client wants to add it checks
whether there is room. What is already there stays, whatever it takes: what a file or a master brings, and what was
acknowledged.

Only the event loop touches it.
"""

from __future__ import annotations

import sys

from triomq.protocol.codes import ResponseCode
from triomq.protocol.errors import RequestRefused


class MemoryShort(RequestRefused):
    """The tables of the daemon have no memory left for another entry."""

    def __init__(self, table: str, table_bytes: int, limit_bytes: int, what: str) -> None:
        super().__init__(
            ResponseCode.SYSTEM_BUSY,
            f"the tables have no memory left, {what} refused: they may take {limit_bytes} bytes, half of "
            f"maxRequestBytes, and the {table} take {table_bytes}; remove unused ones or raise maxRequestBytes",
        )


class TableMemory:
    """The sum of all accounts; without a limit nothing is refused."""

    def __init__(self, limit_bytes: int = sys.maxsize) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0

    def account(self, table: str) -> TableAccount:
        """Return the account of a table; the name is for errors, in the plural."""
        return TableAccount(self, table)


class TableAccount:
    """What one table takes."""

    __slots__ = ("_memory", "_table", "held_bytes")

    def __init__(self, memory: TableMemory, table: str) -> None:
        self._memory = memory
        self._table = table
        self.held_bytes = 0

    def set(self, held_bytes: int) -> None:
        """Note what the table takes now."""
        self._memory.held_bytes += held_bytes - self.held_bytes
        self.held_bytes = held_bytes

    def fits(self, more_bytes: int) -> bool:
        """Return whether the table may grow by this number of bytes."""
        return self._memory.held_bytes + more_bytes <= self._memory.limit_bytes

    def check(self, more_bytes: int, what: str) -> None:
        """Refuse an entry for which there is no room; `what` names it. Raises MemoryShort."""
        if not self.fits(more_bytes):
            raise MemoryShort(self._table, self.held_bytes, self._memory.limit_bytes, what)
