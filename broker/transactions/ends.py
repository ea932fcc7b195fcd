"""How recent transactions ended: a fold over the op messages of one half queue.

    offset of a half message  ->  OPEN, COMMITTED, ROLLED_BACK, ENDED, DISCARDED, or the offset of its copy (> 0)

`HalfStates` holds one number for each half message of a window of the queue. A check puts an undecided half message
back as a copy, so one transaction may be a chain of half messages; whatever ends one of them ends the last of the
chain, and all of them count as ended. What lies in front of the window is unknown. It is pure: no store, no clock. Its
owner, TransactionLog, notes what it appends in the same step, and reads the op messages that it did not append itself.
"""

from __future__ import annotations

from array import array
from typing import Final

OPEN: Final = 0
COMMITTED: Final = -1
ROLLED_BACK: Final = -2
ENDED: Final = -3
"""Committed or rolled back: RocketMQ's op messages do not say which."""
ENDS: Final[tuple[int, ...]] = (COMMITTED, ROLLED_BACK, ENDED)
DISCARDED: Final = -4
"""Checked too often or too old; its producer may still decide."""
UNKNOWN: Final = -5
"""In front of the window."""

WINDOW: Final = 1 << 20
"""Half messages remembered in each queue, 8 bytes each."""


class HalfStates:
    """The states of the half messages of one queue, from `begin` on."""

    def __init__(self, begin: int, window: int = WINDOW) -> None:
        self.begin = begin
        self._window = window
        self._states: array[int] = array("q")

    def __len__(self) -> int:
        return len(self._states)

    def last_copy(self, offset: int) -> int:
        """Return the offset of the last half message of this one's chain."""
        states, begin = self._states, self.begin
        last = offset
        while begin <= last < begin + len(states) and states[last - begin] > 0:
            last = states[last - begin]
        while offset != last:  # the next caller gets there in one step
            following = states[offset - begin]
            states[offset - begin] = last
            offset = following
        return last

    def state(self, offset: int) -> int:
        """Return how the transaction of this half message ended, OPEN if it has not, UNKNOWN in front of the window."""
        if offset < self.begin:
            return UNKNOWN
        at = self.last_copy(offset) - self.begin
        return self._states[at] if at < len(self._states) else OPEN

    def is_passed(self, offset: int) -> bool:
        """Return True if this half message itself needs no check: it ended, it was discarded, or it has a copy."""
        at = offset - self.begin
        return 0 <= at < len(self._states) and self._states[at] != OPEN

    def has_ended(self, offset: int) -> bool:
        """Return True if the transaction is known to be committed or rolled back."""
        return self.state(offset) in ENDS

    def note_end(self, offset: int, state: int) -> None:
        """Note that the transaction was committed, rolled back, or one of the two. The first end counts."""
        if offset >= self.begin and not self.has_ended(offset):
            self._set(self.last_copy(offset), state)

    def note_copy(self, offset: int, copy_offset: int) -> None:
        """Note that an open half message has a copy behind it."""
        if self.begin <= offset < copy_offset and not self.is_passed(offset):
            self._set(offset, copy_offset)

    def note_discarded(self, offset: int) -> None:
        """Note that an open half message was discarded."""
        if self.begin <= offset and not self.is_passed(offset):
            self._set(offset, DISCARDED)

    def reopen(self, offset: int, state: int) -> None:
        """Take back `note_end`: what ended it was not stored. `state` is what it was before."""
        if offset >= self.begin:
            self._set(offset, state)

    def _set(self, offset: int, state: int) -> None:
        at = offset - self.begin
        if at >= self._window:  # half of the window is forgotten at once, so that this is rare
            begin = offset - self._window // 2
            del self._states[: begin - self.begin]
            self.begin = begin
            at = offset - begin
        missing = at + 1 - len(self._states)
        if missing > 0:
            self._states.frombytes(bytes(8 * missing))
        self._states[at] = state
