"""DefaultMessageStore: the interface of one store directory to the rest of the broker (DefaultMessageStore).

It creates and owns the parts, and controls their lifetime: opening, background tasks, closing. It writes: `append` and
`commit`. Everything else has an interface of its own:

    reading     messages, offsets, times, keys, log bytes
    delivering  delayed messages that are due, many at a time
    replica     a slave's log: bytes as its master has them
    quorum      the log of a member of a group: what is committed, who leads
    silent_queues  the ends of queues of whose messages the log of a slave has none
    upkeep      operations of administrators: deleting queues and files

It knows neither requests nor sockets. Everything runs in the thread of the event loop. `append`, `commit` and reading
are plain functions that never await, except for `read_log_into`; `load`, `run`, `close` and waits on watermarks are
async. Worker threads only sync and unlink files, prepare log files, and read and save log bytes.
"""

from __future__ import annotations

import structlog
import trio

from triomq.protocol.clock import NowMs
from triomq.protocol.record import BatchUnit
from triomq.store.config import StoreSettings
from triomq.store.contents import Contents, MakeLog, Marks
from triomq.store.delay import DelayLevels
from triomq.store.disk.directory_lock import DirectoryLock
from triomq.store.disk.files import Files
from triomq.store.disk.listing import naming_no_access
from triomq.store.disk.worker_thread import Offload, WorkerThread
from triomq.store.errors import StoreClosed, StoreError
from triomq.store.fail_stop import FailStop
from triomq.store.live_settings import LiveSettings
from triomq.store.queues import queue_note
from triomq.store.queues.dispatch import BitMapOf, Dispatch
from triomq.store.reading.reading import Reading
from triomq.store.refusals import Refusals
from triomq.store.results import MessageToStore, PutResult, RecoveryReport
from triomq.store.upkeep.administration import Upkeep
from triomq.store.upkeep.backlog import Backlog
from triomq.store.upkeep.flush import Flush, SyncObserver
from triomq.store.upkeep.opening import Opening
from triomq.store.upkeep.progress import LogLines, ProgressListener
from triomq.store.upkeep.recovery import clean_note
from triomq.store.upkeep.retention import Retention
from triomq.store.upkeep.tail_cut import TailCut
from triomq.store.upkeep.warm_up import WarmUp
from triomq.store.writing.appending import Appending
from triomq.store.writing.committing import Committing
from triomq.store.writing.delivering import Delivering
from triomq.store.writing.quorum import Quorum
from triomq.store.writing.replica import Replica
from triomq.store.writing.silent_queues import SilentQueues

log = structlog.get_logger("triomq.store")


