"""The last entries that a leader appended, in memory: every follower is about to get them."""

from __future__ import annotations

from collections import deque
from typing import Final

from triomq.dledger.wire.bodies import Entry

RECENT_BYTES: Final = 8 << 20
"""More than what may be on its way to a follower that keeps up; others get what lies in the files."""


class RecentEntries:
    """Consecutive entries, at most RECENT_BYTES of them, or a single longer one."""

    __slots__ = ("_entries", "_size_bytes")

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque()
        self._size_bytes = 0

    def add(self, entries: list[Entry]) -> None:
        kept = self._entries
        if kept and kept[-1].index + 1 != entries[0].index:
            self.clear()
        kept.extend(entries)
        self._size_bytes += sum([entry.size for entry in entries])
        while self._size_bytes > RECENT_BYTES and len(kept) > 1:
            self._size_bytes -= kept.popleft().size

    def get(self, index: int) -> Entry | None:
        """Return the entry with this index, or None if it is not in memory."""
        kept = self._entries
        return kept[index - kept[0].index] if kept and kept[0].index <= index <= kept[-1].index else None

    def clear(self) -> None:
        self._entries.clear()
        self._size_bytes = 0
