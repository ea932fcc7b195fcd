"""`MessageStore.upkeep`: what administrators ask of a store, and what retention tells about itself.

Removing queues happens in one step of the event loop: nobody can read or write half of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

import structlog

from triomq.protocol.system_topics import LMQ_PREFIX, is_system_topic
from triomq.store.contents import Contents
from triomq.store.queues.consume_queue import ConsumeQueue
from triomq.store.upkeep.retention import Retention

log = structlog.get_logger("triomq.store")


class Upkeep:
    """`commit` writes what was appended, so that no entry of a queue waits when the queue goes."""

    __slots__ = ("_commit", "_contents", "_retention")

    def __init__(self, contents: Contents, retention: Retention, commit: Callable[[], None]) -> None:
        self._contents = contents
        self._retention = retention
        self._commit = commit

    def delete_topic(self, topic: str) -> int:
        """Remove its consume queues; the log keeps the records. Returns the number of queues removed."""
        self._commit()
        gone = [queue for queue in self._contents.queues if queue.topic == topic]
        self._delete(gone)
        return len(gone)

    def delete_unused_topics(self, used: Iterable[str]) -> int:
        """Remove the queues of every topic not in `used` (system topics and light queues stay). Returns the number of
        queues removed."""
        keep = frozenset(used)
        topics = [topic for topic in self._contents.queues.topics() if topic not in keep]
        unused = [topic for topic in topics if not is_system_topic(topic) and not topic.startswith(LMQ_PREFIX)]
        return sum(self.delete_topic(topic) for topic in unused)

    def delete_expired_queues(self) -> int:
        """CLEAN_EXPIRED_CONSUMEQUEUE: remove queues whose messages are all below the log's start. Returns their
        number."""
        self._commit()
        begin = self._contents.log.min_offset
        expired = [queue for queue in self._contents.queues if queue.end and queue.max_physical_end <= begin]
        expired = [queue for queue in expired if not is_system_topic(queue.topic)]
        for queue in expired:
            log.info("expired queue removed", topic=queue.topic, queue_id=queue.queue_id)
        self._delete(expired)
        return len(expired)

    def _delete(self, gone: list[ConsumeQueue]) -> None:
        with suppress(OSError):  # a recovery then misses them and reads the whole log
            self._contents.checkpoint.forget_offsets()
        for queue in gone:
            self._contents.queues.delete(queue)

    def delete_files_now(self) -> None:
        """DELETE_EXPIRED_COMMITLOG: let the cleaner run at once, whatever the hour."""
        self._retention.ask()

    def seconds_to_next_deletion(self) -> float:
        """Time to the next file while retention is deleting, inf when it waits for its hour."""
        return self._retention.seconds_to_next_deletion()
