"""A store directory read from outside: segments of the commit log and entries of consume queues.

Nothing is written or locked; the directory may be closed, a copy, or in use by a running broker. A file that a broker
is writing shows its used part, followed by zeros or by half a record. Readers of the last used segment therefore stop
at the first bytes that are not a whole record with a valid CRC. In earlier segments such bytes are damage.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from triomq.protocol.java_properties import parse as parse_java_properties
from triomq.protocol.record import BLANK_MAGIC, FIXED_BYTES, MESSAGE_MAGIC
from triomq.spark.errors import StoreDamaged

ENTRY_BYTES: Final = 20
ENTRY: Final = struct.Struct(">qiq")
FILLER_SIZE: Final = 0x7FFFFFFF
RECOVERED_FILES: Final = 3
CHECKPOINT_GRACE_MS: Final = 3000
_NAME_DIGITS: Final = 20
_HEAD = struct.Struct(">iii")
_WORD = struct.Struct(">i")
_LONG = struct.Struct(">q")
_TWO_LONGS = struct.Struct(">qq")


@dataclass(frozen=True, slots=True)
class Segment:
    """One file of a sequence. `start`: its name, which is the offset of its first byte."""

    path: str
    start: int
    size_bytes: int

    @property
    def end(self) -> int:
        return self.start + self.size_bytes


def segments(directories: tuple[str, ...]) -> list[Segment]:
    """Return the files whose names have 20 digits, ordered by offset."""
    found = []
    for directory in directories:
        if not Path(directory).is_dir():
            continue
        with os.scandir(directory) as entries:
            for entry in entries:
                if (
                    len(entry.name) == _NAME_DIGITS
                    and entry.name.isascii()
                    and entry.name.isdigit()
                    and entry.is_file()
                ):
                    found.append(Segment(entry.path, int(entry.name), entry.stat().st_size))
    return sorted(found, key=lambda segment: segment.start)


def no_log(root: str, commit_logs: tuple[str, ...]) -> str:
    """Return the error for a store without a log: `triomq dev --store DIR` keeps its store in DIR/store."""
    inner = Path(root) / "store"
    hint = f"; did you mean {inner}?" if (inner / "commitlog").is_dir() else ""
    return f"option path: no commit log files in {', '.join(commit_logs)}{hint}"


def queue_directories(root: str) -> Iterator[tuple[str, int, str]]:
    """(topic, queue id, directory) of every consume queue, sorted."""
    base = Path(root) / "consumequeue"
    if not base.is_dir():
        return
    for topic in sorted(path for path in base.iterdir() if path.is_dir()):
        for queue in sorted((path for path in topic.iterdir() if path.name.isdigit()), key=lambda path: int(path.name)):
            yield topic.name, int(queue.name), str(queue)


class MappedSegment:
    """A segment's bytes, read-only. Use as a context manager."""

    __slots__ = ("_mapping", "segment")

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self._mapping: Any = b""
        if segment.size_bytes:
            with Path(segment.path).open("rb") as file:
                self._mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def __enter__(self) -> Any:
        return self._mapping

    def __exit__(self, *exception: object) -> None:
        if self._mapping:
            self._mapping.close()


def map_at(log: list[Segment], physical_offset: int) -> tuple[Segment, Any] | None:
    """Map the segment that holds an offset; the mapping closes when nothing uses it any more."""
    for segment in log:
        if segment.start <= physical_offset < segment.end:
            return segment, MappedSegment(segment).__enter__()
    return None


def configuration_of(root: str) -> dict[str, str]:
    """Return the settings in a broker.conf in the store directory or next to it; none without one."""
    for path in (Path(root) / "broker.conf", Path(root).parent / "broker.conf"):
        if path.is_file():
            return dict(parse_java_properties(path.read_text("utf-8", "replace")))
    return {}


def next_record(data: Any, at: int, end: int) -> int:
    """Return the size of the record at `at`: 0 where the used part ends (zeros or a blank record), -1 for bytes that
    are not a record. Checks only the lengths."""
    if end - at < 8:
        return 0
    size = _WORD.unpack_from(data, at)[0]
    magic = _WORD.unpack_from(data, at + 4)[0]
    if magic == MESSAGE_MAGIC:
        return size if FIXED_BYTES <= size <= end - at and has_good_lengths(data, at, size) else -1
    if magic == BLANK_MAGIC or (size == 0 and magic == 0):
        return 0
    return -1


def is_blank(data: Any, at: int, end: int) -> bool:
    """Return whether there is a blank record, after which the log continues in the next segment."""
    magic: int = _WORD.unpack_from(data, at + 4)[0] if end - at >= 8 else 0
    return magic == BLANK_MAGIC


def has_good_lengths(data: Any, at: int, size: int) -> bool:
    """Return whether the lengths of body, topic and properties add up to the record's size."""
    body_at = at + 88 + host_bytes(data, at)
    end = at + size
    if body_at > end:
        return False
    body_length: int = _WORD.unpack_from(data, body_at - 4)[0]
    topic_at = body_at + body_length
    if body_length < 0 or topic_at + 3 > end:
        return False
    topic_length: int = data[topic_at]
    properties_at = topic_at + 1 + topic_length + 2
    if properties_at > end:
        return False
    length: int = data[properties_at - 2] << 8 | data[properties_at - 1]
    return end - properties_at == length


