"""Rebuilding the consume queues from the records that recovery's scan of the log reads.

Every record that its queue lacks is entered. After a crash, entries of messages after the start of the scan are not
trusted: they may be torn or missing, or point to records that did not survive. They are removed and entered again.
That loses nothing, because the scan reads every surviving record from its start on. Those of messages before the start
were on disk; the checkpoint guarantees that. Only the last of these is checked, going back to the newest one
that points to its own record.

A queue that also lacks earlier entries (files were lost, or the scan began too late for it) is *short*. Its records
from before the scan are missing, so nothing is entered after the gap; a second scan adds the rest of the queue.

A topic that was deleted and made again has lives in the log, and each begins at queue offset 0. The record of its
deletion (deletion_record.py) ends one. RocketMQ writes none: there, a record whose queue offset is below the end of its
queue may be the first of another life, or its queue offset is damaged: the queue's next record tells. The queue then
restarts, and the messages of earlier lives stay out of it.

Files keep their modification times, or receive the store times of their last messages, because search by time uses
the modification times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import structlog

from triomq.protocol import record
from triomq.protocol.errors import RecordError
from triomq.store.contents import Contents
from triomq.store.log.deletion_record import deleted_topic
from triomq.store.log.log_scan import Damage
from triomq.store.queues.consume_queue import ENTRY_BYTES, FILLER, FILLER_SIZE_BYTES, ConsumeQueue
from triomq.store.queues.dispatch import Dispatch, DispatchEntry
from triomq.store.results import RecoveryReport
from triomq.store.upkeep.log_walk import walk_again
from triomq.store.upkeep.progress import StartProgress

log = structlog.get_logger("triomq.store.recovery")

_WRITE_EVERY: Final = 50_000
_STEP_QUEUES: Final = 256


class QueueRecovery:
    """The queues' part of one recovery. `report` (the recovery's) has the start of the log and of the scan."""

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
        # Entries of messages after the start of the scan are not trusted.
        self.are_doubtful = False
        # Queues that lack entries of records from before the scan.
        self._short: set[ConsumeQueue] = {queue for queue in contents.queues if queue.was_cut_short}
        self._seen: set[ConsumeQueue] = set()
        # Ends of queues whose last messages an earlier recovery found lost: their queue offsets are not reused.
        self._filled_until: dict[ConsumeQueue, int] = {}
        # Records whose queue offset skips others: the queue's next record shows whether the offset is right.
        self._leaps: dict[ConsumeQueue, tuple[int, DispatchEntry]] = {}
        # Records that may be the first of another life of their queue.
        self._lives: dict[ConsumeQueue, tuple[int, DispatchEntry]] = {}
        self._times: dict[ConsumeQueue, dict[int, int]] = {}
        self._since_write = 0

    # -- the scan --------------------------------------------------------------------------------------------------

    def enter(self, entry: DispatchEntry) -> None:
        """Add the record's entry to each of its queues that lacks it."""
        queue = entry.queue
        if queue is None:
            self._end_lives(entry)
            return
        self._place(queue, entry.place.queue_offset, entry)
        if entry.more_queues is not None:
            for more, queue_offset in entry.more_queues:
                self._place(more, queue_offset, entry)

    def _place(self, queue: ConsumeQueue, queue_offset: int, entry: DispatchEntry) -> None:
        if self.are_doubtful and queue not in self._seen:
            self._seen.add(queue)
            self._distrust(queue, queue_offset, entry)
        if entry.place.physical_offset + entry.place.size_bytes <= queue.max_physical_end or queue in self._short:
            return
        if queue in self._lives:
            self._decide_life(queue, queue_offset)
        expected = queue.end + queue.buffered_count
        if queue_offset < expected:
            self._note_life(queue, queue_offset, entry)
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

    def _end_lives(self, entry: DispatchEntry) -> None:
        """Remove the queues of a topic that was deleted here. Trusted ones that have later messages were made since."""
        topic = deleted_topic(entry.topic, entry.sys_flag, entry.properties.text)
        for queue in self._queues.of_topic(topic) if topic is not None else ():
            if self.are_doubtful or queue.max_physical_end <= entry.place.physical_offset:
                self._lives.pop(queue, None)
                self._times.pop(queue, None)
                self._filled_until.pop(queue, None)
                self._short.discard(queue)
                self._queues.delete(queue)

    def _note_life(self, queue: ConsumeQueue, queue_offset: int, entry: DispatchEntry) -> None:
        """Note that the queue's next life may begin with this record. One that repeats the queue's last queue offset is
        none, nor is one whose message was given up."""
        end = queue.end + queue.buffered_count
        if queue_offset < 0 or (queue_offset > 0 and queue_offset + 1 == end):
            return
        present = queue.entry(queue_offset)
        if present is None or present[1] != FILLER_SIZE_BYTES:
            self._lives[queue] = (queue_offset, entry)

    def _decide_life(self, queue: ConsumeQueue, next_offset: int) -> None:
        """Decide whether the noted record began another life; `next_offset` is the queue offset of the queue's next
        record, which continues either that life or the one before."""
        queue_offset, entry = self._lives.pop(queue)
        if next_offset != queue_offset + 1 and next_offset >= queue.end + queue.buffered_count:
            self._tell_damaged(queue, queue_offset, entry)
            return
        self._begin_life(queue)
        if queue_offset < next_offset:
            self._fill(queue, queue_offset)
            self._add(queue, entry)

    def _begin_life(self, queue: ConsumeQueue) -> None:
        log.info(
            "topic deleted and created again: queue restarted",
            topic=queue.topic,
            queue_id=queue.queue_id,
            before=queue.end + queue.buffered_count,
        )
        self.write()
        queue.begin_anew()
        self._times[queue] = {}
        self._filled_until.pop(queue, None)

    def _settle_lives(self) -> None:
        """Decide about records that are the last of their queue: a life of one message, or a damaged queue offset."""
        lives, self._lives = self._lives, {}
        for queue, (queue_offset, entry) in lives.items():
            if queue_offset == 0:
                self._begin_life(queue)
                self._add(queue, entry)
            else:
                self._tell_damaged(queue, queue_offset, entry)

    def _is_possible(self, queue: ConsumeQueue, queue_offset: int, entry: DispatchEntry) -> bool:
        """Return whether the log has room for the records that this queue offset implies are missing before this one.

        No checksum covers the queue offset, so a damaged one must not create millions of fillers.
        """
        expected = queue.end + queue.buffered_count
        room = entry.place.physical_offset - queue.max_physical_end
        if expected == 0 or (queue_offset - expected) * record.FIXED_BYTES <= room:
            return True
        self._tell_damaged(queue, queue_offset, entry)
        return False

    def _tell_damaged(self, queue: ConsumeQueue, queue_offset: int, entry: DispatchEntry) -> None:
        log.error(
            "record with a damaged queue offset skipped",
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=queue_offset,
            physical_offset=entry.place.physical_offset,
        )

    def _distrust(self, queue: ConsumeQueue, queue_offset: int, entry: DispatchEntry) -> None:
        """Remove the queue's entries of messages after the start of the scan, which the scan enters again.

        After a crash, and when entries are missing, these entries may be torn or missing, or point to records that did
        not survive.

        `entry` is the first record of the queue in the scan. If the queue's entry at `queue_offset` points to a later,
        valid record of the same queue, the topic was deleted and created again, and `entry` belongs to the old topic.
        """
        present = queue.entry(queue_offset)
        if present is not None and present[0] > entry.place.physical_offset and self.leads_home(queue, queue_offset):
            return
        last = queue.entry(queue.end - 1)
        if last is not None and last[1] == FILLER_SIZE_BYTES:
            self._filled_until[queue] = queue.end
        if queue_offset < queue.first_in_files and self._is_live(queue.topic):
            if self._report.scanned_from == self._report.log_begin:
                self._note_times(queue)
                queue.begin_anew()
                return
            queue_offset = queue.first_at_or_beyond(entry.place.physical_offset)
        if queue_offset < queue.end:
            self._note_times(queue)
            queue.cut(queue_offset)
            self._queues.dirty[queue] = None
        self._check_tail(queue)

    def _check_tail(self, queue: ConsumeQueue) -> None:
        """Remove entries at the end of the queue that point to no record of this queue.

        Go back until an entry points below the start of the log, or to a record of this queue that ends at or before
        the start of the scan. Passed entries that are the last of the queue are removed; the others become fillers.
        """
        if queue.max_physical_end == 0:  # fillers only
            return
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
        """Return whether the entry points to the record of this queue with this queue offset."""
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
        # a multi-dispatch entry points to a record of another queue
        return fields.queue_offset == queue_offset if is_own else b"INNER_MULTI_DISPATCH" in fields.properties

    def _fill(self, queue: ConsumeQueue, queue_offset: int) -> None:
        """Add fillers up to `queue_offset`."""
        self._queues.fill(queue, queue_offset)

    def _add(self, queue: ConsumeQueue, entry: DispatchEntry) -> None:
        self._note_times(queue)
        self._dispatch.add(queue, entry)
        self._report.added_entries += 1
        self._since_write += 1
        if self._since_write >= _WRITE_EVERY:
            self.write()

    def write(self) -> None:
        """Write the entries that were added. Raises OSError."""
        self._queues.write_touched([])
        self._since_write = 0

    # -- after the scan --------------------------------------------------------------------------------------------

    def check_unseen(self) -> Iterator[None]:
        """Check the ends of the queues that had no record in the scan, if queues are not trusted."""
        if not self.are_doubtful:
            return
        for number, queue in enumerate(self._queues):
            if queue not in self._seen:
                self._check_tail(queue)
            if number % _STEP_QUEUES == 0:
                yield

    def blank(self, damage: Damage) -> None:
        """Replace the entries that point into the damaged range with fillers."""
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
        """Remove the entries that point beyond the end of the log."""
        for queue in self._queues:
            if queue.max_physical_end > log_end:
                self._note_times(queue)
            removed = queue.truncate_beyond(log_end)
            if removed:
                self._report.truncated_entries += removed
                log.warning("queue found ahead of the log", topic=queue.topic, queue_id=queue.queue_id, entries=removed)

    def rebuild_short(self, end: int) -> Iterator[None]:
        """Scan the log again for the queues that lack entries of records from before the first scan."""
        self._settle_lives()
        if not self._short:
            return
        begin = min(queue.max_physical_end for queue in self._short)
        begin = max(begin, self._report.log_begin)
        self.write()
        names = sorted(f"{queue.topic}/{queue.queue_id}" for queue in self._short)
        log.warning(
            "consume queues found incomplete; rebuilding them from the log", queues=names[:20], count=len(names)
        )
        self._report.rebuilt_queues = names
        progress = self._start_progress("rebuilding queues", begin, end)
        file = self._log.sequence.find(begin)
        # A scan can start only at the offset of a record or file; the end of a queue's last message is such an offset.
        begin = begin if file is not None else self._report.log_begin
        yield from walk_again(self._log, self._dispatch, begin, end, self._enter_short, progress)
        for queue, (queue_offset, entry) in self._leaps.items():
            if self._is_possible(queue, queue_offset, entry):
                self._fill(queue, queue_offset)
                self._add(queue, entry)
        self._settle_lives()

    def _enter_short(self, entry: DispatchEntry) -> None:
        if entry.queue is None:
            self._end_short_lives(entry)
        if entry.queue in self._short:
            self._place_in_short(entry.queue, entry.place.queue_offset, entry)
        for more, queue_offset in entry.more_queues or ():
            if more in self._short:
                self._place_in_short(more, queue_offset, entry)

    def _end_short_lives(self, entry: DispatchEntry) -> None:
        topic = deleted_topic(entry.topic, entry.sys_flag, entry.properties.text)
        for queue in self._short:
            if queue.topic == topic and queue.max_physical_end <= entry.place.physical_offset:
                self._lives.pop(queue, None)
                self._leaps.pop(queue, None)
                self._begin_life(queue)

    def _place_in_short(self, queue: ConsumeQueue | None, queue_offset: int, entry: DispatchEntry) -> None:
        if queue is None or entry.place.physical_offset + entry.place.size_bytes <= queue.max_physical_end:
            return
        leap = self._leaps.pop(queue, None)
        if leap is not None and queue_offset > leap[0]:
            self._fill(queue, leap[0])
            self._add(queue, leap[1])
        elif leap is not None:
            self._tell_damaged(queue, *leap)
        if queue in self._lives:
            self._decide_life(queue, queue_offset)
        expected = queue.end + queue.buffered_count
        if queue_offset > expected and self._is_possible(queue, queue_offset, entry):
            self._leaps[queue] = (queue_offset, entry)
        elif queue_offset == expected:
            self._add(queue, entry)
        elif queue_offset < expected:
            self._note_life(queue, queue_offset, entry)

    def finish(self) -> None:
        """Add fillers for lost messages at the ends of queues, then write all entries. Raises OSError."""
        for queue, end in self._filled_until.items():
            if queue.end + queue.buffered_count < end:
                self._fill(queue, end)
        self.write()

    def restore_times(self) -> None:
        """Set each file that recovery wrote back to its modification time, or, if the file is new, to the store time
        of its last message."""
        for queue, times in self._times.items():
            for file in queue.sequence.files:
                time_ms = times.get(file.start)
                if time_ms is None:
                    last = queue.entry(min(queue.end, file.end // ENTRY_BYTES) - 1)
                    time_ms = self._log.store_timestamp_at(last[0]) if last is not None else -1
                if time_ms > 0:
                    self._files.set_modified(file.path, time_ms)

    def _note_times(self, queue: ConsumeQueue) -> None:
        """Remember the modification times of the queue's files before recovery writes to them: search by time uses
        them."""
        if queue not in self._times:
            self._times[queue] = {file.start: file.modified_ms() for file in queue.sequence.files}

    def forget(self) -> None:
        """Delete all queues: without log files, their entries point to nothing."""
        for queue in self._queues:
            log.warning("queue removed: there is no log", topic=queue.topic, queue_id=queue.queue_id, entries=queue.end)
            self._report.truncated_entries += queue.end
            self._queues.delete(queue)
