"""Reading by queue, by time and by key (the read half of DefaultMessageStore). Holds only references to the log, the
queues and the index; changes nothing; returns only committed records. `store.collecting` reads the records of entries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import trio

from triomq.protocol import record, sys_flag
from triomq.store.contents import Contents, Opened
from triomq.store.disk.worker_thread import Offload
from triomq.store.live_settings import LiveSettings
from triomq.store.log.log_scan import LOST_TOPIC
from triomq.store.queues.consume_queue import ENTRY, ENTRY_BYTES, ConsumeQueue
from triomq.store.queues.entry_blocks import EntryBlocks
from triomq.store.reading.cold_reads import ColdReads
from triomq.store.reading.collecting import Collecting
from triomq.store.results import ExtUnit, GetResult, GetStatus, MessageFilter, QueryResult
from triomq.store.watermark import Watermark

# A scan looks at max(16000, max_count * 20) bytes of consume queue entries.
_SCAN_ENTRIES: Final = 16000 // ENTRY_BYTES
# One pull looks at no more entries, however many messages it asks for.
_MAX_SCAN_ENTRIES: Final = 16_384
_QUERY_ROUNDS: Final = 3


class Reading:
    """`DefaultMessageStore.reading`. `offload` runs a blocking function outside of the event loop, by default in a
    thread."""

    def __init__(self, contents: Contents, settings: LiveSettings, offload: Offload | None = None) -> None:
        self.cold = ColdReads(contents, offload)
        self._contents = contents
        self._log = contents.log
        self._queues = contents.queues
        self._index = contents.index
        self._settings = settings
        self._offload: Offload = offload or trio.to_thread.run_sync
        self._collecting = Collecting(contents, settings)
        self._blocks = EntryBlocks()

    def begin(self, opened: Opened) -> None:
        self._collecting.written_from = opened.log_end
        self.cold.begin(opened)

    def record_at(self, physical_offset: int) -> bytes | None:
        """Return the whole valid record at this offset, or None if none begins there."""
        data = self._log.record_at(physical_offset)
        return data if data is not None and self._is_valid(data, physical_offset) else None

    def record_of_entry(self, physical_offset: int, size_bytes: int) -> bytes | None:
        """Return the whole valid record to which the entry of a queue leads, or None if none of this size is there."""
        if size_bytes < record.FIXED_BYTES:
            return None
        data = self._log.read(physical_offset, size_bytes)
        if data is None or record.head_of(data) != (size_bytes, record.MESSAGE_MAGIC, physical_offset):
            return None
        return data if self._is_valid(data, physical_offset) else None

    def _is_valid(self, data: bytes, physical_offset: int) -> bool:
        """Return whether this is a valid record, which what this process wrote is anyway."""
        if physical_offset >= self._collecting.written_from:
            return True
        is_lost = _is_rollback(data) and LOST_TOPIC in data
        return not is_lost and self._collecting.is_sound(data, physical_offset)

    @property
    def damaged_count(self) -> int:
        """How often an entry of a queue led to no valid record since the start: see Collecting."""
        return self._collecting.damaged_count

    def last_record(self) -> bytes | None:
        """Return the last record of the log, or None if that is in no queue. Looks at all queues."""
        newest = self._queues.newest_entry()
        if newest is None or newest[0] + newest[1] != self._log.committed_offset:
            return None
        return self.record_at(newest[0])

    # -- by queue ----------------------------------------------------------------------------------------------------

    def get_messages(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_count: int,
        message_filter: MessageFilter | None = None,
        *,
        may_wait: bool = False,
    ) -> GetResult:
        """Return up to `max_count` messages from `queue_offset` on. GetResult.status says why there are none. A caller
        that may wait gets none, and GetResult.missing, if the log has to be read from the disk first."""
        queue = self._queues.find(topic, queue_id)
        low = queue.min_offset if queue is not None else 0
        high = queue.end if queue is not None else 0
        if queue is None or high == 0:
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, self._corrected(queue_offset, 0), low, high)
        if queue_offset < low:
            return GetResult(GetStatus.OFFSET_TOO_SMALL, self._corrected(queue_offset, low), low, high)
        if queue_offset == high:
            return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, queue_offset, low, high)
        if queue_offset > high:
            return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, self._corrected(queue_offset, high), low, high)
        count = most = _SCAN_ENTRIES if max_count <= _SCAN_ENTRIES else min(max_count, _MAX_SCAN_ENTRIES)
        if message_filter is None and 0 < max_count < most:
            count = max_count + 1  # all match, and the entry behind the last shows where they end
        result = GetResult(GetStatus.NO_MATCHED_MESSAGE, queue_offset, low, high)
        entries = self._blocks.held(queue, queue_offset, count)
        if entries is None:
            if may_wait:
                result.missing = self.cold.missing_entries(queue, queue_offset)
                if result.missing is not None:
                    return result
            entries = self._blocks.read(queue, queue_offset, count)
        if not entries:
            next_offset = self._corrected(queue_offset, queue.next_file_offset(queue_offset))
            return GetResult(GetStatus.OFFSET_FOUND_NULL, next_offset, low, high)
        if may_wait:
            result.missing = self.cold.missing(entries)
            if result.missing is not None:
                return result
        self._collecting.collect(result, queue, entries, max_count, message_filter)
        stop = queue_offset + count
        if count < most and result.next_begin_offset == stop < queue.next_file_offset(queue_offset):
            # Some entries led to no message: look behind them, as far as with a filter.
            self._collecting.collect(result, queue, queue.entries(stop, most - count), max_count)
        return result

    def _corrected(self, asked: int, proposed: int) -> int:
        """Return `proposed`, or on a slave `asked`, since its own offsets may be behind those of the master."""
        if self._settings.is_slave and not self._settings.now.offset_check_in_slave:
            return asked
        return proposed

    # -- by offset -----------------------------------------------------------------------------------------------------

    def queues(self) -> dict[str, list[int]]:
        """Return topic -> ids of the queues that hold or held messages."""
        return self._queues.topics()

    @property
    def queue_count(self) -> int:
        """The number of queues, which changes when one is created."""
        return self._queues.count

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the queue offset of the first message that is still stored; 0 for an unknown queue."""
        queue = self._queues.find(topic, queue_id)
        return queue.min_offset if queue is not None else 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the queue offset of the next message; 0 for an unknown queue."""
        queue = self._queues.find(topic, queue_id)
        return queue.end if queue is not None else 0

    def queue_end(self, topic: str, queue_id: int) -> Watermark:
        """Return the watermark of the queue's max offset; to wait for a message, wait beyond the offset before it.
        Raises ValueError for a name that cannot be a queue."""
        return self._queues.get(topic, queue_id).end_mark

    def ends(self, topic: str) -> dict[int, int]:
        """Return queue id -> max offset of the topic's queues."""
        return {queue.queue_id: queue.end for queue in self._queues.of_topic(topic)}

    def stored_entries(self, topic: str) -> int:
        """Return the number of entries in the files of the topic's queues."""
        return sum([queue.end - queue.first_in_files for queue in self._queues.of_topic(topic)])

    def queue_entries(self, topic: str, queue_id: int, queue_offset: int, count: int) -> list[tuple[int, int, int]]:
        """Return (physical offset, size, tags code) of at most `count` consecutive entries of one queue file, for
        QUERY_CONSUME_QUEUE and delay delivery. A filler has the size 0x7FFFFFFF."""
        return list(ENTRY.iter_unpack(self.packed_entries(topic, queue_id, queue_offset, count)))

    def packed_entries(self, topic: str, queue_id: int, queue_offset: int, count: int) -> bytes:
        """Return the bytes of these entries as they are stored (store/queues/consume_queue.py). A caller that reads
        entries one after the other, or the newest, reads a file once for many of them."""
        queue = self._queues.find(topic, queue_id)
        return self._blocks.entries(queue, queue_offset, count) if queue is not None else b""

    async def have_read(self, topic: str, queue_id: int, queue_offset: int, count: int) -> None:
        """Return when the records of these entries (at least one) are in memory, or could not be read."""
        await self.cold.have_read(self.packed_entries(topic, queue_id, queue_offset, count))

    def leads_to_ext_unit(self, topic: str, queue_id: int, tags_code: int) -> bool:
        """Return whether `tags_code` of the queue's entry is the address of an ext unit (enableConsumeQueueExt)."""
        queue = self._queues.find(topic, queue_id)
        return queue is not None and queue.ext is not None and queue.ext.is_address(tags_code)

    def ext_unit(self, topic: str, queue_id: int, address: int) -> ExtUnit | None:
        """Return the ext unit at the address in an entry of the queue, or None if there is none."""
        queue = self._queues.find(topic, queue_id)
        return queue.ext.read(address) if queue is not None and queue.ext is not None else None

    # -- the log -------------------------------------------------------------------------------------------------------

    @property
    def min_physical_offset(self) -> int:
        """The start of the log; -1 if there is no log file."""
        return self._log.min_offset

    @property
    def max_physical_offset(self) -> int:
        return self._log.committed_offset

    @property
    def newest_queued_offset(self) -> int:
        """The physical offset of the newest record with a consume queue entry; -1 if there is none."""
        entry = self._queues.newest_entry()
        return entry[0] if entry is not None else -1

    def read_log(self, physical_offset: int, max_bytes: int) -> bytes:
        """Return at most `max_bytes` committed log bytes, never across a file end (HA); b"" at the end or outside the
        log."""
        return self._log.read_some(physical_offset, max_bytes)

    async def read_log_into(self, physical_offset: int, places: Sequence[memoryview]) -> int:
        """Read committed log bytes into `places`, in order. Return the number of bytes read, 0 at the end or outside
        the log. A thread reads bytes that are not in memory, so the event loop never waits for the disk. Raises
        OSError."""
        file, size = self._log.run_at(physical_offset, sum(map(len, places)))
        if file is None:
            return 0
        files = self._contents.files
        parts = list(_first_bytes(places, size))
        at = physical_offset - file.start
        if count := files.pread_into(file.fd(), parts, at, wait=False):
            return count
        fd = file.borrow()
        try:
            with trio.CancelScope(shield=True):
                count = await self._offload(files.pread_into, fd, parts, at)
        finally:
            files.close(fd)
        return count

    # -- by time -------------------------------------------------------------------------------------------------------

    def store_time_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return STORETIMESTAMP (ms) of this message, or -1 if there is none."""
        queue = self._queues.find(topic, queue_id)
        entry = queue.entry(queue_offset) if queue is not None else None
        return -1 if entry is None else self._log.store_timestamp_at(entry[0])

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        """Return STORETIMESTAMP (ms) of the queue's first message, or -1 if there is none."""
        return self.store_time_at(topic, queue_id, self.min_offset(topic, queue_id))

    def earliest_log_time(self) -> int:
        """Return STORETIMESTAMP (ms) of the first record of the log, or -1 if there is none."""
        return self._log.store_timestamp_at(self._log.first_record_offset)

    def queue_offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """Return the queue offset of the first message stored at `timestamp_ms` or later, as RocketMQ 5 does
        (SEARCH_OFFSET_BY_TIMESTAMP); the max offset if all messages are older, 0 for an unknown queue.

        Store times increase along a queue unless the clock was set back. Then this is one of the offsets at which the
        time is passed."""
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return 0
        timestamp_ms = max(timestamp_ms, 0)
        low, high = queue.min_offset, queue.end  # before low all are older, from high on none is
        while low < high:
            middle = (low + high) // 2
            at, store_time = self._next_time(queue, middle, high)
            if store_time < timestamp_ms and at < high:
                low = at + 1
            else:
                high = middle
        return self._next_time(queue, low, queue.end)[0]

    def _next_time(self, queue: ConsumeQueue, begin: int, end: int) -> tuple[int, int]:
        """Return the offset of the first message in [`begin`, `end`) whose store time can be read, and that time; or
        `end`. A message that the log has deleted counts as one of the time -1."""
        while begin < end:
            entry, at = queue.real_entry(begin, end)
            if entry is None:
                break
            store_time = self._log.store_timestamp_at(entry[0])
            if store_time >= 0 or entry[0] < self._log.min_offset:
                return at, store_time
            begin = at + 1
        return end, -1

    # -- by key ------------------------------------------------------------------------------------------------------

    def offsets_by_key(self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int) -> list[int]:
        """Return at most `max_count` physical offsets that the index has for this key, newest first. Some of them may
        belong to another key or moment, or to no message any more: compare each record."""
        return sorted(self._index.find(topic, key, max_count, begin_ms, end_ms), reverse=True)

    def query_by_key(self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int) -> QueryResult:
        """Return messages with this key (KEYS or UNIQ_KEY) stored in [begin_ms, end_ms]. Some of them may have another
        key with the same hash."""
        result = QueryResult()
        limit = min(max_count, self._settings.now.max_msgs_num_batch)
        wanted = begin_ms, end_ms
        for _ in range(_QUERY_ROUNDS):
            offsets = sorted(self._index.find(topic, key, limit, begin_ms, end_ms))
            if not offsets:
                break
            result.index_end_timestamp = self._index.end_timestamp
            result.index_end_physical_offset = max(self._index.end_physical_offset, 0)
            first = self.record_at(offsets[0])
            if first is not None:
                end_ms = record.store_timestamp_at(first)
            for offset in offsets:
                data = self.record_at(offset)
                if data is None or _is_rollback(data):
                    continue
                if wanted[0] <= record.store_timestamp_at(data) <= wanted[1]:
                    result.records.append(data)
                    result.physical_offsets.append(offset)
            if result.records or first is None or end_ms < begin_ms:
                break
        return result


def _is_rollback(data: bytes) -> bool:
    """Return whether this record is of type rollback. Such a record may replace a lost one (see damage_repair.py), and
    the index entry belonged to the lost one."""
    flags = data[record.SYS_FLAG_AT + 3]
    return flags & sys_flag.TRANSACTION_MASK == sys_flag.TRANSACTION_ROLLBACK


def _first_bytes(buffers: Sequence[memoryview], size_bytes: int) -> Iterator[memoryview]:
    """Yield slices of `buffers`, in order, that together have `size_bytes`."""
    for buffer in buffers:
        if size_bytes <= 0:
            return
        yield buffer[:size_bytes]
        size_bytes -= len(buffer)
