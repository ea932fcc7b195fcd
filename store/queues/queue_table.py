"""All consume queues of a store, by topic and queue id, and which of them have entries to write or sync.

Owns the ConsumeQueue objects: loading or the first use creates them, and deleting their topic removes them. `touched`
has the queues with buffered entries of the commit in progress, and `dirty` those with writes that are not synced.
`deleted_count` rises when queues change otherwise than by messages: a note of their ends taken before is void.
`cleaned_start` is the start of the log up to which retention has cleaned the queues: while the log starts there, no
queue file is deleted.
"""

from __future__ import annotations

from collections.abc import Iterator

from triomq.store.disk.files import Files
from triomq.store.disk.layout import Layout
from triomq.store.disk.listing import is_queue_directory, is_topic_directory, our_directories
from triomq.store.disk.mapped_file import OpenFiles
from triomq.store.errors import StoreClosed
from triomq.store.queues.consume_queue import ENTRY_BYTES, ConsumeQueue
from triomq.store.queues.consume_queue_ext import ConsumeQueueExt
from triomq.store.queues.queue_note import QueueNote, Row


def check_queue_name(topic: str, queue_id: int) -> None:
    """Raise ValueError for a name that must not become a path."""
    if not topic or topic in (".", "..") or "/" in topic or "\0" in topic or queue_id < 0:
        raise ValueError(f"topic {topic!r} with queue {queue_id} cannot name a directory")


def queues_in(files: Files, directory: str, *, tells: bool = True) -> Iterator[tuple[str, list[int]]]:
    """Yield the topics that have a directory in `directory`, each with the ids of its queues that have one. `tells` as
    in `our_files`. Raises StoreRefused."""
    for topic in our_directories(files, directory, is_topic_directory, tells=tells):
        names = our_directories(files, f"{directory}/{topic}", is_queue_directory, tells=tells)
        yield topic, [int(name) for name in names]


