"""One consume queue: the positions in the log of the messages of one queue of a topic.

    entry n at byte n * 20:    physical offset 8 | record size 4 | tags code 8          unused space is zero

Holds the end of the queue, the entries that are not written yet, and its files. Its offsets, in entries:

    min_offset ... | end: written and readable | next_offset: given to the next message

`max_physical_end` is the log offset after the last message of the queue. Entries arrive in log order only. A store may
have ten thousand queues, so members that most queues do not need are created on demand.

A filler entry (0, 0x7FFFFFFF, 0) stands for a missing message: before the first entry of a queue that starts in the
middle of a file, where recovery found a message lost, and in a queue whose end is known although the log has none of
its messages.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import Final

from triomq.protocol.speedups import accelerated
from triomq.store.disk.file_sequence import FileSequence
from triomq.store.disk.files import PAGE_BYTES
from triomq.store.disk.mapped_file import MappedFile, OpenFiles
from triomq.store.queues.consume_queue_ext import ConsumeQueueExt
from triomq.store.queues.queue_note import Row
from triomq.store.watermark import Watermark

ENTRY_BYTES: Final = 20
ENTRY: Final = struct.Struct(">qiq")
_pack_entry: Final = ENTRY.pack
FILLER_SIZE_BYTES: Final = 0x7FFFFFFF
FILLER: Final = ENTRY.pack(0, FILLER_SIZE_BYTES, 0)
_NO_ENTRY: Final = bytes(ENTRY_BYTES)
_ZEROS: Final = bytes(PAGE_BYTES)
_CHUNK_BYTES: Final = 20 * 3276
_FIRST_CHUNK_BYTES: Final = 20 * 204
# The number of entries read at a time from the end backwards.
_CHUNK_ENTRIES: Final = 1000
# The number of entries read at a time in search of a real one.
_LOOK_ENTRIES: Final = 64
MAX_END: Final = 1 << 58
"""No queue can end behind it: the position of an entry would not fit 63 bits."""


def add_queue_entry_reference(buffer: bytearray, physical_offset: int, size_bytes: int, tags_code: int) -> None:
    """Append one entry to `buffer`."""
    buffer += _pack_entry(physical_offset, size_bytes, tags_code)


_add_queue_entry: Final = accelerated(add_queue_entry_reference)


class ConsumeQueue:
    __slots__ = (
        "_buffer",
        "_end_mark",
        "cuts",
        "end",
        "ext",
        "max_physical_end",
        "min_offset",
        "next_offset",
        "queue_id",
        "sequence",
        "synced_end",
        "topic",
        "topic_bytes",
        "was_cut_short",
    )

    def __init__(self, pool: OpenFiles, directory: str, file_size_bytes: int, topic: str, queue_id: int) -> None:
        self.topic = topic
        self.topic_bytes = topic.encode("utf-8", "replace")
        self.queue_id = queue_id
        self.sequence = FileSequence(pool, directory, file_size_bytes)
        self.ext: ConsumeQueueExt | None = None
        self.min_offset = 0
        self.end = 0
        self.synced_end = 0
        self.next_offset = 0
        self.max_physical_end = 0
        # How often entries that could be read were removed or replaced: what was read before may be void.
        self.cuts = 0
        # `load` found data after the end: an entry is damaged, or a file is missing.
        self.was_cut_short = False
        self._buffer: bytearray | None = None
        self._end_mark: Watermark | None = None

    # -- loading ---------------------------------------------------------------------------------------------------

    def load(self, last_files: int, log_min_offset: int) -> bool:
        """Load the files and find the end: the first entry of the last `last_files` files that is not valid (offset
        >= 0, size > 0). Later files are removed. Return True if `min_offset` is already what `correct_min_offset` would
        set for a log that begins at `log_min_offset`."""
        if self.ext is not None:
            self.ext.load()
        for short in self.sequence.load(self.sequence.directory):
            short.extend()
        if not self.sequence.files:
            return True
        if len(self.sequence.files) == 1 and self.ext is None:
            first = self._load_page(self.sequence.files[0])
            if first is not None:
                return _is_real(first) and first[0] >= log_min_offset
        self._load_files(last_files)
        return False

    def load_noted(self, row: Row, before_ns: int) -> bool:
        """Load the only file as a clean exit noted it, without reading it. Return False, and load nothing, if it or its
        directory was changed since, or at `before_ns` or later."""
        _, names_changed_ns, start, changed_ns, end, max_physical_end, min_offset = row
        if max(names_changed_ns, changed_ns) >= before_ns or self.ext is not None:
            return False
        if not self.sequence.load_one(start, names_changed_ns, changed_ns):
            return False
        self.end = self.next_offset = end
        self.max_physical_end = max_physical_end
        self.min_offset = min_offset
        return True

    def row(self) -> Row | None:
        """Return what `load_noted` needs, or None if the queue must be read."""
        if len(self.sequence.files) != 1 or not self.end or self.buffered_count or self.ext is not None:
            return None
        times = self.sequence.times_of_one()
        if times is None:
            return None
        start = self.sequence.first_start
        return self.queue_id, times[0], start, times[1], self.end, self.max_physical_end, self.min_offset

    def _load_page(self, file: MappedFile) -> tuple[int, int, int] | None:
        """Find the end if the only file has valid entries in its first page and nothing else, as most of many queues
        have: one read tells all. Return the first entry, or None if it is not so, and nothing is set then."""
        page = file.only_page()
        # No valid entry is zeros: behind these there is no more in most queues, so the rest need not be searched.
        used = -(-page.find(_NO_ENTRY) // ENTRY_BYTES) * ENTRY_BYTES
        if used <= 0 or good_entries(page[:used]) * ENTRY_BYTES != used or page[used:] != _ZEROS[: len(page) - used]:
            return None
        last: tuple[int, int, int] = ENTRY.unpack_from(page, used - ENTRY_BYTES)
        if last[1] == FILLER_SIZE_BYTES:
            return None
        self.min_offset = self.first_in_files
        self.end = self.next_offset = self.min_offset + used // ENTRY_BYTES
        self.max_physical_end = last[0] + last[1]
        first: tuple[int, int, int] = ENTRY.unpack_from(page)
        return first

    def _load_files(self, last_files: int) -> None:
        """Find the end in files of any content, see `load`."""
        self._cut_at_gap()
        files = self.sequence.files
        end_bytes = files[0].start
        for file in files[-last_files:]:
            used = _used_bytes(file)
            end_bytes = file.start + used
            if used < file.size_bytes:
                self.was_cut_short |= file.has_data_from(used, unsure=False)
                break
        self.was_cut_short |= end_bytes <= files[-1].start and bool(files[-1].pread(0, ENTRY_BYTES).strip(b"\0"))
        self.cut(end_bytes // ENTRY_BYTES)
        self.min_offset = self.first_in_files

    def _cut_at_gap(self) -> None:
        """If a file is missing, remove all files after it, so that recovery rebuilds the gap and them together."""
        files = self.sequence.files
        for earlier, later in pairwise(files):
            if earlier.end != later.start:
                self.sequence.truncate(earlier.end)
                self.was_cut_short = True
                return

    def peek(self) -> None:
        """Find the end without changing any file (for read-only access by another process). Short files are ignored."""
        short = self.sequence.load(self.sequence.directory)
        self.sequence.files = [file for file in self.sequence.files if file not in short]
        end_bytes = max(0, self.sequence.first_start)
        for file in self.sequence.files:
            used = _used_bytes(file)
            end_bytes = file.start + used
            if used < file.size_bytes:
                break
        self.end = self.next_offset = end_bytes // ENTRY_BYTES

    @property
    def first_in_files(self) -> int:
        """The queue offset of the first entry of the first file; 0 without files."""
        return self.sequence.first_start // ENTRY_BYTES if self.sequence.files else 0

    def cut(self, end: int) -> None:
        """Remove the entries from `end` on. The first file stays even if it becomes empty: its name keeps the next
        queue offset."""
        self.sequence.truncate(max(end * ENTRY_BYTES, self.sequence.first_start + 1))
        if end == self.first_in_files and self.sequence.files:
            self.sequence.files[0].clear_from(0)
        self._set_end(end)

    def _set_end(self, end: int) -> None:
        self.cuts += 1
        self.end = end
        self.next_offset = end
        self.synced_end = min(self.synced_end, end)
        self._find_physical_end()
        if self.ext is not None:
            self.ext.truncate_after(self._last_address())
        if self._end_mark is not None:
            self._end_mark.rewind(end)

    def _find_physical_end(self) -> None:
        """Set `max_physical_end` from the last real entry: fillers have no position in the log."""
        self.max_physical_end = 0
        stop, look = self.end, 1  # most queues end with a real entry
        while stop > self.first_in_files:
            begin = max(self._begin_in_file(stop), stop - look)
            entries: list[tuple[int, int, int]] = list(ENTRY.iter_unpack(self.entries(begin, stop - begin)))
            if not entries:
                break
            entries.reverse()
            for physical_offset, size, _tags_code in entries:
                if size != FILLER_SIZE_BYTES:
                    self.max_physical_end = physical_offset + size
                    return
            stop, look = begin, _CHUNK_ENTRIES

    def _begin_in_file(self, stop: int) -> int:
        """Return the queue offset of the first entry of the file that holds the entry before `stop`."""
        per_file = self.sequence.file_size_bytes // ENTRY_BYTES
        return max(self.first_in_files, stop - 1 - (stop - 1) % per_file)

    def _last_address(self) -> int | None:
        """Return the address of the last ext unit to which an entry points, or None."""
        stop = self.end
        while stop > self.first_in_files:
            begin = max(self._begin_in_file(stop), stop - _CHUNK_ENTRIES)
            entries: list[tuple[int, int, int]] = list(ENTRY.iter_unpack(self.entries(begin, stop - begin)))
            entries.reverse()
            for _offset, size, tags_code in entries:
                if size != FILLER_SIZE_BYTES and ConsumeQueueExt.is_address(tags_code):
                    return tags_code
            stop = begin
        return None

    # -- appending -------------------------------------------------------------------------------------------------

    def add(self, physical_offset: int, size_bytes: int, tags_code: int) -> bool:
        """Append one entry, which is readable after `write`. Return whether it is the first since the last `write`."""
        buffer = self._buffer
        is_first = not buffer
        if buffer is None:
            buffer = self._buffer = bytearray()
        _add_queue_entry(buffer, physical_offset, size_bytes, tags_code)
        self.max_physical_end = physical_offset + size_bytes
        return is_first

    def fill(self, until: int) -> None:
        """Append fillers for the queue offsets below `until`. An empty queue begins in the file that holds `until`."""
        begin = self.end + self.buffered_count
        if begin == 0 and not self.sequence.files:
            per_file = self.sequence.file_size_bytes // ENTRY_BYTES
            begin = self.end = until - until % per_file
            self.synced_end = begin
        count = until - begin
        if count > 0:
            if self._buffer is None:
                self._buffer = bytearray()
            self._buffer += FILLER * count
        self.next_offset = max(self.next_offset, until)

    def keep_end(self, end: int) -> None:
        """Append fillers up to `end`, which no message follows soon: in two steps, so that a file has at least one of
        them, which keeps the place."""
        self.fill(end - 1)
        self.fill(end)

    @property
    def buffered_count(self) -> int:
        return len(self._buffer) // ENTRY_BYTES if self._buffer else 0

    def write(self, new_in: set[str]) -> None:
        """Write the buffered entries; add the directory of a new file to `new_in`. Raises OSError: the entries stay
        buffered then, and the call may be repeated."""
        buffer = self._buffer
        if not buffer:
            return
        if self.ext is not None:
            self.ext.write(new_in)
        size = self.sequence.file_size_bytes
        at = self.end * ENTRY_BYTES
        done = 0
        while done < len(buffer):
            position = (at + done) % size
            step = min(size - position, len(buffer) - done)
            file = self.sequence.last
            if file is None or not file.start <= at + done < file.end:
                file = self.sequence.find(at + done)
                if file is None:
                    file = self.sequence.make(at + done)
                    new_in.add(self.sequence.directory)
            file.write(buffer if step == len(buffer) else buffer[done : done + step], position)
            done += step
        self._buffer = None
        self.end += len(buffer) // ENTRY_BYTES
        if self.next_offset < self.end:
            self.next_offset = self.end

    def publish(self) -> None:
        """Advance the queue's watermark to its end, which wakes its waiters."""
        if self._end_mark is not None:
            self._end_mark.advance(self.end)

    @property
    def end_mark(self) -> Watermark:
        """The queue's end as a watermark, created on first use."""
        if self._end_mark is None:
            self._end_mark = Watermark(self.end)
        return self._end_mark

    def drop_mark(self, error: Exception) -> None:
        """End every wait for this queue, which is being deleted, with `error`."""
        if self._end_mark is not None:
            self._end_mark.fail(error)

    # -- reading ---------------------------------------------------------------------------------------------------

    def entry(self, queue_offset: int) -> tuple[int, int, int] | None:
        """Return (physical offset, size, tags code), or None outside the queue."""
        data = self.entries(queue_offset, 1)
        return ENTRY.unpack(data) if data else None

    def entries(self, queue_offset: int, count: int) -> bytes:
        """Return packed entries from `queue_offset`, at most `count` and only of one file; b"" outside the queue."""
        count = min(count, self.end - queue_offset)
        if count <= 0 or queue_offset < 0:
            return b""
        at = queue_offset * ENTRY_BYTES
        file = self.sequence.find(at)
        if file is None:
            return b""
        at -= file.start
        return file.pread(at, min(count * ENTRY_BYTES, file.size_bytes - at))

    def next_file_offset(self, queue_offset: int) -> int:
        """Return the queue offset of the first entry of the next file (ConsumeQueue.rollNextFile)."""
        per_file = self.sequence.file_size_bytes // ENTRY_BYTES
        return queue_offset + per_file - queue_offset % per_file

    def first_at_or_beyond(self, physical_offset: int) -> int:
        """Return the queue offset of the first real entry whose message lies at or beyond this log offset, or `end`."""
        stop = self.end
        while True:
            found = self._search(physical_offset, stop)
            # A damaged entry may have misled the search. The entry before it shows that, and the search is repeated.
            before = self.entry(found - 2) if found - 2 >= self.first_in_files else None
            if before is None or not _is_real(before) or before[0] < physical_offset:
                return found
            stop = found - 1

    def _search(self, physical_offset: int, stop: int) -> int:
        low = self.first_in_files
        high = stop
        while low < high:
            middle = (low + high) // 2
            entry, at = self.real_entry(middle, high)
            if entry is None:
                high = middle
            elif entry[0] < physical_offset:
                low = at + 1
            else:
                high = middle
        while low < self.end:
            entry, at = self.real_entry(low, self.end)
            return at if entry is not None else self.end
        return low

    def real_entry(self, queue_offset: int, end: int) -> tuple[tuple[int, int, int] | None, int]:
        """Return the first real entry from `queue_offset` on and its queue offset, or (None, `end`)."""
        while queue_offset < end:
            data = self.entries(queue_offset, min(end - queue_offset, _LOOK_ENTRIES))
            if not data:
                queue_offset = self.next_file_offset(queue_offset)
                continue
            for entry in ENTRY.iter_unpack(data):
                if _is_real(entry):
                    return entry, queue_offset
                queue_offset += 1
        return None, end

    # -- removing --------------------------------------------------------------------------------------------------

    def truncate_beyond(self, physical_end: int) -> int:
        """Remove the entries of messages that end after `physical_end`. Return the number removed."""
        if self.max_physical_end <= physical_end:
            return 0
        before = self.end
        at = self.end
        while at > self.first_in_files:
            entry = self.entry(at - 1)
            if entry is None or entry[1] == FILLER_SIZE_BYTES or entry[0] + entry[1] <= physical_end:
                break
            at -= 1
        self.cut(at)
        self.min_offset = min(self.min_offset, self.end)
        return before - at

    def replace(self, queue_offset: int, entry: bytes) -> None:
        """Overwrite one entry (recovery)."""
        file = self.sequence.find(queue_offset * ENTRY_BYTES)
        if file is not None:
            self.cuts += 1
            file.write(entry, queue_offset * ENTRY_BYTES - file.start)
            self.synced_end = min(self.synced_end, queue_offset)
            if queue_offset == self.end - 1:
                self._find_physical_end()

    def correct_min_offset(self, log_min_offset: int) -> None:
        """Move `min_offset` to the first message that the log still has."""
        if not self.sequence.files:
            return
        at = self.first_in_files
        first = self.entry(at)
        if self.max_physical_end == 0:  # fillers only
            at = self.end
        elif first is None or not _is_real(first) or first[0] < log_min_offset:
            at = self.first_at_or_beyond(log_min_offset)
        self.min_offset = max(self.min_offset, at)

    def begin_anew(self) -> None:
        """Remove all entries, because the files before them are missing. The next entry may have any queue offset."""
        self.sequence.delete_all()
        self.min_offset = 0
        self._set_end(0)

    def clean_ext(self) -> None:
        """Delete the ext files before the first unit to which an entry still points."""
        entry = self.entry(self.min_offset)
        if self.ext is not None and entry is not None and self.ext.is_address(entry[2]):
            self.ext.drop_before(entry[2])

    def delete(self) -> None:
        self.cuts += 1
        self.sequence.delete_all()
        self._buffer = None
        if self.ext is not None:
            self.ext.delete()


