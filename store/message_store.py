"""MessageStore: one store directory, and the only face the rest of the broker sees of it (DefaultMessageStore).

Builds the parts and owns them: log, queues, index, checkpoint, flusher. It knows no request and no socket. Everything
runs in the thread of the event loop; `append`, `commit` and all reading are plain functions, only `load`, `run`,
`close` and waiting on watermarks are async. Threads only sync descriptors (see flush).
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import structlog
import trio

from triomq.protocol.bodies import fastjson
from triomq.protocol.clock import NowMs
from triomq.protocol.record import BatchUnit
from triomq.protocol.system_topics import LMQ_PREFIX, is_system_topic
from triomq.store.appending import Appending
from triomq.store.config import BrokerRole, FlushDiskType, StoreSettings
from triomq.store.delay import DelayLevels
from triomq.store.disk.files import Files
from triomq.store.disk.json_config import JsonFile
from triomq.store.disk.layout import Layout
from triomq.store.disk.mapped_file import OpenFiles
from triomq.store.disk.own_thread import OwnThread
from triomq.store.errors import StoreClosed, StoreLocked, StoreRefused
from triomq.store.fail_stop import FailStop
from triomq.store.log.commit_log import CommitLog
from triomq.store.queues.consume_queue import ENTRY, ConsumeQueue
from triomq.store.queues.dispatch import BitMapOf, Dispatch
from triomq.store.queues.index import Index
from triomq.store.queues.queue_table import QueueTable
from triomq.store.raw_log import RawLog
from triomq.store.reading import Reading
from triomq.store.results import (
    ExtUnit,
    GetResult,
    MessageFilter,
    MessageToStore,
    PutResult,
    QueryResult,
    RecoveryReport,
)
from triomq.store.upkeep import recovery
from triomq.store.upkeep.checkpoint import Checkpoint
from triomq.store.upkeep.flush import PAGE_BYTES, Flush
from triomq.store.upkeep.progress import LogLines, Progress, Teller
from triomq.store.upkeep.recovery import Recovery
from triomq.store.upkeep.retention import Retention
from triomq.store.upkeep.tail_cut import TailCut
from triomq.store.upkeep.warm_up import WarmUp
from triomq.store.watermark import Watermark

log = structlog.get_logger("triomq.store")

Offload = Callable[..., Awaitable[Any]]

_LOAD_FILES = 3
_CATCH_UP_BYTES = 1 << 20


class MessageStore:
    """One store directory.

    Life: `await load()` (lock, recovery), then `await nursery.start(store.run)` (flusher and friends), at the end
    `await close()`. After `load` everything but the background tasks works, so tests may leave `run` out.

    `committed` and `flushed` are watermarks over physical offsets: what can be read, and what is on disk. To wait for a
    put, wait beyond `PutResult.last_offset`.
    """

    append: Callable[[MessageToStore], PutResult]
    """Encode one message behind what is pending. Nothing is readable before `commit`. Never raises for a message or a
    store that cannot take it: see PutResult.status. (Appending's own method: every message comes through here.)"""

    def __init__(
        self, settings: StoreSettings, *, now_ms: NowMs, files: Files | None = None, offload: Offload | None = None
    ) -> None:
        """`offload(function, *arguments)` runs a blocking function elsewhere; by default in a trio thread. Raises
        SettingError for settings that cannot be used."""
        self.settings = settings
        self.files = files or Files()
        self.paths = Layout(settings)
        self.committed = Watermark()
        self.flushed = Watermark()
        self.recovery_report: RecoveryReport | None = None
        self.delay_levels = DelayLevels(settings.message_delay_level)
        self._now_ms = now_ms
        self._lock_fd = -1
        self._is_open = False
        self._pool = OpenFiles(self.files, settings.max_open_files)
        self._log = CommitLog(self._pool, self.paths, settings.mapped_file_size_commit_log_bytes)
        self._queues = QueueTable(
            self._pool,
            self.files,
            self.paths,
            settings.mapped_file_size_consume_queue_bytes,
            settings.mapped_file_size_consume_queue_ext_bytes if settings.enable_consume_queue_ext else 0,
        )
        self._index = Index(
            self._pool,
            self.files,
            self.paths,
            settings.max_hash_slot_num,
            settings.max_index_num,
            settings.message_index_enable,
        )
        self._checkpoint = Checkpoint(self.files, self.paths.checkpoint)
        self._dispatch = Dispatch(
            self._queues,
            self._index,
            self.delay_levels,
            multi_dispatch=settings.enable_multi_dispatch,
            lmq=settings.enable_lmq,
        )
        marks = [self.committed, self.flushed]
        self._fail_stop = FailStop(self._refuse_broken, self.flushed, marks)
        self._appending = Appending(
            commit_log=self._log,
            queues=self._queues,
            dispatch=self._dispatch,
            committed=self.committed,
            flushed=self.flushed,
            now_ms=now_ms,
            max_message_bytes=settings.max_message_size_bytes,
            multi_dispatch=settings.enable_multi_dispatch,
            fail_stop=self._fail_stop,
        )
        self._appending.refuse("closed", "the store is not loaded yet")
        self.append = self._appending.append
        if self._has_buffer:
            self._appending.buffer_bytes = max(1, settings.commit_commit_log_least_pages) * PAGE_BYTES
            self._appending.accepted = Watermark()
            marks.append(self._appending.accepted)
        self._reading = Reading(self._log, self._queues, self._index, settings, self.files.physical_memory_bytes())
        self._log_thread = OwnThread("commit log sync")
        self._syncs_in_kernel = offload is None
        self._flush = Flush(
            files=self.files,
            commit_log=self._log,
            queues=self._queues,
            index=self._index,
            checkpoint=self._checkpoint,
            committed=self.committed,
            flushed=self.flushed,
            offload=offload or trio.to_thread.run_sync,
            offload_log=offload or self._log_thread,
            settings=settings,
            root=self.paths.root,
            last_store_timestamp=self._last_store_timestamp,
            fail_stop=self._fail_stop,
        )
        self._warm_up = WarmUp(self.files, self._log, offload or trio.to_thread.run_sync)
        self._retention = Retention(
            files=self.files,
            paths=self.paths,
            commit_log=self._log,
            queues=self._queues,
            index=self._index,
            appending=self._appending,
            now_ms=now_ms,
            offload=offload or trio.to_thread.run_sync,
            settings=settings,
        )
        self._offload = offload or trio.to_thread.run_sync
        self._raw = RawLog(
            commit_log=self._log,
            queues=self._queues,
            dispatch=self._dispatch,
            appending=self._appending,
            fail_stop=self._fail_stop,
        )
        self._tail_cut = TailCut(
            files=self.files,
            paths=self.paths,
            commit_log=self._log,
            queues=self._queues,
            index=self._index,
            checkpoint=self._checkpoint,
            flush=self._flush,
            committed=self.committed,
            flushed=self.flushed,
            offload=self._offload,
            fail_stop=self._fail_stop,
        )

    # -- life ------------------------------------------------------------------------------------------------------

    async def load(self, teller: Teller | None = None) -> None:
        """Lock the directory and recover; `teller` is told how far that is, by default the log. Raises StoreLocked,
        StoreRefused, OSError."""
        self.lock()
        try:
            await self._load(teller or LogLines())
        except BaseException:
            self._pool.close_all()
            self.unlock()
            raise

    async def _load(self, teller: Teller) -> None:
        was_clean = not self.files.exists(self.paths.abort)
        self._load_log()
        self._queues.load(_LOAD_FILES)
        self._checkpoint.load()
        self._index.load()
        await trio.lowlevel.checkpoint()
        report = await self._recover(was_clean, teller)
        if self._checkpoint.safe_entries >= 0:
            self._queues.cleaned_start = self._checkpoint.safe_begin
        for queue in self._queues:
            queue.correct_min_offset(self._log.min_offset)
        self._index.open_for_writing()
        self._raw.dispatched_offset = self._reading.written_from = self._log.committed_offset
        self.committed.value = self.accepted.value = self._log.committed_offset
        # What recovery read after a crash may still be in memory only: the first flush covers it again.
        self.flushed.value = report.log_end if was_clean else min(report.scanned_from, report.log_end)
        self._appending.last_store_timestamp = self._newest_store_timestamp()
        self._make_abort_file()
        if self._checkpoint.note is not None:
            self._checkpoint.save()
        if self._syncs_in_kernel:
            self._flush.kernel_sync = self.files.kernel_sync()
        self._is_open = True
        self._appending.refuse("closed", None)
        self._appending.refuse("role", "the store belongs to a slave" if self._is_slave else None)
        log.info(
            "store loaded",
            root=self.paths.root,
            min_offset=self._log.min_offset,
            max_offset=self._log.committed_offset,
            queues=self._queues.count,
            was_clean=was_clean,
            records_read=report.records,
        )

    def _load_log(self) -> None:
        sequence = self._log.sequence
        directories = list(dict.fromkeys([*self.paths.commit_logs, *self.paths.read_only_commit_logs]))
        short = [file for directory in directories for file in sequence.load(directory)]
        for earlier, later in zip(sequence.files, sequence.files[1:], strict=False):
            if earlier.start == later.start:
                raise StoreRefused(f"{earlier.path} and {later.path} begin at the same offset; remove one of them")
        sizes = {self.files.path_size(file.path) for file in short}
        if len(short) > 1 and len(short) == len(sequence.files) and len(sizes) == 1 and sizes != {0}:
            raise StoreRefused(
                f"the commit log files in {directories[0]} have {sizes.pop()} bytes each, mappedFileSizeCommitLog is "
                f"{sequence.file_size_bytes}; set it to what wrote this store"
            )
        for file in short:
            log.warning("commit log file was too short, missing part reads as zeros", path=file.path)
            file.extend()

    async def _recover(self, was_clean: bool, teller: Teller) -> RecoveryReport:
        run = Recovery(
            files=self.files,
            paths=self.paths,
            commit_log=self._log,
            queues=self._queues,
            index=self._index,
            checkpoint=self._checkpoint,
            dispatch=self._dispatch,
            check_crc=self.settings.check_crc_on_recover,
            index_decides=self.settings.message_index_safe,
            is_live=self._live_topics(),
            begin_changes=self._make_abort_file,
            start_progress=partial(Progress, teller, self._now_ms),
        )
        if not was_clean:
            log.warning("the last run did not end cleanly, recovering", root=self.paths.root)
        self.recovery_report = run.report
        for _ in run.steps(was_clean=was_clean):
            await trio.lowlevel.checkpoint()
        return run.report

    def _live_topics(self) -> Callable[[str], bool]:
        """Which topics were not deleted, by topics.json; all when there is none."""
        data: Any = JsonFile(self.files, f"{self.paths.config}/topics.json", fastjson.loads).peek()
        try:
            topics = frozenset(data["topicConfigTable"])
        except (KeyError, TypeError):
            return lambda topic: True
        return lambda topic: topic in topics or topic.startswith(LMQ_PREFIX) or is_system_topic(topic)

    def _newest_store_timestamp(self) -> int:
        newest = max((queue for queue in self._queues if queue.end), key=_max_physical_end, default=None)
        entry = newest.entry(newest.end - 1) if newest is not None else None
        return max(0, self._log.store_timestamp_at(entry[0])) if entry is not None else 0

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Flush, checkpoint, clean: until cancelled. Raises StoreFailed as soon as a commit or a flush fails in a way
        that nobody foresaw, also when that was raised elsewhere and swallowed there."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._fail_stop.wait)
            nursery.start_soon(self._flush.run_log)
            nursery.start_soon(self._flush.run_queues)
            nursery.start_soon(self._retention.run)
            nursery.start_soon(self._retention.watch_disk)
            nursery.start_soon(self._try_again)
            if self.settings.warm_mapped_file_enable:
                nursery.start_soon(self._warm_up.run)
            if self._has_buffer:
                nursery.start_soon(self._commit_buffer)
            task_status.started()

    @property
    def _has_buffer(self) -> bool:
        settings = self.settings
        is_async = settings.flush_disk_type is FlushDiskType.ASYNC_FLUSH
        return settings.transient_store_pool_enable and is_async and settings.broker_role is not BrokerRole.SLAVE

    @property
    def has_stuck_buffer(self) -> bool:
        """With transientStorePoolEnable: messages were taken that cannot be written at present (a full disk)."""
        return self._appending.is_refused_for("log")

    @property
    def accepted(self) -> Watermark:
        """Physical offset up to which puts are taken: `committed`, or with transientStorePoolEnable already what is in
        memory (a crash of the process then loses up to commitIntervalCommitLog of it)."""
        return self._appending.accepted

    async def _commit_buffer(self) -> None:
        while True:
            await trio.sleep(self.settings.commit_interval_commit_log_ms / 1000)
            self._appending.commit()

    async def _try_again(self) -> None:
        """What a full disk held up: queue entries are written and the index is caught up as soon as there is room."""
        while True:
            await trio.sleep(1)
            if self._appending.has_backlog:
                self._appending.commit()
            if self._index.stalled_at >= 0:
                with self._fail_stop.during("catching up the index"):
                    await self._catch_up_index()

    async def _catch_up_index(self) -> None:
        """Index what was put since the index stalled, in steps that leave room for others."""
        begin = self._index.stalled_at
        if not self._index.has_room():
            return
        while begin < self._log.committed_offset:
            stop = min(begin + _CATCH_UP_BYTES, self._log.committed_offset)
            begin = self._dispatch.index_again(self._log, begin, stop)
            if begin < 0:
                return
            await trio.lowlevel.checkpoint()
        self._index.stalled_at = -1
        log.info("index caught up", physical_offset=begin)

    async def close(self) -> None:
        """Last commit, flush and checkpoint; removes the abort file; releases the lock. Nothing else may be running.
        When anything was broken, or breaks now, the abort file stays; a store that failed writes nothing more. Raises
        StoreFailed when it fails now; it is closed all the same."""
        if not self._is_open:
            return
        try:
            if self._fail_stop.failure is None:
                with trio.CancelScope(shield=True):
                    await self._finish()
        finally:
            self._release()

    async def _finish(self) -> None:
        """Get everything onto the disk, and note that it is there."""
        self._appending.commit()
        self._raw.dispatch()
        self._appending.refuse("closed", "the store is closed")
        with self._fail_stop.during("the last flush"):
            note = recovery.clean_note(self._log, self._queues, self._index)
            is_whole = self._raw.dispatched_offset == self._log.committed_offset or not self._is_slave
            await self._flush.flush_thoroughly(note if is_whole else None)

    def _release(self) -> None:
        """End all waits, give back threads, descriptors and the lock. The abort file goes when all went well."""
        self._is_open = False
        self._appending.refuse("closed", "the store is closed")
        self._log_thread.end()
        if self._flush.kernel_sync is not None:
            self._flush.kernel_sync.close()
            self._flush.kernel_sync = None
        self._warm_up.forget()
        try:
            with self._fail_stop.during("the end of a wait"):
                self._end_waits(StoreClosed("the store was closed"))
        finally:
            self._index.close()
            self._pool.close_all()
            if self._fail_stop.reason is None and not self._appending.has_backlog and self._index.stalled_at < 0:
                self.files.unlink(self.paths.abort)
                self.files.sync_directory(self.paths.root)
            self.unlock()

    def _end_waits(self, closed: StoreClosed) -> None:
        self.committed.fail(closed)
        self.accepted.fail(closed)
        self.flushed.fail(closed)
        for queue in self._queues:
            queue.drop_mark(closed)

    # -- lock and abort files ----------------------------------------------------------------------------------------

    def lock(self) -> None:
        """Keep other processes out of the directory; nothing happens when that is done already. `load` does it. Raises
        StoreLocked, and StoreRefused when a path cannot be a directory."""
        if self._lock_fd >= 0:
            return
        for directory in (self.paths.root, *self.paths.commit_logs):
            try:
                self.files.make_directories(directory)
            except (FileExistsError, NotADirectoryError):
                raise StoreRefused(
                    f"{directory} cannot be a directory of the store: it is a file, or a part of the path is; set "
                    "storePathRootDir or storePathCommitLog to a directory, or move the file away"
                ) from None
        fd = self.files.create(self.paths.lock, 4)
        if not self.files.lock(fd):
            self.files.close(fd)
            raise StoreLocked(
                f"{self.paths.root} is in use by another process (Lock failed,MQ already started); stop that one or "
                "set storePathRootDir to another directory"
            )
        self._lock_fd = fd
        self.files.pwrite(fd, b"lock", 0)

    def unlock(self) -> None:
        if self._lock_fd >= 0:
            self.files.close(self._lock_fd)
            self._lock_fd = -1

    def _make_abort_file(self) -> None:
        """Its presence at the next start means that this run did not end cleanly."""
        text = f"{os.getpid()}".encode()
        fd = self.files.create(self.paths.abort, len(text))
        try:
            self.files.pwrite(fd, text, 0)
        finally:
            self.files.close(fd)
        self.files.sync_directory(self.paths.root)

    # -- state -------------------------------------------------------------------------------------------------------

    @property
    def refusal(self) -> str | None:
        """Why puts are refused at the moment (disk full, broken, closed, slave), or None."""
        return self._appending.refusal

    @property
    def is_broken(self) -> bool:
        """A write or sync failed, or something unforeseen was raised in a commit; only a restart helps."""
        return self._fail_stop.reason is not None

    def fail(self, doing: str, error: BaseException) -> None:
        """`error` ended `doing`, which had to be done for messages of this store, so it fails as if that had been a
        commit. Raises nothing itself; `run` does."""
        self._fail_stop.mark_failed(doing, error)

    @property
    def _is_slave(self) -> bool:
        return self.settings.broker_role is BrokerRole.SLAVE

    def _refuse_broken(self, reason: str) -> None:
        self._appending.refuse("broken", reason)

    def _last_store_timestamp(self) -> int:
        return self._appending.last_store_timestamp

    def change_settings(self, settings: StoreSettings) -> None:
        """Take changed settings into use (those declared changeable)."""
        self.settings = settings
        self._reading.settings = settings
        self._flush.settings = settings
        self._retention.settings = settings
        if settings.max_message_size_bytes >= 10:
            self._appending.max_message_bytes = settings.max_message_size_bytes

    # -- writing: plain functions, never await ----------------------------------------------------------------------

    def append_batch(self, message: MessageToStore, units: list[BatchUnit]) -> PutResult:
        """The units of a batch request as one consecutive run; `message` gives everything but flag, body and
        properties; its properties are appended to those of each unit."""
        return self._appending.append_batch(message, units)

    def commit(self) -> None:
        """Write, dispatch and publish everything appended. When the disk refuses the write, results and waiters get the
        error and nothing is raised. Whatever else goes wrong is raised as StoreFailed, and so is every later commit:
        nothing of it counts as stored, and the process has to end (fail_stop.py). With transientStorePoolEnable it may
        leave the writing to the next interval."""
        self._appending.commit(buffered=True)

    def append_raw(self, physical_offset: int, data: bytes) -> bool:
        """Slave side: log bytes as the master has them, at exactly the own end, within one log file. False when they do
        not fit there or cannot be written; the replication connection then starts over. They are written then, and in
        queues and index, and committed, after `dispatch_raw`, which is to follow soon."""
        return self._is_open and self._fail_stop.reason is None and self._raw.append(physical_offset, data)

    def dispatch_raw(self) -> None:
        """Enter the records among the bytes that `append_raw` wrote. Raises StoreFailed as `commit` does."""
        if self._is_open:
            self._raw.dispatch()

    @property
    def raw_fault(self) -> str | None:
        """Why nothing more can be taken from a master, or None."""
        return self._raw.fault

    async def record_border(self, physical_offset: int) -> int:
        """Where the record begins that holds the byte at this offset (the offset itself when one begins there)."""
        return await self._tail_cut.border(physical_offset)

    async def cut_tail(self, physical_offset: int) -> str | None:
        """Slave side: take back everything from this record border on, because the master has something else there;
        answers where it is saved, None when it cannot be done at present. Raises OSError."""
        if not self._is_slave or not self._is_open or self._fail_stop.reason is not None:
            return None
        if self._appending.has_pending or self._appending.has_backlog or self._index.stalled_at >= 0:
            return None
        if not max(0, self._log.min_offset) < physical_offset < self._log.committed_offset:
            return None
        self._raw.dispatch()
        saved = await self._tail_cut.cut(physical_offset, self._newest_store_timestamp)
        self._raw.restart(physical_offset)
        self._appending.last_store_timestamp = self._newest_store_timestamp()
        return saved

    def compute_bit_maps(self, bit_map_of: BitMapOf) -> None:
        """With enableConsumeQueueExt: called with topic and stored properties of every message, answers the bit map for
        its ext unit or None. To be set before `load`, which may dispatch messages."""
        self._dispatch.bit_map_of = bit_map_of

    # -- reading -------------------------------------------------------------------------------------------------------

    def get_messages(
        self, topic: str, queue_id: int, queue_offset: int, max_count: int, message_filter: MessageFilter | None = None
    ) -> GetResult:
        """Up to `max_count` messages from there; see GetResult.status for why there are none."""
        return self._reading.get_messages(topic, queue_id, queue_offset, max_count, message_filter)

    def record_at(self, physical_offset: int) -> bytes | None:
        """The whole record, or None when none begins at exactly this offset."""
        return self._reading.record_at(physical_offset)

    def read_log(self, physical_offset: int, max_bytes: int) -> bytes:
        """Committed log bytes from there, never across a file end (HA); empty at the end or outside the log."""
        return self._log.read_some(physical_offset, max_bytes)

    async def read_log_into(self, physical_offset: int, places: Sequence[memoryview]) -> int:
        """The same into `places`, one after the other; bytes read, 0 at the end or outside the log. What is not in
        memory is read in a thread: nobody else has to wait for the disk. Raises OSError."""
        file, size = self._log.run_at(physical_offset, sum(map(len, places)))
        if file is None:
            return 0
        parts = list(_first_bytes(places, size))
        at = physical_offset - file.start
        if count := self.files.pread_into(file.fd(), parts, at, wait=False):
            return count
        fd = file.borrow()
        try:
            with trio.CancelScope(shield=True):
                count = await self._offload(self.files.pread_into, fd, parts, at)
        finally:
            self.files.close(fd)
        return count

    @property
    def newest_queued_offset(self) -> int:
        """Physical offset of the newest record that is in a consume queue, -1 when there is none."""
        newest = max((queue for queue in self._queues if queue.end), key=_max_physical_end, default=None)
        entry = newest.entry(newest.end - 1) if newest is not None else None
        return entry[0] if entry is not None else -1

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Queue offset of the first message that is still there; 0 for an unknown queue."""
        queue = self._queues.find(topic, queue_id)
        return queue.min_offset if queue is not None else 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Queue offset of the next message; 0 for an unknown queue."""
        queue = self._queues.find(topic, queue_id)
        return queue.end if queue is not None else 0

    def queue_end(self, topic: str, queue_id: int) -> Watermark:
        """Its value is the queue's max offset; wait beyond the offset a consumer asked for. Raises ValueError for a
        name that cannot be a queue."""
        return self._queues.get(topic, queue_id).end_mark

    def queue_offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """Queue offset of the message stored nearest to that time; see Reading."""
        return self._reading.queue_offset_by_time(topic, queue_id, timestamp_ms)

    def store_time_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """STORETIMESTAMP of that message, -1 when there is none."""
        return self._reading.store_time_at(topic, queue_id, queue_offset)

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        """STORETIMESTAMP of the queue's first message, -1 when there is none."""
        return self._reading.store_time_at(topic, queue_id, self.min_offset(topic, queue_id))

    def earliest_log_time(self) -> int:
        """STORETIMESTAMP of the first record of the log, -1 when there is none."""
        return self._log.store_timestamp_at(self._log.min_offset) if self._log.min_offset >= 0 else -1

    def queue_entries(self, topic: str, queue_id: int, queue_offset: int, count: int) -> list[tuple[int, int, int]]:
        """(physical offset, size, tags code) of consecutive entries from there, at most to the end of that queue file:
        QUERY_CONSUME_QUEUE, delay delivery. A filler has the size 0x7FFFFFFF."""
        queue = self._queues.find(topic, queue_id)
        return list(ENTRY.iter_unpack(queue.entries(queue_offset, count))) if queue is not None else []

    def leads_to_ext_unit(self, topic: str, queue_id: int, tags_code: int) -> bool:
        """Is what the queue's entry says instead of a tags code the address of an ext unit (enableConsumeQueueExt)?"""
        queue = self._queues.find(topic, queue_id)
        return queue is not None and queue.ext is not None and queue.ext.is_address(tags_code)

    def ext_unit(self, topic: str, queue_id: int, address: int) -> ExtUnit | None:
        """The ext unit at the address that an entry of the queue says; None when there is none."""
        queue = self._queues.find(topic, queue_id)
        return queue.ext.read(address) if queue is not None and queue.ext is not None else None

    def query_by_key(self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int) -> QueryResult:
        """Messages with this key (KEYS or UNIQ_KEY) stored between the times; may hold a few whose key only has the
        same hash."""
        return self._reading.query_by_key(topic, key, max_count, begin_ms, end_ms)

    @property
    def min_physical_offset(self) -> int:
        """-1 when there is no log file."""
        return self._log.min_offset

    @property
    def max_physical_offset(self) -> int:
        return self._log.committed_offset

    # -- administration ----------------------------------------------------------------------------------------------

    def queues(self) -> dict[str, list[int]]:
        """Topic -> queue ids that hold or held messages."""
        return self._queues.topics()

    def delete_topic(self, topic: str) -> int:
        """Remove its consume queues; the log keeps the records. Answers how many queues went."""
        self._appending.commit()
        gone = [queue for queue in self._queues if queue.topic == topic]
        self._delete_queues(gone)
        return len(gone)

    def _delete_queues(self, gone: list[ConsumeQueue]) -> None:
        with suppress(OSError):  # a recovery then misses them and reads the whole log
            self._checkpoint.forget_offsets()
        for queue in gone:
            self._queues.delete(queue)

    def delete_unused_topics(self, used: Iterable[str]) -> int:
        """Remove the queues of every topic not in `used` (system topics and light queues stay)."""
        keep = frozenset(used)
        topics = [topic for topic in self._queues.topics() if topic not in keep]
        unused = [topic for topic in topics if not is_system_topic(topic) and not topic.startswith(LMQ_PREFIX)]
        return sum(self.delete_topic(topic) for topic in unused)

    def delete_expired_queues(self) -> int:
        """CLEAN_EXPIRED_CONSUMEQUEUE: remove queues whose messages are all below the log's start."""
        self._appending.commit()
        begin = self._log.min_offset
        expired = [queue for queue in self._queues if queue.end and queue.max_physical_end <= begin]
        expired = [queue for queue in expired if not is_system_topic(queue.topic)]
        for queue in expired:
            log.info("expired queue removed", topic=queue.topic, queue_id=queue.queue_id)
        self._delete_queues(expired)
        return len(expired)

    def delete_files_now(self) -> None:
        """DELETE_EXPIRED_COMMITLOG: let the cleaner run at once, whatever the hour."""
        self._retention.ask()

    def seconds_to_next_deletion(self) -> float:
        """Time to the next file of a retention that is busy deleting, inf when it waits for its hour."""
        return self._retention.seconds_to_next_deletion()


def _max_physical_end(queue: Any) -> int:
    end: int = queue.max_physical_end
    return end


def _first_bytes(places: Sequence[memoryview], size_bytes: int) -> Iterator[memoryview]:
    """Of the places, one after the other, what holds the first so many bytes."""
    for place in places:
        if size_bytes <= 0:
            return
        yield place[:size_bytes]
        size_bytes -= len(place)
