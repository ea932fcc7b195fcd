"""Making a store whole when it is opened: where the log ends, and queues and index that agree with it.

The log is the truth; consume queues and index are made from it. Three ways in:

* a clean exit of our own (the checkpoint's note fits what is there): nothing has to be read;
* a clean exit of somebody else (no abort file): the last three log files are read;
* an abnormal exit: reading begins at the last file whose first message was surely on disk everywhere (checkpoint), or
  behind that, where our own checkpoint says.

While reading, every record that its queue lacks is entered. A queue that lacks earlier ones too (its files were lost,
or the reading began too late for it) is made from the start of the log in a second walk. The index is brought up in the
same way. Then everything behind the log's end goes.

It takes its steps in turns with its caller (`steps`), which may so serve signals, and may stop it at any of them: what
is there then is what a kill would have left, and the next start makes it whole.

More is kept than RocketMQ would keep: damage inside the log costs the damaged records only. Their bytes are saved under
salvage/, and a record of type rollback, which enters no queue, takes their place, so that everybody can walk the log.

Running it twice gives the same bytes as once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final
from zlib import crc32

import structlog

from protocol import record, sys_flag
from protocol.errors import RecordError
from store import layout
from store.checkpoint import Checkpoint, CleanNote
from store.commit_log import CommitLog
from store.consume_queue import ENTRY_BYTES, FILLER, FILLER_SIZE_BYTES, ConsumeQueue
from store.dispatch import Dispatch, DispatchEntry
from store.files import Files
from store.index import Index
from store.log_scan import LOST_TOPIC, Damage, LogScan
from store.mapped_file import MappedFile
from store.progress import StartProgress
from store.queue_table import QueueTable
from store.salvage import Salvage

log = structlog.get_logger("store.recovery")

CLEAN_FILES: Final = 3
# Damaged stretches of the log that are kept aside.
MAX_SAVED: Final = 1000
MAX_SAVED_BYTES: Final = 4 << 30
_WRITE_EVERY: Final = 50_000
# A step ends after so much of the log: some milliseconds.
_STEP_RECORDS: Final = 1024
_STEP_BYTES: Final = 4 << 20
_STEP_QUEUES: Final = 256
# Damaged bytes are saved in such pieces.
_SAVE_BYTES: Final = 1 << 20


class RecoveryReport:
    """What recovery found and did; numbers for the log, for `verify` and for tests."""

    __slots__ = (
        "added_entries",
        "damages",
        "log_begin",
        "log_end",
        "rebuilt_queues",
        "records",
        "scanned_from",
        "truncated_entries",
        "was_clean",
    )

    def __init__(self) -> None:
        self.was_clean = True
        self.log_begin = 0
        self.log_end = 0
        self.scanned_from = 0
        self.records = 0
        self.added_entries = 0
        self.truncated_entries = 0
        self.rebuilt_queues: list[str] = []
        self.damages: list[Damage] = []


class Recovery:
    """One run over one store directory, whose files, queues and index are loaded already."""

    def __init__(
        self,
        *,
        files: Files,
        paths: layout.Layout,
        commit_log: CommitLog,
        queues: QueueTable,
        index: Index,
        checkpoint: Checkpoint,
        dispatch: Dispatch,
        check_crc: bool,
        index_decides: bool,
        is_live: Callable[[str], bool],
        begin_changes: Callable[[], None],
        start_progress: StartProgress,
    ) -> None:
        """`index_decides`: messageIndexSafe; `is_live` says whether a topic was not deleted; `begin_changes` is called
        before anything is changed: from then on only a recovery makes the directory whole."""
        self._files = files
        self._salvage = Salvage(files, paths, ".bin", max_files=MAX_SAVED, max_bytes=MAX_SAVED_BYTES)
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._checkpoint = checkpoint
        self._dispatch = dispatch
        self._check_crc = check_crc
        self._index_decides = index_decides
        self._is_live = is_live
        self._begin_changes = begin_changes
        self._start_progress = start_progress
        # Queues that lack entries which the walk does not come by.
        self._short: set[ConsumeQueue] = {queue for queue in queues if queue.was_cut_short}
        self._seen: set[ConsumeQueue] = set()
        # Ends of queues whose last messages were found lost by an earlier recovery: those offsets stay taken.
        self._filled_until: dict[ConsumeQueue, int] = {}
        # Records whose queue offset leaves others out: the next one of the queue says whether that is so.
        self._leaps: dict[ConsumeQueue, tuple[int, DispatchEntry]] = {}
        self._times: dict[ConsumeQueue, dict[int, int]] = {}
        self._index_end = -1
        self._is_index_current = False
        # Entries behind the beginning of the walk may be anything.
        self._doubts_queues = False
        self._since_write = 0
        # A record that has to wait until what lies in front of it is indexed.
        self._not_indexed: DispatchEntry | None = None
        self.report = RecoveryReport()

    def steps(self, *, was_clean: bool) -> Iterator[None]:
        """Everything, a few milliseconds at a time; `report` is whole at the end. Raises OSError when the directory
        cannot be repaired (no space, read-only)."""
        report = self.report
        report.was_clean = was_clean
        sequence = self._log.sequence
        report.log_begin = max(0, sequence.first_start)
        if not sequence.files:
            self._forget_queues()
            return
        if was_clean and self._accept_note():
            report.log_end = report.scanned_from = self._log.committed_offset
            return
        self._begin_changes()
        first_offset = self._first_offset(was_clean)
        usable = not was_clean and self._is_note_usable()
        self._doubts_queues = not was_clean
        if self._has_lost_entries(was_clean, usable):
            usable = False
            self._doubts_queues = True
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
        if self._short:
            yield from self._rebuild_short(scan.end)
        for queue, end in self._filled_until.items():
            if queue.end + queue.buffered_count < end:
                self._fill(queue, end)
        self._write()
        yield
        self._restore_times()
        if not sequence.files:
            self._forget_queues()

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
        return queues_end == offset and self._leads_home(newest, newest.end - 1)

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
        stop_bytes = -1
        for _ in range(_STEP_RECORDS):
            fields = scan.next()
            if fields is None:
                return False
            if stop_bytes < 0:
                stop_bytes = fields.physical_offset + _STEP_BYTES
            entry = dispatch.entry_of(fields)
            self.report.records += 1
            self._enter(entry)
            self._enter_index(entry)
            if fields.physical_offset > stop_bytes or self._not_indexed is not None:
                break
        return True

    def _enter(self, entry: DispatchEntry) -> None:
        """Give the record its place in its queues, if they lack it."""
        queue = entry.queue
        if queue is None:
            return
        self._place(queue, entry.queue_offset, entry)
        if entry.more_queues is not None:
            for more, queue_offset in entry.more_queues:
                self._place(more, queue_offset, entry)

    def _place(self, queue: ConsumeQueue, queue_offset: int, entry: DispatchEntry) -> None:
        if self._doubts_queues and queue not in self._seen:
            self._seen.add(queue)
            self._distrust(queue, queue_offset, entry)
        if entry.physical_offset + entry.size_bytes <= queue.max_physical_end or queue in self._short:
            return
        expected = queue.end + queue.buffered_count
        if queue_offset < expected:
            return
        if queue_offset > expected or expected == 0:
            is_live = self._is_live(queue.topic)
            if not is_live and self.report.was_clean:
                return
            if queue_offset > expected and is_live:
                self._short.add(queue)
                return
            if not self._is_possible(queue, queue_offset, entry):
                return
            self._fill(queue, queue_offset)
        self._add(queue, entry)

    def _is_possible(self, queue: ConsumeQueue, queue_offset: int, entry: DispatchEntry) -> bool:
        """Whether all the records fit into the log that this queue offset says are missing in front of this one. No
        checksum covers the number."""
        expected = queue.end + queue.buffered_count
        room = entry.physical_offset - queue.max_physical_end
        if expected == 0 or (queue_offset - expected) * record.FIXED_BYTES <= room:
            return True
        self._tell_damaged(queue, queue_offset, entry)
        return False

    def _tell_damaged(self, queue: ConsumeQueue, queue_offset: int, entry: DispatchEntry) -> None:
        log.error("record with a damaged queue offset left out", topic=queue.topic, queue_id=queue.queue_id,
                  queue_offset=queue_offset, physical_offset=entry.physical_offset)  # fmt: skip

    def _distrust(self, queue: ConsumeQueue, queue_offset: int, entry: DispatchEntry) -> None:
        """After a crash, and when entries are missing, those of messages that lie behind the beginning of the walk may
        be anything: torn, missing, or leading to records that did not survive. They are taken away, and the walk enters
        them again.

        `entry` is the queue's first record in the walk. When the entry there leads to a later, good record of the same
        queue, the topic was deleted and made again, and the record belongs to its former life."""
        present = queue.entry(queue_offset)
        if present is not None and present[0] > entry.physical_offset and self._leads_home(queue, queue_offset):
            return
        last = queue.entry(queue.end - 1)
        if last is not None and last[1] == FILLER_SIZE_BYTES:
            self._filled_until[queue] = queue.end
        if queue_offset < queue.first_in_files and self._is_live(queue.topic):
            if self.report.scanned_from == self.report.log_begin:
                self._note_times(queue)
                queue.begin_anew()
                return
            queue_offset = queue.first_at_or_beyond(entry.physical_offset)
        if queue_offset < queue.end:
            self._note_times(queue)
            queue.cut(queue_offset)
            self._queues.dirty[queue] = None
        self._check_tail(queue)

    def _check_tail(self, queue: ConsumeQueue) -> None:
        """Go back over the last entries until one that leads to a record of this queue in front of the walk's
        beginning, or below the log; those on the way lead nowhere: the last ones go, others become fillers."""
        at = queue.end - 1
        while at >= queue.first_in_files:
            entry = queue.entry(at)
            if entry is not None and entry[1] != FILLER_SIZE_BYTES:
                end = entry[0] + entry[1]
                if end <= self.report.log_begin or (end <= self.report.scanned_from and self._leads_home(queue, at)):
                    return
            if entry is None or entry[1] != FILLER_SIZE_BYTES:
                self.report.truncated_entries += 1
                self._queues.dirty[queue] = None
                self._note_times(queue)
                if at == queue.end - 1:
                    queue.cut(at)
                else:
                    queue.replace(at, FILLER)
            at -= 1

    def _leads_home(self, queue: ConsumeQueue, queue_offset: int) -> bool:
        """Whether the entry leads to the record of this queue with this queue offset."""
        entry = queue.entry(queue_offset)
        file = self._log.sequence.find(entry[0]) if entry is not None else None
        if entry is None or file is None:
            return False
        at = entry[0] - file.start
        data = file.read(at, entry[1])
        try:
            fields = record.read_fields(data, 0, len(data))
        except RecordError:
            return False
        if fields.size_bytes != entry[1] or fields.physical_offset != entry[0]:
            return False
        is_own = fields.topic == queue.topic_bytes and fields.queue_id == queue.queue_id
        # an entry of a multi dispatch leads to a record of another queue
        return fields.queue_offset == queue_offset if is_own else b"INNER_MULTI_DISPATCH" in fields.properties

    def _fill(self, queue: ConsumeQueue, queue_offset: int) -> None:
        """Filler entries up to there; `touched` keeps holding exactly the queues that have something buffered."""
        was_buffered = queue.buffered_count > 0
        queue.fill(queue_offset)
        if queue.buffered_count and not was_buffered:
            self._queues.touched.append(queue)

    def _note_times(self, queue: ConsumeQueue) -> None:
        """Modification times of the queue's files before recovery writes to them: search by time goes by them."""
        if queue not in self._times:
            self._times[queue] = {file.start: file.modified_ms() for file in queue.sequence.files}

    def _restore_times(self) -> None:
        """Give every file that recovery wrote the time it had, or that of its last message when it is new."""
        for queue, times in self._times.items():
            for file in queue.sequence.files:
                time_ms = times.get(file.start)
                if time_ms is None:
                    last = queue.entry(min(queue.end, file.end // ENTRY_BYTES) - 1)
                    time_ms = self._log.store_timestamp_at(last[0]) if last is not None else -1
                if time_ms > 0:
                    self._files.set_modified(file.path, time_ms)

    def _add(self, queue: ConsumeQueue, entry: DispatchEntry) -> None:
        self._note_times(queue)
        if queue.buffered_count == 0:
            self._queues.touched.append(queue)
        self._dispatch.add_to_queue(queue, entry)
        self.report.added_entries += 1
        self._since_write += 1
        if self._since_write >= _WRITE_EVERY:
            self._write()

    def _write(self) -> None:
        self._queues.write_touched([])
        self._since_write = 0

    def _rebuild_short(self, end: int) -> Iterator[None]:
        """A second walk for the queues that lack older entries than the first one met."""
        begin = min(queue.max_physical_end for queue in self._short)
        begin = max(begin, self.report.log_begin)
        self._write()
        names = sorted(f"{queue.topic}/{queue.queue_id}" for queue in self._short)
        log.warning("consume queues are incomplete and are made from the log", queues=names[:20], count=len(names))
        self.report.rebuilt_queues = names
        progress = self._start_progress("rebuilding queues", begin, end)
        file = self._log.sequence.find(begin)
        # Only offsets of records and files are good to begin at; the end of a queue's last message is one of them.
        scan = LogScan(self._log, begin if file is not None else self.report.log_begin, check_crc=False, stop=end)
        fields = scan.next()
        count = 0
        while fields is not None:
            entry = self._dispatch.entry_of(fields)
            if entry.queue in self._short:
                self._place_in_short(entry.queue, entry.queue_offset, entry)
            for more, queue_offset in entry.more_queues or ():
                if more in self._short:
                    self._place_in_short(more, queue_offset, entry)
            count += 1
            if count % _STEP_RECORDS == 0:
                yield
                progress.at(fields.physical_offset)
            fields = scan.next()
        progress.over()
        for queue, (queue_offset, entry) in self._leaps.items():
            if self._is_possible(queue, queue_offset, entry):
                self._fill(queue, queue_offset)
                self._add(queue, entry)

    def _place_in_short(self, queue: ConsumeQueue | None, queue_offset: int, entry: DispatchEntry) -> None:
        if queue is None or entry.physical_offset + entry.size_bytes <= queue.max_physical_end:
            return
        leap = self._leaps.pop(queue, None)
        if leap is not None and queue_offset > leap[0]:
            self._fill(queue, leap[0])
            self._add(queue, leap[1])
        elif leap is not None:
            self._tell_damaged(queue, *leap)
        expected = queue.end + queue.buffered_count
        if queue_offset > expected and self._is_possible(queue, queue_offset, entry):
            self._leaps[queue] = (queue_offset, entry)
        elif queue_offset == expected:
            self._add(queue, entry)

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
        scan = LogScan(self._log, begin, check_crc=False, stop=end)
        fields = scan.next()
        count = 0
        while fields is not None:
            self._index_one(self._dispatch.entry_of(fields))
            count += 1
            if count % _STEP_RECORDS == 0:
                yield
                progress.at(fields.physical_offset)
            fields = scan.next()
        progress.over()

    # -- the end ---------------------------------------------------------------------------------------------------

    def _set_end(self, scan: LogScan) -> Iterator[None]:
        self._write()
        for damage in scan.damages:
            self._replace_damage(damage)
        if self._doubts_queues:
            for number, queue in enumerate(self._queues):
                if queue not in self._seen:
                    self._check_tail(queue)
                if number % _STEP_QUEUES == 0:
                    yield
        self._log.sequence.truncate(scan.end)
        self._log.set_end(scan.end)
        if self._index.cut(scan.end):
            # It was ahead of the log, so the walk left out what it seemed to have.
            self._index_end = self._index.end_physical_offset
            yield from self._catch_up_index(scan.end)
        if scan.end_reason:
            log.info("log ends", physical_offset=scan.end, reason=scan.end_reason)
        for queue in self._queues:
            if queue.max_physical_end > scan.end:
                self._note_times(queue)
            removed = queue.truncate_beyond(scan.end)
            if removed:
                self.report.truncated_entries += removed
                log.warning("queue was ahead of the log", topic=queue.topic, queue_id=queue.queue_id, entries=removed)

    def _replace_damage(self, damage: Damage) -> None:
        """Save the damaged bytes, put something walkable in their place, blank the queue entries that lead there."""
        size = damage.end - damage.begin
        file = self._log.sequence.find(damage.begin)
        if file is None:
            return
        at = damage.begin - file.start
        saved = self._save_damaged(damage, file)
        if damage.end == file.end:
            file.clear_from(at)
            file.write(record.encode_blank(size), at)
        elif size > record.FIXED_BYTES + len(LOST_TOPIC):
            file.write(_lost_record(damage, size), at)
        for queue in self._queues:
            self._blank_entries(queue, damage)
        log.error(
            "damaged stretch of the log taken out; what is behind it was kept",
            physical_offset=damage.begin, size_bytes=size, reason=damage.reason, saved_as=saved,
        )  # fmt: skip

    def _save_damaged(self, damage: Damage, log_file: MappedFile) -> str:
        """Its bytes, in a file that has holes where they are zeros: most of a lost stretch often is. What a run saved
        that did not get further stays: the log may hold only a half of it by now."""
        size = damage.end - damage.begin
        name = layout.file_name(damage.begin)
        if self._files.exists(self._salvage.path(name)):
            return self._salvage.path(name)
        fd = self._salvage.begin(name, size)
        try:
            for at in range(0, size, _SAVE_BYTES):
                piece = log_file.pread(damage.begin - log_file.start + at, min(_SAVE_BYTES, size - at))
                if piece != bytes(len(piece)):
                    self._files.pwrite(fd, piece, at)
        except OSError:
            self._salvage.give_up(name, fd)
            raise
        return self._salvage.keep(name, fd)

    def _blank_entries(self, queue: ConsumeQueue, damage: Damage) -> None:
        if queue.max_physical_end <= damage.begin:
            return
        at = queue.first_at_or_beyond(damage.begin)
        while at < queue.end:
            entry = queue.entry(at)
            if entry is None or entry[0] >= damage.end:
                return
            self._note_times(queue)
            queue.replace(at, FILLER)
            self._queues.dirty[queue] = None
            at += 1

    def _forget_queues(self) -> None:
        """Without any log there is nothing that queue entries could lead to."""
        for queue in self._queues:
            log.warning("no log files: queue removed", topic=queue.topic, queue_id=queue.queue_id, entries=queue.end)
            self.report.truncated_entries += queue.end
            self._queues.delete(queue)
        self._index.delete_all()


def digest(queues: QueueTable, index: Index) -> int:
    """A number over the first and last entries of all queues and of the index."""
    value = crc32(b"%d %d" % (index.end_physical_offset, len(index.files)))
    for name, first, end, physical_end in sorted(
        (f"{queue.topic}/{queue.queue_id}", queue.first_in_files, queue.end, queue.max_physical_end)
        for queue in queues
        if queue.end
    ):
        value = crc32(f"{name} {first} {end} {physical_end}\n".encode(), value)
    return value


def clean_note(commit_log: CommitLog, queues: QueueTable, index: Index) -> CleanNote:
    """What the checkpoint of a clean shutdown says."""
    return CleanNote(commit_log.committed_offset, digest(queues, index))


def _lost_record(damage: Damage, size: int) -> bytes:
    """A record of exactly `size` bytes that enters neither queue nor index."""
    text = damage.reason.encode()[: size - record.FIXED_BYTES - len(LOST_TOPIC)]
    body = text.ljust(size - record.FIXED_BYTES - len(LOST_TOPIC), b"\0")
    host = bytes(8)
    data = bytearray()
    # The next message's store time: recovery picks the file to begin with by the store time of its first record.
    time = damage.next_timestamp
    flags = sys_flag.TRANSACTION_ROLLBACK
    record.encode_into(data, LOST_TOPIC, 0, 0, 0, damage.begin, flags, time, host, time, host, 0, 0, body, b"")
    return bytes(data)


def _max_physical_end(queue: ConsumeQueue) -> int:
    return queue.max_physical_end


_MAGIC: Final = (record.MESSAGE_MAGIC & 0xFFFFFFFF).to_bytes(4, "big")
