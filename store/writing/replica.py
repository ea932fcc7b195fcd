"""A slave's log: bytes as its master has them, and the queue and index entries derived from them.

    ... records in queues and index ... | dispatched_offset ... written bytes ... | end of the log

`append` writes bytes; `dispatch` enters the records among them. Between the two calls the slave may already report the
bytes to its master. They arrive in pieces of any size, so the log may end in the middle of a record; a record is
entered once it is complete. A record keeps its own queue offset, since the log of a slave may begin later than its
master's: fillers replace missing earlier entries. The queues of a topic end at the record of its deletion; where the
master wrote none, a queue restarts with the first message of the topic's next life. A cut that takes such a record
brings the queues back.

Received bytes are never trusted to be records. Where no record can begin, `fault` says so and no more bytes are
accepted.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import structlog
import trio

from triomq.protocol import record
from triomq.protocol.errors import RecordError
from triomq.protocol.message_to_store import Place
from triomq.store.contents import Contents, Opened
from triomq.store.errors import LogCut
from triomq.store.fail_stop import FailStop
from triomq.store.live_settings import LiveSettings
from triomq.store.log.deletion_record import deleted_topic
from triomq.store.log.log_scan import LogScan
from triomq.store.log.scanned_record import ScannedRecord, quick_record, scanned
from triomq.store.log.store_log import StoreLog
from triomq.store.log.table_record import is_table_record
from triomq.store.queues.consume_queue import ConsumeQueue
from triomq.store.queues.dispatch import Dispatch, DispatchEntry
from triomq.store.upkeep.tail_cut import TailCut
from triomq.store.writing.committing import Committing
from triomq.store.writing.silent_queues import SilentQueues

log = structlog.get_logger("triomq.store.writing.replica")

MAX_GAP_ENTRIES = 5_000_000
"""A larger gap in queue offsets is treated as a damaged number (recovery has a similar check)."""
_STEP_RECORDS: Final = 256
_WRITE_EVERY: Final = 50_000


class Replica:
    """`DefaultMessageStore.replica`. Only a slave's store may be written through it."""

    def __init__(
        self,
        contents: Contents,
        settings: LiveSettings,
        dispatch: Dispatch,
        committing: Committing,
        tail_cut: TailCut,
        fail_stop: FailStop,
        silent: SilentQueues,
    ) -> None:
        self._contents = contents
        self._log = contents.log
        self._queues = contents.queues
        self._settings = settings
        self._dispatch = dispatch
        self._committing = committing
        self._tail_cut = tail_cut
        self._fail_stop = fail_stop
        self._silent = silent
        self._is_open = False
        self._filled: list[ConsumeQueue] = []
        # Bytes that are written but not dispatched, with their offsets, so that they need not be read back.
        self._pieces: list[tuple[int, bytes]] = []
        self.dispatched_offset = 0
        self._on_deleted: Callable[[str], None] | None = None
        self._on_tables: Callable[[bytes], None] | None = None
        self.fault: str | None = None
        """The reason why no more bytes can be accepted from the master, or None."""

    def tell(self, *, deleted: Callable[[str], None] | None, tables: Callable[[bytes], None] | None) -> None:
        """Call `deleted` with each topic whose deletion arrives from now on, and `tables` with the body of each record
        with changes of tables."""
        self._on_deleted = deleted
        self._on_tables = tables

    def begin(self, opened: Opened) -> None:
        self.dispatched_offset = opened.log_end
        self._is_open = True

    def end(self) -> None:
        """Dispatch the received records and accept no more bytes. Raises StoreFailed if they cannot be dispatched."""
        self.dispatch()
        self._is_open = False

    @property
    def is_whole(self) -> bool:
        """Whether every byte of the log belongs to a complete, dispatched record."""
        return self.dispatched_offset == self._log.committed_offset

    def append(self, physical_offset: int, data: bytes) -> bool:
        """Append log bytes of the master at exactly the end of this log and within one log file.

        Return False if they do not fit there or cannot be written; the replication connection then starts over. The
        `committed` watermark, queues and index include them after `dispatch`, which must follow soon.
        """
        if not self._is_open or self._fail_stop.reason is not None:
            return False
        if self._committing.has_pending or self.fault is not None:
            return False
        if self._committing.has_backlog:  # queue entries wait for space on the disk; their number needs a bound
            return False
        if self._log.min_offset < 0 and self._log.committed_offset == 0:
            self._committing.begin_log_at(physical_offset)
            self.dispatched_offset = physical_offset
        if physical_offset != self._log.next_offset:
            return False
        if len(data) > self._log.next_file_start(physical_offset) - physical_offset:
            return False
        try:
            self._log.append_raw(data)
        except OSError as error:
            log.error("replicated bytes not written", physical_offset=physical_offset, error=str(error))
            return False
        except BaseException as error:
            self._fail_stop.fail("writing replicated bytes", error)
        self._pieces.append((physical_offset, data))
        return True

    def dispatch(self) -> None:
        """Enter the complete records among the received bytes; the rest waits for more. Raises StoreFailed."""
        if not self._is_open:
            return
        self._fail_stop.check()
        if not self._pieces:
            return
        with self._fail_stop.during("dispatching replicated records"):
            pieces, self._pieces = self._pieces, []
            last_timestamp = 0
            for begin, data in pieces:
                last_timestamp = max(last_timestamp, self._enter_records(begin, data))
            self._committing.dispatched(last_timestamp)
            for queue in self._filled:
                queue.correct_min_offset(self._log.min_offset)
            self._filled.clear()

    def enter(self, entries: list[DispatchEntry], end: int) -> None:
        """Enter records that a quorum has committed, up to `end`: the log is read back where a leader wrote it."""
        for entry in entries:
            self._enter(entry)
        self.dispatched_offset = self._log.committed_offset = end
        self._committing.dispatched(entries[-1].place.store_timestamp if entries else 0)
        for queue in self._filled:
            queue.correct_min_offset(self._log.min_offset)
        self._filled.clear()

    async def border(self, physical_offset: int) -> int:
        """Return the start of the record that holds the byte at this offset (the offset itself if one begins there)."""
        return await self._tail_cut.border(physical_offset)

    async def cut(self, physical_offset: int) -> str | None:
        """Truncate the log at this record border, because the master has other bytes there. Return the path of the
        saved bytes, or None if the cut is not possible at present. Raises OSError."""
        if not self._settings.is_slave or not self._is_open or self._fail_stop.reason is not None:
            return None
        if self._committing.has_pending or self._committing.has_backlog or self._contents.index.stalled_at >= 0:
            return None
        if not max(0, self._log.min_offset) < physical_offset < self._log.committed_offset:
            return None
        self.dispatch()
        returning = await self._deleted_behind(physical_offset)
        saved = await self._tail_cut.cut(physical_offset, are_queues_whole=not returning)
        self._pieces.clear()
        self.dispatched_offset = physical_offset
        self.fault = None
        self._committing.was_cut(self._contents.newest_store_timestamp)
        if returning:
            await self._bring_back(returning, physical_offset)
        return saved

    async def _deleted_behind(self, physical_offset: int) -> frozenset[str]:
        """Return the topics whose deletion is recorded at or behind this offset."""
        found: set[str] = set()
        scan = LogScan(self._log, physical_offset, check_crc=False, stop=self.dispatched_offset)
        for number, fields in enumerate(scan.records(), 1):
            topic = deleted_topic(fields.topic.decode("utf-8", "replace"), fields.sys_flag, fields.properties)
            if topic is not None:
                found.add(topic)
            if number % _STEP_RECORDS == 0:
                await trio.lowlevel.checkpoint()
        return frozenset(found)

    async def _bring_back(self, topics: frozenset[str], end: int) -> None:
        """Build the queues of some topics again from the whole log, which ends at `end`: their deletion was in the part
        of the log that was cut off. Nothing is appended meanwhile. If this is interrupted, the next start does it: no
        checkpoint claims any queue."""
        log.warning("deletion of topics cut off; their queues are made again", topics=sorted(topics)[:20])
        self._is_open = False
        try:
            for topic in topics:
                self._queues.delete_topic(topic)
            scan = LogScan(self._log, max(0, self._log.min_offset), check_crc=False, stop=end)
            for number, fields in enumerate(scan.records(), 1):
                self._add_again(self._dispatch.entry_of(fields), topics)
                if number % _STEP_RECORDS == 0:
                    await trio.lowlevel.checkpoint()
            self._committing.dispatched(0)
            for topic in topics:
                for queue in self._queues.of_topic(topic):
                    queue.correct_min_offset(self._log.min_offset)
        except BaseException:
            self._fail_stop.broke("the queues of topics whose deletion was cut off are incomplete")
            raise
        self._is_open = True

    def _add_again(self, entry: DispatchEntry, topics: frozenset[str]) -> None:
        """Add the record's entry to those of its queues that are of these topics, or end the topic that it deletes."""
        ended = deleted_topic(entry.topic, entry.sys_flag, entry.properties.text) if entry.queue is None else None
        if ended is not None and ended in topics:
            self._end_topic(ended)
        for queue, queue_offset in entry.queue_places():
            if queue.topic in topics:
                self._make_room(queue, queue_offset)
                self._dispatch.add(queue, entry)
                if queue.buffered_count >= _WRITE_EVERY:
                    self._committing.dispatched(0)

    def _enter_records(self, begin: int, data: bytes) -> int:
        """Enter the records that this piece completes. Return the store time (ms) of the last one."""
        length = len(data)
        last_timestamp = 0
        while (at := self.dispatched_offset - begin) < length:
            fields = quick_record(data, at, length, begin + at) if at >= 0 else None
            if fields is not None:
                self.dispatched_offset = begin + at + fields.size_bytes
            else:
                size = self._size_at(begin + at, begin + length)
                if size <= 0:
                    break
                self.dispatched_offset = begin + at + size
                fields = self._read_record(begin + at, size)
                if fields is None:
                    continue
            last_timestamp = fields.store_timestamp
            self._enter(self._dispatch.entry_of(fields))
        return last_timestamp

    def _read_record(self, at: int, size: int) -> ScannedRecord | None:
        """Return the record, read back because it arrived in several pieces or because `quick_record` does not cover
        it; None for a blank record and for bytes that only begin like a record."""
        data = self._log.read(at, size)
        if data is None or data[4:8] != _MAGIC:
            return None
        try:
            return scanned(record.read_fields(data, 0, size), at)
        except RecordError as error:
            log.error(
                "replicated bytes not recognised as a record; no queue gets them", physical_offset=at, error=str(error)
            )
            return None

    def _size_at(self, at: int, end: int) -> int:
        """Return the size of the complete record, or of the rest of the file, that begins at `at`; 0 if more bytes must
        arrive first or no record can begin there (`fault`)."""
        room = self._log.next_file_start(at) - at
        if room < record.BLANK_BYTES:
            return room
        head = self._log.read_some(at, record.BLANK_BYTES)
        if len(head) < record.BLANK_BYTES:
            return 0
        size = int.from_bytes(head[:4], "big", signed=True)
        if head[4:] == _BLANK_MAGIC and size == room:
            return room
        if head[4:] != _MAGIC or not record.FIXED_BYTES <= size <= room:
            self.fault = (
                f"no record begins at {at} (size {size}): the master's log is damaged there, or its "
                f"mappedFileSizeCommitLog is not {self._log.file_size_bytes} as here"
            )
            log.error("replication stopped: the master's bytes are not records", reason=self.fault)
            return 0
        return size if at + size <= end else 0

    def _enter(self, entry: DispatchEntry) -> None:
        if entry.queue is not None:
            self._make_room(entry.queue, entry.place.queue_offset)
            for more, queue_offset in entry.more_queues or ():
                self._make_room(more, queue_offset)
        else:
            topic = deleted_topic(entry.topic, entry.sys_flag, entry.properties.text)
            if topic is not None:
                self._end_topic(topic)
            elif self._on_tables is not None and is_table_record(entry.topic, entry.sys_flag):
                self._on_tables(body_of(self._log, entry.place))
        self._dispatch.apply(entry)

    def _end_topic(self, topic: str) -> None:
        """Remove the queues of a topic that the master deleted."""
        self._committing.dispatched(0)  # writes what is buffered
        with suppress(OSError):  # safe: recovery then finds entries missing and reads the whole log
            self._contents.checkpoint.forget_offsets()
        for queue in self._queues.of_topic(topic):
            queue.end_mark.reject(LogCut(f"queue {queue.queue_id} of {queue.topic} was restarted"))
        self._filled = [queue for queue in self._filled if queue.topic != topic]
        count = self._queues.delete_topic(topic)
        if self._on_deleted is not None:
            self._on_deleted(topic)
        log.info("queues removed: the master deleted their topic", topic=topic, queues=count)

    def _make_room(self, queue: ConsumeQueue, queue_offset: int) -> None:
        """Make the queue end at the record's queue offset, by fillers or by truncation."""
        expected = queue.end + queue.buffered_count
        if queue_offset == expected:
            return
        if queue_offset < expected:
            log.warning(
                "queue restarted by the master",
                topic=queue.topic,
                queue_id=queue.queue_id,
                queue_offset=queue_offset,
                before=expected,
            )
            self._committing.dispatched(0)  # writes what is buffered
            if queue.buffered_count:
                return
            if queue_offset < queue.first_in_files:
                self._silent.begin_anew(queue)
            else:
                queue.end_mark.reject(LogCut(f"queue {queue.queue_id} of {queue.topic} was restarted"))
                queue.cut(queue_offset)
                queue.min_offset = min(queue.min_offset, queue_offset)
                return
        elif self._silent.is_silent(queue):
            self._silent.drop_files_before(queue, queue_offset)
        elif expected and queue_offset - expected > MAX_GAP_ENTRIES:
            log.error(
                "implausible queue offset received",
                topic=queue.topic,
                queue_id=queue.queue_id,
                queue_offset=queue_offset,
                expected=expected,
            )
            return
        self._queues.fill(queue, queue_offset)
        self._filled.append(queue)


def body_of(log: StoreLog, place: Place) -> bytes:
    """Return the body of a record that is written to the log, also if it is not committed yet. Raises RecordError."""
    file = log.sequence.find(place.physical_offset)
    data = file.read(place.physical_offset - file.start, place.size_bytes) if file is not None else b""
    fields = record.read_fields(data, 0, len(data))
    return data[fields.body_at : fields.body_at + fields.body_length]


_MAGIC = record.MESSAGE_MAGIC_BYTES
_BLANK_MAGIC = record.BLANK_MAGIC_BYTES
