"""`DefaultMessageStore.upkeep`: operations that administrators request, and the state of retention.

Queues are removed in one step of the event loop, so no other task can see a queue half removed. A topic's deletion is a
record of the log, written before its queues are removed: whatever a crash leaves of them, recovery makes them of the
records behind it (deletion_record.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

import structlog

from triomq.protocol.system_topics import is_system_topic, needs_no_config
from triomq.store.contents import Contents
from triomq.store.errors import StoreFull
from triomq.store.queues.consume_queue import ConsumeQueue
from triomq.store.results import PutResult
from triomq.store.upkeep.retention import Retention

log = structlog.get_logger("triomq.store")


class Upkeep:
    """The operations. `commit` writes the appended messages, so that no entry of a queue waits when it is removed;
    `append_deletion` appends the record of a topic's deletion."""

    def __init__(
        self,
        contents: Contents,
        retention: Retention,
        commit: Callable[[], None],
        append_deletion: Callable[[str], PutResult | None],
    ) -> None:
        self._contents = contents
        self._retention = retention
        self._commit = commit
        self._append_deletion = append_deletion

    def delete_topic(self, topic: str) -> int:
        """Note the deletion in the log, and remove the topic's consume queues; the log keeps the records. Return the
        number of queues removed. The deletion is on disk when the log is (`DefaultMessageStore.cover`). Raises
        StoreError if it cannot be noted: then nothing is removed."""
        return self._delete_topics([topic])

    def delete_unused_topics(self, used: Iterable[str]) -> int:
        """Remove the queues of every topic not in `used` (system topics and light queues stay). Return the number of
        queues removed. Raises StoreError as `delete_topic`."""
        keep = frozenset(used)
        topics = [topic for topic in self._contents.queues.topics() if topic not in keep]
        unused = [topic for topic in topics if not needs_no_config(topic)]
        return self._delete_topics(unused)

    def _delete_topics(self, topics: list[str]) -> int:
        results = [self._append_deletion(topic) for topic in topics]
        self._commit()
        for result in results:
            if result is not None and not result.is_ok:
                raise StoreFull(f"the deletion of a topic cannot be noted in the log: {result.reason}")
        gone = [queue for topic in topics for queue in self._contents.queues.of_topic(topic)]
        self._delete(gone)
        return len(gone)

    def delete_expired_queues(self, is_used: Callable[[str], bool]) -> int:
        """Remove queues whose messages are all below the log's start (CLEAN_EXPIRED_CONSUMEQUEUE), except those of
        topics that are used: the last file of such a queue, which retention leaves, alone knows where the queue
        continues. Return the number of queues removed."""
        self._commit()
        begin = self._contents.log.min_offset
        expired = [queue for queue in self._contents.queues if queue.end and queue.max_physical_end <= begin]
        expired = [queue for queue in expired if not is_system_topic(queue.topic) and not is_used(queue.topic)]
        for queue in expired:
            log.info("expired queue removed", topic=queue.topic, queue_id=queue.queue_id)
        self._delete(expired)
        return len(expired)

    def _delete(self, gone: list[ConsumeQueue]) -> None:
        with suppress(OSError):  # safe: recovery then finds entries missing and reads the whole log
            self._contents.checkpoint.forget_offsets()
        for queue in gone:
            self._contents.queues.delete(queue)

    def delete_files_now(self) -> None:
        """Start the cleaner immediately, regardless of deleteWhen (DELETE_EXPIRED_COMMITLOG)."""
        self._retention.ask()

    @property
    def deleted_files(self) -> Mapping[str, int]:
        """Reason -> log files that retention has deleted since the start: `expired`, `asked` (expired, and deleted by a
        manual request), `disk_full`, `max_store_bytes`."""
        return self._retention.deleted_files

    def seconds_to_next_deletion(self) -> float:
        """Return the seconds to the next deletion while retention is deleting, or inf while it waits for its hour."""
        return self._retention.seconds_to_next_deletion()
