"""One fixed-size file: opened when first used, read through a mapping or pread, written by pwrite.

A MappedFile knows its path, its start offset and its size, but neither its content nor how much of it is used.
Descriptors are a shared, bounded resource: OpenFiles closes files that were not used recently (second-chance
algorithm), never pinned ones. Threads never receive a MappedFile, only a duplicated descriptor from `borrow`.
"""

from __future__ import annotations

import mmap
from collections import OrderedDict
from typing import Final

from triomq.store.disk import layout
from triomq.store.disk.files import OUT_OF_DESCRIPTORS, PAGE_BYTES, Data, Files

_LOOK_BYTES: Final = 65536
_ZEROS: Final = bytes(_LOOK_BYTES)


class OpenFiles:
    """The files of one store that hold a descriptor, at most `limit` of them plus those that must stay open; fewer
    while the process has no descriptor left.

    A file of the log stays open while it has unsynced pages: a write that fails later is only reported to descriptors
    that were open then. `closed_unsynced` tells that another file did not; the flusher resets it (file_syncs.py).
    """

    def __init__(self, files: Files, limit: int) -> None:
        self.files = files
        self._limit = limit
        self._open: OrderedDict[MappedFile, None] = OrderedDict()  # the files of a topic may be forgotten in any order
        self.closed_unsynced = False

    @property
    def count(self) -> int:
        return len(self._open)

    def opened(self, file: MappedFile) -> None:
        """Register a file that has opened a descriptor; may close other files."""
        self._open[file] = None
        turns = 2 * len(self._open)
        while len(self._open) > self._limit and turns > 0:
            turns -= 1
            oldest, _ = self._open.popitem(last=False)
            if oldest.must_stay_open or oldest.was_used or oldest is file:
                oldest.was_used = False
                self._open[oldest] = None
            else:
                self._close(oldest)

    def _close(self, file: MappedFile) -> None:
        if file.is_unsynced:
            self.closed_unsynced = True
        file.release()

    def give_up_one(self, error: OSError, wanted_by: MappedFile) -> None:
        """Close another file if `error` says that there is no free descriptor. Raises `error` if it says something
        else, or if there is no file to close."""
        if error.errno not in OUT_OF_DESCRIPTORS or not self.close_one(wanted_by):
            raise error

    def close_one(self, wanted_by: MappedFile | None = None) -> bool:
        """Close a file, but not `wanted_by`, whose next use opens it again. Return False if there is none to close."""
        for file in self._open:
            if not file.must_stay_open and file is not wanted_by:
                del self._open[file]
                self._close(file)
                return True
        return False

    def forgotten(self, file: MappedFile) -> None:
        """Unregister a file that closes permanently."""
        del self._open[file]

    def close_all(self) -> None:
        while self._open:
            self._open.popitem()[0].release()


