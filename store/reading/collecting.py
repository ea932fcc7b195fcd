"""Collecting the records to which the entries of a consume queue point, all of them or those that a filter matches.

Records that this process wrote are returned without a check. Records that were on the disk when it started may have
been damaged there, and recovery reads only the newest of them. Such records are checked on every read, and one that is
not a valid record of the requested queue is skipped, never returned.

The fast path `take_records` takes the records of many entries at once: all of them, those with a tags code, or those
whose stored properties satisfy an SQL92 expression, which it reads where they lie in the mapped log. It checks those
that need it, stops at everything unusual, and this module then decides. In a pure build `_pass_entries` passes over
what has no wanted tags code.
"""

from __future__ import annotations

from typing import Final

import structlog

from triomq.protocol import record
from triomq.protocol.errors import RecordError
from triomq.protocol.speedups import fast_path
from triomq.store.config import StoreSettings
from triomq.store.contents import Contents
from triomq.store.live_settings import LiveSettings
from triomq.store.log.scanned_record import HEAD_BYTES, scan_record
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


def _pass_entries(entries: bytes, at: int, max_size: int, low: int, codes: bytes) -> int:
    """Return the position of the first entry from position `at` on that is longer than `max_size`, points before the
    log offset `low`, or has a tags code whose low 32 bits are among `codes` (int32, big endian, ascending); the end if
    there is none."""
    wanted = {codes[begin : begin + 4] for begin in range(0, len(codes) - 3, 4)}
    while at <= len(entries) - ENTRY_BYTES:
        physical_offset, size, _ = _entry_at(entries, at)
        if size > max_size or physical_offset < low or entries[at + 16 : at + 20] in wanted:
            break
        at += ENTRY_BYTES
    return at


_take_records: Final = fast_path("take_records", __name__)


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

    def certain_room(self, count: int, size_bytes: int, max_count: int, is_recent: bool) -> tuple[int, int]:
        """Return how many more records, and of how many bytes, are certain to fit here and behind what does not match,
        but no more bytes than a filler's size. Behind recent records all are recent, behind others not, so that these
        are held to both limits. The first record fits whatever its size."""
        most, room = self._recent_count, self._recent_bytes
        if not is_recent:
            most, room = min(most, self._other_count), min(room, self._other_bytes)
        return max(min(most, max_count), 1) - count, min(room - size_bytes, _ANYTHING)


