"""The CommitLog: one sequence of records over fixed-size files, and the bytes that are not written yet.

    ... records written ... | committed_offset ... pending segments, tail ... | next_offset

Holds the log's files and the pending bytes: whole segments that end with a blank record (the file is full), then the
tail of the newest file. Only the store's own thread touches it; other threads receive duplicated descriptors. It knows
only the size of a record: protocol.record encodes records, and dispatch interprets them.

A record never crosses a file end. When it and 8 more bytes do not fit, a blank record fills the file.
"""

from __future__ import annotations

from typing import Final

from triomq.protocol import record
from triomq.store.disk.file_sequence import FileSequence
from triomq.store.disk.layout import Layout
from triomq.store.disk.mapped_file import MappedFile, OpenFiles

# The last 8 bytes of a file are never part of a record.
END_MARGIN_BYTES: Final = 8


class CommitLog:
    """To append, call place() and record.encode_into(log.tail, ...); write_pending() writes the appended records."""

    __slots__ = (
        "_layout",
        "_segments",
        "_tail_offset",
        "committed_offset",
        "file_size_bytes",
        "full_directories",
        "next_offset",
        "sequence",
        "tail",
        "unsynced_directories",
    )

    def __init__(self, pool: OpenFiles, paths: Layout, file_size_bytes: int) -> None:
        self.sequence = FileSequence(pool, paths.commit_logs[0], file_size_bytes, holds_log=True)
        self.file_size_bytes = file_size_bytes
        self._layout = paths
        self.full_directories: frozenset[str] = frozenset()
        self.unsynced_directories: set[str] = set()
        self.committed_offset = 0
        self.next_offset = 0
        self.tail = bytearray()
        self._tail_offset = 0
        self._segments: list[tuple[int, bytearray]] = []

    # -- appending -------------------------------------------------------------------------------------------------

    def place(self, size_bytes: int) -> int:
        """Return the physical offset for `size_bytes` of records.

        The caller adds the records to `tail` immediately and then moves `next_offset`. They must fit a file (`fits`).
        """
        offset = self.next_offset
        room = self.file_size_bytes - offset % self.file_size_bytes
        if size_bytes + END_MARGIN_BYTES > room:
            self.tail += record.encode_blank(room)
            self._segments.append((self._tail_offset, self.tail))
            self.tail = bytearray()
            offset += room
            self._tail_offset = offset
            self.next_offset = offset
        return offset

    def fits(self, size_bytes: int) -> bool:
        return size_bytes + END_MARGIN_BYTES <= self.file_size_bytes

    @property
    def pending_bytes(self) -> int:
        return self.next_offset - self.committed_offset

    def write_pending(self) -> None:
        """Write all pending bytes, which are committed then. Raises OSError: nothing is committed then, and the caller
        must call `take_back`."""
        for offset, data in self._segments:
            self._write_at(offset, data)
        if self.tail:
            self._write_at(self._tail_offset, self.tail)
        self._segments.clear()
        self.tail = bytearray()
        self._tail_offset = self.next_offset
        self.committed_offset = self.next_offset

    def take_back(self) -> None:
        """Discard the pending bytes and clear those that reached the files, so that no part of them can ever look like
        a record. Raises OSError if that fails too: the end of the log is then uncertain."""
        self.tail = bytearray()
        self._segments.clear()
        self.next_offset = self.committed_offset
        self._tail_offset = self.committed_offset
        self.sequence.truncate(self.committed_offset)

    def append_raw(self, data: bytes) -> None:
        """Write bytes of another log at the end of this one and commit them; they must lie within one file. Raises
        OSError with nothing committed."""
        self._write_at(self.next_offset, data)
        self.set_end(self.next_offset + len(data))

    def set_end(self, offset: int) -> None:
        """Set the committed end and the next record's offset to `offset` (recovery, start of a slave)."""
        self.committed_offset = offset
        self.next_offset = offset
        self._tail_offset = offset

    def _write_at(self, offset: int, data: bytes | bytearray) -> None:
        file = self.sequence.last
        if file is None or not file.start <= offset < file.end:
            file = self.sequence.find(offset)
            if file is None:
                directory = self.directory_for(offset)
                file = self.sequence.make(offset, directory)
                self.unsynced_directories.add(directory)
        file.write(data, offset - file.start)

    def directory_for(self, offset: int) -> str:
        """Return the directory for the file at `offset`. Several log paths take turns by file number; full ones are
        skipped while there is another (MultiPathMappedFileQueue)."""
        paths = self._layout.commit_logs
        if len(paths) == 1:
            return paths[0]
        writable = [path for path in paths if path not in self._layout.read_only_commit_logs]
        usable = sorted(path for path in writable if path not in self.full_directories) or sorted(writable)
        return usable[offset // self.file_size_bytes % len(usable)]

    # -- reading ---------------------------------------------------------------------------------------------------

    @property
    def min_offset(self) -> int:
        """The start of the first file, or -1 if there are no files."""
        return self.sequence.first_start

    def read(self, offset: int, size_bytes: int) -> bytes | None:
        """Return `size_bytes` of committed bytes, or None if one file does not have all of them."""
        if size_bytes <= 0 or offset + size_bytes > self.committed_offset:
            return None
        file = self.sequence.find(offset)
        if file is None or offset + size_bytes > file.start + file.size_bytes:
            return None
        return file.read(offset - file.start, size_bytes)

    def record_at(self, offset: int) -> bytes | None:
        """Return the whole record at this offset, or None if no record begins there. Its fixed fields are present;
        nothing else about it is checked."""
        head = self.read(offset, record.FIXED_BYTES)
        if head is None or head[4:8] != _MAGIC:
            return None
        if int.from_bytes(head[record.PHYSICAL_OFFSET_AT : record.PHYSICAL_OFFSET_AT + 8], "big") != offset:
            return None
        size = int.from_bytes(head[:4], "big")
        return self.read(offset, size) if size >= record.FIXED_BYTES else None

    def store_timestamp_at(self, offset: int) -> int:
        """Return STORETIMESTAMP (ms) of the record at this offset, or -1 if no record begins there."""
        head = self.read(offset, record.FIXED_BYTES)
        if head is None or head[4:8] != _MAGIC:
            return -1
        return record.store_timestamp_at(head)

    def read_some(self, offset: int, max_bytes: int) -> bytes:
        """Return committed bytes from `offset`, at most `max_bytes` and never across a file end; b"" if there are none.
        """
        file, size = self.run_at(offset, max_bytes)
        return file.read(offset - file.start, size) if file is not None else b""

    def run_at(self, offset: int, max_bytes: int) -> tuple[MappedFile | None, int]:
        """Return the file that has committed bytes at `offset`, and the number of committed bytes that it has from
        there, at most `max_bytes`; (None, 0) if there is no such file."""
        file = self.sequence.find(offset) if 0 <= offset < self.committed_offset else None
        if file is None:
            return None, 0
        return file, min(max_bytes, file.end - offset, self.committed_offset - offset)

    def next_file_start(self, offset: int) -> int:
        """Return the start of the file after the one that holds `offset`."""
        return offset + self.file_size_bytes - offset % self.file_size_bytes

    def files_between(self, begin: int, end: int) -> list[MappedFile]:
        """Return the files that hold any byte of [begin, end)."""
        return [file for file in self.sequence.files if file.start < end and file.end > begin]


_MAGIC: Final = record.MESSAGE_MAGIC_BYTES
