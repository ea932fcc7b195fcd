"""One index file: a hash table on disk from message keys to log offsets.

    header 40:   beginTimestamp 8 | endTimestamp 8 | beginPhyOffset 8 | endPhyOffset 8 | hashSlotCount 4 | indexCount 4
    slots:       int32 each: number of the newest entry of that slot, 0 = none
    entries 20:  key hash 4 | physical offset 8 | seconds since beginTimestamp 4 | previous entry of the slot 4

indexCount starts at 1 and entry 0 is never used; a file is full when indexCount reaches the number of entries.

Only the newest file is written. Its header and slots are kept in memory (slots in a private mapping), new entries in a
buffer. `write_out` writes entries, then changed slot pages, then the header. A killed process thus leaves at worst
slots that point beyond indexCount, which readers treat as empty.
"""

from __future__ import annotations

import mmap
import struct
import sys
from array import array
from functools import lru_cache
from typing import Final, TypeAlias

from triomq.protocol.java import string_hash
from triomq.protocol.speedups import accelerated
from triomq.store.disk.files import Files
from triomq.store.disk.mapped_file import MappedFile, OpenFiles

HEADER_BYTES: Final = 40
SLOT_BYTES: Final = 4
ENTRY_BYTES: Final = 20
PAGE_BYTES: Final = 4096
_REWIND_ENTRIES: Final = 65536

_HEADER: Final = struct.Struct(">qqqqii")
_ENTRY: Final = struct.Struct(">iqii")
_SLOT: Final = struct.Struct(">i")
_pack_entry: Final = _ENTRY.pack
_read_slot: Final = _SLOT.unpack_from
_write_slot: Final = _SLOT.pack_into


# The last characters of a client's message id change with each message, those before them only every 65 s.
_CHANGING_CHARACTERS: Final = 8


def key_hash_reference(topic: str, key: str) -> int:
    """Return the hash of "topic#key": the absolute Java hash code, or 0 for the code without an absolute value.

    The hash is computed from left to right. The hash of the topic and of all but the end of a long key is cached, which
    leaves a quarter of the work.
    """
    cut = len(key) - _CHANGING_CHARACTERS
    if cut <= _CHANGING_CHARACTERS:
        return _absolute(string_hash(key, _prefix_hash(topic, "")))
    return _absolute(string_hash(key[cut:], _prefix_hash(topic, key[:cut])))


key_hash: Final = accelerated(key_hash_reference)


@lru_cache(maxsize=8192)
def _prefix_hash(topic: str, key_start: str) -> int:
    return string_hash(f"{topic}#{key_start}")


def _absolute(code: int) -> int:
    return 0 if code == -0x80000000 else -code if code < 0 else code


def keys_of(uniq_key: str | None, keys: str | None) -> list[str]:
    """Return the index keys of one message: its UNIQ_KEY, and the parts of KEYS, which are separated by spaces."""
    found = [uniq_key] if uniq_key else []
    if keys:
        found += [key for key in keys.split(" ") if key]
    return found


IndexKeys: TypeAlias = tuple[str, str | None, str | None, int, int]
"""What the index takes of one message: topic, UNIQ_KEY, KEYS, physical offset and store time (ms). It has at least one
key."""
_OFFSET: Final = 3
_TIMESTAMP: Final = 4


PAGES_IN_A_PART: Final = 128
"""Changed pages that `write_part` writes; each write counts as a page more. It takes some hundred microseconds."""


