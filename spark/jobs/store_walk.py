"""Walking a store directory piece by piece, as the jobs `audit` and `rebuild` do inside Spark tasks.

Each piece (a log segment, a consume queue, an index file) becomes rows of plain values; findings are rows as well.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from triomq.protocol import properties, sys_flag
from triomq.protocol import property_names as names
from triomq.protocol.java import cached_string_hash
from triomq.protocol.message_to_store import Place
from triomq.protocol.record import MESSAGE_MAGIC_BYTES, read_fields
from triomq.protocol.system_topics import SCHEDULE_TOPIC
from triomq.spark.store_files import (
    FILLER_SIZE,
    MappedSegment,
    QueueFiles,
    Segment,
    has_good_crc,
    is_blank,
    next_record,
)
from triomq.store.delay import DelayLevels
from triomq.store.queues.index_file import ENTRY_BYTES as INDEX_ENTRY_BYTES
from triomq.store.queues.index_file import HEADER_BYTES, SLOT_BYTES, key_hash

EXT_ADDRESS_MAX: Final = -2147483649
"""A tags code up to this is the address of a ConsumeQueueExt unit."""

_INDEX_HEADER = struct.Struct(">qqqqii")
_INDEX_ENTRY = struct.Struct(">iqii")


class Finding(NamedTuple):
    """Something that is wrong. `area`: log, queue or index. `kind`: what it is counted as. `place`: where. `text`: one
    sentence."""

    area: str
    kind: str
    place: str
    text: str


class LogRecord(NamedTuple):
    """The facts of a record with which the other files must agree."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size_bytes: int
    tags_code: int
    sys_flag: int
    store_timestamp: int
    uniq_key: str | None
    keys: str | None

    @property
    def is_queued(self) -> bool:
        """Whether it is in a consume queue: prepared and rolled back messages are not."""
        return not self.sys_flag & sys_flag.TRANSACTION_PREPARED

    @property
    def place(self) -> Place:
        return Place(
            physical_offset=self.physical_offset,
            queue_offset=self.queue_offset,
            store_timestamp=self.store_timestamp,
            size_bytes=self.size_bytes,
        )

    @property
    def key_hashes(self) -> list[int]:
        """Return the key hashes of its index entries."""
        if self.sys_flag & sys_flag.TRANSACTION_MASK == sys_flag.TRANSACTION_ROLLBACK:
            return []
        keys = [self.uniq_key] if self.uniq_key else []
        keys += [key for key in (self.keys or "").split(" ") if key]
        return [key_hash(self.topic, key) for key in keys]


class SegmentWalk:
    """One pass over a segment. When `records` is exhausted, `end` is where the valid records end (relative), `blank`
    whether a blank record fills the rest, and `findings` what is wrong."""

    def __init__(self, segment: Segment, delays: DelayLevels, *, is_last: bool) -> None:
        self._segment = segment
        self._delays = delays
        self._is_last = is_last
        self.findings: list[Finding] = []
        self.end = 0
        self.has_blank = False

    def records(self) -> Iterator[LogRecord]:
        segment = self._segment
        with MappedSegment(segment) as data:
            at = 0
            size_bytes = segment.size_bytes
            last_ms = 0
            while True:
                size = next_record(data, at, size_bytes)
                if size <= 0:
                    resumed = self._after_bad(data, at, size)
                    if resumed is None:
                        break
                    at = resumed
                    continue
                if not has_good_crc(data, at):
                    if self._is_last and _is_zero(data, at + size, size_bytes):
                        break  # written in part when the broker was killed, or being written right now
                    self._find("body CRC", at, "the body does not match its CRC")
                record = self._record(data, at, size)
                if record.store_timestamp < last_ms:
                    self._find("store time", at, f"stored at {record.store_timestamp}, before its predecessor")
                last_ms = record.store_timestamp
                yield record
                at += size
                self.end = at

    def _after_bad(self, data: Any, at: int, size: int) -> int | None:
        """Return where to continue after bytes that are not a record; None at the end of the used part."""
        size_bytes = self._segment.size_bytes
        if size == 0 and is_blank(data, at, size_bytes):
            self.has_blank = True
            return None
        if size == 0 and (self._is_last or at + 8 >= size_bytes) and _is_zero(data, at, size_bytes):
            return None
        resumed = _next_magic(data, at + 1, size_bytes)
        if resumed is None and self._is_last:
            if not _is_zero(data, at, size_bytes):
                self._find("torn tail", at, "the log ends with bytes that are not a whole record")
            return None
        skipped = (size_bytes if resumed is None else resumed) - at
        self._find("no record", at, f"{skipped} bytes are not a record")
        return resumed

    def _find(self, kind: str, at: int, text: str) -> None:
        self.findings.append(Finding("log", kind, f"physical offset {self._segment.start + at}", text))

    def _record(self, data: Any, at: int, size: int) -> LogRecord:
        fields = read_fields(data[at : at + size], 0, size)
        if fields.physical_offset != self._segment.start + at:
            self._find("physical offset", at, f"the record says it is at {fields.physical_offset}")
        topic = fields.topic.decode("utf-8", "replace")
        table = properties.parse_bytes(fields.properties)
        return LogRecord(
            topic,
            fields.queue_id,
            fields.queue_offset,
            self._segment.start + at,
            size,
            self._tags_code(topic, table, fields.store_timestamp),
            fields.sys_flag,
            fields.store_timestamp,
            table.get(names.UNIQ_KEY),
            table.get(names.KEYS),
        )

    def _tags_code(self, topic: str, table: dict[str, str], store_timestamp: int) -> int:
        level = table.get(names.DELAY, "")
        if topic == SCHEDULE_TOPIC and level.isdigit() and int(level) > 0:
            return self._delays.deliver_at(int(level), store_timestamp)
        tags = table.get(names.TAGS)
        return cached_string_hash(tags) if tags else 0


