"""How much of a store's log an archive holds, and the mark in the store directory that says so.

With archiveBeforeDelete a broker deletes what the mark covers, so the mark only moves over whole segments. It never
covers the last used segment (a crash may cut it, and a broker then writes other messages at the same offsets), a
segment with bytes that are not a record, or one whose bytes differ from those in the slices of the manifest, which
holds their CRC.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from zlib import crc32

from triomq.spark.store_files import MappedSegment, Segment, good_end
from triomq.store.config import StoreSettings
from triomq.store.disk.files import Files
from triomq.store.disk.layout import Layout
from triomq.store.upkeep.archive_mark import read_mark, write_mark

_PIECE_BYTES = 1 << 20

Slices = list[dict[str, Any]]


def checksum(segment: Segment, begin: int, end: int) -> int:
    """Return the CRC-32 of a segment's bytes between two physical offsets."""
    crc = 0
    with MappedSegment(segment) as data:
        for at in range(begin - segment.start, end - segment.start, _PIECE_BYTES):
            crc = crc32(data[at : min(at + _PIECE_BYTES, end - segment.start)], crc)
    return crc


def is_of(segment: Segment, entry: dict[str, Any]) -> bool:
    """Return whether a slice holds the present bytes of the segment."""
    begin, end = entry["from_physical"], entry["until_physical"]
    if begin < segment.start or end > segment.end:
        return False
    return bool(entry.get("crc32") == checksum(segment, begin, end))


def archived_until(slices: Slices, used: list[Segment], reached: int = 0) -> int:
    """Return the physical offset up to which whole segments are in the slices; a missing segment ends it. `used`: the
    log's used segments; `reached`: the offset up to which this is already known."""
    if not used:
        return reached
    reached = max(reached, used[0].start)
    for segment in used[:-1]:
        if segment.end <= reached:
            continue
        if segment.start > reached or not _is_archived(slices, segment):
            break
        reached = segment.end
    return reached


def _is_archived(slices: Slices, segment: Segment) -> bool:
    at = segment.start
    for entry in sorted(slices, key=lambda entry: int(entry["from_physical"])):
        if entry["from_physical"] == at and entry["until_physical"] > at and is_of(segment, entry):
            at = entry["until_physical"]
    if at == segment.start:
        return False
    until, has_blank = good_end(segment)
    return at == until and (has_blank or until == segment.end)


class ArchiveMark:
    """The mark of one store directory. It only moves forward, unless the existing one belongs to another log."""

    def __init__(self, root: str, used: list[Segment], archive: str) -> None:
        self._files = Files()
        self._path = Layout(StoreSettings(store_path_root_dir=root)).archive_mark
        self._used = used
        self._archive = archive
        try:
            found = read_mark(self._files, self._path)
        except ValueError:
            found = None
        self._written = found
        is_ours = found is not None and bool(used) and found <= used[-1].end
        self.until = found if is_ours and found is not None else 0

    def move(self, slices: Slices) -> None:
        """Write how far the archive is, after its files are on disk. Raises OSError."""
        self.until = archived_until(slices, self._used, self.until)
        if self.until == self._written:
            return
        local = self._archive.removeprefix("file://").removeprefix("file:")
        if Path(local).is_dir():
            self._files.sync_filesystem(local)  # a crash must never keep the mark and lose the messages
        write_mark(self._files, self._path, self.until, archive=self._archive, now_ms=time.time_ns() // 1_000_000)
        self._written = self.until
