"""The checkpoint file: the store time up to which each part is known to be on disk (StoreCheckpoint).

    physicMsgTimestamp int64 @0 | logicsMsgTimestamp int64 @8 | indexMsgTimestamp int64 @16 | zero to 4096

RocketMQ reads only the first 24 bytes, so our clean shutdown stores a note of its own after them:

    "TRIOMQ13" @32 | log end int64 @40 | digest of queues and index uint64 @48 | CRC-32 of bytes 0..55 int32 @56

The CRC also covers the three timestamps, so the note becomes invalid when another broker uses the store. While the
store is open there is no note.

A second note records the log offset at which a recovery may start; the timestamps identify only a whole log file.
Everything before that offset is on disk in the log and in the queues, and everything before a second offset is on disk
in the index. From the sum of the queues' ends and the number of their entries, recovery detects queues that lost
entries. The number is valid only while the start of the log is unchanged (-1: retention was about to remove entries).

Why the note can be trusted: its values are taken before the syncs that cover them begin (flush.py), and it is removed
before anything that it describes changes (`forget_offsets`). docs/internals/crash-safety.md names a test for each
field.

    "TRIOMQ12" @64 | log offset int64 @72 | index offset int64 @80 | sum of the queues' ends int64 @88
    | start of the log int64 @96 | entries int64 @104 | CRC-32 of bytes 0..23 and 64..111 int32 @112

A third note says up to which offset the log alone was synced. In front of it damage is damage; behind it, a hole is
what a power failure leaves, and the log ends there (log_scan.py). `forget_offsets` keeps it: the log was synced,
whatever becomes of queues and index.

    "TRIOMQ14" @128 | log offset int64 @136 | CRC-32 of bytes 0..23 and 128..143 int32 @144

All notes lie in the first 512 bytes: a sector is written whole or not at all.
"""

from __future__ import annotations

import struct
from zlib import crc32

from triomq.store.disk.files import Files

SIZE_BYTES = 4096
SAFETY_MS = 3000

_TIMES = struct.Struct(">qqq")
_NOTE = struct.Struct(">8sqQ")
_NOTE_AT = 32
_CRC_AT = _NOTE_AT + _NOTE.size
_MAGIC = b"TRIOMQ13"  # "TRIOMQ11" had a 32-bit digest; that note is ignored, so such a store is recovered as usual
_SAFE = struct.Struct(">8sqqqqq")
_SAFE_AT = 64
_SAFE_CRC_AT = _SAFE_AT + _SAFE.size
_SAFE_MAGIC = b"TRIOMQ12"
_SYNCED = struct.Struct(">8sq")
_SYNCED_AT = 128
_SYNCED_CRC_AT = _SYNCED_AT + _SYNCED.size
_SYNCED_MAGIC = b"TRIOMQ14"


class CleanNote:
    """The note of a clean shutdown: the end of the log, and a digest over the ends of all queues and the index."""

    __slots__ = ("digest", "log_end")

    def __init__(self, log_end: int, digest: int) -> None:
        self.log_end = log_end
        self.digest = digest


