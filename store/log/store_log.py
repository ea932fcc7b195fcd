"""The log of a store, as the rest of the store sees it: records at physical offsets, over files of one size.

    ... committed_offset ... written_offset ... pending ... next_offset

`committed_offset`: records before it stay, may be read, and are dispatched. `written_offset`: bytes before it are in
the files. `next_offset`: where the next record goes; what lies before it and is not written waits in memory.

Two logs fulfil this. In the commit log (commit_log.py) records follow each other, and what is written is committed. In
the ledger of a group (dledger/ledger/) each record has a header in front of it (`header_bytes`), and what is written
is committed when a quorum has it. The files of a plain log may lie below a ledger; records there have no header
(`header_bytes_at`). Queues, index, dispatch, recovery and reading do not know which of the two they have: they use
physical offsets of records, and `LogScan` passes headers and the fillers at file ends.

Only the store's own thread touches a log; other threads receive duplicated descriptors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from triomq.protocol import record
from triomq.store.disk.file_sequence import FileSequence
from triomq.store.disk.log_directories import LogDirectories
from triomq.store.disk.mapped_file import MappedFile

# The last 8 bytes of a file are never part of a record.
END_MARGIN_BYTES: Final = 8


class StoreLog:
    """Files, ends and reading, which both logs share; and the operations in which they differ.

    To append, call `place`, `record.encode_into(log.tail, ...)`, and move `next_offset` behind the record;
    `write_pending` writes what was appended."""

    def __init__(
        self,
        sequence: FileSequence,
        directories: LogDirectories,
        header_bytes: int = 0,
        *,
        needs_quorum: bool = False,
    ) -> None:
        """`directories` are those of new files."""
        self.sequence = sequence
        self.directories = directories
        self.file_size_bytes = sequence.file_size_bytes
        self.header_bytes = header_bytes
        self.longest_record_bytes = self.file_size_bytes - header_bytes - END_MARGIN_BYTES
        """Of a record, or of the records of a batch together."""
        self.needs_quorum = needs_quorum
        self.unsynced_directories: set[str] = set()
        self.committed_offset = 0
        self.written_offset = 0
        self.next_offset = 0
        self.tail = bytearray()
        self.on_written: Callable[[], None] | None = None
        """Called when the rules of a group have written records or cut them."""
        self.scan_stop = -1
        """Where every scan ends at the latest: what lies behind it may still be replaced. -1: where the records end."""

    # -- appending: what the two logs do in their own ways ------------------------------------------------------------

    def place(self, size_bytes: int) -> int:
        """Return the physical offset for a record of `size_bytes`, at most `longest_record_bytes`. The caller adds it
        to `tail` immediately and then moves `next_offset` behind it."""
        raise NotImplementedError

    def place_all(self, sizes_bytes: list[int]) -> list[int]:
        """Return the physical offsets for the records of a batch, which are added one behind the other; for each holds
        what `place` says."""
        raise NotImplementedError

    def room(self) -> int:
        """Return the number of bytes of records that fit behind the last one without `place`."""
        return 0

    @property
    def pending_bytes(self) -> int:
        return self.next_offset - self.written_offset

    def write_pending(self) -> None:
        """Write all pending bytes. Raises OSError, or LogNotTaken if the log takes no records at present: the caller
        must call `take_back` then."""
        raise NotImplementedError

    def take_back(self) -> None:
        """Discard the pending bytes, so that no part of them can ever look like a record. Raises OSError if that fails
        too: the end of the log is then uncertain."""
        raise NotImplementedError

    def append_raw(self, data: bytes) -> None:
        """Write bytes of another log at the end of this one and commit them; they must lie within one file. Raises
        OSError with nothing committed."""
        raise NotImplementedError

    # -- ends ---------------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Load the files of the directory. Raises StoreRefused, OSError."""
        raise NotImplementedError

    def set_end(self, offset: int) -> None:
        """Set the committed end to `offset` (recovery, start of a slave)."""
        raise NotImplementedError

    def may_end_at(self, offset: int) -> bool:
        """Return whether the log can end at `offset`, where a clean stop says that it ended."""
        raise NotImplementedError

    def cut(self, offset: int) -> None:
        """Remove what lies behind the end that recovery found, and set the end. Idempotent."""
        raise NotImplementedError

    def recovered(self) -> None:
        """Note that the log has been recovered and may be written from now on. The end may move. Raises OSError."""

    def repair_refusal(self, offset: int) -> str | None:
        """Return why a damaged record at this offset may not be taken out of the log, or None if it may."""
        return None

    def detach_first(self) -> MappedFile:
        """Remove the oldest file from the log and close it. The caller unlinks it, and brings that to disk before it
        calls again: the next file may be in another directory, and a power failure must not leave a gap."""
        return self.sequence.detach_first()

    def directory_for(self, offset: int) -> str:
        """Return the directory that the file at `offset` would be made in."""
        return self.directories.for_file(offset // self.file_size_bytes)

    # -- syncs --------------------------------------------------------------------------------------------------------

    def begin_sync(self) -> int:
        """Note that a sync begins. Return the offset up to which it brings the log to disk."""
        return self.written_offset

    def end_sync(self, target: int) -> int:
        """Note that a sync that began with `target` has ended. Return the offset up to which the log is on disk: less
        than `target` if it was cut meanwhile."""
        return target

    def sync_failed(self) -> None:
        """Note that a sync failed: what it should have brought to disk may be lost."""

    # -- scanning -----------------------------------------------------------------------------------------------------

    def scan_start(self, offset: int) -> int:
        """Return where a scan begins that is to find the record at or behind `offset`: at its header, if it has one."""
        return offset

    def header_bytes_at(self, offset: int) -> int:
        """Return how long the headers of the records are in the file that holds `offset`."""
        return self.header_bytes

    def is_filler(self, head: bytes, room: int) -> bool:
        """Return whether 8 bytes begin the filler of the last `room` bytes of a file: a blank record of that size."""
        return head[4:] == _BLANK_MAGIC and room == int.from_bytes(head[:4], "big")

    # -- reading ------------------------------------------------------------------------------------------------------

    @property
    def min_offset(self) -> int:
        """The start of the first file, or -1 if there are no files."""
        return self.sequence.first_start

    @property
    def first_record_offset(self) -> int:
        """The physical offset of the first record of the first file, or -1 if there are no files."""
        start = self.sequence.first_start
        return start + self.header_bytes_at(start) if start >= 0 else -1

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
        """Return committed bytes from `offset`, at most `max_bytes`, never across a file end; b"" if there are none."""
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
_BLANK_MAGIC: Final = record.BLANK_MAGIC_BYTES