class QueueTable:
    def __init__(
        self, pool: OpenFiles, files: Files, paths: Layout, file_size_bytes: int, ext_file_size_bytes: int
    ) -> None:
        """`ext_file_size_bytes` is 0 without enableConsumeQueueExt."""
        self._pool = pool
        self._files = files
        self._paths = paths
        self._file_size_bytes = (file_size_bytes + ENTRY_BYTES - 1) // ENTRY_BYTES * ENTRY_BYTES
        self._ext_file_size_bytes = ext_file_size_bytes
        self._by_topic: dict[str, dict[int, ConsumeQueue]] = {}
        self.count = 0
        self.deleted_count = 0
        self.cleaned_start = 0
        self.touched: list[ConsumeQueue] = []
        # a dict for its order, so that a run can be repeated exactly
        self.dirty: dict[ConsumeQueue, None] = {}
        self.unsynced_directories: set[str] = set()

    def load(self, last_files: int, log_min_offset: int, note: QueueNote | None = None) -> list[ConsumeQueue]:
        """Load every queue that has a directory, those that are as in the `note` without reading them. Return those
        whose `min_offset` is not yet what a log that begins at `log_min_offset` makes it. Raises StoreRefused."""
        uncorrected: list[ConsumeQueue] = []
        before_ns = note.before_ns if note is not None else 0
        has_same_begin = note is not None and note.log_begin == log_min_offset
        for topic, queue_ids in queues_in(self._files, self._paths.queues):
            rows = note.of_topic(topic) if note is not None else {}
            for queue_id in queue_ids:
                queue = self._make(topic, queue_id)
                row = rows.get(queue_id)
                is_corrected = has_same_begin
                if row is None or not queue.load_noted(row, before_ns):
                    is_corrected = queue.load(last_files, log_min_offset)
                if not is_corrected:
                    uncorrected.append(queue)
        return uncorrected

    def rows(self) -> Iterator[tuple[str, list[Row]]]:
        """Yield each topic with what a note has of its queues (queue_note.py)."""
        for topic, of_topic in self._by_topic.items():
            rows = [queue.row() for queue in of_topic.values()]
            yield topic, [row for row in rows if row is not None]

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        of_topic = self._by_topic.get(topic)
        return of_topic.get(queue_id) if of_topic is not None else None

    def get(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return the queue, and create it if it does not exist (only in memory until its first entry is written).
        Raises ValueError for a name that must not become a path."""
        of_topic = self._by_topic.get(topic)
        if of_topic is not None:
            queue = of_topic.get(queue_id)
            if queue is not None:
                return queue
        return self._make(topic, queue_id)

    def _make(self, topic: str, queue_id: int) -> ConsumeQueue:
        check_queue_name(topic, queue_id)
        queue = ConsumeQueue(self._pool, self._paths.queue(topic, queue_id), self._file_size_bytes, topic, queue_id)
        if self._ext_file_size_bytes:
            directory = self._paths.queue_ext(topic, queue_id)
            queue.ext = ConsumeQueueExt(self._pool, directory, self._ext_file_size_bytes)
        self._by_topic.setdefault(topic, {})[queue_id] = queue
        self.count += 1
        return queue

    def __iter__(self) -> Iterator[ConsumeQueue]:
        for of_topic in list(self._by_topic.values()):
            yield from list(of_topic.values())

    def of_topic(self, topic: str) -> list[ConsumeQueue]:
        """Return the queues of a topic that exist in memory or on disk."""
        return list(self._by_topic.get(topic, {}).values())

    def newest_entry(self) -> tuple[int, int, int] | None:
        """Return (physical offset, size, tags code) of the entry of the newest record, or None without entries."""
        newest: ConsumeQueue | None = None
        for queue in self:
            if queue.end and (newest is None or queue.max_physical_end > newest.max_physical_end):
                newest = queue
        return newest.entry(newest.end - 1) if newest is not None else None

    def topics(self) -> dict[str, list[int]]:
        """Return topic -> ids of its queues that ever held an entry."""
        found: dict[str, list[int]] = {}
        for topic, of_topic in self._by_topic.items():
            ids = sorted(queue_id for queue_id, queue in of_topic.items() if queue.end)
            if ids:
                found[topic] = ids
        return found

    def write_touched(self, written: list[ConsumeQueue]) -> None:
        """Write the buffered entries of the touched queues and append these queues to `written`. Raises OSError: the
        queues that were not written stay in `touched`."""
        touched = self.touched
        while touched:
            queue = touched[-1]
            if not queue.sequence.files or (queue.ext is not None and not queue.ext.sequence.files):
                self._make_directory(queue)
            queue.write(self.unsynced_directories)
            touched.pop()
            self.dirty[queue] = None
            written.append(queue)

    def _make_directory(self, queue: ConsumeQueue) -> None:
        """Create the queue's directory, and remember which directories to sync so that a power loss cannot remove the
        new names."""
        self._files.make_directories(queue.sequence.directory)
        self.unsynced_directories.add(f"{self._paths.queues}/{queue.topic}")
        self.unsynced_directories.add(self._paths.queues)
        if queue.ext is not None:
            self._files.make_directories(queue.ext.sequence.directory)
            self.unsynced_directories.add(f"{self._paths.queues_ext}/{queue.topic}")
            self.unsynced_directories.add(self._paths.queues_ext)

    def fill(self, queue: ConsumeQueue, until: int) -> None:
        """Add fillers to a queue up to `until`, and keep `touched` exactly the queues that have buffered entries."""
        was_buffered = queue.buffered_count > 0
        queue.fill(until)
        if queue.buffered_count and not was_buffered:
            self.touched.append(queue)

    def keep_end(self, queue: ConsumeQueue, end: int) -> None:
        """Let a queue end at `end` that gets no message soon, by fillers (ConsumeQueue.keep_end)."""
        was_buffered = queue.buffered_count > 0
        queue.keep_end(end)
        if queue.buffered_count and not was_buffered:
            self.touched.append(queue)

    def delete_topic(self, topic: str) -> int:
        """Remove the queues of a topic and their files. Return their number."""
        gone = self.of_topic(topic)
        for queue in gone:
            self.delete(queue)
        return len(gone)

    def delete(self, queue: ConsumeQueue) -> None:
        """Remove a queue and its files."""
        of_topic = self._by_topic.get(queue.topic)
        if of_topic is None or of_topic.pop(queue.queue_id, None) is None:
            return
        self.count -= 1
        self.deleted_count += 1
        self.dirty.pop(queue, None)
        if queue in self.touched:
            self.touched.remove(queue)
        queue.drop_mark(StoreClosed(f"queue {queue.queue_id} of {queue.topic} was deleted"))
        queue.delete()
        self._files.remove_directory(queue.sequence.directory)
        # A power failure must not bring back the names after a checkpoint has passed the deletion.
        self.unsynced_directories.add(f"{self._paths.queues}/{queue.topic}")
        self.unsynced_directories.add(self._paths.queues)
        if queue.ext is not None:
            self._files.remove_directory(queue.ext.sequence.directory)
        if not of_topic:
            del self._by_topic[queue.topic]
            self._files.remove_directory(f"{self._paths.queues}/{queue.topic}")
            self._files.remove_directory(f"{self._paths.queues_ext}/{queue.topic}")