class DefaultMessageStore:
    """One store directory.

    Lifetime: `await load()` (lock, recovery), then `await nursery.start(store.run)` (flusher and other background
    tasks), at the end `await close()`. After `load` everything but the background tasks works, so tests may omit `run`.

    `committed` and `flushed` are watermarks over physical offsets: up to them the log can be read, and is on disk. Puts
    are accepted up to `accepted`. It is `committed`, or with transientStorePoolEnable it includes bytes that are only
    in memory (a crash of the process then loses up to commitIntervalCommitLog ms of them). To wait for a put, wait
    beyond `PutResult.last_offset`.

    `flushing`, `retention` and `backlog` act by themselves in `run`; without it, who needs a flush, a cleaning or the
    index calls them. `committing` has what was put and is not in the log yet, `refusals` why puts are refused.
    """

    def __init__(
        self,
        settings: StoreSettings,
        *,
        now_ms: NowMs,
        files: Files | None = None,
        offload: Offload | None = None,
        make_log: MakeLog | None = None,
    ) -> None:
        """`offload(function, *arguments)` runs a blocking function outside of the event loop, by default in a trio
        thread. Raises SettingError for settings that cannot be used."""
        self._now_ms = now_ms
        self._live = live = LiveSettings(settings)
        self.contents = contents = Contents.of(settings, files or Files(), make_log)
        self.files = contents.files
        self.paths = contents.paths
        self._directory = DirectoryLock(contents.files, contents.paths)
        self._opening: Opening | None = None
        self._is_open = self._is_flushed = False
        self._marks = marks = Marks.of(has_buffer=live.has_buffer, has_quorum=contents.log.needs_quorum)
        self.committed = marks.committed
        self.accepted = marks.accepted
        self.flushed = marks.flushed
        self.acknowledged = marks.acknowledged
        self.refusals = Refusals()
        self.refusals.set("closed", "the store is not loaded yet")
        self._fail_stop = stop = FailStop(marks, self.refusals)
        self.delay_levels = DelayLevels(settings.message_delay_level)
        self._dispatch = dispatch = Dispatch(
            contents.queues,
            contents.index,
            self.delay_levels,
            multi_dispatch=settings.enable_multi_dispatch,
            lmq=settings.enable_lmq,
        )
        self.committing = Committing(contents, live, marks, dispatch, self.refusals, stop)
        self._appending = Appending(contents, live, dispatch, self.refusals, stop, self.committing, now_ms)
        self.delivering = Delivering(contents, live, self.refusals, stop, self.committing, now_ms)
        elsewhere: Offload = offload or trio.to_thread.run_sync
        self._log_thread = WorkerThread("commit log sync")
        self._syncs_in_kernel = offload is None
        self.flushing = Flush(
            contents,
            live,
            marks,
            stop,
            offload=elsewhere,
            offload_log=offload or self._log_thread,
            last_store_timestamp=lambda: self.committing.last_store_timestamp,
        )
        self._warm_up = WarmUp(contents, elsewhere)
        self.retention = Retention(contents, live, self.refusals, now_ms, elsewhere)
        self.backlog = Backlog(contents, dispatch, stop, self.committing.write_backlog)
        self.reading = Reading(contents, live, offload)
        tail_cut = TailCut(contents, marks, self.flushing, stop, elsewhere)
        self.silent_queues = SilentQueues(contents, self.refusals, self.committing, stop)
        self.replica = Replica(contents, live, dispatch, self.committing, tail_cut, stop, self.silent_queues)
        self.quorum = Quorum(contents, marks, dispatch, self.committing, self.replica, tail_cut, self.refusals, stop)
        contents.log.on_written = self.quorum.written
        self.upkeep = Upkeep(contents, self.retention, self.committing.commit, self._appending.append_deletion)

    # -- life ------------------------------------------------------------------------------------------------------

    async def load(self, listener: ProgressListener | None = None) -> None:
        """Lock the directory and recover; `listener` receives the progress, by default as log lines. The log is on disk
        when this returns. Raises StoreLocked, StoreRefused, StoreBroken, OSError."""
        with naming_no_access():
            self.lock()
        opening = self._opening = Opening(
            self.contents, self._live, self._directory, self._dispatch, listener or LogLines(), self._now_ms
        )
        try:
            with naming_no_access():
                opened = await opening.run()
            for part in (self.committing, self.reading, self.delivering, self.replica, self.quorum):
                part.begin(opened)
            await self.flushing.begin(in_kernel=self._syncs_in_kernel)
        except BaseException:
            self.flushing.close()
            self.contents.open_files.close_all()
            self.unlock()
            raise
        self._is_open = True
        self.refusals.set("closed", None)
        no_leader = "no member of the group leads yet" if self.contents.log.needs_quorum else None
        self.refusals.set("role", "the store belongs to a slave" if self._live.is_slave else no_leader)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Flush, write checkpoints and clean until cancelled. Raises StoreFailed as soon as a commit or a flush fails
        with an unexpected exception, even if another task caught and dropped that exception."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._fail_stop.wait)
            nursery.start_soon(self.flushing.run_log)
            nursery.start_soon(self.flushing.run_queues)
            nursery.start_soon(self.retention.run)
            nursery.start_soon(self.retention.watch_disk)
            nursery.start_soon(self.backlog.run)
            nursery.start_soon(self.reading.cold.run)
            nursery.start_soon(self.quorum.run)
            if self.settings.warm_mapped_file_enable:
                nursery.start_soon(self._warm_up.run)
            if self._live.has_buffer:
                nursery.start_soon(self._commit_buffer)
            task_status.started()

    async def _commit_buffer(self) -> None:
        while True:
            await trio.sleep(self.settings.commit_interval_commit_log_ms / 1000)
            self.committing.commit()

    async def close(self) -> None:
        """Commit, flush and write the checkpoint a last time, remove the abort file, and release the lock.

        Nothing else may be running. If the store is broken, or breaks now, the abort file stays; a failed store writes
        nothing more. Raises StoreFailed if the store fails now, or cannot write what transientStorePoolEnable held
        back; it is closed nevertheless.
        """
        if not self._is_open:
            return
        try:
            if self._fail_stop.failure is None:
                with trio.CancelScope(shield=True):
                    await self._finish()
        finally:
            self._release()

    async def _finish(self) -> None:
        """Write and sync everything, and note that in the checkpoint."""
        self.committing.commit()
        self.committing.write_backlog()
        await self.quorum.catch_up()
        self.replica.end()
        self.refusals.set("closed", "the store is closed")
        with self._fail_stop.during("the last flush"):
            contents = self.contents
            is_whole = self.replica.is_whole or not self._live.is_slave or contents.log.needs_quorum
            is_whole = is_whole and not self.committing.is_end_unclear and not self.committing.pending
            note = clean_note(contents.log, contents.queues, contents.index) if is_whole else None
            if note is not None:
                self._note_queues(note.digest)
            self._is_flushed = await self.flushing.flush_thoroughly(note)
            if self.committing.pending:
                raise StoreError(self.committing.unwritten())

    def _note_queues(self, digest: int) -> None:
        """Write down what the next start would otherwise read of each queue."""
        contents = self.contents
        begin = contents.log.min_offset
        is_cleaned = contents.queues.cleaned_start == begin
        data = queue_note.encode(digest, begin if is_cleaned else -1, contents.queues.rows())
        queue_note.save(contents.files, contents.paths.queue_note, data)

    def _release(self) -> None:
        """End all waits, and release threads, descriptors and the lock. Remove the abort file if nothing failed."""
        self._is_open = False
        self.refusals.set("closed", "the store is closed")
        self._log_thread.end()
        self.reading.cold.end()
        self.flushing.close()
        self._warm_up.forget()
        try:
            with self._fail_stop.during("ending a wait"):
                self._end_waits(StoreClosed("the store was closed"))
        finally:
            self.contents.index.close()
            self.contents.open_files.close_all()
            is_whole = not self.committing.has_backlog and not self.committing.is_end_unclear
            is_whole = is_whole and self._is_flushed and self.contents.index.stalled_at < 0
            try:
                if self._fail_stop.reason is None and is_whole:
                    self._directory.mark_clean()
            finally:
                self.unlock()

    def _end_waits(self, closed: StoreClosed) -> None:
        for mark in self._marks.all():
            mark.fail(closed)
        for queue in self.contents.queues:
            queue.drop_mark(closed)

    def lock(self) -> None:
        """Lock the directory against other processes, as `load` does. Raises StoreLocked, StoreRefused."""
        self._directory.take()

    def unlock(self) -> None:
        self._directory.release()

    # -- state -------------------------------------------------------------------------------------------------------

    @property
    def settings(self) -> StoreSettings:
        return self._live.now

    def change_settings(self, settings: StoreSettings) -> None:
        """Use changed settings from now on (only those declared changeable)."""
        self._live.change(settings)

    @property
    def recovery_report(self) -> RecoveryReport | None:
        """The report of recovery, which may still be running; None before `load`."""
        return self._opening.report if self._opening is not None else None

    @property
    def refusal(self) -> str | None:
        """The reason why puts are refused at present (disk full, broken, closed, slave), or None."""
        return self.refusals.first

    @property
    def role_refusal(self) -> str | None:
        """The reason why only another broker takes messages at present: this one is a slave, or does not lead."""
        return self.refusals.text("role")

    @property
    def stuck_buffer(self) -> str | None:
        """Return why accepted messages cannot be written at present (with transientStorePoolEnable: a full disk), or
        None."""
        return self.refusals.text("log")

    @property
    def is_broken(self) -> bool:
        """A write or sync failed, or a commit raised an unexpected exception; only a restart helps."""
        return self._fail_stop.reason is not None

    def observe_syncs(self, observer: SyncObserver) -> None:
        """Have each sync reported."""
        self.flushing.on_synced = observer

    def fail(self, doing: str, error: BaseException) -> None:
        """Fail the store because `error` ended `doing`, work that its messages needed, as if a commit had failed.
        Raises nothing itself; `run` does."""
        self._fail_stop.mark_failed(doing, error)

    def compute_bit_maps(self, bit_map_of: BitMapOf) -> None:
        """With enableConsumeQueueExt, set the function that returns the bit map for a message's ext unit or None, from
        topic and stored properties. Call this before `load`, which may dispatch messages."""
        self._dispatch.bit_map_of = bit_map_of

    # -- writing: plain functions, never await ----------------------------------------------------------------------

    def append(self, message: MessageToStore) -> PutResult:
        """Encode one message after the pending ones. It is not readable before `commit`. For a message that is refused,
        nothing is raised: see PutResult.status."""
        return self._appending.append(message)

    def append_batch(self, message: MessageToStore, units: list[BatchUnit]) -> PutResult:
        """Encode the units of a batch request as consecutive records. `message` supplies everything but flag, body and
        properties; its properties are appended to those of each unit."""
        return self._appending.append_batch(message, units)

    def append_tables(self, body: bytes) -> PutResult | None:
        """Append a record with changes of tables to the log of a group. Return None on a member that does not lead."""
        return self._appending.append_tables(body)

    @property
    def appended_offset(self) -> int:
        """Return the physical offset behind the last appended message, which may not be written yet."""
        return self.contents.log.next_offset

    def commit(self) -> None:
        """Write, dispatch and publish all appended messages.

        If the disk refuses the write, results and waiters receive the error and nothing is raised. Any other failure
        raises StoreFailed, and so does every later commit: the messages do not count as stored, and the process must
        end (fail_stop.py). With transientStorePoolEnable, the write may be deferred to the next interval.
        """
        self.committing.commit(buffered=True)

    async def cover(self) -> bool:
        """Return True when everything appended so far is on disk: what was derived from it may then be written. Return
        False if that cannot be, because the store is full, broken or closed."""
        try:
            self.committing.commit()
            if self.committing.has_pending:
                return False
            if self.committing.uncommitted:
                await self.acknowledged.wait_beyond(self.contents.log.written_offset - 1)
            await self.flushing.cover()
        except StoreError:
            return False
        return True

    def commit_buffer(self) -> None:
        """Write what transientStorePoolEnable holds back, for a caller that has to read it now. Raises StoreFailed."""
        self.committing.commit()
