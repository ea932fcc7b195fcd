"""What the rules ask of a member's log. The ledger on disk fulfils it, and so does a list in memory.

The rules read entries and the ends, and change the log only through these methods. A change is visible to the next read
and has been written, but is not necessarily on disk: `synced_index` says what a power failure cannot take. A sync is
the business of the log's owner, who calls `Member.synced` when the index has risen.
"""

from __future__ import annotations

from typing import Protocol

from triomq.dledger.wire.bodies import Entry


class LogRefused(Exception):
    """The disk took nothing of a change: it is full or fails. The log is as before."""


class PositionMismatch(Exception):
    """An entry's position is not where this log would write it: file size or an older log differ from the leader's."""


class Log(Protocol):
    """The entries of one member. Indexes of an empty log are -1, its end term is -1."""

    @property
    def begin_index(self) -> int: ...

    @property
    def end_index(self) -> int: ...

    @property
    def end_term(self) -> int: ...

    @property
    def synced_index(self) -> int:
        """The last index that is on disk with everything before it; at most the end."""
        ...

    @property
    def can_append(self) -> bool:
        """Whether the disk takes entries: a member whose disk does not should not lead."""
        ...

    def entry(self, index: int) -> Entry:
        """Return an entry between begin and end."""
        ...

    def batch(self, first: int, most_entries: int, most_bytes: int) -> list[Entry]:
        """Return the entry `first`, which is between begin and end, and those behind it: at most `most_entries` that
        have at most `most_bytes` together, or the first one alone. There may be fewer."""
        ...

    def append(self, term: int, bodies: list[bytes]) -> None:
        """Append entries of a leader in one write. Raises LogRefused."""
        ...

    def write(self, entries: list[Entry]) -> None:
        """Append a leader's entries, which follow the end without a gap, in one write. Raises LogRefused, and
        PositionMismatch before anything is written."""
        ...

    def cut(self, end_index: int) -> None:
        """Remove all entries behind an index. Raises LogRefused before anything is removed."""
        ...

    def reset(self, entry: Entry) -> None:
        """Remove everything and begin with this entry. Raises LogRefused before anything is removed: a member without
        entries would vote for candidates that lack what it had."""
        ...
