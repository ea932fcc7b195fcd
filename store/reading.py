"""Reading by queue, by time and by key (the read half of DefaultMessageStore). Holds nothing but references to the log,
the queues and the index; changes nothing; sees only what was committed.

What this process wrote itself is taken as it is. What lay on the disk when it started may have changed there, and
recovery reads only the newest of it: such records are checked whenever they are read, and what is not a sound record of
the queue that was asked for is left out, never served.
"""

from __future__ import annotations

from typing import Final

import structlog

from triomq.protocol import record, sys_flag
from triomq.protocol.errors import RecordError
from triomq.store.config import BrokerRole, StoreSettings
from triomq.store.disk.mapped_file import MappedFile
from triomq.store.log.commit_log import CommitLog
from triomq.store.log.log_scan import LOST_TOPIC
from triomq.store.queues.consume_queue import ENTRY, ENTRY_BYTES, ConsumeQueue
from triomq.store.queues.index import Index
from triomq.store.queues.queue_table import QueueTable
from triomq.store.results import GetResult, GetStatus, MessageFilter, QueryResult

log = structlog.get_logger("triomq.store.read")

# A scan looks at max(16000, max_count * 20) bytes of consume queue entries.
_SCAN_ENTRIES: Final = 16000 // ENTRY_BYTES
_FILLER_SIZE: Final = 0x7FFFFFFF
_QUERY_ROUNDS: Final = 3


