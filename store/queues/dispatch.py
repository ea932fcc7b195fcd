"""From a record to its consume queue entries and index keys (ReputMessageService, CommitLogDispatcher).

A DispatchEntry holds what dispatch needs of one record. On a master, the append creates it from the message; recovery
and slaves create it from the bytes of the log. Both use the same Dispatch.

Transactions of type prepared and rollback enter no consume queue; rollback enters no index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

import structlog

from triomq.protocol import property_names as names
from triomq.protocol import sys_flag
from triomq.protocol.message_to_store import Place
from triomq.protocol.stored_properties import NONE, StoredProperties, read
from triomq.protocol.system_topics import LMQ_PREFIX, SCHEDULE_TOPIC
from triomq.store.delay import DelayLevels
from triomq.store.log.log_scan import LogScan
from triomq.store.log.scanned_record import ScannedRecord
from triomq.store.log.store_log import StoreLog
from triomq.store.queues.consume_queue import ConsumeQueue
from triomq.store.queues.index import Index
from triomq.store.queues.index_file import IndexKeys
from triomq.store.queues.queue_table import QueueTable
from triomq.store.results import ExtUnit, PutResult

log = structlog.get_logger("triomq.store.dispatch")

RecordOfMany: TypeAlias = tuple[ConsumeQueue, int, int, int, int, str | None, str | None]
"""Queue, queue offset, physical offset, size, tags code, UNIQ_KEY and KEYS of one of the records of a SharedEntry."""


class DispatchEntry:
    """One record: its place, and what its queue and the index take from it."""

    __slots__ = (
        "more_queues",
        "place",
        "properties",
        "queue",
        "result",
        "sys_flag",
        "tags_code",
        "topic",
    )

    def __init__(
        self,
        place: Place,
        queue: ConsumeQueue | None,
        topic: str,
        properties: StoredProperties,
        tags_code: int,
        record_sys_flag: int = 0,
        result: PutResult | None = None,
    ) -> None:
        """`queue` is None for a record that enters no consume queue. `result` is the answer to a put, which a commit
        that fails turns into a refusal."""
        self.place = place
        self.queue = queue
        self.topic = topic
        self.properties = properties
        self.sys_flag = record_sys_flag
        self.tags_code = tags_code
        self.result = result
        # INNER_MULTI_DISPATCH: further queues that receive an entry of the same message, each with its queue offset.
        self.more_queues: list[tuple[ConsumeQueue, int]] | None = None

    def index_keys(self) -> IndexKeys | None:
        """Return what the index gets of this record, None if that is nothing."""
        uniq_key, keys = self.properties.uniq_key, self.properties.keys
        if not uniq_key and (not keys or not keys.strip(" ")):
            return None
        if self.sys_flag & sys_flag.TRANSACTION_MASK == sys_flag.TRANSACTION_ROLLBACK:
            return None
        place = self.place
        return self.topic, uniq_key, keys, place.physical_offset, place.store_timestamp

    def queue_places(self) -> list[tuple[ConsumeQueue, int]]:
        """Return all queues that receive an entry of the message, each with its queue offset."""
        first = [(self.queue, self.place.queue_offset)] if self.queue is not None else []
        return first + self.more_queues if self.more_queues is not None else first


class SharedEntry(DispatchEntry):
    """One entry for all records that were appended together: those of a batch, or delayed messages that were delivered
    together (store/writing/delivering.py). An entry of each would cost more than its record. Their result, which is
    also the place of the first, answers for all; none is of a transaction, and no queue has ext units."""

    __slots__ = ("records",)

    def __init__(self, result: PutResult, records: list[RecordOfMany]) -> None:
        super().__init__(result, None, "", NONE, 0, 0, result)
        self.records = records

    def queue_places(self) -> list[tuple[ConsumeQueue, int]]:
        """Return the places in the order in which they are taken back: the first one of a queue last."""
        return [(each[0], each[1]) for each in reversed(self.records)]


# (topic, properties) -> bit map of the ext unit, or None (the broker's bloom filter over SQL92 groups).
BitMapOf = Callable[[str, StoredProperties], bytes | None]


class Dispatch:
    """Applies entries in log order. Owns nothing: queues and index belong to the store."""

    def __init__(
        self, queues: QueueTable, index: Index, delay_levels: DelayLevels, *, multi_dispatch: bool, lmq: bool
    ) -> None:
        self._queues = queues
        self._index = index
        self._delay_levels = delay_levels
        self._multi_dispatch = multi_dispatch
        self.bit_map_of: BitMapOf | None = None
        self._lmq = lmq

    def apply(self, entry: DispatchEntry) -> None:
        """Add the queue entries and index keys of one committed record. Never raises: a failing index stalls."""
        self.apply_all((entry,))

    def apply_all(self, entries: Iterable[DispatchEntry]) -> None:
        """Add the queue entries and index keys of committed records, which come in the order of the log."""
        messages: list[IndexKeys] = []
        touched = self._queues.touched
        for entry in entries:
            queue = entry.queue
            if queue is not None:
                place = entry.place
                if queue.ext is not None:
                    self.add(queue, entry)
                elif queue.add(place.physical_offset, place.size_bytes, entry.tags_code):  # as `add`, without the call
                    touched.append(queue)
                if entry.more_queues is not None:
                    for more, _ in entry.more_queues:
                        self.add(more, entry)
            elif isinstance(entry, SharedEntry):
                self._add_records(entry, messages)
                continue
            keys = entry.index_keys()
            if keys is not None:
                messages.append(keys)
        if messages:
            self._add_to_index(messages)

    def _add_records(self, entry: SharedEntry, messages: list[IndexKeys]) -> None:
        touched, store_timestamp = self._queues.touched, entry.place.store_timestamp
        for queue, _, physical_offset, size_bytes, tags_code, uniq_key, keys in entry.records:
            if queue.add(physical_offset, size_bytes, tags_code):
                touched.append(queue)
            if uniq_key or (keys and keys.strip(" ")):
                messages.append((queue.topic, uniq_key, keys, physical_offset, store_timestamp))

    def add(self, queue: ConsumeQueue, entry: DispatchEntry) -> None:
        """Add the entry of one record to one queue."""
        place = entry.place
        tags_code = entry.tags_code
        if queue.ext is not None:
            bit_map = self.bit_map_of(entry.topic, entry.properties) if self.bit_map_of is not None else None
            tags_code = queue.ext.put(ExtUnit(tags_code, place.store_timestamp, bit_map))
        if queue.add(place.physical_offset, place.size_bytes, tags_code):
            self._queues.touched.append(queue)

    def _add_to_index(self, messages: list[IndexKeys]) -> None:
        index = self._index
        if not index.is_enabled or index.stalled_at >= 0:
            return
        try:
            index.add(messages)
        except OSError as error:
            index.failed(error)

    def add_missing_to_index(self, entry: DispatchEntry) -> None:
        """Add the keys that the index lacks of a record, which may be its newest one with only some keys present."""
        index = self._index
        keys = entry.index_keys()
        if keys is None:
            return
        if entry.place.physical_offset > index.end_physical_offset:
            self._add_to_index([keys])
            return
        try:
            index.add_missing(keys)
        except OSError as error:
            index.failed(error)

    def index_again(self, commit_log: StoreLog, begin: int, stop: int) -> int:
        """Index the records from `begin` on until one begins at or after `stop`. Return the offset reached, or -1 if
        the index failed again. The index stays stalled at the record with which to continue."""
        index = self._index
        scan = LogScan(commit_log, begin, check_crc=False, stop=stop)
        for fields in scan.records():
            if fields.physical_offset < index.end_physical_offset:
                continue
            entry = self.entry_of(fields)
            index.stalled_at = -1
            self.add_missing_to_index(entry)
            if index.stalled_at >= 0:
                return -1
        index.stalled_at = scan.end
        return scan.end

    # -- from the bytes of the log -----------------------------------------------------------------------------------

    def entry_of(self, fields: ScannedRecord) -> DispatchEntry:
        """Return the DispatchEntry of a record in the log."""
        topic = fields.topic.decode("utf-8", "replace")
        properties = read(fields.properties)
        queue = self._queue_of(topic, fields)
        tags_code = self._tags_code(topic, properties, fields.store_timestamp)
        entry = DispatchEntry(fields, queue, topic, properties, tags_code, fields.sys_flag)
        if self._multi_dispatch and queue is not None:
            offsets = properties.get(names.INNER_MULTI_QUEUE_OFFSET)
            if offsets is not None:
                entry.more_queues = self._more_queues(properties, offsets, fields.queue_id)
        return entry

    def _queue_of(self, topic: str, fields: ScannedRecord) -> ConsumeQueue | None:
        if fields.sys_flag & sys_flag.TRANSACTION_PREPARED:  # the bit that prepared and rollback share
            return None
        try:
            return self._queues.get(topic, fields.queue_id)
        except ValueError as error:
            log.warning(
                "record not dispatched: it names no usable queue",
                physical_offset=fields.physical_offset,
                error=str(error),
            )
            return None

    def _tags_code(self, topic: str, properties: StoredProperties, store_timestamp: int) -> int:
        if topic == SCHEDULE_TOPIC and (delay := properties.get(names.DELAY)) is not None:
            try:
                level = int(delay)
            except ValueError:
                level = 0
            if level > 0:
                return self._delay_levels.deliver_at(level, store_timestamp)
        return properties.tags_code

    def _more_queues(self, properties: StoredProperties, offsets: str, queue_id: int) -> list[tuple[ConsumeQueue, int]]:
        found: list[tuple[ConsumeQueue, int]] = []
        queue_names = (properties.get(names.INNER_MULTI_DISPATCH) or "").split(",")
        for name, offset in zip(queue_names, offsets.split(","), strict=False):
            try:
                found.append((self.multi_queue(name, queue_id), int(offset)))
            except ValueError as error:
                log.warning("multi dispatch skipped: it names an unusable queue", queue=name, error=str(error))
        return found

    def multi_queue(self, name: str, queue_id: int) -> ConsumeQueue:
        """Return the queue for one name in INNER_MULTI_DISPATCH. Raises ValueError."""
        return self._queues.get(name, 0 if self._lmq and name.startswith(LMQ_PREFIX) else queue_id)
