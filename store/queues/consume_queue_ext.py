"""The ext file of one consume queue (ConsumeQueueExt, enableConsumeQueueExt): more than 8 bytes per message.

    unit:   size int16 (20 + bit map) | tags code int64 | store timestamp int64 | bit map length int16 | bit map

The address of a unit is its byte offset + Long.MIN_VALUE; the queue entry has it in place of the tags code. A unit
never crosses a file end: int16 -1 marks the end, and the unit goes to the next file. The ConsumeQueue owns its ext
file; units are buffered, and written before the entries that point to them.
"""

from __future__ import annotations

import struct

from triomq.store.disk.file_sequence import FileSequence
from triomq.store.disk.mapped_file import MappedFile, OpenFiles
from triomq.store.results import EXT_UNIT_FIXED_BYTES as FIXED_BYTES
from triomq.store.results import ExtUnit

END_RESERVE_BYTES = 4
MAX_UNIT_BYTES = 0x7FFF
_MIN_LONG = -0x8000000000000000
# Tags codes are 32-bit hashes or delivery times, so no tags code is this low, and every lower value is an address.
MAX_ADDRESS = -0x80000001

_UNIT = struct.Struct(">hqqh")
_END_MARK = b"\xff\xff"


class ConsumeQueueExt:
    __slots__ = ("_buffers", "end", "sequence", "synced_end", "written_end")

    def __init__(self, pool: OpenFiles, directory: str, file_size_bytes: int) -> None:
        self.sequence = FileSequence(pool, directory, file_size_bytes)
        self.end = 0
        self.written_end = 0
        self.synced_end = 0
        self._buffers: list[tuple[int, bytes]] = []

    @staticmethod
    def is_address(tags_code: int) -> bool:
        return tags_code <= MAX_ADDRESS

    def put(self, unit: ExtUnit) -> int:
        """Add a unit. Return its address, or the tags code if the unit is too large."""
        bit_map = unit.bit_map or b""
        size = FIXED_BYTES + len(bit_map)
        if size > MAX_UNIT_BYTES or size + END_RESERVE_BYTES > self.sequence.file_size_bytes:
            return unit.tags_code
        room = self.sequence.file_size_bytes - self.end % self.sequence.file_size_bytes
        if size + END_RESERVE_BYTES > room:
            self._buffers.append((self.end, _END_MARK))
            self.end += room
        at = self.end
        self._buffers.append((at, _UNIT.pack(size, unit.tags_code, unit.store_timestamp, len(bit_map)) + bit_map))
        self.end += size
        return at + _MIN_LONG

    def write(self, new_in: set[str]) -> None:
        """Write the buffered units; add the directory to `new_in` if a file is created. Raises OSError; the call may
        then be repeated."""
        while self._buffers:
            at, data = self._buffers[0]
            file = self.sequence.find(at)
            if file is None:
                file = self.sequence.make(at)
                new_in.add(self.sequence.directory)
            file.write(data, at - file.start)
            del self._buffers[0]
        self.written_end = self.end

    def read(self, address: int) -> ExtUnit | None:
        """Return the unit at this address, or None if there is none."""
        at = address - _MIN_LONG
        file = self.sequence.find(at)
        if file is None or at >= self.written_end:
            return None
        data = file.pread(at - file.start, FIXED_BYTES)
        if len(data) < FIXED_BYTES:
            return None
        size, tags_code, store_timestamp, map_length = _UNIT.unpack(data)
        if size != FIXED_BYTES + map_length or map_length < 0:
            return None
        bit_map = file.pread(at - file.start + FIXED_BYTES, map_length) if map_length else None
        return ExtUnit(tags_code, store_timestamp, bit_map)

    def load(self) -> None:
        for short in self.sequence.load(self.sequence.directory):
            short.extend()
        last = self.sequence.last
        self.end = self.written_end = last.end if last is not None else 0

    def truncate_after(self, last_address: int | None) -> None:
        """Remove everything after the unit at `last_address`, to which the queue's last entry points. None: remove all
        units."""
        if last_address is None:
            end = max(self.sequence.first_start, 0)
        else:
            self.written_end = max(self.end, last_address - _MIN_LONG + 1)
            unit = self.read(last_address)
            end = last_address - _MIN_LONG
            if unit is not None:
                end += FIXED_BYTES + len(unit.bit_map or b"")
        self.sequence.truncate(max(end, self.sequence.first_start + 1))
        self.end = self.written_end = end

    def drop_before(self, first_address: int) -> None:
        """Delete the files before the one with the unit at `first_address`, to which the queue's first entry points."""
        files = self.sequence.files
        while len(files) > 1 and files[0].end <= first_address - _MIN_LONG:
            self.sequence.drop_first()

    def unsynced_files(self) -> list[MappedFile]:
        """Return the files that may have been written since the previous call."""
        begin, self.synced_end = self.synced_end, self.written_end
        return [file for file in self.sequence.files if file.end > begin and file.start < self.written_end]

    def delete(self) -> None:
        self.sequence.delete_all()
        self._buffers = []
