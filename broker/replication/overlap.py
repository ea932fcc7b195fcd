"""Overlap: where a slave's log and its master's agree. Pure rules, without sockets or waits.

RocketMQ's slave reports its own end and appends whatever arrives. If the master does not have that end (it lost it in a
crash, or this broker used to be a master), the slave's log continues behind foreign records and is corrupt. So a slave
here reports an offset before its end, and compares what arrives with what it has:

    begin        compared, identical        end
      |-------------------------------------|- - - appended - - -
                          |
                        divergence: the log is cut at the record that holds it

Why this is safe: an identical stretch proves that everything before it is identical too, provided that the stretch
holds a whole record, because a record contains its own offset and the time at which it was stored. The comparison
covers the last `OVERLAP_BYTES` and at least the newest record that is in a queue. If the master has nothing there, or
something else from the first record on, the next connection begins further back. A log without any whole record in
common with the master's is never cut: it is another log, and it may be the only copy left.
"""

from __future__ import annotations

from typing import Protocol

OVERLAP_BYTES = 64 * 1024
STEP_BACK_BITS = 4
"""Each step back compares sixteen times more."""


class OwnLog(Protocol):
    """The part of the store that the comparison reads."""

    @property
    def min_physical_offset(self) -> int: ...
    @property
    def max_physical_offset(self) -> int: ...
    @property
    def newest_queued_offset(self) -> int: ...
    def read_log(self, physical_offset: int, max_bytes: int) -> bytes: ...


class OutOfStep(Exception):
    """The master sent an unexpected offset; the text names it."""


class Overlap:
    """The comparison of one connection. The log is known to match the master's up to `position`. `begin` is the first
    offset to report: 0 for an empty log, which accepts any first bytes."""

    def __init__(self, own: OwnLog, steps_back: int) -> None:
        self._own = own
        self.begin = first_report(own, steps_back)
        self.position = self.begin
        self.divergence = -1
        self.took_any = False

    @property
    def is_known(self) -> bool:
        """Return whether the whole log is known to match the master's."""
        return self.position >= self._own.max_physical_offset

    @property
    def reaches_start(self) -> bool:
        """Return whether nothing before `begin` is left to compare."""
        return self.begin <= _lowest(self._own)

    def take(self, physical_offset: int, data: bytes) -> bytes:
        """Compare received bytes with the log; return the bytes to append at `position`. If both differ, set
        `divergence` and return no bytes. Raises OutOfStep."""
        if physical_offset != self.position:
            if self._own.max_physical_offset or self.took_any:
                raise OutOfStep(
                    "master pushed offset not equal the max phy offset in slave: "
                    f"{physical_offset}, not {self.position}"
                )
            self.position = physical_offset
        self.took_any = True
        at = 0
        while at < len(data) and not self.is_known:
            own = self._own.read_log(self.position, len(data) - at)
            if not own:
                raise OutOfStep(f"this log has a gap at {self.position}")
            same = equal_bytes(own, data[at : at + len(own)])
            at += same
            self.position += same
            if same < len(own):
                self.divergence = self.position
                return b""
        return data[at:]

    def appended(self, physical_end: int) -> None:
        """Note that the bytes that `take` returned are now in the log."""
        self.position = physical_end


def first_report(own: OwnLog, steps_back: int) -> int:
    """Return the offset at which the comparison begins, further back with each step. It is 0 only for an empty log,
    since 0 requests the master's newest file. So byte 0 of a log is not compared (it is the top byte of a record's
    size)."""
    end = own.max_physical_offset
    if own.min_physical_offset < 0 or end == 0:
        return 0
    newest = own.newest_queued_offset
    lowest = _lowest(own)
    if newest < 0:  # no record is in a queue, so the start of the newest one is unknown
        return lowest
    return max(lowest, min(newest, end - (OVERLAP_BYTES << STEP_BACK_BITS * steps_back)))


def _lowest(own: OwnLog) -> int:
    return max(1, own.min_physical_offset)


def equal_bytes(one: bytes, other: bytes) -> int:
    """Return the length of the common prefix."""
    size = min(len(one), len(other))
    if one[:size] == other[:size]:
        return size
    low, high = 0, size  # one[:low] is the same, one[:high] is not
    while high - low > 1:
        middle = (low + high) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low