class Checkpoint:
    """The values of the checkpoint file. Timestamps are store times in ms; only recovery uses them."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self.exists = False
        self.log_ms = 0
        self.queues_ms = 0
        self.index_ms = 0
        self.note: CleanNote | None = None
        self.safe_offset = 0
        self.safe_index_offset = 0
        self.safe_ends = 0
        self.safe_begin = 0
        self.safe_entries = -1
        self.synced_offset = -1
        """Up to here the log was synced; -1 if the file does not tell."""

    def load(self) -> None:
        """Read the file. A missing or short file reads as zeros: recovery then starts at the first log file."""
        try:
            data = self._files.read_file(self._path)
        except FileNotFoundError:
            return
        self.exists = True
        data = data[:SIZE_BYTES].ljust(SIZE_BYTES, b"\0")
        self.log_ms, self.queues_ms, self.index_ms = _TIMES.unpack_from(data)
        magic, log_end, digest = _NOTE.unpack_from(data, _NOTE_AT)
        if magic == _MAGIC and crc32(data[:_CRC_AT]) == int.from_bytes(data[_CRC_AT : _CRC_AT + 4], "big"):
            self.note = CleanNote(log_end, digest)
        magic, safe_offset, safe_index_offset, safe_ends, safe_begin, safe_entries = _SAFE.unpack_from(data, _SAFE_AT)
        if magic == _SAFE_MAGIC and _is_intact(data, _SAFE_AT, _SAFE_CRC_AT):
            self.safe_offset = safe_offset
            self.safe_index_offset = safe_index_offset
            self.safe_ends = safe_ends
            self.safe_begin = safe_begin
            self.safe_entries = safe_entries
        magic, synced_offset = _SYNCED.unpack_from(data, _SYNCED_AT)
        if magic == _SYNCED_MAGIC and _is_intact(data, _SYNCED_AT, _SYNCED_CRC_AT):
            self.synced_offset = synced_offset

    @property
    def safe_ms(self) -> int:
        """The store time up to which messages are on disk in the log and in the consume queues."""
        return max(0, min(self.log_ms, self.queues_ms) - SAFETY_MS)

    def lower(self, store_timestamp: int, log_end: int) -> None:
        """Limit timestamps and the synced offset after the log was truncated at `log_end`, behind the message stored
        at `store_timestamp`: nothing newer counts as being on disk."""
        self.synced_offset = min(self.synced_offset, log_end)
        self.log_ms = min(self.log_ms, store_timestamp)
        self.queues_ms = min(self.queues_ms, store_timestamp)
        self.index_ms = min(self.index_ms, store_timestamp)

    def forget_offsets(self) -> None:
        """Remove the second note from memory and from the file; the timestamps stay. Raises OSError."""
        if self.safe_offset or self.safe_index_offset:
            self.safe_offset = self.safe_index_offset = self.safe_ends = 0
            self.safe_entries = -1
            self.save()

    def save(self, note: CleanNote | None = None) -> None:
        """Write the file and sync it. Without `note`, the file has no clean note. Raises OSError."""
        data = bytearray(SIZE_BYTES)
        _TIMES.pack_into(data, 0, self.log_ms, self.queues_ms, self.index_ms)
        if note is not None:
            _NOTE.pack_into(data, _NOTE_AT, _MAGIC, note.log_end, note.digest)
            data[_CRC_AT : _CRC_AT + 4] = crc32(data[:_CRC_AT]).to_bytes(4, "big")
        offsets = (self.safe_offset, self.safe_index_offset, self.safe_ends, self.safe_begin, self.safe_entries)
        _SAFE.pack_into(data, _SAFE_AT, _SAFE_MAGIC, *offsets)
        _seal(data, _SAFE_AT, _SAFE_CRC_AT)
        if self.synced_offset >= 0:
            _SYNCED.pack_into(data, _SYNCED_AT, _SYNCED_MAGIC, self.synced_offset)
            _seal(data, _SYNCED_AT, _SYNCED_CRC_AT)
        self.note = note
        fd = self._files.create(self._path, SIZE_BYTES)
        try:
            self._files.pwrite(fd, data, 0)
            self._files.datasync(fd)
        finally:
            self._files.close(fd)
        if not self.exists:
            self._files.sync_directory(self._path.rpartition("/")[0])
            self.exists = True


def _seal(data: bytearray, begin: int, crc_at: int) -> None:
    data[crc_at : crc_at + 4] = _crc_with_times(data, begin, crc_at).to_bytes(4, "big")


def _is_intact(data: bytes, begin: int, crc_at: int) -> bool:
    return int.from_bytes(data[crc_at : crc_at + 4], "big") == _crc_with_times(data, begin, crc_at)


def _crc_with_times(data: bytes | bytearray, begin: int, end: int) -> int:
    """Return the CRC-32 of [begin, end) behind the three timestamps: a note is void when another broker wrote those."""
    return crc32(data[begin:end], crc32(data[: _TIMES.size]))
