"""The CommitLog: one sequence of records over fixed-size files, and the bytes that are not written yet.

    ... records written and committed ... | pending segments, tail ... | next_offset

Holds the pending bytes: whole segments that end with a blank record (the file is full), then the tail of the newest
file. It knows only the size of a record: protocol.record encodes records, and dispatch interprets them.

A record never crosses a file end. When it and 8 more bytes do not fit, a blank record fills the file.
"""

from __future__ import annotations

import structlog

from triomq.protocol import record
from triomq.store.disk.file_sequence import FileSequence
from triomq.store.disk.layout import Layout
from triomq.store.disk.log_directories import log_directories
from triomq.store.disk.mapped_file import OpenFiles
from triomq.store.errors import StoreRefused
from triomq.store.log.store_log import END_MARGIN_BYTES as END_MARGIN_BYTES
from triomq.store.log.store_log import StoreLog

log = structlog.get_logger("triomq.store")


class CommitLog(StoreLog):
    """The log of RocketMQ's plain broker. What is written is committed."""

    def __init__(self, pool: OpenFiles, paths: Layout, file_size_bytes: int) -> None:
        super().__init__(
            FileSequence(pool, paths.commit_logs[0], file_size_bytes, holds_log=True),
            log_directories(paths),
        )
        self._pool = pool
        self._tail_offset = 0
        self._segments: list[tuple[int, bytearray]] = []

    def load(self) -> None:
        """Load the files of all log directories; the missing part of a short one reads as zeros. Raises StoreRefused
        if two begin at the same offset, or if all have another size than mappedFileSizeCommitLog."""
        files = self._pool.files
        sequence = self.sequence
        short = self.directories.load(sequence)
        sizes = {files.path_size(file.path) for file in short}
        if len(short) > 1 and len(short) == len(sequence.files) and len(sizes) == 1 and sizes != {0}:
            raise StoreRefused(
                f"the commit log files in {sequence.directory} have {sizes.pop()} bytes each, mappedFileSizeCommitLog "
                f"is {sequence.file_size_bytes}; set it to what wrote this store"
            )
        for file in short:
            log.warning("short commit log file found; its missing part reads as zeros", path=file.path)
            file.extend()

    # -- appending -------------------------------------------------------------------------------------------------

    def place(self, size_bytes: int) -> int:
        """See StoreLog. Fills the file if the record does not fit into the rest of it."""
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

    def place_all(self, sizes_bytes: list[int]) -> list[int]:
        """See StoreLog. A batch is in one file."""
        offset = self.place(sum(sizes_bytes))
        found: list[int] = []
        for size in sizes_bytes:
            found.append(offset)
            offset += size
        return found

    def room(self) -> int:
        """See StoreLog."""
        return self.file_size_bytes - self.next_offset % self.file_size_bytes - END_MARGIN_BYTES

    def write_pending(self) -> None:
        """See StoreLog. The bytes are committed then; with OSError nothing is."""
        for offset, data in self._segments:
            self._write_at(offset, data)
        if self.tail:
            self._write_at(self._tail_offset, self.tail)
        self._segments.clear()
        self.tail = bytearray()
        self._tail_offset = self.next_offset
        self.written_offset = self.next_offset
        self.committed_offset = self.next_offset

    def take_back(self) -> None:
        """See StoreLog. Clears what reached the files."""
        self.tail = bytearray()
        self._segments.clear()
        self.next_offset = self.committed_offset
        self._tail_offset = self.committed_offset
        self.sequence.truncate(self.committed_offset)

    def append_raw(self, data: bytes) -> None:
        """See StoreLog."""
        self._write_at(self.next_offset, data)
        self.set_end(self.next_offset + len(data))

    def set_end(self, offset: int) -> None:
        """See StoreLog."""
        self.committed_offset = offset
        self.written_offset = offset
        self.next_offset = offset
        self._tail_offset = offset

    def may_end_at(self, offset: int) -> bool:
        """See StoreLog: nothing lies behind the end of the last file."""
        last = self.sequence.last
        if last is None or not last.start < offset <= last.end:
            return False
        return not last.read(offset - last.start, 8).strip(b"\0")

    def sync(self) -> None:
        """Bring all files and their names to disk, before the store runs. Raises OSError."""
        for file in self.sequence.files:
            self._pool.files.datasync(file.fd())
        for directory in {file.directory: None for file in self.sequence.files}:
            self._pool.files.sync_directory(directory)

    def cut(self, offset: int) -> None:
        """See StoreLog."""
        self.sequence.truncate(offset)
        self.set_end(offset)

    def _write_at(self, offset: int, data: bytes | bytearray) -> None:
        file = self.sequence.last
        if file is None or not file.start <= offset < file.end:
            file = self.sequence.find(offset)
            if file is None:
                directory = self.directory_for(offset)
                file = self.sequence.make(offset, directory)
                self.unsynced_directories.add(directory)
        file.write(data, offset - file.start)
