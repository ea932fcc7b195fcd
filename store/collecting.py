"""Collecting the records to which the entries of a consume queue point, all of them or those that a filter matches.

Records that this process wrote are returned without a check. Records that were on the disk when it started may have
been damaged there, and recovery reads only the newest of them. Such records are checked on every read, and one that is
not a valid record of the requested queue is skipped, never returned.

A filter looks at many entries for each record that it returns. Two functions pass over those that do not match, many at
once: `pass_entries` by their tags codes, and the fast path `pass_records` by the stored properties, where they lie in
the mapped log, so that nothing is copied. Both stop at everything unusual, and this module then decides.
"""

from __future__ import annotations

import struct
from typing import Final

import structlog

from triomq.protocol import record
from triomq.protocol.errors import RecordError
from triomq.protocol.speedups import accelerated, fast_path
from triomq.store.config import StoreSettings
from triomq.store.contents import Contents
from triomq.store.live_settings import LiveSettings
from triomq.store.queues.consume_queue import ENTRY, ENTRY_BYTES, FILLER_SIZE_BYTES, ConsumeQueue
from triomq.store.results import GetResult, GetStatus, MessageFilter

log = structlog.get_logger("triomq.store.read")

# The characters of filter expressions that one pull evaluates, each once for each record: some 50 ms.
_MAX_SCAN_COST: Final = 500_000
# The longest size of a record, which is below that of a filler; less than any size; below all log offsets.
_ANYTHING: Final = FILLER_SIZE_BYTES - 1
_NOTHING: Final = -(1 << 31) - 1
_EVERYWHERE: Final = -(1 << 63)
_entry_at: Final = ENTRY.unpack_from


def pass_entries_reference(entries: bytes, at: int, max_size: int, low: int, codes: bytes) -> int:
    """Return the position of the first entry from position `at` on that is longer than `max_size`, points before the
    log offset `low`, or has a tags code whose low 32 bits are among `codes` (int32, big endian, ascending); the end if
    there is none."""
    if at < 0:
        raise struct.error("there is no entry at a negative position")
    wanted = {codes[begin : begin + 4] for begin in range(0, len(codes) - 3, 4)}
    while at <= len(entries) - ENTRY_BYTES:
        physical_offset, size, _ = _entry_at(entries, at)
        if size > max_size or physical_offset < low or entries[at + 16 : at + 20] in wanted:
            break
        at += ENTRY_BYTES
    return at


_pass_entries: Final = accelerated(pass_entries_reference)
_pass_records: Final = fast_path("pass_records", __name__.rpartition(".")[0])


class Limits:
    """What one result may hold: its first record, whatever its size, and behind that numbers of records and of bytes,
    which are not the same for recent records, those in the page cache, as for others."""

    __slots__ = ("_other_bytes", "_other_count", "_recent_bytes", "_recent_count", "settings")

    def __init__(self, settings: StoreSettings) -> None:
        self.settings = settings
        self._recent_count = settings.max_transfer_count_on_message_in_memory
        self._recent_bytes = settings.max_transfer_bytes_on_message_in_memory
        self._other_count = settings.max_transfer_count_on_message_in_disk
        self._other_bytes = settings.max_transfer_bytes_on_message_in_disk

    def room(self, count: int, size_bytes: int, max_count: int, is_recent: bool) -> int:
        """Return the size of the longest record that fits behind `count` records (at least one) of together
        `size_bytes`; less than any size if none does. `max_count` is the limit of the request."""
        if count >= max_count:
            return _NOTHING
        if is_recent:
            return self._recent_bytes - size_bytes if count < self._recent_count else _NOTHING
        return self._other_bytes - size_bytes if count < self._other_count else _NOTHING

    def certain_room(self, count: int, size_bytes: int, max_count: int, is_recent: bool) -> int:
        """Return the size of the longest record that is certain to fit here and behind what does not match; a filler's
        is longer. Behind recent records all are, behind others not, so that these are held to both limits."""
        if not count:
            return _ANYTHING
        room = self.room(count, size_bytes, max_count, True)
        if not is_recent:
            room = min(room, self.room(count, size_bytes, max_count, False))
        return min(room, _ANYTHING)


