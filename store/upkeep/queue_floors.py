"""Where a queue begins of which neither the log nor its files tell: behind everything that is known of its end.

When all messages of a queue have expired, only its files know its next queue offset. If they are lost, or are to be
made again, a queue that began at 0 would give queue offsets twice, and its groups, which are behind all of them, would
never get its next messages. Two places know better, and a recovery asks both:

    config/consumerOffset.json, lmqConsumerOffset.json, delayOffset.json     what groups and delivery have consumed
    <root>/queueends                                                          {"topic": {queue id: end}}, written and
                                                                              synced before queue files are removed

Asked for are queues of whose messages the log has none. Deleted topics are left out: their next life begins at 0. So
is a slave, which asks its master (broker/replication/queue_ends.py). A member of a group does not know at its start
whether what lies behind the committed end are messages of such a queue: it asks when it leads, and has committed all
that it has (broker/group/roles.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec
import structlog

from triomq.protocol.bodies.offset import ConsumerOffsetSerializeWrapper, DelayOffsetSerializeWrapper
from triomq.protocol.system_topics import SCHEDULE_TOPIC
from triomq.store.contents import Contents
from triomq.store.disk.files import Files
from triomq.store.disk.json_config import JsonFile
from triomq.store.disk.layout import Layout
from triomq.store.queues.consume_queue import MAX_END, ConsumeQueue
from triomq.store.queues.queue_table import check_queue_name

log = structlog.get_logger("triomq.store.queue_floors")

Ends = dict[tuple[str, int], int]
"""(topic, queue id) -> the queue offset of the next message."""

_STEP_QUEUES = 64


def consumed_ends(offsets: ConsumerOffsetSerializeWrapper | None, delays: Iterable[tuple[int, int]]) -> Ends:
    """Return the highest offset that a group has committed of each queue, and delivery of each delay level: `delays`
    are levels with their offsets."""
    ends: Ends = {}
    if offsets is not None:
        for key, queues in offsets.offset_table.items():
            for queue_id, offset in queues.items():
                _raise(ends, key.partition("@")[0], queue_id, offset)
        for key, offset in (offsets.lmq_offset_table or {}).items():
            _raise(ends, key.partition("@")[0], 0, offset)
    for level, offset in delays:
        _raise(ends, SCHEDULE_TOPIC, level - 1, offset)
    return ends


def _kept_ends(files: Files, paths: Layout) -> Ends:
    """Return what the tables on the disk and an earlier note say."""
    ends = noted_ends(files, paths)
    delays = JsonFile(files, f"{paths.config}/delayOffset.json", DelayOffsetSerializeWrapper.decode).peek()
    levels = delays.offset_table.items() if delays is not None else ()
    for name in ("consumerOffset.json", "lmqConsumerOffset.json"):
        offsets = JsonFile(files, f"{paths.config}/{name}", ConsumerOffsetSerializeWrapper.decode).peek()
        for (topic, queue_id), end in consumed_ends(offsets, levels).items():
            _raise(ends, topic, queue_id, end)
    return ends


def note_ends(files: Files, paths: Layout, ends: Ends) -> None:
    """Note on disk the ends of queues whose files are about to be removed, beside what an earlier note still has.
    Raises OSError."""
    ends = {**ends}
    for (topic, queue_id), end in noted_ends(files, paths).items():
        _raise(ends, topic, queue_id, end)
    table: dict[str, dict[str, int]] = {}
    for (topic, queue_id), end in ends.items():
        table.setdefault(topic, {})[str(queue_id)] = end
    JsonFile(files, paths.queue_ends, _decode).save(msgspec.json.encode(table))


def noted_ends(files: Files, paths: Layout) -> Ends:
    """Return what `note_ends` has noted and no recovery has used yet."""
    table = JsonFile(files, paths.queue_ends, _decode).peek() or {}
    return {(topic, queue_id): end for topic, queues in table.items() for queue_id, end in queues.items()}


def forget_noted_ends(files: Files, paths: Layout) -> None:
    """Remove what `note_ends` has noted: queues have those ends. Raises OSError."""
    for path in (paths.queue_ends, f"{paths.queue_ends}.bak"):
        if files.exists(path):
            files.unlink(path)


def _decode(data: bytes) -> dict[str, dict[int, int]]:
    return msgspec.json.decode(data, type=dict[str, dict[int, int]])


def _raise(ends: Ends, topic: str, queue_id: int, end: int) -> None:
    if 0 < end < MAX_END and queue_id >= 0:
        ends[topic, queue_id] = max(end, ends.get((topic, queue_id), 0))


class QueueFloors:
    """Raises queues to their floors at the end of a recovery, before anybody writes. `is_live` returns False for a
    topic that was deleted or that no table has."""

    def __init__(self, contents: Contents, is_live: Callable[[str], bool]) -> None:
        self._contents = contents
        self._is_live = is_live
        self._has_raised = False

    def steps(self) -> Iterator[None]:
        """Raise the queues, in steps, and bring that to disk. Raises OSError."""
        files, paths, queues = self._contents.files, self._contents.paths, self._contents.queues
        ends = _kept_ends(files, paths)
        yield
        raised: list[ConsumeQueue] = []
        for number, ((topic, queue_id), end) in enumerate(ends.items(), 1):
            if self._raise_queue(topic, queue_id, end):
                raised.append(queues.get(topic, queue_id))
            if number % _STEP_QUEUES == 0:
                queues.write_touched([])
                yield
        queues.write_touched([])
        for number, queue in enumerate(raised, 1):
            self._sync(queue)
            if number % _STEP_QUEUES == 0:
                yield
        forget_noted_ends(files, paths)

    def _raise_queue(self, topic: str, queue_id: int, end: int) -> bool:
        queues = self._contents.queues
        try:
            check_queue_name(topic, queue_id)
        except ValueError:
            return False
        queue = queues.find(topic, queue_id)
        before = queue.end if queue is not None else 0
        has_messages = queue is not None and queue.max_physical_end > max(0, self._contents.log.min_offset)
        if end <= before or has_messages or not self._is_live(topic):
            return False
        if not self._has_raised:
            self._contents.checkpoint.forget_offsets()  # it counts other ends
            self._has_raised = True
        queue = queues.get(topic, queue_id)
        if queue.sequence.files:
            queue.begin_anew()  # a gap of millions of fillers would join its messages, which are gone, to its end
            queues.unsynced_directories.add(queue.sequence.directory)
        queues.keep_end(queue, end)
        log.warning(
            "end of a queue without messages restored",
            topic=topic,
            queue_id=queue_id,
            end=end,
            before=before,
        )
        return True

    def _sync(self, queue: ConsumeQueue) -> None:
        files, directory = self._contents.files, Path(queue.sequence.directory)
        for file in queue.sequence.files:
            files.datasync(file.fd())
        for each in (directory, directory.parent, directory.parent.parent):
            files.sync_directory(str(each))
