"""What the ledger of a member holds, entry by entry, followed from the outside: what it has added and removed since the
last look of the checks.
"""

from __future__ import annotations

from triomq.dledger.ledger.ledger import Ledger
from triomq.dledger.wire.bodies import Entry


class Mirror:
    """The entries of one member over all its lives."""

    def __init__(self) -> None:
        self.begin_index = -1
        self.added: list[Entry] = []
        self.removed: list[Entry] = []
        self._entries: list[Entry] = []

    @property
    def end_index(self) -> int:
        return self.begin_index + len(self._entries) - 1 if self._entries else -1

    def entry(self, index: int) -> Entry:
        return self._entries[index - self.begin_index]

    def has(self, entry: Entry) -> bool:
        return self.begin_index <= entry.index <= self.end_index and self.entry(entry.index).is_same(entry)

    def follow(self, ledger: Ledger) -> None:
        """Note one change of the ledger: entries behind the end, a cut, another beginning, or another life."""
        low = max(self.begin_index, ledger.begin_index)
        common = min(self.end_index, ledger.end_index)
        while common >= low >= 0 and not self.has(ledger.entry(common)):
            common -= 1
        if common < low or low < 0:
            self.removed += self._entries
            self._entries = []
            self.begin_index = ledger.begin_index
        else:
            self.removed += self._entries[common + 1 - self.begin_index :]
            self._entries = self._entries[low - self.begin_index : common + 1 - self.begin_index]
            self.begin_index = low
        if ledger.end_index >= 0:
            new = [ledger.entry(index) for index in range(self.begin_index + len(self._entries), ledger.end_index + 1)]
            self._entries += new
            self.added += new