class MappedFile:
    """One file of a sequence. Offsets called `at` are relative to the file."""

    __slots__ = (
        "_fd",
        "_map",
        "_name",
        "_pool",
        "directory",
        "holds_log",
        "is_pinned",
        "is_unsynced",
        "size_bytes",
        "start",
        "was_used",
    )

    def __init__(
        self,
        pool: OpenFiles,
        directory: str,
        start: int,
        size_bytes: int,
        name: str | None = None,
        *,
        holds_log: bool = False,
    ) -> None:
        self._pool = pool
        self.directory = directory
        self._name = name
        self.start = start
        self.size_bytes = size_bytes
        self.holds_log = holds_log
        self.is_pinned = False
        self.is_unsynced = False
        """Written since the last sync of it began."""
        self.was_used = False
        self._fd = -1
        self._map: mmap.mmap | None = None

    @property
    def name(self) -> str:
        """The name in the directory; by default made of `start` when it is asked for, since files may be many."""
        return self._name or layout.file_name(self.start)

    @property
    def path(self) -> str:
        return f"{self.directory}/{self.name}"

    @property
    def end(self) -> int:
        return self.start + self.size_bytes

    @property
    def likely_end(self) -> int:
        """An estimate of where the file's data ends, from its allocated blocks (the file's end if blocks were
        reserved). Use it only to show progress."""
        return self.start + min(self.size_bytes, self._pool.files.allocated_bytes(self.path))

    def create(self) -> None:
        """Create the file at full size. Raises OSError."""
        while self._fd < 0:
            try:
                self._fd = self._pool.files.create(self.path, self.size_bytes)
            except OSError as error:
                self._pool.give_up_one(error, self)
                continue
            self._pool.opened(self)

    def fd(self) -> int:
        """Return the descriptor, which is valid until the next call of any method here."""
        self.was_used = True
        while self._fd < 0:
            try:
                self._fd = self._pool.files.open(self.path)
            except OSError as error:
                self._pool.give_up_one(error, self)
                continue
            self._pool.opened(self)
        return self._fd

    def borrow(self) -> int:
        """Return a duplicated descriptor; the borrower closes it."""
        fd = self.fd()
        while True:
            try:
                return self._pool.files.duplicate(fd)
            except OSError as error:
                self._pool.give_up_one(error, self)

    @property
    def is_linked(self) -> bool:
        """Whether the file still has a name. One without is lost at the next restart."""
        return self._pool.files.is_linked(self.fd())

    @property
    def must_stay_open(self) -> bool:
        return self.is_pinned or (self.holds_log and self.is_unsynced)

    def write(self, data: Data, at: int) -> None:
        self.is_unsynced = True
        self._pool.files.pwrite(self.fd(), data, at)

    def read(self, at: int, size_bytes: int) -> bytes:
        """Return bytes through the mapping, for large files that are read often."""
        view = self._map
        if view is None:
            view = self.map()
        self.was_used = True
        return view[at : at + size_bytes]

    def pread(self, at: int, size_bytes: int) -> bytes:
        """Return bytes without a mapping, for files that are read rarely."""
        return self._pool.files.pread(self.fd(), size_bytes, at)

    def map(self) -> mmap.mmap:
        """Return the read-only mapping of the whole file. Do not keep it: OpenFiles may close it."""
        while self._map is None:
            try:
                self._map = self._pool.files.map_read(self.fd(), self.size_bytes)
            except OSError as error:  # a mapping has a descriptor of its own
                self._pool.give_up_one(error, self)
        self.was_used = True
        return self._map

    def modified_ms(self) -> int:
        return self._pool.files.modified_ms(self.path)

    def next_data(self, at: int) -> int:
        return self._pool.files.next_data(self.fd(), at)

    def has_data_from(self, at: int, *, unsure: bool) -> bool:
        """Return whether there are bytes other than zero from `at` on.

        If the next 64 KiB of data are zeros but more data follows, return `unsure`. For an empty rest the cost is one
        read of a page and one search for data behind the hole.
        """
        files = self._pool.files
        fd = self.fd()
        end = min(at + PAGE_BYTES - at % PAGE_BYTES, self.size_bytes)
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

    def only_page(self) -> bytes:
        """Return the first page, or b"" if there is data behind it or this system cannot tell."""
        files = self._pool.files
        fd = self.fd()
        return files.pread(fd, PAGE_BYTES, 0) if files.next_data(fd, PAGE_BYTES) < 0 else b""

    def clear_from(self, at: int) -> None:
        """Turn everything from `at` on into a hole, which reads as zeros."""
        files = self._pool.files
        if self.has_data_from(at, unsure=True):
            self.is_unsynced = True
            fd = self.fd()
            files.truncate(fd, at)
            files.truncate(fd, self.size_bytes)

    def extend(self) -> None:
        """Extend a file that is too short to its full size."""
        self._pool.files.truncate(self.fd(), self.size_bytes)

    def release(self) -> None:
        """Close the descriptor and the mapping; the next use opens them again. Only OpenFiles and `close` call it."""
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
        """Close and remove the file. A file that does not exist is not an error."""
        self.close()
        try:
            self._pool.files.unlink(self.path)
        except FileNotFoundError:
            return
