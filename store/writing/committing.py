"""Committing: what is appended goes to the log, into queues and index, and is published by the watermarks.

`pending` holds the dispatch entries of messages that are appended but not written, in the order of the log. `commit`
writes the log once, dispatches from memory, and then advances the watermarks. In the log of a group, what is written is
committed when a quorum has it: until `commit_to` says so, the entries wait in `uncommitted`. All of these are plain
functions that never await, and only the store's own thread may call them.

If the log cannot be written, the whole commit is undone: queue offsets, bytes, and the results, which turn into
refusals. A full disk or the lack of a descriptor may keep even the end of the log from being cleared; `is_end_unclear`
is set then, and puts are refused until it is cleared. If only a queue or the index cannot be written, the log has the
messages already. Their entries stay in memory for the next attempt, and puts are refused until a queue write succeeds.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable

import structlog

from triomq.protocol.outage import Outage
from triomq.store.contents import Contents, Marks, Opened
from triomq.store.disk.files import OUT_OF_DESCRIPTORS, PAGE_BYTES, TEMPORARY
from triomq.store.errors import LogNotTaken, StoreBroken, StoreError, StoreFull
from triomq.store.fail_stop import FailStop
from triomq.store.live_settings import LiveSettings
from triomq.store.queues.consume_queue import ConsumeQueue
from triomq.store.queues.dispatch import Dispatch, DispatchEntry, SharedEntry
from triomq.store.refusals import Refusals
from triomq.store.results import PutStatus

log = structlog.get_logger("triomq.store.append")

_RETRY_SECONDS = 0.1
"""The pause between two attempts to write what a full disk keeps back: each may wait for the disk."""


class Committing:
    """Commits (see the module docstring). `has_backlog`: queue entries wait for space on the disk. `is_end_unclear`:
    bytes of a refused commit lie behind the end of the log. Appending fills `pending`, and nobody else does."""

    def __init__(
        self,
        contents: Contents,
        settings: LiveSettings,
        marks: Marks,
        dispatch: Dispatch,
        refusals: Refusals,
        fail_stop: FailStop,
    ) -> None:
        self._log = contents.log
        self._queues = contents.queues
        self._marks = marks
        self._dispatch = dispatch
        self._refusals = refusals
        self._fail_stop = fail_stop
        for cause in ("queue", "end"):
            refusals.look_with(cause, self.write_backlog, _RETRY_SECONDS)
        self.pending: list[DispatchEntry] = []
        self.uncommitted: deque[DispatchEntry] = deque()
        self._buffer_bytes = 0
        if settings.has_buffer:
            self._buffer_bytes = max(1, settings.now.commit_commit_log_least_pages) * PAGE_BYTES
        self.has_backlog = False
        self.is_end_unclear = False
        self._outage = Outage()
        self.last_store_timestamp = 0

    def begin(self, opened: Opened) -> None:
        """Set the watermarks of a newly opened store: committed to the log's end, flushed as far as recovery knows."""
        marks = self._marks
        marks.committed.value = opened.log_end
        marks.written.value = marks.accepted.value = max(opened.log_end, self._log.written_offset)
        marks.flushed.value = opened.synced_end
        self.last_store_timestamp = opened.last_store_timestamp

    def begin_log_at(self, physical_offset: int) -> None:
        """Start the log of an empty slave at `physical_offset`, where its master's log starts."""
        self._log.set_end(physical_offset)
        self._marks.committed.value = self._marks.flushed.value = physical_offset

    def was_cut(self, last_store_timestamp: int) -> None:
        """Note that the log was truncated; its last message was stored at `last_store_timestamp` (ms)."""
        self.last_store_timestamp = last_store_timestamp

    @property
    def has_pending(self) -> bool:
        return bool(self.pending) or self._log.pending_bytes > 0

    def unwritten(self) -> str:
        """Say what is lost when the process ends now."""
        why = self._refusals.texts().get("log", "")
        count = _messages_of(self.pending)
        return f"{count} acknowledged messages in the buffer of transientStorePoolEnable are lost: {why}"

    def commit(self, *, buffered: bool = False) -> None:
        """See DefaultMessageStore.commit. With `buffered`, a store with a buffer (transientStorePoolEnable) may defer
        it."""
        if self._fail_stop.failure is not None:
            self._fail_stop.check()
        is_empty = self._log.next_offset == self._log.written_offset and not self.pending
        if is_empty and not self.has_backlog:
            return
        pending = self.pending
        try:
            if is_empty:
                self._write_queues()
            elif buffered and self._log.pending_bytes < self._buffer_bytes:
                self._marks.accepted.advance(self._log.next_offset)
            else:
                self.pending = []
                self._write(pending)
        except BaseException as error:
            _refuse(pending, "the commit failed")
            self._fail_stop.fail("a commit", error)

    def write_backlog(self) -> None:
        """Retry what a full disk or the lack of a descriptor delayed, if there is anything."""
        if self.is_end_unclear:
            self._clear_end()
        if self.has_backlog:
            self.commit()

    def _clear_end(self) -> None:
        try:
            self._log.take_back()
        except OSError as error:
            if error.errno not in TEMPORARY:
                self._fail_stop.broke(f"the end of the commit log cannot be cleared: {error}")
            return
        self.is_end_unclear = False
        self._refusals.set("end", None)
        log.info("end of the commit log cleared; puts are accepted again")

    def _write(self, pending: list[DispatchEntry]) -> None:
        """Commit these entries and the log's pending bytes."""
        try:
            self._log.write_pending()
        except OSError as error:
            if self._buffer_bytes and error.errno in TEMPORARY:
                self._keep_buffered(pending, error)
            else:
                self._take_back(pending, error)
            return
        except LogNotTaken as error:
            self._not_taken(pending, error)
            return
        if self._refusals.has("log"):
            self._refusals.set("log", None)
            log.info("commit log written again")
        if self._outage.is_on and self._outage.worked(time.monotonic()):
            log.info("commit log written again")
        if self._log.committed_offset < self._log.written_offset:
            self.uncommitted.extend(pending)
            return
        self._dispatch.apply_all(pending)
        if pending:
            self.last_store_timestamp = pending[-1].place.store_timestamp
        self._write_queues()
        self._marks.committed.advance(self._log.committed_offset)
        if self._marks.accepted is not self._marks.committed:
            self._marks.accepted.advance(self._log.committed_offset)

    def commit_to(self, offset: int) -> None:
        """Dispatch and publish what a quorum has: the written messages before `offset`, all of which are in
        `uncommitted`. Raises StoreFailed."""
        uncommitted = self.uncommitted
        entries: list[DispatchEntry] = []
        with self._fail_stop.during("a commit"):
            while uncommitted and uncommitted[0].place.physical_offset < offset:
                entries.append(uncommitted.popleft())
            self._dispatch.apply_all(entries)
            if entries:
                self.last_store_timestamp = entries[-1].place.store_timestamp
            self._log.committed_offset = offset
            self._write_queues()
            self._marks.committed.advance(offset)

    def forget_uncommitted(self, error: StoreError) -> None:
        """End the waits of messages that are written and that no quorum is known to have: another member decides now
        whether they stay, and what their queue offsets are."""
        self.commit()
        uncommitted, self.uncommitted = self.uncommitted, deque()
        _refuse(uncommitted, str(error))
        self._marks.acknowledged.reject(error, self._log.committed_offset)

    def _keep_buffered(self, pending: list[DispatchEntry], error: OSError) -> None:
        """Keep these messages, which are already accepted, in memory for a retry, and refuse further ones."""
        self.pending = pending + self.pending
        if not self._refusals.has("log"):
            self._refusals.set("log", f"the commit log cannot be written: {error}")
            log.error("commit log not written; puts are refused until it can be", error=str(error))

    def dispatched(self, store_timestamp: int) -> None:
        """Write and publish the queue entries of records that arrived as raw bytes (on a slave). The caller has
        dispatched the records."""
        self.last_store_timestamp = max(self.last_store_timestamp, store_timestamp)
        self._write_queues()
        self._marks.committed.advance(self._log.committed_offset)

    def _write_queues(self) -> None:
        """Write the queues with buffered entries and publish those that were written."""
        written: list[ConsumeQueue] = []
        try:
            self._queues.write_touched(written)
        except OSError as error:
            self._queue_failed(error)
        else:
            if self.has_backlog:
                self.has_backlog = False
                self._refusals.set("queue", None)
                log.info("consume queues written again")
        for queue in written:
            queue.publish()

    def _queue_failed(self, error: OSError) -> None:
        if error.errno not in TEMPORARY:
            self._fail_stop.broke(f"a consume queue cannot be written: {error}")
        elif not self.has_backlog:
            self.has_backlog = True
            self._refusals.set("queue", f"a consume queue cannot be written: {error}")
            log.error("consume queues not written; puts are refused until they can be", error=str(error))

    def _not_taken(self, pending: list[DispatchEntry], failure: LogNotTaken) -> None:
        """Undo this commit, of which the log has written nothing."""
        self._restore_offsets(pending)
        self._log.take_back()
        _refuse(pending, str(failure))
        self._marks.acknowledged.reject(failure, self._log.written_offset)

    @staticmethod
    def _restore_offsets(pending: list[DispatchEntry]) -> None:
        for entry in reversed(pending):  # so that the first entry of each queue is applied last
            for queue, queue_offset in entry.queue_places():
                queue.next_offset = queue_offset

    def _take_back(self, pending: list[DispatchEntry], error: OSError) -> None:
        """Undo this commit: restore queue offsets, discard the bytes, and refuse the messages."""
        committed = self._log.committed_offset
        self._restore_offsets(pending)
        failure: StoreError
        is_temporary = error.errno in TEMPORARY
        try:
            self._log.take_back()
        except OSError as second:
            error = second
            is_temporary = is_temporary and second.errno in TEMPORARY
            self.is_end_unclear = is_temporary
            if is_temporary:
                self._refusals.set("end", f"the end of the commit log cannot be cleared: {second}")
        if is_temporary:
            lacking = "descriptor" if error.errno in OUT_OF_DESCRIPTORS else "space"
            count = _messages_of(pending)
            failure = StoreFull(f"no {lacking} for {count} messages in the commit log: {error}")
            if self._outage.failed(time.monotonic()):
                log.error("commit log not written; messages are refused", messages=count, exc_info=error)
        else:
            failure = StoreBroken(f"the commit log cannot be written: {error}")
            self._fail_stop.broke(str(failure))
        self._marks.accepted.reject(failure, committed)
        _refuse(pending, str(failure))
        if self._marks.committed is not self._marks.accepted:  # else this would reject waits that began meanwhile
            self._marks.committed.reject(failure, committed)
        self._marks.flushed.reject(failure, committed)


def _messages_of(pending: Iterable[DispatchEntry]) -> int:
    return sum([len(entry.records) if isinstance(entry, SharedEntry) else 1 for entry in pending])


def _refuse(pending: Iterable[DispatchEntry], reason: str) -> None:
    """Turn the results of these entries, which were PUT_OK, into refusals."""
    for entry in pending:
        if entry.result is not None:
            entry.result.status = PutStatus.SERVICE_NOT_AVAILABLE
            entry.result.reason = reason