def write_keys_reference(
    slots: mmap.mmap | bytearray,
    dirty_pages: bytearray,
    entries: bytearray,
    slot_count: int,
    number: int,
    entry_limit: int,
    begin_timestamp: int,
    messages: list[IndexKeys],
    start: int,
) -> tuple[int, int]:
    """Append an entry for each key of the messages from `start` on, numbered from `number` on, point its slot to it and
    mark the slot's page. Stop before the first message whose keys would not all have numbers below `entry_limit`.
    Return where that was in the list, and the number of slots that were empty; a slot that points to no entry counts as
    empty."""
    new_slots = 0
    for at in range(start, len(messages)):
        topic, uniq_key, keys, physical_offset, store_timestamp = messages[at]
        wanted = keys_of(uniq_key, keys)
        if len(wanted) > entry_limit - number:
            return at, new_slots
        seconds = 0
        if begin_timestamp > 0:
            seconds = min(max(0, store_timestamp - begin_timestamp) // 1000, 0x7FFFFFFF)
        for key in wanted:
            code = key_hash(topic, key)
            slot_at = HEADER_BYTES + code % slot_count * SLOT_BYTES
            previous: int = _read_slot(slots, slot_at)[0]
            if previous <= 0 or previous >= number:
                previous = 0
                new_slots += 1
            entries += _pack_entry(code, physical_offset, seconds, previous)
            _write_slot(slots, slot_at, number)
            dirty_pages[slot_at // PAGE_BYTES] = 1
            number += 1
    return max(start, len(messages)), new_slots


_write_keys: Final = accelerated(write_keys_reference)


class IndexFile:
    """One index file. Every file can be read; `put` requires `open_for_writing`."""

    __slots__ = (
        "_buffer",
        "_buffer_start",
        "_dirty_pages",
        "_slot_count",
        "_slots",
        "begin_physical_offset",
        "begin_timestamp",
        "end_physical_offset",
        "end_timestamp",
        "entry_limit",
        "file",
        "hash_slot_count",
        "index_count",
        "is_dirty",
    )

    def __init__(self, pool: OpenFiles, directory: str, name: str, slot_count: int, entry_limit: int) -> None:
        self.file = MappedFile(pool, directory, 0, file_size_bytes(slot_count, entry_limit), name)
        self._slot_count = slot_count
        self.entry_limit = entry_limit
        self.begin_timestamp = 0
        self.end_timestamp = 0
        self.begin_physical_offset = 0
        self.end_physical_offset = 0
        self.hash_slot_count = 0
        self.index_count = 1
        self.is_dirty = False
        self._slots: mmap.mmap | None = None
        self._dirty_pages = bytearray()
        self._buffer = bytearray()
        self._buffer_start = 1

    @property
    def name(self) -> str:
        return self.file.name

    @property
    def path(self) -> str:
        return self.file.path

    @property
    def is_full(self) -> bool:
        return self.index_count >= self.entry_limit

    @property
    def is_empty(self) -> bool:
        return self.index_count <= 1

    # -- life ------------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Read the header. Raises OSError."""
        header = _HEADER.unpack(self.file.pread(0, HEADER_BYTES))
        (
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_physical_offset,
            self.end_physical_offset,
            self.hash_slot_count,
            self.index_count,
        ) = header
        self.index_count = min(max(self.index_count, 1), self.entry_limit)
        self._buffer_start = self.index_count

    def create(self, predecessor: IndexFile | None) -> None:
        """Create the file; its timestamps and offsets start where those of the predecessor end. Raises OSError."""
        self.file.create()
        if predecessor is not None:
            self.begin_timestamp = self.end_timestamp = predecessor.end_timestamp
            self.begin_physical_offset = self.end_physical_offset = predecessor.end_physical_offset
        self.is_dirty = True

    def open_for_writing(self, files: Files) -> None:
        """Map the slots into memory; a second call does nothing."""
        if self._slots is not None:
            return
        slots_bytes = HEADER_BYTES + self._slot_count * SLOT_BYTES
        self._slots = files.map_private(self.file.fd(), slots_bytes)
        self._dirty_pages = bytearray((slots_bytes + PAGE_BYTES - 1) // PAGE_BYTES)

    def close(self) -> None:
        """Release memory and descriptor; reading opens the file again. Entries that were not written out are lost."""
        if self._slots is not None:
            self._slots.close()
            self._slots = None
            self._dirty_pages = bytearray()
        self.file.close()

    def delete(self) -> None:
        self.close()
        self.file.delete()

    # -- writing ---------------------------------------------------------------------------------------------------

    def put(self, messages: list[IndexKeys], start: int = 0) -> int:
        """Add an entry for each key of the messages from `start` on, in memory only. Return where in the list the first
        message is for whose keys the file has no room, the list's length if there is none."""
        slots = self._slots
        if slots is None:
            raise RuntimeError("the index file is not open for writing")
        is_first = self.index_count <= 1
        before = len(self._buffer)
        stop, new_slots = _write_keys(
            slots,
            self._dirty_pages,
            self._buffer,
            self._slot_count,
            self.index_count,
            self.entry_limit,
            messages[start][_TIMESTAMP] if is_first else self.begin_timestamp,
            messages,
            start,
        )
        if stop > start:
            last = messages[stop - 1]
            if is_first:
                self.begin_physical_offset = messages[start][_OFFSET]
                self.begin_timestamp = messages[start][_TIMESTAMP]
            self.hash_slot_count += new_slots
            self.index_count += (len(self._buffer) - before) // ENTRY_BYTES
            self.end_physical_offset = last[_OFFSET]
            self.end_timestamp = last[_TIMESTAMP]
            self.is_dirty = True
        return stop

    @property
    def buffered_bytes(self) -> int:
        return len(self._buffer)

    def write_out(self) -> None:
        """Write all changes. Raises OSError; the call may then be repeated."""
        page = 0
        while page >= 0:
            page = self.write_part(page)

    def write_part(self, page: int) -> int:
        """Write new entries, then some changed slot pages from this one on. Return the page of the next part, -1 behind
        the last. Raises OSError. A written slot points to a written entry, since each part begins with the entries. The
        header waits for the next time when slots changed behind the parts: slots lead to every entry that it counts."""
        if not self.is_dirty:
            return -1
        if self._buffer:
            self.file.write(self._buffer, self._entry_at(self._buffer_start))
            self._buffer = bytearray()
            self._buffer_start = self.index_count
        slots = self._slots
        flags = self._dirty_pages
        room = PAGES_IN_A_PART
        page = flags.find(1, page)
        while slots is not None and page >= 0:
            if room <= 0:
                return page
            last = flags.find(0, page, page + room)
            last = last if last >= 0 else min(len(flags), page + room)
            begin = max(page * PAGE_BYTES, HEADER_BYTES)
            self.file.write(slots[begin : last * PAGE_BYTES], begin)  # the last page may be a part of one
            flags[page:last] = bytes(last - page)
            room -= last - page + 1
            page = flags.find(1, last)
        if flags.find(1) < 0:
            self.file.write(self._header(), 0)
            self.is_dirty = False
        return -1

    def _header(self) -> bytes:
        return _HEADER.pack(
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_physical_offset,
            self.end_physical_offset,
            self.hash_slot_count,
            self.index_count,
        )

    # -- reading ---------------------------------------------------------------------------------------------------

    def find(self, code: int, begin_ms: int, end_ms: int, limit: int, found: list[int]) -> None:
        """Append to `found`, up to `limit` items, the newest log offsets whose second overlaps the times asked."""
        number = self._slot(code)
        while 0 < number < self.index_count and len(found) < limit:
            entry_hash, physical_offset, seconds, previous = self._entry(number)
            entry_ms = self.begin_timestamp + seconds * 1000
            if entry_hash == code and begin_ms < entry_ms + 1000 and entry_ms <= end_ms:
                found.append(physical_offset)
            if previous <= 0 or previous >= number or entry_ms + 1000 <= begin_ms:
                break
            number = previous

    def has(self, code: int, physical_offset: int) -> bool:
        """Return whether the file has this key of this message. The search stops at older messages' entries."""
        number = self._slot(code)
        while 0 < number < self.index_count:
            entry_hash, entry_offset, _, previous = self._entry(number)
            if entry_offset < physical_offset or previous >= number:
                return entry_hash == code and entry_offset == physical_offset
            if entry_hash == code and entry_offset == physical_offset:
                return True
            number = previous
        return False

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        return begin_ms <= self.end_timestamp and end_ms >= self.begin_timestamp

    def _slot(self, code: int) -> int:
        at = HEADER_BYTES + code % self._slot_count * SLOT_BYTES
        data = self._slots[at : at + SLOT_BYTES] if self._slots is not None else self.file.read(at, SLOT_BYTES)
        return int.from_bytes(data, "big", signed=True)

    def _entry(self, number: int) -> tuple[int, int, int, int]:
        if number >= self._buffer_start:
            at = (number - self._buffer_start) * ENTRY_BYTES
            entry: tuple[int, int, int, int] = _ENTRY.unpack_from(self._buffer, at)
            return entry
        return _ENTRY.unpack(self.file.read(self._entry_at(number), ENTRY_BYTES))

    def _entry_at(self, number: int) -> int:
        return HEADER_BYTES + self._slot_count * SLOT_BYTES + number * ENTRY_BYTES

    # -- repair ----------------------------------------------------------------------------------------------------

    def rewind(self, until_ms: int, physical_end: int) -> None:
        """After a crash, keep the entries of messages that were stored at least a second before `until_ms` and lie
        before `physical_end` in the log, and rebuild slots and header from them. Entries of one message are kept or
        removed together. Raises OSError."""
        slots = array("i", bytes(self._slot_count * 4))
        kept = 1  # number of the first entry to remove
        end_offset = self.begin_physical_offset
        end_seconds = 0
        message: list[tuple[int, int]] = []  # (slot, entry number) of the message that is being read
        message_offset, message_seconds = -1, 0
        number = 1
        is_good = True
        while is_good and number < self.index_count:
            count = min(_REWIND_ENTRIES, self.index_count - number)
            data = self.file.pread(self._entry_at(number), count * ENTRY_BYTES)
            for code, offset, seconds, _previous in _ENTRY.iter_unpack(data):
                if offset != message_offset:
                    if message:
                        for slot, entry_number in message:
                            slots[slot] = entry_number
                        message.clear()
                        kept = number
                        end_offset = message_offset
                        end_seconds = message_seconds
                    entry_ms = self.begin_timestamp + (seconds + 1) * 1000
                    is_good = entry_ms <= until_ms and message_offset < offset < physical_end and seconds >= 0
                    if not is_good:
                        break
                    message_offset, message_seconds = offset, seconds
                message.append((code % self._slot_count, number))
                number += 1
        if is_good and message:
            for slot, entry_number in message:
                slots[slot] = entry_number
            kept = number
            end_offset = message_offset
            end_seconds = message_seconds
        self.index_count = kept
        self.hash_slot_count = self._slot_count - slots.count(0)
        self.end_physical_offset = end_offset
        # Entries have seconds only; an end timestamp that is too early would hide messages from queries.
        self.end_timestamp = min(self.end_timestamp, self.begin_timestamp + end_seconds * 1000 + 999)
        self._buffer = bytearray()
        self._buffer_start = kept
        if sys.byteorder == "little":
            slots.byteswap()
        self.file.write(slots.tobytes(), HEADER_BYTES)
        self.file.write(self._header(), 0)
        self.is_dirty = False


def file_size_bytes(slot_count: int, entry_limit: int) -> int:
    return HEADER_BYTES + slot_count * SLOT_BYTES + entry_limit * ENTRY_BYTES
