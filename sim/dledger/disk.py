"""A member's log in memory: what is written, what a power failure leaves of it, and a disk that is full or fails.

A cut is a change like any other: until a sync that began after it has ended, a power failure may bring the old end
back (`_ghost`). Positions follow each other without blanks; what matters is that all members compute the same ones.
"""

from __future__ import annotations

from itertools import accumulate
from random import Random

from triomq.dledger.rules.log import LogRefused, PositionMismatch
from triomq.dledger.wire.bodies import ENTRY_HEADER_BYTES, Entry


def slot_of(entry: Entry) -> tuple[str, int]:
    """Return queue and queue offset of an entry of the simulation, whose body is `queue:offset:name`."""
    queue, offset, _ = entry.body.split(b":", 2)
    return queue.decode(), int(offset)


class MemoryLog:
    """The disk of one member, which outlives its processes."""

    def __init__(self, choose: Random) -> None:
        self._choose = choose
        self.begin_index = -1
        self.entries: list[Entry] = []
        self.synced_index = -1
        self.counts: dict[str, int] = {}  # queue -> the next queue offset
        self.is_refusing = False
        self.changes = 0
        self._cuts = 0
        self._ghost: list[Entry] = []
        self._sync: tuple[int, int] | None = None  # what a sync in progress covers: end, cuts before it
        self.removed: list[Entry] = []  # since the last look of the checks
        self.added: list[Entry] = []

    @property
    def end_index(self) -> int:
        return self.begin_index + len(self.entries) - 1 if self.entries else -1

    @property
    def end_term(self) -> int:
        return self.entries[-1].term if self.entries else -1

    @property
    def can_append(self) -> bool:
        return not self.is_refusing

    def entry(self, index: int) -> Entry:
        assert self.begin_index <= index, f"entry {index} is before the first one, {self.begin_index}"
        return self.entries[index - self.begin_index]

    def batch(self, first: int, most_entries: int, most_bytes: int) -> list[Entry]:
        begin = first - self.begin_index
        batch = self.entries[begin : begin + most_entries]
        sizes = accumulate(entry.size for entry in batch)
        return batch[: max(1, sum(size <= most_bytes for size in sizes))]

    def append(self, term: int, bodies: list[bytes]) -> None:
        if self.is_refusing:
            raise LogRefused
        for body in bodies:
            entry = Entry(
                body=body, index=self.end_index + 1, pos=self._end_pos(), size=len(body) + ENTRY_HEADER_BYTES, term=term
            )
            self._add(entry)

    def write(self, entries: list[Entry]) -> None:
        if self.is_refusing:
            raise LogRefused
        at = self._end_pos()
        for entry in entries:
            if entry.pos != at:
                raise PositionMismatch
            at += entry.size
        for entry in entries:
            assert entry.index == self.end_index + 1, f"a gap before entry {entry.index}"
            self._add(entry)

    def cut(self, end_index: int) -> None:
        if end_index >= self.end_index:
            return
        keep = end_index - self.begin_index + 1
        gone = self.entries[keep:]
        was_synced = self.entries[keep : self.synced_index - self.begin_index + 1]
        del self.entries[keep:]
        if was_synced and not self._ghost:
            self._ghost = was_synced
        self._forget(gone, end_index)

    def reset(self, entry: Entry) -> None:
        if self.is_refusing:
            raise LogRefused
        gone, self.entries = self.entries, []
        self.begin_index = -1
        self._ghost = []
        self._forget(gone, -1)
        self.begin_index = entry.index
        self._add(entry)

    def expire(self, count: int) -> None:
        """Remove the oldest entries, as retention does."""
        del self.entries[:count]
        self.begin_index += count

    def _end_pos(self) -> int:
        return self.entries[-1].pos + self.entries[-1].size if self.entries else 0

    def _add(self, entry: Entry) -> None:
        if not self.entries:
            self.begin_index = entry.index
        self.entries.append(entry)
        self.added.append(entry)
        self.changes += 1
        queue, offset = slot_of(entry)
        self.counts[queue] = offset + 1

    def _forget(self, gone: list[Entry], end_index: int) -> None:
        self.removed += gone
        self.changes += 1
        self._cuts += 1
        self.synced_index = min(self.synced_index, end_index)
        for entry in reversed(gone):
            queue, offset = slot_of(entry)
            self.counts[queue] = offset
        if self._sync is not None:
            self._sync = (min(self._sync[0], end_index), self._sync[1])

    # Syncs and crashes.

    @property
    def needs_sync(self) -> bool:
        return self._sync is None and self.synced_index < self.end_index

    def begin_sync(self) -> None:
        self._sync = (self.end_index, self._cuts)

    def end_sync(self) -> None:
        """The sync has ended: what it covered is on disk, unless it was cut meanwhile."""
        assert self._sync is not None
        end, cuts = self._sync
        self._sync = None
        self.synced_index = max(self.synced_index, end)
        if cuts == self._cuts:
            self._ghost = []

    def stop(self, *, is_power_loss: bool) -> None:
        """The process has ended. A power failure takes any end of what was not synced, or undoes a cut."""
        self._sync = None
        if not is_power_loss:
            self._ghost = []
            return
        ghost, self._ghost = self._ghost, []
        keep = self._choose.randint(self.synced_index, self.end_index) if self.end_index > self.synced_index else -2
        if keep > -2:
            self.cut(keep)
            self._ghost = []
        if ghost and ghost[0].index == self.end_index + 1 and self._choose.random() < 0.7:
            for entry in ghost:
                self._add(entry)
        if not self.entries:
            self.begin_index = -1
        self.synced_index = self.end_index
        self.removed = []  # a copy that did not count may be lost
