"""One fixed-size file: opened when first used, read through a mapping or pread, written by pwrite.

A MappedFile knows its path, its start offset and its size; it does not know what is in it or how much of it is used.
Descriptors are a shared, bounded good: OpenFiles closes files that were not used for a while (second chance), never
pinned ones. Threads never get a MappedFile, only a duplicated descriptor from `borrow`.
"""

from __future__ import annotations

import mmap
from collections import deque
from typing import Final

from triomq.store.disk import layout
from triomq.store.disk.files import Data, Files

_PAGE_BYTES: Final = 4096
_LOOK_BYTES: Final = 65536
_ZEROS: Final = bytes(_LOOK_BYTES)


class OpenFiles:
    """The files of one store that hold a descriptor, at most `limit` of them plus the pinned ones."""

    __slots__ = ("_limit", "_open", "files")

    def __init__(self, files: Files, limit: int) -> None:
        self.files = files
        self._limit = limit
        self._open: deque[MappedFile] = deque()

    @property
    def count(self) -> int:
        return len(self._open)

    def opened(self, file: MappedFile) -> None:
        """Called by a file that has just got a descriptor; may close others."""
        self._open.append(file)
        turns = 2 * len(self._open)
        while len(self._open) > self._limit and turns > 0:
            turns -= 1
            oldest = self._open.popleft()
            if oldest.is_pinned or oldest.was_used or oldest is file:
                oldest.was_used = False
                self._open.append(oldest)
            else:
                oldest.release()

    def forgotten(self, file: MappedFile) -> None:
        """Called by a file that was closed permanently."""
        self._open.remove(file)

    def close_all(self) -> None:
        while self._open:
            self._open.popleft().release()


class MappedFile:
    """One file of a sequence. Offsets called `at` are relative to the file."""

    __slots__ = ("_fd", "_map", "_pool", "directory", "is_pinned", "name", "size_bytes", "start", "was_used")

    def __init__(self, pool: OpenFiles, directory: str, start: int, size_bytes: int, name: str | None = None) -> None:
        self._pool = pool
        self.directory = directory
        self.name = name or layout.file_name(start)
        self.start = start
        self.size_bytes = size_bytes
        self.is_pinned = False
        self.was_used = False
        self._fd = -1
        self._map: mmap.mmap | None = None

    @property
    def path(self) -> str:
        return f"{self.directory}/{self.name}"

    @property
    def end(self) -> int:
        return self.start + self.size_bytes

    @property
    def likely_end(self) -> int:
        """About where its bytes end, by the blocks it has (all, when they were reserved). Only good to tell how far
        something is."""
        return self.start + min(self.size_bytes, self._pool.files.allocated_bytes(self.path))

    def create(self) -> None:
        """Make the file at full size. Raises OSError."""
        if self._fd < 0:
            self._fd = self._pool.files.create(self.path, self.size_bytes)
            self._pool.opened(self)

    def fd(self) -> int:
        """The descriptor, valid until the next call of anything here."""
        self.was_used = True
        if self._fd < 0:
            self._fd = self._pool.files.open(self.path)
            self._pool.opened(self)
        return self._fd

    def borrow(self) -> int:
        """A descriptor of one's own; the borrower closes it."""
        return self._pool.files.duplicate(self.fd())

    def write(self, data: Data, at: int) -> None:
        self._pool.files.pwrite(self.fd(), data, at)

    def read(self, at: int, size_bytes: int) -> bytes:
        """Bytes of a large file that is read often: through the mapping."""
        view = self._map
        if view is None:
            view = self.map()
        self.was_used = True
        return view[at : at + size_bytes]

    def pread(self, at: int, size_bytes: int) -> bytes:
        """Bytes of a file that is not worth a mapping."""
        return self._pool.files.pread(self.fd(), size_bytes, at)

    def map(self) -> mmap.mmap:
        """The read-only mapping of the whole file; not to be kept."""
        if self._map is None:
            self._map = self._pool.files.map_read(self.fd(), self.size_bytes)
        self.was_used = True
        return self._map

    def modified_ms(self) -> int:
        return self._pool.files.modified_ms(self.path)

    def next_data(self, at: int) -> int:
        return self._pool.files.next_data(self.fd(), at)

    def has_data_from(self, at: int, *, unsure: bool) -> bool:
        """Whether there is anything but zeros from `at` on. `unsure` is the answer when the next 64 KiB are zeros, but
        the file has more that is no hole. Where nothing is, a page is read and a hole is looked for."""
        files = self._pool.files
        fd = self.fd()
        end = min(at + _PAGE_BYTES - at % _PAGE_BYTES, self.size_bytes)
        if at >= self.size_bytes:
            return False
        if files.pread(fd, end - at, at) != _ZEROS[: end - at]:
            return True
        data_at = files.next_data(fd, end) if end < self.size_bytes else -1
        if data_at < 0:
            return False
        looked = files.pread(fd, min(_LOOK_BYTES, self.size_bytes - data_at), data_at)
        if looked != _ZEROS[: len(looked)]:
            return True
        data_at += len(looked)
        return unsure and data_at < self.size_bytes and files.next_data(fd, data_at) >= 0

    def clear_from(self, at: int) -> None:
        """Make everything from `at` on zero again (a hole)."""
        files = self._pool.files
        if self.has_data_from(at, unsure=True):
            fd = self.fd()
            files.truncate(fd, at)
            files.truncate(fd, self.size_bytes)

    def extend(self) -> None:
        """Give a file that is too short its full size."""
        self._pool.files.truncate(self.fd(), self.size_bytes)

    def release(self) -> None:
        """Give the descriptor and the mapping back; they are made again on use. Only OpenFiles and `close` call it."""
        if self._map is not None:
            self._map.close()
            self._map = None
        if self._fd >= 0:
            self._pool.files.close(self._fd)
            self._fd = -1

    def close(self) -> None:
        if self._fd >= 0:
            self._pool.forgotten(self)
            self.release()

    def delete(self) -> None:
        """Close and remove the file; one that is gone already is fine."""
        self.close()
        try:
            self._pool.files.unlink(self.path)
        except FileNotFoundError:
            return