class Collecting:
    """`written_from` is the log offset from which on this process wrote all records. `damaged_count` is how often an
    entry of a queue led to no valid record, the same one several times in a row counting once."""

    def __init__(self, contents: Contents, settings: LiveSettings) -> None:
        self._log = contents.log
        self._settings = settings
        self._known_limits = Limits(settings.now)
        # Log bytes this close to the end of the log, a part of the machine's memory, count as in the page cache.
        memory_bytes = contents.files.physical_memory_bytes()
        self._recent_bytes = memory_bytes * settings.now.access_message_in_memory_max_ratio_percent // 100
        self.written_from = 0
        # The records that were taken last from the beginning of some entries without a filter, how many, and by which
        # entries and limits, for the next group that reads the same: one commit wakes all groups that wait for a queue.
        self._taken_by: tuple[object, ...] = ()
        self._taken = (0, b"")
        self._unsound_at = -1
        self.damaged_count = 0

    def collect(
        self,
        result: GetResult,
        queue: ConsumeQueue,
        entries: bytes,
        max_count: int,
        message_filter: MessageFilter | None = None,
    ) -> None:
        """Add the records of the entries that the filter matches to `result` until it is full, and set its other
        fields."""
        log_end = self._log.committed_offset
        limits = self._limits()
        looked_at = log_end
        gone_before = at = cost = 0
        end = len(entries)
        if message_filter is not None:
            may_take = queue.ext is None and _may_take(message_filter)
        else:  # a single record costs less by itself
            may_take = max_count > 1 and end > ENTRY_BYTES and _take_records is not None
        while at < end:
            physical_offset, size, tags_code = _entry_at(entries, at)
            if may_take and physical_offset >= gone_before:
                reached = self._take(result, entries, at, max_count, gone_before, cost, message_filter, queue)
                if reached > at:
                    if message_filter is not None:
                        cost += (reached - at) // ENTRY_BYTES * message_filter.cost
                    looked_at = _entry_at(entries, reached - ENTRY_BYTES)[0]
                    at = reached
                    if at >= end:
                        break
                    physical_offset, size, tags_code = _entry_at(entries, at)
            if size != FILLER_SIZE_BYTES:
                looked_at = physical_offset
            if size == FILLER_SIZE_BYTES or physical_offset < gone_before:
                at += ENTRY_BYTES
                continue
            count = result.message_count
            if count:
                is_recent = log_end - physical_offset <= self._recent_bytes
                if size > limits.room(count, result.size_bytes, max_count, is_recent):
                    break
            at += ENTRY_BYTES
            if message_filter is not None and not _matches_entry(message_filter, queue, tags_code):
                continue
            data = self._log.read(physical_offset, size)
            if data is None:
                gone_before = self._gone_before(result, queue, physical_offset, size, gone_before)
                continue
            if physical_offset < self.written_from and not self.is_sound(data, physical_offset, queue):
                continue
            if message_filter is None or message_filter.matches_record(data):
                result.runs.append(data)
                result.message_count += 1
                result.size_bytes += size
            if message_filter is not None:
                cost += message_filter.cost
                if cost > _MAX_SCAN_COST:
                    break  # the client pulls again behind what was scanned
        self._finish(result, at // ENTRY_BYTES, log_end - looked_at)

    def _take(
        self,
        result: GetResult,
        entries: bytes,
        at: int,
        max_count: int,
        gone_before: int,
        cost: int,
        message_filter: MessageFilter | None,
        queue: ConsumeQueue,
    ) -> int:
        """Add what matches from `at` on to `result`, as long as all is usual. Return the position of the first entry
        about which `collect` has to decide."""
        taken = result.message_count
        log_end = self._log.committed_offset
        first = _entry_at(entries, at)[0]
        is_recent = log_end - first <= self._recent_bytes
        low = log_end - self._recent_bytes if is_recent else _EVERYWHERE
        count, room = self._known_limits.certain_room(taken, result.size_bytes, max_count, is_recent)
        first_room = room if taken else _ANYTHING
        codes, conditions, most = b"", b"", len(entries)
        if message_filter is not None:
            codes, conditions = message_filter.tag_codes, message_filter.conditions
            most = (_MAX_SCAN_COST - cost) // max(1, message_filter.cost)
        if count <= 0:
            return at
        if _take_records is None:
            return _pass_entries(entries, at, first_room, low, codes)
        file = self._log.sequence.find(first)
        if file is None:
            return at
        by: tuple[object, ...] = ()
        if message_filter is None and not at and not taken:
            by = (queue, queue.cuts, entries, file, count, room)
            if by == self._taken_by:
                result.add(*self._taken)
                return self._taken[0] * ENTRY_BYTES
        reached: int
        reached, count, records = _take_records(
            entries,
            at,
            count,
            first_room,
            room,
            most,
            file.map(),
            file.start,
            max(low, gone_before),
            min(log_end, file.end),
            self.written_from,
            queue.queue_id,
            queue.topic_bytes,
            codes,
            conditions,
        )
        if count:
            result.add(count, records)
            if by:
                self._taken_by, self._taken = by, (count, records)
        return reached

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
            if not result.message_count:
                result.status = GetStatus.MESSAGE_WAS_REMOVING
            return self._log.next_file_start(physical_offset)
        self._tell_unsound(physical_offset, f"the entry points to no record of {size} bytes", queue)
        return gone_before

    def _finish(self, result: GetResult, scanned: int, behind_bytes: int) -> None:
        """Set the fields of a result whose records are collected. It may have been set for those before."""
        if result.message_count:
            result.status = GetStatus.FOUND
        result.next_begin_offset += scanned
        if behind_bytes:
            result.suggest_slave = behind_bytes > self._recent_bytes

    def is_sound(self, data: bytes, physical_offset: int, queue: ConsumeQueue | None = None) -> bool:
        """Return whether this is one whole record with a valid body CRC, at its own offset, and of this queue."""
        found = scan_record(data, 0, len(data))
        if found is not None:
            size, crc, queue_id, _, own_offset, _, _, body_length, topic, _ = found
            if (
                size == len(data)
                and own_offset == physical_offset
                and (queue is None or (queue_id == queue.queue_id and topic == queue.topic_bytes))
                and record.body_crc(data[HEAD_BYTES : HEAD_BYTES + body_length]) == crc
            ):
                return True
        return self._is_unusual_but_sound(data, physical_offset, queue)

    def _is_unusual_but_sound(self, data: bytes, physical_offset: int, queue: ConsumeQueue | None) -> bool:
        """`is_sound` of every record. Tells what is wrong with it."""
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


def _may_take(message_filter: MessageFilter) -> bool:
    """Return whether many entries without ext units can be decided about at once."""
    return bool(message_filter.tag_codes or (message_filter.conditions and _take_records is not None))


def _matches_entry(message_filter: MessageFilter, queue: ConsumeQueue, tags_code: int) -> bool:
    ext = None
    if queue.ext is not None and queue.ext.is_address(tags_code):
        ext = queue.ext.read(tags_code)
        if ext is not None:
            tags_code = ext.tags_code
    return message_filter.matches_entry(tags_code, ext)
