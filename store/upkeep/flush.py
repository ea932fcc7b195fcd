"""The flusher: syncs log, queues and index, advances the `flushed` watermark and writes the checkpoint.

The syncs run outside of the event loop (file_syncs.py). With SYNC_FLUSH the log is synced about a thousand times a
second. Where the kernel supports it, such a sync needs no thread; elsewhere a dedicated thread runs it.

Why the watermark and the checkpoint never run ahead of the disk: each flush first records the values that it will
publish (end of the log, ends of the queues, store time) and only then submits the sync. Everything up to those values
was written to the kernel before, so the sync covers it. The sync may or may not cover bytes committed while it runs;
the published values exclude them, and they stay dirty for the next flush.

A failed fdatasync is never repeated: the kernel may have dropped the dirty pages, and a second call would succeed
without them. The store is then broken until it is opened again, and recovery reads what is really on disk. A sync that
could not begin, for want of a descriptor or of room in the kernel, has lost nothing: it is repeated, and until then
nothing counts as flushed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import structlog
import trio

from triomq.store.config import FlushDiskType
from triomq.store.contents import Contents, Marks
from triomq.store.disk.files import PAGE_BYTES
from triomq.store.disk.mapped_file import MappedFile
from triomq.store.disk.worker_thread import Offload
from triomq.store.errors import StoreError, SyncNotBegun
from triomq.store.fail_stop import FailStop
from triomq.store.live_settings import LiveSettings
from triomq.store.log.checkpoint import CleanNote
from triomq.store.queues.consume_queue import ENTRY_BYTES, ConsumeQueue
from triomq.store.upkeep.file_syncs import FileSyncs

log = structlog.get_logger("triomq.store.flush")

SyncObserver = Callable[[str, float, bool], None]
"""Called after each sync: of what ("commitlog", "consumequeue", "index"), seconds, whether it failed."""

RETRY_SECONDS = 0.1
"""The pause after a sync of the log that could not begin."""
# Files closed after a sync that could not begin: one for each descriptor that it needs, file and directory.
_CLOSED_FOR_A_SYNC = 2
# A checkpoint is due at the latest when the log has grown by this much, which recovery reads in about a second.
_CHECKPOINT_BYTES = 256 << 20
# Above this number of files, their whole file system is synced: thousands of fdatasync calls take half a minute.
_SYNC_ONE_BY_ONE = 64


class Flush:
    """The store's flusher."""

    def __init__(
        self,
        contents: Contents,
        settings: LiveSettings,
        marks: Marks,
        fail_stop: FailStop,
        *,
        offload: Offload,
        offload_log: Offload,
        last_store_timestamp: Callable[[], int],
    ) -> None:
        self._open_files = contents.open_files
        self._log = contents.log
        self._queues = contents.queues
        self._index = contents.index
        self._checkpoint = contents.checkpoint
        self._settings = settings
        self._marks = marks
        self._fail_stop = fail_stop
        self._last_store_timestamp = last_store_timestamp
        self.on_synced: SyncObserver | None = None
        self._syncs = FileSyncs(contents.files, contents.paths.root, offload, offload_log)
        self._is_doubtful = False
        """Queue entries were written that no sync can prove (file_syncs.py): no checkpoint claims them, so the next
        start reads the log from what the last one claimed."""
        self._is_short = False
        self._log_lock = trio.Lock()
        self._queue_lock = trio.Lock()

    def close(self) -> None:
        """Release what `begin` took. No sync may be running."""
        self._syncs.close()

    @asynccontextmanager
    async def halted(self) -> AsyncIterator[None]:
        """Keep syncs of the log and of the queues from running inside this context."""
        async with self._log_lock, self._queue_lock:
            yield

    # -- log -------------------------------------------------------------------------------------------------------

    async def begin(self, *, in_kernel: bool) -> None:
        """Sync what a recovery read or changed, before it is served, and note in the checkpoint that this was
        done. Until `close`, sync the log `in_kernel`, where that is supported. Raises StoreBroken, OSError."""
        self._syncs.begin(in_kernel=in_kernel)
        await self.cover()
        self._checkpoint.synced_offset = self._marks.flushed.value
        self._checkpoint.save()

    async def cover(self) -> None:
        """Return when everything that is committed now is on disk. Raises StoreBroken, StoreFailed, StoreClosed."""
        target, flushed = self._log.committed_offset, self._marks.flushed
        while flushed.error is None and flushed.value < min(target, self._log.committed_offset):
            if not await self.flush_log():
                await trio.sleep(RETRY_SECONDS)
        if flushed.error is not None:
            raise flushed.error

    async def run_log(self) -> None:
        """Flush the log until cancelled: with SYNC_FLUSH as soon as something is committed (all messages that arrive
        during a sync share the next one), otherwise once per interval."""
        with self._fail_stop.during("flushing the commit log"):
            await self._keep_flushing_log()

    async def _keep_flushing_log(self) -> None:
        last_flush = trio.current_time()
        seen = self._log.written_offset
        while self._marks.flushed.error is None:
            settings = self._settings.now
            if settings.flush_disk_type is FlushDiskType.SYNC_FLUSH:
                with suppress(StoreError):  # a refused commit or a truncated log: wait again
                    await self._marks.written.wait_beyond(self._marks.flushed.value)
                if not await self.flush_log():
                    await trio.sleep(RETRY_SECONDS)
                continue
            await trio.sleep(settings.flush_interval_commit_log_ms / 1000)
            written = self._log.written_offset
            dirty = written - self._marks.flushed.value
            is_idle, seen = written == seen, written
            thorough = trio.current_time() - last_flush >= settings.flush_commit_log_thorough_interval_ms / 1000
            if dirty <= 0:
                last_flush = trio.current_time()
            elif is_idle or thorough or dirty >= settings.flush_commit_log_least_pages * PAGE_BYTES:
                await self.flush_log()
                last_flush = trio.current_time()

    async def flush_log(self) -> bool:
        """Sync all bytes written so far. Return False if the sync could not begin; then try again. A failure breaks
        the store and is not raised."""
        async with self._log_lock:
            target = self._log.begin_sync()
            if target <= self._marks.flushed.value or self._marks.flushed.error is not None:
                return True
            store_timestamp = self._last_store_timestamp()
            directories = sorted(self._log.unsynced_directories)
            self._log.unsynced_directories.clear()
            began = trio.current_time()
            try:
                await self._syncs.of_log(self._log.files_between(self._marks.flushed.value, target), directories)
            except SyncNotBegun as error:
                self._log.unsynced_directories.update(directories)
                self._not_begun("commit log", error)
                return False
            except OSError as error:
                self._log.sync_failed()
                self._synced("commitlog", began, has_failed=True)
                self._fail_stop.broke(f"the commit log cannot be synced: {error}")
                return True
            self._synced("commitlog", began)
            self._checkpoint.log_ms = max(self._checkpoint.log_ms, store_timestamp)
            self._has_begun()
            self._marks.flushed.advance(self._log.end_sync(target))
            return True

    def _synced(self, what: str, began: float, *, has_failed: bool = False) -> None:
        if self.on_synced is not None:
            self.on_synced(what, trio.current_time() - began, has_failed)

    def _not_begun(self, what: str, error: SyncNotBegun) -> None:
        for _ in range(_CLOSED_FOR_A_SYNC):
            self._open_files.close_one()
        if not self._is_short:
            self._is_short = True
            log.error("sync not begun; it is tried until it can begin", of=what, error=str(error))

    def _has_begun(self) -> None:
        if self._is_short:
            self._is_short = False
            log.info("syncs begun again")

    # -- queues, index, checkpoint -----------------------------------------------------------------------------------

    async def run_queues(self) -> None:
        """Flush consume queues and index until cancelled. At the thorough interval, or when the log has grown so far
        that a recovery would take long, flush all of them and write the checkpoint."""
        with self._fail_stop.during("flushing the consume queues"):
            await self._keep_flushing_queues()

    async def _keep_flushing_queues(self) -> None:
        last_thorough = trio.current_time()
        while self._marks.flushed.error is None:
            await trio.sleep(self._settings.now.flush_interval_consume_queue_ms / 1000)
            thorough_seconds = self._settings.now.flush_consume_queue_thorough_interval_ms / 1000
            unsafe_bytes = self._log.committed_offset - self._checkpoint.safe_offset
            if trio.current_time() - last_thorough >= thorough_seconds or unsafe_bytes >= _CHECKPOINT_BYTES:
                await self.flush_thoroughly()
                last_thorough = trio.current_time()
            else:
                await self.flush_queues(self._settings.now.flush_consume_queue_least_pages)
                await self.write_index()

    async def flush_queues(self, least_pages: int) -> bool:
        """Sync the queues that have at least `least_pages` dirty pages. Return False if the sync could not begin. A
        failure breaks the store."""
        async with self._queue_lock:
            least = least_pages * PAGE_BYTES
            dirty = [queue for queue in self._queues.dirty if (queue.end - queue.synced_end) * ENTRY_BYTES >= least]
            was_closed = self._open_files.closed_unsynced
            if not dirty and not was_closed and (least or not self._queues.unsynced_directories):
                return True
            directories = sorted(self._queues.unsynced_directories)
            self._queues.unsynced_directories.clear()
            ends = [queue.end for queue in dirty]
            files = _unsynced_files(dirty)
            began = trio.current_time()
            try:
                self._open_files.closed_unsynced = False
                if self._syncs.can_tell and (was_closed or len(files) + len(directories) > _SYNC_ONE_BY_ONE):
                    await self._syncs.of_file_system(files)
                else:
                    self._is_doubtful = self._is_doubtful or was_closed
                    await self._syncs.of_others(files, directories)
            except SyncNotBegun as error:
                self._queues.unsynced_directories.update(directories)
                self._open_files.closed_unsynced = was_closed
                self._not_begun("consume queues", error)
                return False
            except OSError as error:
                self._synced("consumequeue", began, has_failed=True)
                self._fail_stop.broke(f"the consume queues cannot be synced: {error}")
                return True
            self._synced("consumequeue", began)
            self._has_begun()
            for queue, end in zip(dirty, ends, strict=True):
                queue.synced_end = max(queue.synced_end, end)
                if queue.synced_end >= queue.end:
                    self._queues.dirty.pop(queue, None)
            return True

    async def write_index(self) -> None:
        """Write new index entries in parts between which other tasks run, since keys change pages all over the file. A
        write error is logged and stalls only the index."""
        try:
            page = 0
            while page >= 0:
                page = self._index.write_part(page)
                await trio.lowlevel.checkpoint()
        except OSError as error:
            self._index.failed(error)
        else:
            self._index.worked()

    async def flush_thoroughly(self, note: CleanNote | None = None) -> bool:
        """Sync log, queues and index, then write the checkpoint, which therefore never runs ahead of the disk. Return
        False if a sync could not begin."""
        store_timestamp = self._last_store_timestamp()
        safe_offset = self._log.committed_offset
        begin = max(0, self._log.min_offset)
        ends = sum([queue.end for queue in self._queues])
        entries = ends - sum([queue.first_in_files for queue in self._queues])
        if self._queues.cleaned_start != begin:
            entries = -1
        deleted_count = self._queues.deleted_count
        has_begun = await self.flush_log()
        has_begun = await self.flush_queues(0) and has_begun
        is_index_safe = await self._flush_index() and not self._open_files.closed_unsynced
        if self._marks.flushed.error is not None or not has_begun:
            return has_begun
        self._checkpoint.synced_offset = self._marks.flushed.value
        if not self._queues.touched and not self._is_doubtful:  # and no queue entry waits for space on the disk
            self._checkpoint.queues_ms = max(self._checkpoint.queues_ms, store_timestamp)
            if deleted_count == self._queues.deleted_count:
                self._checkpoint.safe_offset = safe_offset
                self._checkpoint.safe_ends = ends
                self._checkpoint.safe_begin = begin
                self._checkpoint.safe_entries = entries
                if is_index_safe:
                    self._checkpoint.safe_index_offset = safe_offset
        try:
            self._checkpoint.save(note if not self._is_doubtful else None)
        except OSError as error:
            log.error("checkpoint not written", error=str(error))
        return True

    async def _flush_index(self) -> bool:
        """Sync the index. Return whether all keys of the messages committed before are on disk now."""
        if not self._index.is_enabled or self._index.stalled_at >= 0:
            return False
        if not self._index.files:  # no message had a key
            return True
        filled = list(self._index.filled)
        current = self._index.files[-1]
        try:
            current.write_out()
            # RocketMQ stores the end timestamp of a full file. One less is safe for a file that still grows: more
            # messages may arrive in the same millisecond.
            end_timestamp = current.end_timestamp - 1
            await self._syncs.of_others([file.file for file in (*filled, current)], [])
        except (OSError, SyncNotBegun) as error:
            log.error("index not synced", error=str(error))
            return False
        self._index.filled = [file for file in self._index.filled if file not in filled]
        self._checkpoint.index_ms = max(self._checkpoint.index_ms, end_timestamp)
        return True


def _unsynced_files(queues: list[ConsumeQueue]) -> list[MappedFile]:
    """Return the files that hold entries not yet synced, and the queues' unsynced ext files."""
    found: list[MappedFile] = []
    for queue in queues:
        begin = queue.synced_end * ENTRY_BYTES
        found += [file for file in queue.sequence.files if file.end > begin and file.start < queue.end * ENTRY_BYTES]
        if queue.ext is not None:
            found += queue.ext.unsynced_files()
    return found