def host_bytes(data: Any, at: int) -> int:
    """Bytes that IPv6 hosts add to the fixed fields: 0, 12 or 24."""
    flags = data[at + 39]
    return (12 if flags & 0x10 else 0) + (12 if flags & 0x20 else 0)


def has_good_crc(data: Any, at: int) -> bool:
    body_at = at + 88 + host_bytes(data, at)
    length: int = _WORD.unpack_from(data, body_at - 4)[0]
    expected: int = _WORD.unpack_from(data, at + 8)[0]
    return length == 0 or crc32(data[body_at : body_at + length]) & 0x7FFFFFFF == expected


def store_timestamp(data: Any, at: int) -> int:
    """STORETIMESTAMP of a record, ms."""
    time: int = _LONG.unpack_from(data, at + (68 if data[at + 39] & 0x10 else 56))[0]
    return time


def good_end(segment: Segment) -> tuple[int, bool]:
    """Return the physical offset behind the last valid record (CRC included) of a segment, and whether a blank record
    follows."""
    with MappedSegment(segment) as data:
        at = 0
        end = segment.size_bytes
        while (size := next_record(data, at, end)) > 0 and has_good_crc(data, at):
            at += size
        return segment.start + at, size == 0 and is_blank(data, at, end)


def used_segments(found: list[Segment]) -> list[Segment]:
    """Return the segments without the empty ones at the end, which brokers allocate ahead."""
    used = list(found)
    while used and not _is_used(used[-1]):
        used.pop()
    return used


def _is_used(segment: Segment) -> bool:
    if segment.size_bytes < 8:
        return False
    with Path(segment.path).open("rb") as file:
        return file.read(8) != bytes(8)


def recovered_end(root: str, found: list[Segment]) -> int:
    """Return the physical offset where the log ends after RocketMQ's own recovery of this directory.

    That is at the first bytes that are not a valid record, counted from the file where recovery starts. Raises
    StoreDamaged for files that a broker refuses."""
    if not found:
        return 0
    size = found[0].size_bytes
    for segment in found:
        if segment.size_bytes != size:
            raise StoreDamaged(
                f"{segment.path}: {segment.size_bytes} bytes, while {found[0].path} has {size}: a broker refuses to "
                "start on this directory; read it with logEnd=readable"
            )
    first = _first_recovered(root, found)
    end = found[first].start
    for segment in found[first:]:  # like RocketMQ, this does not notice a missing file between two others
        end, is_full = good_end(segment)
        if not is_full:
            break
    return end


def _first_recovered(root: str, found: list[Segment]) -> int:
    if not (Path(root) / "abort").exists():
        return max(len(found) - RECOVERED_FILES, 0)
    safe_ms = _checkpoint_ms(root)
    for index in range(len(found) - 1, -1, -1):
        with MappedSegment(found[index]) as data:
            if next_record(data, 0, found[index].size_bytes) > 0 and 0 < store_timestamp(data, 0) <= safe_ms:
                return index
    return 0


def _checkpoint_ms(root: str) -> int:
    """Store time in ms up to which everything is known to be on disk (the checkpoint's "min timestamp")."""
    path = Path(root) / "checkpoint"
    if not path.exists() or path.stat().st_size < 16:
        return 0
    log_ms, queues_ms = _TWO_LONGS.unpack_from(path.read_bytes(), 0)
    safe_ms: int = min(log_ms, queues_ms) - CHECKPOINT_GRACE_MS
    return max(safe_ms, 0)


class QueueFiles:
    """The entries of one consume queue. Use as a context manager."""

    def __init__(self, directory: str) -> None:
        self.files = segments((directory,))
        self._maps = [MappedSegment(file) for file in self.files]
        self._data = [mapped.__enter__() for mapped in self._maps]

    def __enter__(self) -> QueueFiles:
        return self

    def __exit__(self, *exception: object) -> None:
        for mapped in self._maps:
            mapped.__exit__()

    @property
    def first(self) -> int:
        """Queue offset of the first entry of the first file."""
        return self.files[0].start // ENTRY_BYTES if self.files else 0

    def end(self) -> int:
        """Queue offset behind the last valid entry (offset >= 0, size > 0) of the last three files."""
        end = self.first
        for file, data in list(zip(self.files, self._data, strict=True))[-RECOVERED_FILES:]:
            used = 0
            for physical_offset, size, _ in ENTRY.iter_unpack(data[: file.size_bytes - file.size_bytes % ENTRY_BYTES]):
                if physical_offset < 0 or size <= 0:
                    break
                used += ENTRY_BYTES
            end = (file.start + used) // ENTRY_BYTES
            if used < file.size_bytes:
                break
        return end

    def entries(self, begin: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield (queue offset, physical offset, size, tags code) for the offsets in [begin, end) that the files
        hold."""
        for file, data in zip(self.files, self._data, strict=True):
            low = max(begin * ENTRY_BYTES, file.start)
            high = min(end * ENTRY_BYTES, file.end - file.size_bytes % ENTRY_BYTES)
            if low < high:
                queue_offset = low // ENTRY_BYTES
                for entry in ENTRY.iter_unpack(data[low - file.start : high - file.start]):
                    yield queue_offset, *entry
                    queue_offset += 1
