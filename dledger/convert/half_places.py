"""Where the half messages of a log go: the physical offset of each one, before and after.

A transaction may stay open for as long as the log is kept, so all half messages count. The newest places are in memory,
the others in a file of 16 bytes each, which is searched: both offsets only grow.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from typing import Final

from triomq.store.disk.files import Files

_PLACE: Final = struct.Struct(">qq")


class HalfPlaces:
    """`path` is a file that `close` removes; at most `in_memory` places are not in it."""

    def __init__(self, files: Files, path: str, in_memory: int = 1 << 16) -> None:
        self._files = files
        self._path = path
        self._in_memory = in_memory
        self._fd = files.create(path, 0)
        self._written = 0
        self._old: array[int] = array("q")
        self._new: array[int] = array("q")

    def add(self, old: int, new: int) -> None:
        """Note where the half message at `old` goes, which lies behind all that were noted before. Raises OSError."""
        if len(self._old) == self._in_memory:
            data = b"".join(map(_PLACE.pack, self._old, self._new))
            self._files.pwrite(self._fd, data, self._written * _PLACE.size)
            self._written += len(self._old)
            self._old, self._new = array("q"), array("q")
        self._old.append(old)
        self._new.append(new)

    def find(self, old: int) -> int | None:
        """Return where the half message at `old` went; None if the log did not have one there. Raises OSError."""
        if self._old and old >= self._old[0]:
            at = bisect_left(self._old, old)
            return self._new[at] if at < len(self._old) and self._old[at] == old else None
        low, high = 0, self._written
        while low < high:
            middle = (low + high) // 2
            found, new = self._place(middle)
            if found == old:
                return new
            low, high = (middle + 1, high) if found < old else (low, middle)
        return None

    def _place(self, number: int) -> tuple[int, int]:
        old, new = _PLACE.unpack(self._files.pread(self._fd, _PLACE.size, number * _PLACE.size))
        return old, new

    def close(self) -> None:
        self._files.close(self._fd)
        self._files.unlink(self._path)