def _is_real(entry: tuple[int, int, int]) -> bool:
    return entry[0] >= 0 and 0 < entry[1] != FILLER_SIZE_BYTES


def _used_bytes(file: MappedFile) -> int:
    """Return the number of bytes of valid entries at the start of a file."""
    at = 0
    step = _FIRST_CHUNK_BYTES  # most queues of many are short
    while at < file.size_bytes:
        data = file.pread(at, min(step, file.size_bytes - at))
        good = good_entries(data)
        at += good * ENTRY_BYTES
        if good * ENTRY_BYTES < len(data) or not data:
            break
        step = _CHUNK_BYTES
    return at


def good_entries(data: bytes) -> int:
    """Return the number of entries at the start of `data` with an offset >= 0 and a size > 0. The check works on byte
    columns, not entries, so a queue of millions takes milliseconds."""
    count = len(data) // ENTRY_BYTES
    data = data[: count * ENTRY_BYTES]
    columns = [int.from_bytes(data[at::ENTRY_BYTES], "big") for at in (8, 9, 10, 11)]
    any_bit = (columns[0] | columns[1] | columns[2] | columns[3]).to_bytes(count, "big")
    zero = any_bit.find(0)
    good = count if zero < 0 else zero
    # The sign bit of offset and size.
    signs = (int.from_bytes(data[0::ENTRY_BYTES], "big") | columns[0]).to_bytes(count, "big")
    negative = signs.translate(_SIGN_BIT).find(1)
    return good if negative < 0 else min(good, negative)


_SIGN_BIT: Final = bytes(128) + b"\1" * 128