class Collecting:
    """`written_from` is the log offset from which on this process wrote all records. `damaged_count` is how often an
    entry of a queue led to no valid record, the same one several times in a row counting once."""

    __slots__ = ("_known_limits", "_log", "_recent_bytes", "_settings", "_unsound_at", "damaged_count", "written_from")

    def __init__(self, contents: Contents, settings: LiveSettings) -> None:
        self._log = contents.log
        self._settings = settings
        self._known_limits = Limits(settings.now)
        # Log bytes this close to the end of the log, a part of the machine's memory, count as in the page cache.
        memory_bytes = contents.files.physical_memory_bytes()
        self._recent_bytes = memory_bytes * settings.now.access_message_in_memory_max_ratio_percent // 100
        self.written_from = 0
        self._unsound_at = -1
        self.damaged_count = 0

    def collect(self, result: GetResult, queue: ConsumeQueue, entries: bytes, max_count: int) -> None:
        """Add the records of the entries to `result` until it is full, and set its other fields."""
        commit_log = self._log
        log_end = commit_log.committed_offset
        limits = self._limits()
        written_from = self.written_from
        records = result.records
        looked_at = log_end
        gone_before = 0
        scanned = size_bytes = 0
        for physical_offset, size, _ in ENTRY.iter_unpack(entries):
            if size == FILLER_SIZE_BYTES:
                scanned += 1
                continue
            looked_at = physical_offset
            if physical_offset < gone_before:
                scanned += 1
                continue
            is_recent = log_end - physical_offset <= self._recent_bytes
            if records and size > limits.room(len(records), size_bytes, max_count, is_recent):
                break
            scanned += 1
            data = commit_log.read(physical_offset, size)
            if data is None:
                gone_before = self._gone_before(result, queue, physical_offset, size, gone_before)
                continue
            if physical_offset < written_from and not self.is_sound(data, physical_offset, queue):
                continue
            records.append(data)
            size_bytes += size
        self._finish(result, scanned, size_bytes, log_end - looked_at)

    def collect_matching(
        self, result: GetResult, queue: ConsumeQueue, entries: bytes, max_count: int, message_filter: MessageFilter
    ) -> None:
        """`collect` what a filter matches."""
        commit_log = self._log
        log_end = commit_log.committed_offset
        limits = self._limits()
        records = result.records
        looked_at = log_end
        gone_before = at = scanned = size_bytes = cost = 0
        end = len(entries)
        can_pass = queue.ext is None and bool(message_filter.tag_codes or message_filter.conditions)
        while at < end:
            is_match = False
            if can_pass:
                is_recent = log_end - _entry_at(entries, at)[0] <= self._recent_bytes
                low = log_end - self._recent_bytes if records and is_recent else _EVERYWHERE
                room = limits.certain_room(len(records), size_bytes, max_count, is_recent)
                reached, is_match = self._pass_over(entries, at, (room, low), cost, gone_before, message_filter)
                if reached > at:
                    passed = (reached - at) // ENTRY_BYTES
                    scanned += passed
                    if not message_filter.tag_codes:
                        cost += passed * message_filter.cost
                    looked_at = _entry_at(entries, reached - ENTRY_BYTES)[0]
                    at = reached
                    if at >= end:
                        break
            physical_offset, size, tags_code = _entry_at(entries, at)
            at += ENTRY_BYTES
            if size == FILLER_SIZE_BYTES:
                scanned += 1
                continue
            looked_at = physical_offset
            if physical_offset < gone_before:
                scanned += 1
                continue
            is_recent = log_end - physical_offset <= self._recent_bytes
            if records and size > limits.room(len(records), size_bytes, max_count, is_recent):
                break
            scanned += 1
            if not is_match and not _matches_entry(message_filter, queue, tags_code):
                continue
            data = commit_log.read(physical_offset, size)
            if data is None:
                gone_before = self._gone_before(result, queue, physical_offset, size, gone_before)
                continue
            if physical_offset < self.written_from and not self.is_sound(data, physical_offset, queue):
                continue
            if is_match or message_filter.matches_record(data):
                records.append(data)
                size_bytes += size
            cost += message_filter.cost
            if cost > _MAX_SCAN_COST:
                break  # the client pulls again behind what was scanned
        self._finish(result, scanned, size_bytes, log_end - looked_at)

    def _pass_over(
        self,
        entries: bytes,
        at: int,
        room: tuple[int, int],
        cost: int,
        gone_before: int,
        message_filter: MessageFilter,
    ) -> tuple[int, bool]:
        """Return the position of the first entry from `at` on about which this class has to decide, and whether its
        record is known to match. What lies before it does not match, is no longer than the first number of `room`
        (Limits.certain_room), and does not point before the second, a log offset."""
        max_size, low = room
        if message_filter.tag_codes:
            return _pass_entries(entries, at, max_size, low, message_filter.tag_codes), False
        file = self._log.sequence.find(_entry_at(entries, at)[0]) if _pass_records is not None else None
        if file is None or _pass_records is None:
            return at, False
        most = (_MAX_SCAN_COST - cost) // max(1, message_filter.cost)
        low = max(low, self.written_from, gone_before)
        high = min(self._log.committed_offset, file.end)
        found: tuple[int, bool] = _pass_records(
            entries, at, max_size, most, file.map(), file.start, low, high, message_filter.conditions
        )
        return found

    def _limits(self) -> Limits:
        """Return the limits by the settings as they are now; a change at run time replaces the settings record."""
        if self._known_limits.settings is not self._settings.now:
            self._known_limits = Limits(self._settings.now)
        return self._known_limits

    def _gone_before(
        self, result: GetResult, queue: ConsumeQueue, physical_offset: int, size: int, gone_before: int
    ) -> int:
        """Return the log offset before which all records are gone, since the log has none at `physical_offset`."""
        if physical_offset < self._log.committed_offset and self._log.sequence.find(physical_offset) is None:
            if not result.records:
                result.status = GetStatus.MESSAGE_WAS_REMOVING
            return self._log.next_file_start(physical_offset)
        self._tell_unsound(physical_offset, f"the entry points to no record of {size} bytes", queue)
        return gone_before

    def _finish(self, result: GetResult, scanned: int, size_bytes: int, behind_bytes: int) -> None:
        """Set the fields of a result whose records are collected."""
        records = result.records
        if records:
            result.status = GetStatus.FOUND
        result.size_bytes = size_bytes
        result.message_count = len(records)
        result.next_begin_offset += scanned
        result.suggest_slave = behind_bytes > self._recent_bytes

    def is_sound(self, data: bytes, physical_offset: int, queue: ConsumeQueue | None = None) -> bool:
        """Return whether this is one whole record with a valid body CRC, at its own offset, and of this queue."""
        reason = ""
        try:
            fields = record.read_fields(data, 0, len(data))
        except RecordError as error:
            reason = str(error)
        else:
            # a multi-dispatch entry points to a record of another queue
            is_own = queue is None or (fields.topic == queue.topic_bytes and fields.queue_id == queue.queue_id)
            if fields.size_bytes != len(data) or fields.physical_offset != physical_offset:
                reason = "the entry does not fit the record"
            elif record.body_crc(data[fields.body_at : fields.body_at + fields.body_length]) != fields.body_crc:
                reason = "the body does not match its CRC"
            elif not is_own and b"INNER_MULTI_DISPATCH" not in fields.properties:
                reason = "the entry points to a record of another queue"
        if reason:
            self._tell_unsound(physical_offset, reason, queue)
        return not reason

    def _tell_unsound(self, physical_offset: int, reason: str, queue: ConsumeQueue | None) -> None:
        if physical_offset != self._unsound_at:
            self._unsound_at = physical_offset
            if queue is not None:  # else the offset may be any that a client asked for
                self.damaged_count += 1
            log.error(
                "message damaged on disk, skipped",
                physical_offset=physical_offset,
                reason=reason,
                topic=queue.topic if queue is not None else None,
            )


def _matches_entry(message_filter: MessageFilter, queue: ConsumeQueue, tags_code: int) -> bool:
    ext = None
    if queue.ext is not None and queue.ext.is_address(tags_code):
        ext = queue.ext.read(tags_code)
        if ext is not None:
            tags_code = ext.tags_code
    return message_filter.matches_entry(tags_code, ext)