def _is_zero(data: Any, begin: int, end: int) -> bool:
    """Return whether the first megabyte there is all zeros."""
    piece = data[begin : min(end, begin + (1 << 20))]
    return not piece.strip(b"\0")


def _next_magic(data: Any, begin: int, end: int) -> int | None:
    """Return the start of the next whole record at or after `begin`."""
    found = data.find(MESSAGE_MAGIC_BYTES, begin + 4, end)
    while found >= 0:
        if next_record(data, found - 4, end) > 0:
            return int(found - 4)
        found = data.find(MESSAGE_MAGIC_BYTES, found + 1, end)
    return None


class QueueEntry(NamedTuple):
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size_bytes: int
    tags_code: int


def queue_entries(topic: str, queue_id: int, directory: str, findings: list[Finding]) -> Iterator[QueueEntry]:
    """Yield the entries of one consume queue without fillers. Adds to `findings` what is wrong in the files alone."""
    place = f"{topic}/{queue_id}"
    with QueueFiles(directory) as files:
        sizes = {file.size_bytes for file in files.files}
        if len(sizes) > 1:
            findings.append(Finding("queue", "file size", place, f"files of different sizes: {sorted(sizes)}"))
        for before, after in pairwise(files.files):
            if before.end != after.start:
                findings.append(
                    Finding("queue", "missing file", place, f"no file between {before.end} and {after.start}")
                )
        highest = -1
        for queue_offset, physical, size, tags_code in files.entries(files.first, files.end()):
            if size == FILLER_SIZE:
                continue
            if size <= 0 or physical < 0:
                findings.append(Finding("queue", "empty entry", place, f"queue offset {queue_offset} is empty"))
                continue
            if physical <= highest:
                what = "duplicate" if physical == highest else "order"
                findings.append(
                    Finding(
                        "queue", what, place, f"queue offset {queue_offset} points back to physical offset {physical}"
                    )
                )
            highest = max(highest, physical)
            yield QueueEntry(topic, queue_id, queue_offset, physical, size, tags_code)


class IndexEntry(NamedTuple):
    file: str
    key_hash: int
    physical_offset: int
    is_reachable: bool


def index_entries(path: str, slot_count: int | None, findings: list[Finding]) -> Iterator[IndexEntry]:
    """Yield the entries of one index file. `is_reachable`: whether the chain of its slot reaches the entry. Without
    `slot_count` (maxHashSlotNum) a file has four entries per slot, as with RocketMQ's default settings."""
    name = Path(path).name
    size_bytes = Path(path).stat().st_size
    slots_count = slot_count or (size_bytes - HEADER_BYTES) // (SLOT_BYTES + 4 * INDEX_ENTRY_BYTES)
    entries_at = HEADER_BYTES + slots_count * SLOT_BYTES
    limit, rest = divmod(size_bytes - entries_at, INDEX_ENTRY_BYTES)
    if limit < 1 or rest:
        findings.append(Finding("index", "file size", name, f"{size_bytes} bytes do not fit {slots_count} slots"))
        return
    with MappedSegment(Segment(path, 0, size_bytes)) as data:
        begin_ms, end_ms, begin_offset, end_offset, slots_used, count = _INDEX_HEADER.unpack_from(data, 0)
        if not 1 <= count <= limit:
            findings.append(Finding("index", "header", name, f"says {count} entries, has room for {limit}"))
            count = max(min(count, limit), 1)
        slots = array("i", data[HEADER_BYTES:entries_at])
        if sys.byteorder == "little":
            slots.byteswap()
        reached = _reachable(data, entries_at, slots, count)
        used = sum(1 for slot in slots if 0 < slot < count)
        if used != slots_used:
            findings.append(Finding("index", "header", name, f"says {slots_used} used slots, has {used}"))
        for number in range(1, count):
            code, physical, seconds, _ = _INDEX_ENTRY.unpack_from(data, entries_at + number * INDEX_ENTRY_BYTES)
            if seconds < 0 or begin_ms + seconds * 1000 > end_ms + 1000:
                findings.append(Finding("index", "time", name, f"entry {number} is {seconds} s after the file's begin"))
            if not begin_offset <= physical <= end_offset:
                findings.append(
                    Finding("index", "offset", name, f"entry {number} points to {physical}, outside its range")
                )
            yield IndexEntry(name, code, physical, bool(reached[number]))


def _reachable(data: Any, entries_at: int, slots: array[int], count: int) -> bytearray:
    reached = bytearray(count + 1)
    slots_count = len(slots)
    for slot, newest in enumerate(slots):
        number = newest
        while 0 < number < count and not reached[number]:
            code, _, _, previous = _INDEX_ENTRY.unpack_from(data, entries_at + number * INDEX_ENTRY_BYTES)
            if code % slots_count != slot:
                break
            reached[number] = 1
            number = previous if previous < number else 0
    return reached
