"""Bringing the consume queues up to the log, while recovery's walk passes its records.

Every record that its queue lacks is entered. After a crash, the entries of messages behind the start of the walk may be
anything: torn, missing, or leading to records that did not survive. They are removed and entered again; since the walk
passes each of those records, nothing is lost by that. Entries of messages in front of the start were on disk, which is
what the checkpoint guarantees; only the last of them is checked, back to the first that leads to its own record.

A queue that lacks earlier entries too (files were lost, or the walk began too late for it) is *short*: its records in
front of the walk are missing, so nothing is entered behind the gap, and a second walk makes the rest of it.

Files keep the modification times they had, or get those of their last messages, because search by time goes by them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import structlog

from triomq.protocol import record
from triomq.protocol.errors import RecordError
from triomq.store.contents import Contents
from triomq.store.log.commit_log import CommitLog
from triomq.store.log.log_scan import Damage, LogScan
from triomq.store.queues.consume_queue import ENTRY_BYTES, FILLER, FILLER_SIZE_BYTES, ConsumeQueue
from triomq.store.queues.dispatch import Dispatch, DispatchEntry
from triomq.store.results import RecoveryReport
from triomq.store.upkeep.progress import Progress, StartProgress

log = structlog.get_logger("triomq.store.recovery")

_WRITE_EVERY: Final = 50_000
_STEP_QUEUES: Final = 256
_STEP_RECORDS: Final = 1024


def walk_again(
    commit_log: CommitLog,
    dispatch: Dispatch,
    begin: int,
    end: int,
    enter: Callable[[DispatchEntry], None],
    progress: Progress,
) -> Iterator[None]:
    """A second walk over a part of the log that the first one found good, a few milliseconds at a time."""
    scan = LogScan(commit_log, begin, check_crc=False, stop=end)
    fields = scan.next()
    count = 0
    while fields is not None:
        enter(dispatch.entry_of(fields))
        count += 1
        if count % _STEP_RECORDS == 0:
            yield
            progress.at(fields.physical_offset)
        fields = scan.next()
    progress.over()


class QueueRecovery:
    """The queues' part of one recovery. `report` is the recovery's, which says where the log and the walk begin."""

    def __init__(
        self,
        contents: Contents,
        dispatch: Dispatch,
        *,
        is_live: Callable[[str], bool],
        start_progress: StartProgress,
        report: RecoveryReport,
    ) -> None:
        self._files = contents.files
        self._log = contents.log
        self._queues = contents.queues
        self._dispatch = dispatch
        self._is_live = is_live
        self._start_progress = start_progress
        self._report = report
        # Entries behind the beginning of the walk may be anything.
        self.are_doubtful = False
        # Queues that lack entries which the walk does not come by.
        self._short: set[ConsumeQueue] = {queue for queue in contents.queues if queue.was_cut_short}
        self._seen: set[ConsumeQueue] = set()
        # Ends of queues whose last messages were found lost by an earlier recovery: those offsets stay taken.
        self._filled_until: dict[ConsumeQueue, int] = {}
        # Records whose queue offset leaves others out: the next one of the queue says whether that is so.
        self._leaps: dict[ConsumeQueue, tuple[int, DispatchEntry]] = {}
        self._times: dict[ConsumeQueue, dict[int, int]] = {}
        self._since_write = 0

    # -- the walk --------------------------------------------------------------------------------------------------

    def enter(self, entry: DispatchEntry) -> None:
        """Give the record its place in its queues, if they lack it."""
        queue = entry.queue
        if queue is None:
            return
        self._place(queue, entry.queue_offset, entry)
        if entry.more_queues is not None:
            for more, queue_offset in entry.more_queues:
                self._place(more, queue_offset, entry)

    def _place(self, queue: ConsumeQueue, queue_offset: int, entry: DispatchEntry) -> None:
        if self.are_doubtful and queue not in self._seen:
            self._seen.add(queue)
            self._distrust(queue, queue_offset, entry)
        if entry.physical_offset + entry.size_bytes <= queue.max_physical_end or queue in self._short:
            return
        expected = queue.end + queue.buffered_count
        if queue_offset < expected:
            return
        if queue_offset > expected or expected == 0:
            is_live = self._is_live(queue.topic)
            if not is_live and self._report.was_clean:
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
        if present is not None and present[0] > entry.physical_offset and self.leads_home(queue, queue_offset):
            return
        last = queue.entry(queue.end - 1)
        if last is not None and last[1] == FILLER_SIZE_BYTES:
            self._filled_until[queue] = queue.end
        if queue_offset < queue.first_in_files and self._is_live(queue.topic):
            if self._report.scanned_from == self._report.log_begin:
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
                if end <= self._report.log_begin or (end <= self._report.scanned_from and self.leads_home(queue, at)):
                    return
            if entry is None or entry[1] != FILLER_SIZE_BYTES:
                self._report.truncated_entries += 1
                self._queues.dirty[queue] = None
                self._note_times(queue)
                if at == queue.end - 1:
                    queue.cut(at)
                else:
                    queue.replace(at, FILLER)
            at -= 1

    def leads_home(self, queue: ConsumeQueue, queue_offset: int) -> bool:
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

    def _add(self, queue: ConsumeQueue, entry: DispatchEntry) -> None:
        self._note_times(queue)
        if queue.buffered_count == 0:
            self._queues.touched.append(queue)
        self._dispatch.add_to_queue(queue, entry)
        self._report.added_entries += 1
        self._since_write += 1
        if self._since_write >= _WRITE_EVERY:
            self.write()

    def write(self) -> None:
        """Write what was entered. Raises OSError."""
        self._queues.write_touched([])
        self._since_write = 0

    # -- behind the walk -------------------------------------------------------------------------------------------

    def check_unseen(self) -> Iterator[None]:
        """Look at the ends of doubtful queues that the walk met no record of."""
        if not self.are_doubtful:
            return
        for number, queue in enumerate(self._queues):
            if queue not in self._seen:
                self._check_tail(queue)
            if number % _STEP_QUEUES == 0:
                yield

    def blank(self, damage: Damage) -> None:
        """Fillers for the entries that lead there."""
        for queue in self._queues:
            self._blank_entries(queue, damage)

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

    def truncate(self, log_end: int) -> None:
        """Remove the entries that lead behind the end of the log."""
        for queue in self._queues:
            if queue.max_physical_end > log_end:
                self._note_times(queue)
            removed = queue.truncate_beyond(log_end)
            if removed:
                self._report.truncated_entries += removed
                log.warning("queue was ahead of the log", topic=queue.topic, queue_id=queue.queue_id, entries=removed)

    def rebuild_short(self, end: int) -> Iterator[None]:
        """A second walk for the queues that lack older entries than the first one met."""
        if not self._short:
            return
        begin = min(queue.max_physical_end for queue in self._short)
        begin = max(begin, self._report.log_begin)
        self.write()
        names = sorted(f"{queue.topic}/{queue.queue_id}" for queue in self._short)
        log.warning("consume queues are incomplete and are made from the log", queues=names[:20], count=len(names))
        self._report.rebuilt_queues = names
        progress = self._start_progress("rebuilding queues", begin, end)
        file = self._log.sequence.find(begin)
        # Only offsets of records and files are good to begin at; the end of a queue's last message is one of them.
        begin = begin if file is not None else self._report.log_begin
        yield from walk_again(self._log, self._dispatch, begin, end, self._enter_short, progress)
        for queue, (queue_offset, entry) in self._leaps.items():
            if self._is_possible(queue, queue_offset, entry):
                self._fill(queue, queue_offset)
                self._add(queue, entry)

    def _enter_short(self, entry: DispatchEntry) -> None:
        if entry.queue in self._short:
            self._place_in_short(entry.queue, entry.queue_offset, entry)
        for more, queue_offset in entry.more_queues or ():
            if more in self._short:
                self._place_in_short(more, queue_offset, entry)

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

    def finish(self) -> None:
        """Fillers for lost messages at the ends of queues; then everything is written."""
        for queue, end in self._filled_until.items():
            if queue.end + queue.buffered_count < end:
                self._fill(queue, end)
        self.write()

    def restore_times(self) -> None:
        """Give every file that recovery wrote the time it had, or that of its last message when it is new."""
        for queue, times in self._times.items():
            for file in queue.sequence.files:
                time_ms = times.get(file.start)
                if time_ms is None:
                    last = queue.entry(min(queue.end, file.end // ENTRY_BYTES) - 1)
                    time_ms = self._log.store_timestamp_at(last[0]) if last is not None else -1
                if time_ms > 0:
                    self._files.set_modified(file.path, time_ms)

    def _note_times(self, queue: ConsumeQueue) -> None:
        """Modification times of the queue's files before recovery writes to them: search by time goes by them."""
        if queue not in self._times:
            self._times[queue] = {file.start: file.modified_ms() for file in queue.sequence.files}

    def forget(self) -> None:
        """Without any log there is nothing that entries could lead to."""
        for queue in self._queues:
            log.warning("no log files: queue removed", topic=queue.topic, queue_id=queue.queue_id, entries=queue.end)
            self._report.truncated_entries += queue.end
            self._queues.delete(queue)