class Reading:
    __slots__ = ("_index", "_log", "_queues", "_recent_bytes", "_unsound_at", "settings", "written_from")

    def __init__(
        self, commit_log: CommitLog, queues: QueueTable, index: Index, settings: StoreSettings, memory_bytes: int
    ) -> None:
        """`memory_bytes` is the machine's; a part of it counts as what is surely in memory."""
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._recent_bytes = memory_bytes * settings.access_message_in_memory_max_ratio_percent // 100
        self.settings = settings
        # Log offset from which on this process wrote everything.
        self.written_from = 0
        self._unsound_at = -1

    def record_at(self, physical_offset: int) -> bytes | None:
        """The whole sound record at this offset, None when none begins there."""
        data = self._log.record_at(physical_offset)
        if data is None or physical_offset >= self.written_from:
            return data
        is_lost = _is_rollback(data) and LOST_TOPIC in data
        return data if not is_lost and self._is_sound(data, physical_offset) else None

    def _is_sound(self, data: bytes, physical_offset: int, queue: ConsumeQueue | None = None) -> bool:
        """Whether this is one whole record, with its own body, at its place, and of this queue."""
        reason = ""
        try:
            fields = record.read_fields(data, 0, len(data))
        except RecordError as error:
            reason = str(error)
        else:
            # an entry of a multi dispatch leads to a record of another queue
            is_own = queue is None or (fields.topic == queue.topic_bytes and fields.queue_id == queue.queue_id)
            if fields.size_bytes != len(data) or fields.physical_offset != physical_offset:
                reason = "the entry does not fit the record"
            elif record.body_crc(data[fields.body_at : fields.body_at + fields.body_length]) != fields.body_crc:
                reason = "the body does not match its CRC"
            elif not is_own and b"INNER_MULTI_DISPATCH" not in fields.properties:
                reason = "the entry leads to a record of another queue"
        if reason:
            self._tell_unsound(physical_offset, reason, queue)
        return not reason

    def _tell_unsound(self, physical_offset: int, reason: str, queue: ConsumeQueue | None) -> None:
        if physical_offset != self._unsound_at:
            self._unsound_at = physical_offset
            log.error("damaged on disk, not served", physical_offset=physical_offset, reason=reason,
                      topic=queue.topic if queue is not None else None)  # fmt: skip

    # -- by queue ----------------------------------------------------------------------------------------------------

    def get_messages(
        self, topic: str, queue_id: int, queue_offset: int, max_count: int, message_filter: MessageFilter | None
    ) -> GetResult:
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
        entries = queue.entries(queue_offset, max(_SCAN_ENTRIES, max_count))
        if not entries:
            next_offset = self._corrected(queue_offset, queue.next_file_offset(queue_offset))
            return GetResult(GetStatus.OFFSET_FOUND_NULL, next_offset, low, high)
        result = GetResult(GetStatus.NO_MATCHED_MESSAGE, queue_offset, low, high)
        self._collect(result, queue, entries, max_count, message_filter)
        return result

    def _collect(
        self,
        result: GetResult,
        queue: ConsumeQueue,
        entries: bytes,
        max_count: int,
        message_filter: MessageFilter | None,
    ) -> None:
        """Walk the entries until the answer is full; sets everything of `result`."""
        commit_log = self._log
        log_end = commit_log.committed_offset
        written_from = self.written_from
        records = result.records
        looked_at = log_end
        gone_before = 0
        scanned = 0
        size_bytes = 0
        for physical_offset, size, tags_code in ENTRY.iter_unpack(entries):
            if size == _FILLER_SIZE:
                scanned += 1
                continue
            looked_at = physical_offset
            if physical_offset < gone_before:
                scanned += 1
                continue
            is_recent = log_end - physical_offset <= self._recent_bytes
            if records and self._is_full(len(records), size_bytes, size, max_count, is_recent):
                break
            scanned += 1
            if message_filter is not None:
                ext = None
                if queue.ext is not None and queue.ext.is_address(tags_code):
                    ext = queue.ext.read(tags_code)
                    if ext is not None:
                        tags_code = ext.tags_code
                if not message_filter.matches_entry(tags_code, ext):
                    continue
            data = commit_log.read(physical_offset, size)
            if data is None:
                if physical_offset < log_end and commit_log.sequence.find(physical_offset) is None:
                    gone_before = commit_log.next_file_start(physical_offset)
                    if not records:
                        result.status = GetStatus.MESSAGE_WAS_REMOVING
                else:
                    self._tell_unsound(physical_offset, f"an entry of {size} bytes leads nowhere", queue)
                continue
            if physical_offset < written_from and not self._is_sound(data, physical_offset, queue):
                continue
            if message_filter is not None and not message_filter.matches_record(data):
                continue
            records.append(data)
            size_bytes += size
        if records:
            result.status = GetStatus.FOUND
        result.size_bytes = size_bytes
        result.message_count = len(records)
        result.next_begin_offset += scanned
        result.suggest_slave = log_end - looked_at > self._recent_bytes

    def _is_full(self, count: int, size_bytes: int, next_size: int, max_count: int, is_recent: bool) -> bool:
        settings = self.settings
        if count >= max_count:
            return True
        if is_recent:
            return (
                count >= settings.max_transfer_count_on_message_in_memory
                or size_bytes + next_size > settings.max_transfer_bytes_on_message_in_memory
            )
        return (
            count >= settings.max_transfer_count_on_message_in_disk
            or size_bytes + next_size > settings.max_transfer_bytes_on_message_in_disk
        )

    def _corrected(self, asked: int, proposed: int) -> int:
        """A slave leaves offsets as they were asked, since its own may be behind those of the master."""
        if self.settings.broker_role is BrokerRole.SLAVE and not self.settings.offset_check_in_slave:
            return asked
        return proposed

    # -- by time -------------------------------------------------------------------------------------------------------

    def store_time_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        queue = self._queues.find(topic, queue_id)
        entry = queue.entry(queue_offset) if queue is not None else None
        return -1 if entry is None else self._log.store_timestamp_at(entry[0])

    def queue_offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """AdminBrokerProcessor's SEARCH_OFFSET_BY_TIMESTAMP: a file is picked by its modification time, then searched.

        The entry stored at exactly that time, else of its two neighbours the nearer one (the older when equally near);
        0 for an empty queue and when a message cannot be read."""
        queue = self._queues.find(topic, queue_id)
        if queue is None or not queue.sequence.files or queue.end == 0:
            return 0
        file = queue.sequence.files[-1]
        for candidate in queue.sequence.files:
            if candidate.modified_ms() >= timestamp_ms:
                file = candidate
                break
        return self._search_file(queue, file, timestamp_ms)

    def _search_file(self, queue: ConsumeQueue, file: MappedFile, timestamp_ms: int) -> int:
        begin = file.start // ENTRY_BYTES
        low = max(begin, queue.min_offset)
        high = min(file.end // ENTRY_BYTES, queue.end) - 1
        older, older_time = -1, -1
        newer, newer_time = -1, -1
        log_begin = self._log.min_offset
        while low <= high:
            middle = (low + high) // 2
            entry = queue.entry(middle)
            if entry is None:
                return 0
            if entry[0] < log_begin or entry[1] == _FILLER_SIZE:
                older, low = middle, middle + 1
                continue
            store_time = self._log.store_timestamp_at(entry[0])
            if store_time < 0:
                return 0
            if store_time == timestamp_ms:
                return middle
            if store_time > timestamp_ms:
                newer, newer_time, high = middle, store_time, middle - 1
            else:
                older, older_time, low = middle, store_time, middle + 1
        if older_time < 0:
            return newer if newer >= 0 else max(older, 0)
        if newer_time < 0:
            return older
        return newer if timestamp_ms - older_time > newer_time - timestamp_ms else older

    # -- by key ------------------------------------------------------------------------------------------------------

    def query_by_key(self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int) -> QueryResult:
        result = QueryResult()
        limit = min(max_count, self.settings.max_msgs_num_batch)
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
                if data is not None and not _is_rollback(data):
                    result.records.append(data)
                    result.physical_offsets.append(offset)
            if result.records or first is None or end_ms < begin_ms:
                break
        return result


def _is_rollback(data: bytes) -> bool:
    """Such a record stands for one that was lost (see recovery); the key that led here belonged to that one."""
    flags = data[record.SYS_FLAG_AT + 3]
    return flags & sys_flag.TRANSACTION_MASK == sys_flag.TRANSACTION_ROLLBACK
