"""The last entries that a leader appended, in memory: every follower is about to get them."""

from __future__ import annotations

from collections import deque
from typing import Final

from triomq.dledger.ledger.runs import Run
from triomq.dledger.wire.bodies import Entry

RECENT_BYTES: Final = 8 << 20
"""More than what may be on its way to a follower that keeps up; others get what lies in the files."""


class RecentEntries:
    """Consecutive entries, at most `most_bytes` of them or a single longer run; with 0, none. Bytes become an entry
    when the first follower gets it."""

    def __init__(self) -> None:
        self.most_bytes = RECENT_BYTES
        self._runs: deque[Run] = deque()
        self._found: dict[int, Run | Entry] = {}
        self._size_bytes = 0

    def add(self, run: Run) -> None:
        """Add the entries of a run, which may be none."""
        if not run.units or not self.most_bytes:
            return
        if self._runs and self._runs[-1].first_index + self._runs[-1].count != run.first_index:
            self.clear()
        self._runs.append(run)
        self._found.update(dict.fromkeys(range(run.first_index, run.first_index + run.count), run))
        self._size_bytes += len(run.data)
        while self._size_bytes > self.most_bytes and len(self._runs) > 1:
            oldest = self._runs.popleft()
            self._size_bytes -= len(oldest.data)
            for index in range(oldest.first_index, oldest.first_index + oldest.count):
                del self._found[index]

    def get(self, index: int) -> Entry | None:
        """Return the entry with this index, or None if it is not in memory."""
        found = self._found.get(index)
        if isinstance(found, Run):
            found = self._found[index] = found.entry(index)
        return found

    def batch(self, first: int, most_entries: int, most_bytes: int) -> list[Entry]:
        """Return the entry `first`, which is in memory, and those behind it: see rules.log.Log."""
        batch: list[Entry] = []
        for index in range(first, first + most_entries):
            entry = self.get(index)
            if entry is None:
                break
            most_bytes -= entry.size
            if batch and most_bytes < 0:
                break
            batch.append(entry)
        return batch

    def clear(self) -> None:
        self._runs.clear()
        self._found.clear()
        self._size_bytes = 0
