"""Scanning the log record by record: check each record, and resume at the next valid one behind damage.

A record is valid if its magic, all its lengths, its own PHYSICALOFFSET and (on request) its body CRC fit. At an invalid
record, the scan searches for the next valid one: first in the rest of the file, then in the files that follow. A record
found by that search must not be older than the last valid one, since a log that was once truncated may still hold stale
records behind its end. If the search finds none, the log ends at the invalid record.

Damage is only passed in the part of the log that was synced. A power failure keeps any of the unsynced sectors and
loses others, so records may survive behind a hole that depend on a lost one. There, the log ends at the hole, and what
a start finds is a prefix of what was written (docs/internals/crash-safety.md).

The scan reads pieces of the files, not their mappings: it reads gigabytes once and must not keep them in the memory of
the process. Recovery spends most of its time in `next`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from zlib import crc32

from triomq.protocol import record
from triomq.protocol.errors import RecordError
from triomq.protocol.record import RecordFields
from triomq.store.disk.mapped_file import MappedFile
from triomq.store.log.scanned_record import HEAD_BYTES, ScannedRecord, scan_record, scanned
from triomq.store.log.store_log import END_MARGIN_BYTES, StoreLog

# The topic of the records that replace damaged ones.
LOST_TOPIC: Final = b"rmq_sys_TRIOMQ_LOST"
ALL_SYNCED: Final = 1 << 62
"""The synced offset of a log in which every damage is damage."""

_MESSAGE_MAGIC: Final = record.MESSAGE_MAGIC_BYTES
_PAGE_BYTES: Final = 4096
_SECTOR_BYTES: Final = 512
_SEARCH_BYTES: Final = 1 << 20
_PIECE_BYTES: Final = 1 << 20
# Bodies up to this size are copied for their CRC, which costs less than a view.
_COPY_BYTES: Final = 4096


class Damage:
    """A range [begin, end) of the log without a valid record that has valid records behind it. The first of those was
    stored at `next_timestamp` (ms)."""

    __slots__ = ("begin", "end", "next_timestamp", "reason")

    def __init__(self, begin: int, end: int, reason: str, next_timestamp: int) -> None:
        self.begin = begin
        self.end = end
        self.reason = reason
        self.next_timestamp = next_timestamp


class LogScan:
    """Call `next` until it returns None (or iterate over `records()`); then `end` is the end of the log, `damages` has
    the ranges that were skipped, and `has_tail` says whether there are whole records behind the end."""

    def __init__(
        self,
        log: StoreLog,
        start: int,
        *,
        check_crc: bool,
        stop: int | None = None,
        synced_offset: int = ALL_SYNCED,
        synced_ms: int = 0,
    ) -> None:
        """Scan from `start`, the offset of a record or of a file, up to `stop` or the end of the log. Positions of the
        scan are those of headers, where records have headers in front of them.

        The log was synced up to `synced_offset`, and so were the messages that were stored before `synced_ms`.
        """
        self._log = log
        start = log.scan_start(start)
        self._start = start
        self._stop = log.scan_stop
        if stop is not None and (self._stop < 0 or stop < self._stop):
            self._stop = stop
        self._check_crc = check_crc
        self._synced_offset = synced_offset
        self._synced_ms = synced_ms
        self._last_timestamp = 0
        self._resumed_timestamp = 0
        self._reason = ""
        self.damages: list[Damage] = []
        self.end = start
        self.end_reason = ""
        self.has_tail = False
        # The piece of `_file` that was read last, and its position in the file.
        self._data = b""
        self._data_at = 0
        file = self._first_file()
        self._file = file
        self._header_bytes = log.header_bytes_at(file.start) if file is not None else 0
        self._position = start - file.start if file is not None and start > file.start else 0

    def records(self) -> Iterator[ScannedRecord]:
        """Yield the valid records in log order."""
        found = self.next()
        while found is not None:
            yield found
            found = self.next()

    def next(self) -> ScannedRecord | None:
        """Return the next valid record in log order, or None at the end."""
        while True:
            file = self._file
            if file is None:
                return None
            position = self._position
            if position + END_MARGIN_BYTES <= file.size_bytes:
                if 0 <= self._stop <= file.start + position:
                    self.end = file.start + position
                    self._file = None
                    return None
                record_at = position + self._header_bytes
                found = self._good_record(file, record_at) if record_at < file.size_bytes else None
                if found is not None:
                    self._last_timestamp = found.store_timestamp
                    self._position = record_at + found.size_bytes
                    return found
                if not self._is_blank(file, position):
                    self._pass_damage(file, position)
                    continue
            self.end = file.end
            self._go_to(self._next_file(file), 0)

    @property
    def offset(self) -> int:
        """The log offset that the scan has reached."""
        return self._file.start + self._position if self._file is not None else self.end

    def _go_to(self, file: MappedFile | None, position: int) -> None:
        self._file = file
        self._header_bytes = self._log.header_bytes_at(file.start) if file is not None else 0
        self._position = position
        self._data = b""
        self._data_at = 0

    def _pass_damage(self, file: MappedFile, position: int) -> None:
        """Continue at the next valid record behind the invalid one at `position`, or end the scan there."""
        begin = file.start + position
        found = self._resume(file, position)
        if found is None:
            self._end_at(begin, self._reason)
            return
        resumed = found[0].start + found[1]
        if resumed <= self._synced_offset or self._resumed_timestamp < self._synced_ms:
            self._note_damage(file, begin, resumed)
            self._go_to(found[0], found[1])
            return
        # A hole in what was not synced. It may lie directly behind damage to the last records that were.
        end = max(begin, self._synced_offset)
        self._note_damage(file, begin, end)
        self._end_at(end, self._reason)
        self.has_tail = True

    def _end_at(self, offset: int, reason: str) -> None:
        self.end = offset
        self.end_reason = reason
        self._go_to(None, 0)

    def _next_file(self, file: MappedFile) -> MappedFile | None:
        """Return the file behind this one, or None at the end of the log: also if one between them is missing that was
        not synced."""
        following = self._log.sequence.after(file)
        if following is None or following.start == file.end or following.start <= self._synced_offset:
            return following
        self.has_tail = self._search(following, 0) >= 0
        if self.has_tail and self._resumed_timestamp < self._synced_ms:
            self.has_tail = False
            return following
        self.end_reason = "a file of the log is missing"
        return None

    def _first_file(self) -> MappedFile | None:
        file = self._log.sequence.find(self._start)
        if file is None:
            later = [file for file in self._log.sequence.files if file.start >= self._start]
            return later[0] if later else None
        return file

    def _note_damage(self, file: MappedFile, begin: int, end: int) -> None:
        """Note one damage per file, so that each can be overwritten separately."""
        reason = self._reason
        current: MappedFile | None = file
        while current is not None and begin < end:
            stop = min(end, current.end)
            if begin < stop:
                self.damages.append(Damage(begin, stop, reason, self._resumed_timestamp))
            current = self._log.sequence.after(current)
            if current is not None:
                begin = current.start

    def _good_record(self, file: MappedFile, position: int) -> ScannedRecord | None:
        """Return the record at this position of the file, or None if it is not valid; `_reason` then says why."""
        at = position - self._data_at
        found = scan_record(self._data, at, len(self._data))
        if found is None:
            # The record may be cut off by the end of the piece.
            self._read_piece(file, position)
            at = 0
            found = scan_record(self._data, 0, len(self._data))
            if found is None:
                return self._unusual_record(file, position)
        size, crc, queue_id, queue_offset, physical_offset, flags, time, body_length, topic, stored_properties = found
        if physical_offset != file.start + position:
            return self._unusual_record(file, position)
        if self._check_crc:
            end = position + size
            if 0 in topic:
                return self._unusual_record(file, position)
            if 0 in stored_properties and is_torn(stored_properties, end - len(stored_properties), end):
                return self._unusual_record(file, position)
            if body_length:
                body_at: int = at + HEAD_BYTES
                if body_length > _COPY_BYTES:
                    found_crc = crc32(memoryview(self._data)[body_at : body_at + body_length])
                else:
                    found_crc = crc32(self._data[body_at : body_at + body_length])
                if found_crc & 0x7FFFFFFF != crc:
                    return self._unusual_record(file, position)
        return ScannedRecord(
            physical_offset=physical_offset,
            size_bytes=size,
            queue_id=queue_id,
            queue_offset=queue_offset,
            sys_flags=flags,
            store_timestamp=time,
            topic=topic,
            stored_properties=stored_properties,
        )

    def _read_piece(self, file: MappedFile, position: int) -> None:
        """Read a piece from `position` on that has at least the whole record that appears to begin there."""
        self._data = file.pread(position, min(_PIECE_BYTES, file.size_bytes - position))
        self._data_at = position
        size = int.from_bytes(self._data[:4], "big")
        if len(self._data) < size <= file.size_bytes - position and self._data[4:8] == _MESSAGE_MAGIC:
            self._data = file.pread(position, size)

    def _unusual_record(self, file: MappedFile, position: int) -> ScannedRecord | None:
        """Return the record at this position, which may have IPv6 hosts, or None and set `_reason`."""
        view = memoryview(file.map())
        file.is_pinned = True
        try:
            fields = self._checked_fields(view, file, position)
            if fields is None:
                return None
            return scanned(fields, fields.physical_offset)
        finally:
            view.release()
            file.is_pinned = False

    def _is_blank(self, file: MappedFile, position: int) -> bool:
        return self._log.is_filler(file.pread(position, record.BLANK_BYTES), file.size_bytes - position)

    def _checked_fields(self, view: memoryview, file: MappedFile, position: int) -> RecordFields | None:
        try:
            fields = record.read_fields(view, position, file.size_bytes)
        except RecordError as error:
            self._reason = str(error)
            return None
        if fields.physical_offset != file.start + position:
            self._reason = f"the record states the physical offset {fields.physical_offset}"
            return None
        if self._check_crc and 0 in fields.topic:  # no topic's name has such a byte
            self._reason = "a part of the topic is zeros"
            return None
        if self._check_crc and 0 in fields.properties:
            end = position + fields.size_bytes
            if is_torn(fields.properties, end - len(fields.properties), end):
                self._reason = "a part of the properties is zeros"
                return None
        if self._check_crc and fields.body_length:
            body = view[fields.body_at : fields.body_at + fields.body_length]
            if record.body_crc(body) != fields.body_crc:
                self._reason = "the body does not match its CRC"
                return None
        return fields

    def _resume(self, file: MappedFile, position: int) -> tuple[MappedFile, int] | None:
        """Return the file and the position of the next valid record behind an invalid one, or None."""
        at = position + 1
        current: MappedFile | None = file
        reason = self._reason
        while current is not None:
            found = self._search(current, at)
            if found >= 0:
                self._reason = reason
                return current, max(0, found - self._log.header_bytes_at(current.start))
            current = self._log.sequence.after(current)
            at = 0
        self._reason = reason
        return None

    def _search(self, file: MappedFile, at: int) -> int:
        """Return the position of the next valid record in one file, or -1 if there is none. Holes are skipped."""
        view = memoryview(file.map())
        file.is_pinned = True
        try:
            while at + END_MARGIN_BYTES <= file.size_bytes:
                found = self._search_window(view, file, at, min(at + _SEARCH_BYTES, file.size_bytes))
                if found >= 0:
                    return found
                # windows overlap by size and magic, so that the search finds a magic at their border
                behind = min(at + _SEARCH_BYTES, file.size_bytes)
                if behind == file.size_bytes:
                    return -1
                at = max(behind - END_MARGIN_BYTES, at + 1)
                if not bytes(view[at : min(at + _PAGE_BYTES, file.size_bytes)]).strip(b"\0"):
                    data_at = file.next_data(at)
                    if data_at < 0:
                        return -1
                    at = max(at, data_at - END_MARGIN_BYTES)
            return -1
        finally:
            view.release()
            file.is_pinned = False

    def _search_window(self, view: memoryview, file: MappedFile, begin: int, end: int) -> int:
        window = bytes(view[begin:end])
        magic_at = window.find(_MESSAGE_MAGIC, 4)
        while magic_at >= 0:
            position = begin + magic_at - 4
            fields = self._checked_fields(view, file, position)
            if fields is not None and fields.store_timestamp >= self._last_timestamp:
                self._resumed_timestamp = fields.store_timestamp
                return position
            magic_at = window.find(_MESSAGE_MAGIC, magic_at + 1)
        return -1


def is_torn(data: bytes, begin: int, end: int) -> bool:
    """Return whether `data`, which lies at [begin, end) of its file, is all zeros within one disk sector.

    A power failure leaves zeros in a sector that was not written, and no checksum covers properties."""
    at = begin
    while at < end:
        stop = min(at - at % _SECTOR_BYTES + _SECTOR_BYTES, end)
        if not data[at - begin : stop - begin].strip(b"\0"):
            return True
        at = stop
    return False
