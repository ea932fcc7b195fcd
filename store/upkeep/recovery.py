"""Making a store whole when it is opened: where the log ends, and queues and index that agree with it.

The log is the truth; queues and index are made from it. Reading therefore has to begin at an offset in front of which
queues and index are known to be whole. Beginning too early costs time, beginning too late costs messages, so every
doubt is resolved towards the earlier offset:

* after a clean exit of our own (the checkpoint's note fits what is there) nothing is read;
* after a clean exit of another broker (no abort file, no note) the last three log files are read, as RocketMQ does;
* after any other exit, reading begins at the newest file whose first message was certainly on disk everywhere
  (checkpoint timestamps), or further on where our second note says, if what lies there still fits the note;
* when the queues have fewer entries than noted, nobody can tell where they are missing: the whole log is read.

While reading, every record that its queue lacks is entered (queue_recovery.py), and what the index lacks. A queue or
index that lacks earlier records too is made in a second walk. Then everything behind the end of the log is removed.

The work is done in steps (`steps`), so that the caller can serve signals, and may stop at any of them. That is safe
because the abort file is written before the first change and the second note is removed before anything it speaks of
changes: an interrupted recovery looks like a crash, and the next start repeats it from the same or an earlier offset.
Running it twice gives the same bytes as once.

RocketMQ ends the log at the first damaged record. Here damage in the middle costs the damaged records only
(damage_repair.py). docs/internals/crash-safety.md gives the argument and the test for each guard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import crcmod.crcmod
import structlog

from triomq.protocol import record
from triomq.store.config import StoreSettings
from triomq.store.contents import Contents
from triomq.store.log.checkpoint import CleanNote
from triomq.store.log.commit_log import CommitLog
from triomq.store.log.damage_repair import DamageRepair
from triomq.store.log.log_scan import LogScan
from triomq.store.queues.consume_queue import ConsumeQueue
from triomq.store.queues.dispatch import Dispatch, DispatchEntry
from triomq.store.queues.index import Index
from triomq.store.queues.queue_table import QueueTable
from triomq.store.results import RecoveryReport
from triomq.store.upkeep.progress import StartProgress
from triomq.store.upkeep.queue_recovery import QueueRecovery, walk_again

log = structlog.get_logger("triomq.store.recovery")

crc64: Final = crcmod.crcmod.mkCrcFun(0x142F0E1EBA9EA3693, initCrc=0, rev=True, xorOut=0xFFFFFFFFFFFFFFFF)
"""CRC-64/XZ of bytes, which zlib lacks."""

CLEAN_FILES: Final = 3
# A step ends after so much of the log: some milliseconds.
_STEP_RECORDS: Final = 1024
_STEP_BYTES: Final = 4 << 20


class Recovery:
    """One run over one store directory, whose files, queues and index are loaded already."""

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
        """`is_live` says whether a topic was not deleted; `begin_changes` is called before anything is changed: from
        then on only a recovery makes the directory whole."""
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
        # A record that has to wait until what lies in front of it is indexed.
        self._not_indexed: DispatchEntry | None = None
        self.report = RecoveryReport()
        self._queue_recovery = QueueRecovery(
            contents, dispatch, is_live=is_live, start_progress=start_progress, report=self.report
        )

    def steps(self, *, was_clean: bool) -> Iterator[None]:
        """Everything, a few milliseconds at a time; `report` is whole at the end. Raises OSError when the directory
        cannot be repaired (no space, read-only)."""
        report = self.report
        report.was_clean = was_clean
        sequence = self._log.sequence
        report.log_begin = max(0, sequence.first_start)
        if not sequence.files:
            self._forget_everything()
            return
        if was_clean and self._accept_note():
            report.log_end = report.scanned_from = self._log.committed_offset
            return
        self._begin_changes()
        first_offset = self._first_offset(was_clean)
        usable = not was_clean and self._is_note_usable()
        self._queue_recovery.are_doubtful = not was_clean
        if self._has_lost_entries(was_clean, usable):
            usable = False
            self._queue_recovery.are_doubtful = True
            first_offset = report.log_begin
            log.error("queues are not as they were left, the whole log is read")
        if usable:
            report.scanned_from = max(first_offset, self._checkpoint.safe_offset)
            self._index.repair(1 << 62, self._checkpoint.safe_index_offset)
            self._index.open_for_writing()
            self._index_end = max(self._index.end_physical_offset, self._checkpoint.safe_index_offset)
            if self._index.is_enabled and self._index_end < report.scanned_from:
                yield from self._catch_up_index(report.scanned_from)
        else:
            # What follows changes what the note speaks of.
            self._checkpoint.forget_offsets()
            report.scanned_from = min(first_offset, self._queues_end())
            if not was_clean:
                self._index.repair(self._checkpoint.index_ms, sequence.files[-1].end)
            self._index.open_for_writing()
            self._index_end = self._index.end_physical_offset
        scan = LogScan(self._log, report.scanned_from, check_crc=self._check_crc)
        yield from self._walk(scan)
        report.log_end = scan.end
        report.damages = scan.damages
        yield from self._set_end(scan)
        yield from self._queue_recovery.rebuild_short(scan.end)
        self._queue_recovery.finish()
        yield
        self._queue_recovery.restore_times()
        if not sequence.files:
            self._forget_everything()

    # -- where to begin --------------------------------------------------------------------------------------------

    def _first_offset(self, was_clean: bool) -> int:
        files = self._log.sequence.files
        if was_clean:
            return files[-CLEAN_FILES].start if len(files) >= CLEAN_FILES else files[0].start
        safe_ms = self._checkpoint.safe_ms
        if self._index.is_enabled and self._index_decides:
            safe_ms = min(safe_ms, self._checkpoint.index_ms)
        for file in reversed(files):
            head = file.read(0, record.FIXED_BYTES)
            if head[4:8] == _MAGIC and 0 < record.store_timestamp_at(head) <= safe_ms:
                return file.start
        return files[0].start

    def _is_note_usable(self) -> bool:
        """Whether a record begins at the offset that our checkpoint knows, or the log ends there with what the queues
        know last. Somebody else may have cut the log and written on since."""
        offset = self._checkpoint.safe_offset
        file = self._log.sequence.find(offset)
        queues_end = self._queues_end()
        if file is None or offset == 0 or queues_end < offset:
            return False
        if self._index.is_enabled and self._checkpoint.safe_index_offset == 0:
            return False
        found = LogScan(self._log, offset, check_crc=True, stop=offset + 1).next()
        if found is not None:
            return found.physical_offset == offset
        newest = max(self._queues, key=_max_physical_end)
        return queues_end == offset and self._queue_recovery.leads_home(newest, newest.end - 1)

    def _has_lost_entries(self, was_clean: bool, is_usable: bool) -> bool:
        """Whether our own notes say that the queues had more, which nobody but a whole walk can tell where."""
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
        """Where the log is behind every queue: whatever lies there was entered in none of them."""
        highest = max((queue.max_physical_end for queue in self._queues), default=0)
        return max(self.report.log_begin, highest)

    def _accept_note(self) -> bool:
        """Whether everything is just as a clean shutdown of ours left it; then the end of the log is known."""
        note = self._checkpoint.note
        if note is None or note.digest != digest(self._queues, self._index):
            return False
        last = self._log.sequence.files[-1]
        if not last.start < note.log_end <= last.end:
            return False
        at = note.log_end - last.start
        if last.read(at, 8).strip(b"\0"):
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

    # -- the walk --------------------------------------------------------------------------------------------------

    def _walk(self, scan: LogScan) -> Iterator[None]:
        report = self.report
        end = self._log.sequence.files[-1].likely_end
        progress = self._start_progress("reading the log", report.scanned_from, end)
        while self._walk_step(scan):
            yield
            waiting = self._not_indexed
            if waiting is not None:
                self._not_indexed = None
                # Only up to the walk's beginning: what lies between there and here holds no keys, or is damaged.
                yield from self._catch_up_index(report.scanned_from)
                self._index_one(waiting)
            progress.at(scan.offset)
        progress.over()

    def _walk_step(self, scan: LogScan) -> bool:
        """Enter some more records; False when there are none."""
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
        if not index.is_enabled or entry.physical_offset < self._index_end:
            return
        if entry.uniq_key is None and entry.keys is None:
            return
        if not self._is_index_current:
            self._is_index_current = True
            if self._index_end < self.report.scanned_from:
                self._not_indexed = entry
                return
        self._index_one(entry)

    def _index_one(self, entry: DispatchEntry) -> None:
        # The last message of the index may have got only some of its keys in.
        if entry.physical_offset >= self._index_end:
            self._dispatch.add_missing_to_index(entry)

    def _catch_up_index(self, end: int) -> Iterator[None]:
        """Index what lies between the index's end and the place where the walk began."""
        begin = max(self._index_end, self.report.log_begin)
        log.warning("the index is incomplete and is made from the log", begin=begin, end=end)
        progress = self._start_progress("rebuilding the index", begin, end)
        yield from walk_again(self._log, self._dispatch, begin, end, self._index_one, progress)

    # -- the end ---------------------------------------------------------------------------------------------------

    def _set_end(self, scan: LogScan) -> Iterator[None]:
        self._queue_recovery.write()
        for damage in scan.damages:
            self._damage.take_out(damage)
            self._queue_recovery.blank(damage)
        yield from self._queue_recovery.check_unseen()
        self._log.sequence.truncate(scan.end)
        self._log.set_end(scan.end)
        if self._index.cut(scan.end):
            # It was ahead of the log, so the walk left out what it seemed to have.
            self._index_end = self._index.end_physical_offset
            yield from self._catch_up_index(scan.end)
        if scan.end_reason:
            log.info("log ends", physical_offset=scan.end, reason=scan.end_reason)
        self._queue_recovery.truncate(scan.end)

    def _forget_everything(self) -> None:
        self._queue_recovery.forget()
        self._index.delete_all()


def digest(queues: QueueTable, index: Index) -> int:
    """CRC-64 over the ends of all queues and of the index. When it matches the note of a clean shutdown, the log is not
    read at all; 32 bits would be few for the states that other programs may leave ten thousand queues in."""
    lines = sorted(
        [
            f"{queue.topic}/{queue.queue_id} {queue.first_in_files} {queue.end} {queue.max_physical_end}"
            for queue in queues
            if queue.end
        ]
    )
    value: int = crc64("\n".join([f"{index.end_physical_offset} {len(index.files)}", *lines]).encode())
    return value


def clean_note(commit_log: CommitLog, queues: QueueTable, index: Index) -> CleanNote:
    """What the checkpoint of a clean shutdown says."""
    return CleanNote(commit_log.committed_offset, digest(queues, index))


def _max_physical_end(queue: ConsumeQueue) -> int:
    return queue.max_physical_end


_MAGIC: Final = record.MESSAGE_MAGIC_BYTES
