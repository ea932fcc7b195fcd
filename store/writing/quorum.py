"""The store of a member of a group: what a quorum has committed enters queues and index, and is published.

The log of a group is written before it is committed. This part moves the committed end (`DefaultMessageStore.quorum`):

    leader     its own messages wait in memory (`Committing.uncommitted`) and are dispatched from there
    follower   records that a leader wrote here are read back from the log, in steps, by `run`

Both in the order of the log: a leader dispatches from memory only what begins where it has arrived. A store that is not
a member's has this part, too, and nobody uses it.

Queue offsets: a member may give out queue offsets when it has seen every record of the log, also those that are not
committed yet (`catch_up`, `lead`), because these stay in front of what it appends.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import structlog
import trio

from triomq.store.contents import Contents, Marks, Opened
from triomq.store.errors import LogCut, LogNotTaken
from triomq.store.fail_stop import FailStop
from triomq.store.log.log_scan import LogScan
from triomq.store.log.table_record import is_table_record
from triomq.store.queues.dispatch import Dispatch, DispatchEntry
from triomq.store.refusals import Refusals
from triomq.store.upkeep.tail_cut import TailCut
from triomq.store.writing.committing import Committing
from triomq.store.writing.replica import Replica, body_of

log = structlog.get_logger("triomq.store.writing.quorum")

_STEP_RECORDS: Final = 256


class Quorum:
    """`DefaultMessageStore.quorum`."""

    def __init__(
        self,
        contents: Contents,
        marks: Marks,
        dispatch: Dispatch,
        committing: Committing,
        replica: Replica,
        tail_cut: TailCut,
        refusals: Refusals,
        fail_stop: FailStop,
    ) -> None:
        self._contents = contents
        self._log = contents.log
        self._marks = marks
        self._dispatch = dispatch
        self._committing = committing
        self._replica = replica
        self._tail_cut = tail_cut
        self._refusals = refusals
        self._fail_stop = fail_stop
        self._target = 0
        self._wake = trio.Event()
        self.replaced_count = 0
        """How often the leader has replaced the whole log."""

    def begin(self, opened: Opened) -> None:
        """Start with what recovery has entered."""
        if self._log.needs_quorum:
            self._target = opened.log_end

    # -- called by the member of the group ----------------------------------------------------------------------------

    def written(self) -> None:
        """Note that records were written to the log, or cut from it, by the rules of the group."""
        if self._log.written_offset >= self._marks.written.value:
            self._marks.written.advance(self._log.written_offset)
        else:
            self._marks.written.rewind_to(self._log.written_offset)

    def committed(self, offset: int) -> None:
        """Note that a quorum has everything before `offset`, the end of an entry. Raises StoreFailed."""
        self._target = max(self._target, offset)
        self._log.scan_stop = max(self._log.scan_stop, self._target)
        if self._is_in_memory:
            self._committing.commit_to(self._target)
        elif self._log.committed_offset < self._target:
            self._wake.set()

    def shortened(self, end: int) -> None:
        """Note that the leader has cut the log at `end`: what was derived from later records goes, too. Raises
        StoreFailed."""
        self._target = min(self._target, end)
        self._log.scan_stop = min(self._log.scan_stop, end)
        reason = LogCut(f"the log was cut at {end}, where it differs from the leader's")
        if self._marks.flushed.value > end:
            self._marks.flushed.set_back(end, reason)
        if self._log.committed_offset > end:
            log.error("committed records cut by the leader: they were not on a quorum", physical_offset=end)
            with self._fail_stop.during("cutting the end of the log"):
                self._tail_cut.cut_derived(end)

    def replaced(self, begin: int) -> None:
        """Note that the leader has replaced the whole log by one whose first record lies at or behind `begin`: it had
        nothing in common with this one. Raises StoreFailed."""
        self._target = self._log.scan_stop = begin
        self._marks.flushed.set_back(min(begin, self._marks.flushed.value), LogCut("the log was replaced"))
        self.replaced_count += 1
        with self._fail_stop.during("replacing the log"):
            self._tail_cut.cut_derived(begin)
            for queue in self._contents.queues:
                queue.correct_min_offset(self._log.min_offset)

    # -- leading ------------------------------------------------------------------------------------------------------

    def lead(self) -> None:
        """Know the queue offsets that come next. No record may be written by the rules before the next `follow`, and
        `catch_up` must just have returned. Raises StoreFailed."""
        with self._fail_stop.during("counting the records that are not committed"):
            self._log.scan_stop = self._log.written_offset
            for queue in self._contents.queues:
                queue.next_offset = queue.end + queue.buffered_count
            scan = LogScan(self._log, self._log.committed_offset, check_crc=False)
            for fields in scan.records():
                self._count(self._dispatch.entry_of(fields))

    def accept(self) -> None:
        """Accept messages from now on."""
        self._refusals.set("role", None)

    @staticmethod
    def _count(entry: DispatchEntry) -> None:
        for queue, queue_offset in entry.queue_places():
            queue.next_offset = max(queue.next_offset, queue_offset + 1)

    def follow(self, reason: str) -> None:
        """Refuse messages from now on, and answer those that wait for a quorum: nobody else will. Raises
        StoreFailed."""
        self._refusals.set("role", reason)
        self._committing.forget_uncommitted(LogNotTaken(f"{reason}: the message may be stored, or not"))

    # -- dispatching --------------------------------------------------------------------------------------------------

    def table_changes(self, begin: int) -> Iterator[bytes | None]:
        """Yield the bodies of the records with changes of tables from `begin` on, which is the start of a record or a
        file, among those that are dispatched; and None now and then, so that other tasks may run."""
        begin, end = max(begin, self._log.min_offset), self._log.committed_offset
        if not 0 <= begin < end:
            return
        scan = LogScan(self._log, begin, check_crc=False, stop=end)
        for number, fields in enumerate(scan.records(), 1):
            if is_table_record(fields.topic.decode("utf-8", "replace"), fields.sys_flag):
                yield body_of(self._log, fields)
            if number % _STEP_RECORDS == 0:
                yield None

    async def run(self) -> None:
        """Dispatch what followers get, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            await self.catch_up()

    async def catch_up(self) -> None:
        """Return when everything that is committed is in queues and index: before this member leads, and before the
        store closes."""
        while self._log.committed_offset < self._target:
            if self._is_in_memory:
                self._committing.commit_to(self._target)
            else:
                self._enter_some()
            await trio.lowlevel.checkpoint()

    @property
    def _is_in_memory(self) -> bool:
        """Whether the next record to dispatch is in memory, as all later ones are."""
        if not self._committing.uncommitted:
            return False
        at, begin = self._log.committed_offset, self._first_in_memory
        return begin == at or begin == self._behind_filler(at)

    @property
    def _first_in_memory(self) -> int:
        """The log offset at which the first record in memory begins, with its header."""
        return self._committing.uncommitted[0].place.physical_offset - self._log.header_bytes

    def _behind_filler(self, at: int) -> int:
        """Return where the next record from `at` on begins, which may be the start of the next file."""
        file = self._log.sequence.find(at)
        if file is None or at == file.start:
            return at
        return file.end if self._log.is_filler(file.read(at - file.start, 8), file.end - at) else at

    def _enter_some(self) -> None:
        """Enter the next records of the log up to what is committed. Raises StoreFailed."""
        with self._fail_stop.during("dispatching committed records"):
            begin, stop = self._log.committed_offset, self._target
            if self._committing.uncommitted:
                stop = min(stop, self._first_in_memory)
            scan = LogScan(self._log, begin, check_crc=False, stop=stop)
            entries: list[DispatchEntry] = []
            while len(entries) < _STEP_RECORDS and (fields := scan.next()) is not None:
                entries.append(self._dispatch.entry_of(fields))
            end = scan.offset
            if end <= begin or scan.damages:
                raise RuntimeError(f"the log has no record at {begin} or behind it, but is committed up to {stop}")
            self._replica.enter(entries, end)
