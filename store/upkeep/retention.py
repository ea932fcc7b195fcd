"""Deleting old files, and refusing messages while the disk is nearly full (CleanCommitLogService,
CleanConsumeQueueService).

Holds the number of requested manual runs, the file that could not be deleted, and how many log files were deleted and
why; QueueTable.cleaned_start is the log start up to which queues were cleaned. Log files are deleted oldest first, and
never the last one. Then the queue and index files that point only below the log's start are deleted. With
archiveBeforeDelete, a log file that is not wholly below the archive mark stays, whatever the reason to delete it, and
so do the files after it.

Readers are safe: reads copy, and all of this runs in the store's own thread. Only the unlinks, which may take long, run
in a worker thread. A file that cannot be unlinked is retried after redeleteHangedFileInterval. Until it is gone,
nothing else is deleted: removing more files from the sequence would free no space.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from math import inf

import structlog
import trio

from triomq.protocol.clock import NowMs
from triomq.store.contents import Contents
from triomq.store.disk.mapped_file import MappedFile
from triomq.store.disk.worker_thread import Offload
from triomq.store.live_settings import LiveSettings
from triomq.store.queues.consume_queue import ENTRY_BYTES, ConsumeQueue
from triomq.store.refusals import Refusals
from triomq.store.upkeep.archive_mark import read_mark

log = structlog.get_logger("triomq.store.retention")

FIRST_CLEAN_SECONDS = 60.0
DISK_CHECK_SECONDS = 10.0
# The most log files that one run deletes, and the number of runs that one manual request starts.
FILES_PER_RUN = 10
MANUAL_RUNS = 20
_HOUR_MS = 3_600_000
_COUNTED_AS = {"expired": "expired", "disk nearly full": "disk_full", "maxStoreBytes": "max_store_bytes"}
_ASKED = "asked"
_QUEUES_PER_TURN = 200


class Retention:
    def __init__(
        self,
        contents: Contents,
        settings: LiveSettings,
        refusals: Refusals,
        now_ms: NowMs,
        offload: Offload,
        archived_until: Callable[[], int | None] | None = None,
    ) -> None:
        """`archived_until` returns the physical offset up to which the log is archived, by default the archive mark."""
        self._files = contents.files
        self._paths = contents.paths
        self._log = contents.log
        self._queues = contents.queues
        self._index = contents.index
        self._settings = settings
        self._refusals = refusals
        refusals.look_with("disk", self.check_disk)
        self._now_ms = now_ms
        self._offload = offload
        self._archived_until = archived_until or self._read_mark
        self._manual_runs = 0
        # No longer in its sequence, but still on the disk; and what it counts as once it is deleted.
        self._hung: tuple[str, str | None] | None = None
        self.deleted_files = dict.fromkeys([*_COUNTED_AS.values(), _ASKED], 0)
        self._redelete_at = 0.0
        self._wake = trio.Event()
        self._next_run = 0.0
        self._was_busy = False

    # -- tasks -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Clean every cleanResourceInterval until cancelled."""
        with trio.move_on_after(FIRST_CLEAN_SECONDS):
            await self._wake.wait()
        while True:
            try:
                self._was_busy = await self.clean() > 0
            except OSError as error:
                log.error("cleaning failed; the next run tries again", error=str(error))
            self._wake = trio.Event()
            self._next_run = trio.current_time() + self._settings.now.clean_resource_interval_ms / 1000
            with trio.move_on_at(self._next_run):
                await self._wake.wait()

    async def watch_disk(self) -> None:
        """Check the disk every ten seconds until cancelled. (A put that a full disk refuses looks again itself.)"""
        await trio.sleep(1)
        while True:
            self.check_disk()
            await trio.sleep(DISK_CHECK_SECONDS)

    def ask(self) -> None:
        """Let the next runs delete expired files regardless of deleteWhen; the first one begins now."""
        self._manual_runs = MANUAL_RUNS
        self._wake.set()

    def seconds_to_next_deletion(self) -> float:
        """Return the seconds to the next file during a run, or to the next run after one that deleted files; otherwise
        inf."""
        return self._next_run - trio.current_time() if self._was_busy else inf

    # -- disk --------------------------------------------------------------------------------------------------------

    def check_disk(self) -> None:
        """Refuse puts above the warning ratio, and exclude full directories from new log files."""
        settings = self._settings.now
        usage = {path: self._files.disk_usage_ratio(path) for path in self._paths.commit_logs}
        self._log.directories.full = frozenset(
            path for path, ratio in usage.items() if ratio > settings.disk_space_clean_forcibly_ratio
        )
        ratio = min(usage.values())
        was_full = self._refusals.has("disk")
        limit = settings.disk_space_warning_level_ratio
        if ratio > limit:
            emptiest = min(usage, key=lambda path: usage[path])
            text = f"the disk of {emptiest} is {ratio:.1%} full, messages are refused above {limit:.1%}"
            self._refusals.set("disk", f"{text} (diskSpaceWarningLevelRatio); free space or lower fileReservedTime")
            if not was_full:
                log.error("messages refused: the disk is nearly full", ratio=round(ratio, 3))
        elif was_full:
            self._refusals.set("disk", None)
            log.info("messages accepted again: the disk has room", ratio=round(ratio, 3))

    def usage_ratio(self) -> float:
        """Return the higher disk usage (0..1) of the log, by its emptiest directory, and of the queues."""
        of_log = min(self._files.disk_usage_ratio(path) for path in self._paths.commit_logs)
        return max(of_log, self._files.disk_usage_ratio(self._paths.root))

    # -- cleaning --------------------------------------------------------------------------------------------------

    async def clean(self) -> int:
        """Run once. Return the number of log files deleted. Raises OSError."""
        if self._hung is not None:
            if trio.current_time() < self._redelete_at:
                return 0
            await self._unlink(*self._hung)
            log.info("log file deleted at a later try", path=self._hung[0])
            self._hung = None
        gone = await self._clean_log()
        start = self._log.min_offset
        if start > self._queues.cleaned_start:
            await self._clean_queues(start)
            await self._clean_index(start)
            self._queues.cleaned_start = start
        return gone

    def _is_time(self, usage: float) -> bool:
        settings = self._settings.now
        if self._manual_runs > 0:
            self._manual_runs -= 1
            return True
        percent = min(95, max(10, settings.disk_max_used_space_ratio_percent))
        if usage * 100 > percent:
            return True
        hour = datetime.fromtimestamp(self._now_ms() / 1000).hour
        return any(part.strip().isdigit() and int(part) == hour for part in settings.delete_when.split(";"))

    async def _clean_log(self) -> int:
        settings = self._settings.now
        usage = self.usage_ratio()
        is_asked = self._manual_runs > 0
        is_time = self._is_time(usage)
        is_forced = usage > settings.disk_space_clean_forcibly_ratio and settings.clean_file_forcibly_enable
        gone = rested = 0
        archived = self._archived() if settings.archive_before_delete else None
        while len(files := self._log.sequence.files) > 1 and gone < FILES_PER_RUN:
            reason = self._why_delete(files[0], is_time, is_forced)
            if reason is None:
                break
            if archived is not None and files[0].end > archived:
                self._tell_behind(archived, is_time, is_forced)
                break
            if gone > rested:
                await trio.sleep(settings.delete_commit_log_files_interval_ms / 1000)
                rested = gone
                continue  # a slave may have truncated its log meanwhile
            file = self._log.detach_first()
            log.info("commit log file deleted", path=file.path, reason=reason)
            self._was_busy = True
            self._next_run = trio.current_time() + settings.delete_commit_log_files_interval_ms / 1000
            await self._unlink(file.path, _ASKED if is_asked and reason == "expired" else _COUNTED_AS.get(reason))
            gone += 1
        return gone

    def _why_delete(self, oldest: MappedFile, is_time: bool, is_forced: bool) -> str | None:
        settings = self._settings.now
        limit = settings.max_store_bytes
        if limit and self._log.committed_offset - oldest.start > limit:
            return "maxStoreBytes"
        if is_forced:
            return "disk nearly full"
        reserved_ms = settings.file_reserved_time_hours * _HOUR_MS
        try:
            if is_time and self._last_written_ms(oldest) + reserved_ms <= self._now_ms():
                return "expired"
        except FileNotFoundError:
            return "vanished"
        return None

    def _last_written_ms(self, oldest: MappedFile) -> int:
        """Return when the oldest file was written last. If its time has not come yet, the clock was ahead then, and it
        was written no later than those behind it. Raises FileNotFoundError."""
        modified_ms = self._files.modified_ms(oldest.path)
        if modified_ms > self._now_ms():
            for file in self._log.sequence.files:
                with suppress(FileNotFoundError):
                    modified_ms = min(modified_ms, self._files.modified_ms(file.path))
        return modified_ms

    def _read_mark(self) -> int | None:
        return read_mark(self._files, self._paths.archive_mark)

    def _archived(self) -> int:
        """Return the offset up to which the log is archived; 0 if nothing is, or if the mark cannot be used."""
        try:
            until = self._archived_until() or 0
            if until > self._log.committed_offset:
                raise ValueError(f"it says {until}, beyond the end of this log at {self._log.committed_offset}")
            return until
        except (OSError, ValueError) as error:
            log.error("archive mark rejected; nothing counts as archived", error=str(error))
            return 0

    def _tell_behind(self, archived: int, is_time: bool, is_forced: bool) -> None:
        """Log one line about the files that are due for deletion but wait for the archive."""
        waiting = 0
        size_bytes = 0
        for file in self._log.sequence.files[:-1]:
            if self._why_delete(file, is_time, is_forced) is None:
                break
            waiting += 1
            size_bytes += file.end - max(file.start, archived)
        log.warning(
            "log files kept: the archive is behind",
            files=waiting,
            size_bytes=size_bytes,
            archived_until=archived,
            log_start=self._log.min_offset,
        )

    async def _clean_queues(self, log_start: int) -> None:
        pause = self._settings.now.delete_consume_queue_files_interval_ms / 1000
        for number, queue in enumerate(self._queues):
            if number % _QUEUES_PER_TURN == 0:
                await trio.lowlevel.checkpoint()
            while len(queue.sequence.files) > 1 and _is_below(queue, log_start):
                file = queue.sequence.detach_first()
                await self._unlink(file.path)
                await trio.sleep(pause)
            queue.correct_min_offset(log_start)
            if queue.ext is not None:
                queue.clean_ext()

    async def _clean_index(self, log_start: int) -> None:
        pause = self._settings.now.delete_consume_queue_files_interval_ms / 1000
        for file in self._index.drop_before(log_start):
            file.close()
            await self._unlink(file.path)
            await trio.sleep(pause)

    async def _unlink(self, path: str, counted_as: str | None = None) -> None:
        """Delete a file, and count it for that reason if there is one. A file that is gone already does not count."""
        try:
            with trio.CancelScope(shield=True):
                await self._offload(self._remove, path)
        except FileNotFoundError:
            return
        except OSError:
            self._hung = path, counted_as
            self._redelete_at = trio.current_time() + self._settings.now.redelete_hung_file_interval_ms / 1000
            raise
        if counted_as is not None:
            self.deleted_files[counted_as] += 1

    def _remove(self, path: str) -> None:
        """Delete a file. A log in several directories loses its files in order, also by a power failure."""
        self._files.unlink(path)
        directory, among = path.rpartition("/")[0], self._log.directories.every
        if len(among) > 1 and directory in among:
            self._files.sync_directory(directory)


def _is_below(queue: ConsumeQueue, log_start: int) -> bool:
    """Return whether the last entry of the queue's first file points below the log."""
    last = queue.sequence.files[0].end // ENTRY_BYTES - 1
    entry = queue.entry(last)
    return entry is None or entry[0] < log_start
