"""Silent queues: those of whose messages this log has none. Their ends cannot be counted.

A slave's log may begin later than its master's. A queue whose messages all lie in front of that beginning would begin
at queue offset 0 again when the slave becomes the master: queue offsets would be given twice, and consumers set back.
So a slave asks its master for the ends of its silent queues (broker/replication/queue_ends.py) and keeps them here. So
does a member of a group with those that its tables know, before it accepts messages (broker/group/known_ends.py).

`raise_end` writes fillers up to the end, in the file that holds the last of them, as RocketMQ does (fillPreBlank) when
the first message of a queue has a later place. A start finds the end in the files, RocketMQ's too. Nothing else can
make a lost filler again: after a power failure that takes some of them the queue ends earlier, but it is still silent,
and its end is asked for again.
"""

from __future__ import annotations

from contextlib import suppress

import structlog

from triomq.store.contents import Contents
from triomq.store.errors import LogCut
from triomq.store.fail_stop import FailStop
from triomq.store.queues.consume_queue import ENTRY_BYTES, MAX_END, ConsumeQueue
from triomq.store.refusals import Refusals
from triomq.store.writing.committing import Committing

log = structlog.get_logger("triomq.store.writing.silent_queues")


class SilentQueues:
    """`DefaultMessageStore.silent_queues`. Owns nothing."""

    def __init__(self, contents: Contents, refusals: Refusals, committing: Committing, fail_stop: FailStop) -> None:
        self._contents = contents
        self._queues = contents.queues
        self._refusals = refusals
        self._committing = committing
        self._fail_stop = fail_stop

    @property
    def may_exist(self) -> bool:
        """Whether messages may lie in front of the log."""
        return self._contents.log.min_offset > 0

    @property
    def change_count(self) -> int:
        """How often queues changed otherwise than by messages: an end that was asked for before may be of a deleted
        topic."""
        return self._queues.deleted_count

    def has(self, topic: str, queue_id: int) -> bool:
        """Return whether the log has no message of this queue."""
        queue = self._queues.find(topic, queue_id)
        return queue is None or self.is_silent(queue)

    def is_silent(self, queue: ConsumeQueue) -> bool:
        return queue.buffered_count == 0 and queue.max_physical_end <= max(0, self._contents.log.min_offset)

    def raise_end(self, topic: str, queue_id: int, end: int) -> bool:
        """Let a silent queue end at `end`, the queue offset of its next message, if it ends earlier. Return whether it
        did. Everything that `end` counts must lie in front of the log or in queues already. Raises StoreFailed."""
        if not self._is_slave or not self.has(topic, queue_id) or not 0 < end < MAX_END:
            return False
        try:
            queue = self._queues.get(topic, queue_id)
        except ValueError:
            return False
        before = queue.end
        if end <= before:
            return False
        with self._fail_stop.during("keeping the end of a queue"):
            with suppress(OSError):  # safe: a recovery that counts other ends than the note reads the whole log
                self._contents.checkpoint.forget_offsets()
            self._queues.deleted_count += 1  # a note for which a flush is counting now does not count this end
            self.drop_files_before(queue, end - 1)
            self._queues.keep_end(queue, end)
            self._committing.dispatched(0)
            queue.correct_min_offset(self._contents.log.min_offset)
        log.info("end of a queue without messages restored", topic=topic, queue_id=queue_id, end=end, before=before)
        return True

    @property
    def _is_slave(self) -> bool:
        """Whether the store is open, takes messages from a master only, and could write all of them so far."""
        if self._fail_stop.reason is not None or not self._refusals.has("role") or self._refusals.has("closed"):
            return False
        return not self._committing.has_pending and not self._committing.has_backlog

    def drop_files_before(self, queue: ConsumeQueue, queue_offset: int) -> None:
        """Remove the files of a silent queue if an entry at `queue_offset` belongs behind them: millions of fillers
        would join them to it, and their messages are gone."""
        last = queue.sequence.last
        if last is not None and queue_offset * ENTRY_BYTES >= last.end:
            self.begin_anew(queue)

    def begin_anew(self, queue: ConsumeQueue) -> None:
        """Remove all entries of a queue, which has none buffered. The next one may have any queue offset."""
        queue.end_mark.reject(LogCut(f"queue {queue.queue_id} of {queue.topic} was restarted"))
        queue.begin_anew()
        self._queues.unsynced_directories.add(queue.sequence.directory)
