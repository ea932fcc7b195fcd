"""Recovery when a store is opened: find the end of the log and make queues and index agree with it.

The log is authoritative; queues and index are derived from it. The scan must therefore start at an offset before which
queues and index are known to be complete. Starting too early costs time, starting too late loses messages, so in doubt
recovery chooses the earlier offset:

* After our own clean shutdown (the checkpoint's note matches the files) nothing is read.
* After a clean shutdown of another broker (no abort file, no note) the last three log files are read, as RocketMQ does.
* After any other exit, the scan starts at the newest file whose first message was certainly on disk with its entries
  (checkpoint timestamps), or at the later offset of our second note if the files still match that note.
* If the queues have fewer entries than the note says, nothing tells where entries are missing: the whole log is read.

During the scan, every record that its queue or the index lacks is entered (queue_recovery.py). If a queue or the index
also lacks records from before the start, a second scan adds them. Then everything beyond the end of the log is removed.

The work is divided into steps (`steps`), so that the caller can serve signals and stop after any step. That is safe
because the abort file is written before the first change, and the second note is removed before anything it describes
changes. An interrupted recovery thus looks like a crash, and the next start repeats it from the same or an earlier
offset. Recovery is idempotent: running it twice gives the same bytes as running it once.

RocketMQ ends the log at the first damaged record. Here, damage to what was synced costs only the damaged records
(damage_repair.py), and behind that the log ends at the first hole (log_scan.py). docs/internals/crash-safety.md gives
the argument and the test for each guard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import crcmod.crcmod
import structlog

from triomq.protocol import record
from triomq.store.config import StoreSettings
from triomq.store.contents import Contents
from triomq.store.errors import StoreRefused
from triomq.store.log.checkpoint import CleanNote
from triomq.store.log.damage_repair import DamageRepair
from triomq.store.log.log_scan import ALL_SYNCED, LogScan
from triomq.store.log.store_log import StoreLog
from triomq.store.queues.consume_queue import ConsumeQueue
from triomq.store.queues.dispatch import Dispatch, DispatchEntry
from triomq.store.queues.index import Index
from triomq.store.queues.queue_table import QueueTable
from triomq.store.results import RecoveryReport
from triomq.store.upkeep.log_walk import walk_again
from triomq.store.upkeep.progress import StartProgress
from triomq.store.upkeep.queue_recovery import QueueRecovery

log = structlog.get_logger("triomq.store.recovery")

crc64: Final = crcmod.crcmod.mkCrcFun(0x142F0E1EBA9EA3693, initCrc=0, rev=True, xorOut=0xFFFFFFFFFFFFFFFF)
"""Return the CRC-64/XZ of bytes, which zlib lacks."""

CLEAN_FILES: Final = 3
# A step ends after this many records or bytes: some milliseconds.
_STEP_RECORDS: Final = 1024
_STEP_BYTES: Final = 4 << 20


class Recovery:
    """One recovery of one store directory, whose log files, queues and index are already loaded."""

    def __init__(
        self,
        contents: Contents,
        settings: StoreSettings,
        dispatch: Dispatch,
        *,
        is_live: Callable[[str], bool],
        begin_changes: Callable[[], None],
        start_progress: StartProgress,
    ) -> None:
        """Create a recovery that has not started.

        `is_live` returns False for a deleted topic. Recovery calls `begin_changes` before its first change; from then
        on only a complete recovery makes the directory consistent.
        """
        self._damage = DamageRepair(contents.files, contents.paths, contents.log)
        self._log = contents.log
        self._queues = contents.queues
        self._index = contents.index
        self._checkpoint = contents.checkpoint
        self._dispatch = dispatch
        self._check_crc = settings.check_crc_on_recover
        self._index_decides = settings.message_index_safe
        self._begin_changes = begin_changes
        self._start_progress = start_progress
        self._index_end = -1
        self._is_index_current = False
        # A record that must wait until the records before it are indexed.
        self._not_indexed: DispatchEntry | None = None
        self.report = RecoveryReport()
        self._queue_recovery = QueueRecovery(
            contents, dispatch, is_live=is_live, start_progress=start_progress, report=self.report
        )

    def steps(self, *, was_clean: bool) -> Iterator[None]:
        """Recover the store in steps of a few milliseconds; `report` is complete after the last one.

        Raises OSError if the directory cannot be repaired (no space, read-only), StoreRefused if it must not be.
        """
        report = self.report
        report.was_clean = was_clean
        sequence = self._log.sequence
        report.log_begin = max(0, sequence.first_start)
        if not sequence.files:
            self._forget_everything()
            return
        if was_clean and self._accept_note():
            report.note_accepted(self._log.committed_offset)
            return
        self._begin_changes()
        first_offset = self._first_offset(was_clean)
        usable = not was_clean and self._is_note_usable()
        self._queue_recovery.are_doubtful = not was_clean
        if self._has_lost_entries(was_clean, usable):
            usable = False
            self._queue_recovery.are_doubtful = True
            first_offset = report.log_begin
            log.error("queues changed since the last run; reading the whole log")
        if usable:
            report.scanned_from = max(first_offset, self._checkpoint.safe_offset)
            self._index.repair(1 << 62, self._checkpoint.safe_index_offset)
            self._index.open_for_writing()
            self._index_end = max(self._index.end_physical_offset, self._checkpoint.safe_index_offset)
            if self._index.is_enabled and self._index_end < report.scanned_from:
                yield from self._catch_up_index(report.scanned_from)
        else:
            # The changes below invalidate the note.
            self._checkpoint.forget_offsets()
            report.scanned_from = min(first_offset, self._queues_end())
            if not was_clean:
                self._index.repair(self._checkpoint.index_ms, sequence.files[-1].end)
            self._index.open_for_writing()
            self._index_end = self._index.end_physical_offset
        scan = LogScan(
            self._log,
            report.scanned_from,
            check_crc=self._check_crc,
            synced_offset=self._synced_offset(was_clean),
            synced_ms=self._checkpoint.log_ms if self._checkpoint.synced_offset < 0 else 0,
        )
        yield from self._walk(scan)
        report.log_end = scan.end
        report.damages = scan.damages
        for damage in scan.damages:
            refusal = self._log.repair_refusal(damage.begin)
            if refusal is not None:
                raise StoreRefused(f"no record begins at {damage.begin} of the log ({damage.reason}). {refusal}")
        yield from self._set_end(scan)
        yield from self._queue_recovery.rebuild_short(scan.end)
        self._queue_recovery.finish()
        yield
        self._queue_recovery.restore_times()
        if not sequence.files:
            self._forget_everything()

    # -- where to start --------------------------------------------------------------------------------------------

    def _first_offset(self, was_clean: bool) -> int:
        files = self._log.sequence.files
        if was_clean:
            return files[-CLEAN_FILES].start if len(files) >= CLEAN_FILES else files[0].start
        safe_ms = self._checkpoint.safe_ms
        if self._index.is_enabled and self._index_decides:
            safe_ms = min(safe_ms, self._checkpoint.index_ms)
        for file in reversed(files):
            head = file.read(self._log.header_bytes_at(file.start), record.FIXED_BYTES)
            if head[4:8] == _MAGIC and 0 < record.store_timestamp_at(head) <= safe_ms:
                return file.start
        return files[0].start

    def _synced_offset(self, was_clean: bool) -> int:
        """Return the offset up to which the log was certainly synced. Behind it the log ends at the first hole.

        After a clean exit that is all of it. Without a checkpoint nothing is known: it was removed by hand, since a
        start writes it before there are messages. With another broker's, all but its newest files and messages was
        synced; the scan compares the times of those.
        """
        checkpoint = self._checkpoint
        if was_clean or not checkpoint.exists:
            return ALL_SYNCED
        return checkpoint.synced_offset if checkpoint.synced_offset >= 0 else self._first_offset(was_clean)

    def _is_note_usable(self) -> bool:
        """Return whether the log still matches the second note of our checkpoint.

        It does if a record begins at the noted offset, or if the log ends there and the newest queue entry leads to
        its last record. Another broker may have truncated the log and appended to it since.
        """
        offset = self._checkpoint.safe_offset
        file = self._log.sequence.find(offset)
        queues_end = self._queues_end()
        if file is None or offset == 0 or queues_end < offset:
            return False
        if self._index.is_enabled and self._checkpoint.safe_index_offset == 0:
            return False
        found = LogScan(self._log, offset, check_crc=True, stop=offset + 1).next()
        if found is not None:
            return found.physical_offset == offset + self._log.header_bytes_at(offset)
        newest = max(self._queues, key=_max_physical_end)
        return queues_end == offset and self._queue_recovery.leads_home(newest, newest.end - 1)

    def _has_lost_entries(self, was_clean: bool, is_usable: bool) -> bool:
        """Return whether our notes say that the queues had more entries. Only a full scan finds where they belong."""
        if was_clean:
            return self._checkpoint.note is not None
        checkpoint = self._checkpoint
        offset = checkpoint.safe_offset
        ends = [
            queue.end if queue.max_physical_end <= offset else queue.first_at_or_beyond(offset)
            for queue in self._queues
        ]
        if not is_usable or sum(ends) != checkpoint.safe_ends:
            return is_usable
        entries = sum(ends) - sum(queue.first_in_files for queue in self._queues)
        is_counted = checkpoint.safe_entries >= 0 and checkpoint.safe_begin == self.report.log_begin
        return is_counted and entries != checkpoint.safe_entries

    def _queues_end(self) -> int:
        """Return the log offset beyond all queue entries: no record from there on has an entry in any queue."""
        highest = max((queue.max_physical_end for queue in self._queues), default=0)
        return max(self.report.log_begin, highest)

    def _accept_note(self) -> bool:
        """Return whether the files are exactly as our clean shutdown left them; if so, take the log's end from it."""
        note = self._checkpoint.note
        if note is None or note.digest != digest(self._queues, self._index):
            return False
        if not self._log.may_end_at(note.log_end):
            return False
        newest = max(self._queues, key=_max_physical_end, default=None)
        self._log.set_end(note.log_end)
        if newest is None or newest.max_physical_end == 0:
            return True
        entry = newest.entry(newest.end - 1)
        if newest.max_physical_end > note.log_end or entry is None:
            return False
        data = self._log.record_at(entry[0])
        return data is not None and len(data) == entry[1]

    # -- the scan --------------------------------------------------------------------------------------------------

    def _walk(self, scan: LogScan) -> Iterator[None]:
        report = self.report
        end = self._log.sequence.files[-1].likely_end
        progress = self._start_progress("reading the log", report.scanned_from, end)
        while self._walk_step(scan):
            yield
            waiting = self._not_indexed
            if waiting is not None:
                self._not_indexed = None
                # Only up to the start of the scan: the records from there to this one have no keys or are damaged.
                yield from self._catch_up_index(report.scanned_from)
                self._index_one(waiting)
            progress.at(scan.offset)
        progress.over()

    def _walk_step(self, scan: LogScan) -> bool:
        """Enter the next records. Return False at the end of the log."""
        dispatch = self._dispatch
        queue_recovery = self._queue_recovery
        stop_bytes = -1
        for _ in range(_STEP_RECORDS):
            fields = scan.next()
            if fields is None:
                return False
            if stop_bytes < 0:
                stop_bytes = fields.physical_offset + _STEP_BYTES
            entry = dispatch.entry_of(fields)
            self.report.records += 1
            queue_recovery.enter(entry)
            self._enter_index(entry)
            if fields.physical_offset > stop_bytes or self._not_indexed is not None:
                break
        return True

    # -- index -----------------------------------------------------------------------------------------------------

    def _enter_index(self, entry: DispatchEntry) -> None:
        index = self._index
        if not index.is_enabled or entry.place.physical_offset < self._index_end:
            return
        if entry.properties.uniq_key is None and entry.properties.keys is None:
            return
        if not self._is_index_current:
            self._is_index_current = True
            if self._index_end < self.report.scanned_from:
                self._not_indexed = entry
                return
        self._index_one(entry)

    def _index_one(self, entry: DispatchEntry) -> None:
        # The index may hold only some keys of its last message.
        if entry.place.physical_offset >= self._index_end:
            self._dispatch.add_missing_to_index(entry)

    def _catch_up_index(self, end: int) -> Iterator[None]:
        """Index the records from the end of the index up to `end`."""
        begin = max(self._index_end, self.report.log_begin)
        log.warning("index found incomplete; rebuilding it from the log", begin=begin, end=end)
        progress = self._start_progress("rebuilding the index", begin, end)
        yield from walk_again(self._log, self._dispatch, begin, end, self._index_one, progress)

    # -- the end ---------------------------------------------------------------------------------------------------

    def _set_end(self, scan: LogScan) -> Iterator[None]:
        self._queue_recovery.write()
        if scan.has_tail:
            yield from self._damage.save_tail(scan.end, scan.end_reason)
        for damage in scan.damages:
            self._damage.take_out(damage)
            self._queue_recovery.blank(damage)
        yield from self._queue_recovery.check_unseen()
        self._log.cut(scan.end)
        if self._index.cut(scan.end):
            # The index was ahead of the log, so the scan skipped records that the index appeared to have.
            self._index_end = self._index.end_physical_offset
            yield from self._catch_up_index(scan.end)
        if scan.end_reason:
            log.info("end of the log found", physical_offset=scan.end, reason=scan.end_reason)
        self._queue_recovery.truncate(scan.end)

    def _forget_everything(self) -> None:
        self._queue_recovery.forget()
        self._index.delete_all()


def digest(queues: QueueTable, index: Index) -> int:
    """Return a CRC-64 over the ends of all queues and of the index.

    If it matches the note of a clean shutdown, the log is not read at all. 32 bits would make a chance match too likely
    among the states in which other programs may leave ten thousand queues.
    """
    lines = sorted(
        [
            f"{queue.topic}/{queue.queue_id} {queue.first_in_files} {queue.end} {queue.max_physical_end}"
            for queue in queues
            if queue.end
        ]
    )
    value: int = crc64("\n".join([f"{index.end_physical_offset} {len(index.files)}", *lines]).encode())
    return value


def clean_note(commit_log: StoreLog, queues: QueueTable, index: Index) -> CleanNote:
    """Return the note that a clean shutdown writes to the checkpoint."""
    return CleanNote(commit_log.committed_offset, digest(queues, index))


def _max_physical_end(queue: ConsumeQueue) -> int:
    return queue.max_physical_end


_MAGIC: Final = record.MESSAGE_MAGIC_BYTES
