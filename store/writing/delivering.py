"""Delivering: delayed messages that are due, from their records to the queues for which they wait, many at a time.

A record that is delivered differs from the one that waited only in its place, its topic and its store time. So the fast
path `take_records` copies the records of a block of queue entries from the mapped log behind the pending bytes of the
log, and changes these. It stops at everything unusual, about which the caller decides: a message that is not due, or a
record that was on the disk when the process started, that would not fit into the log file, that names no queue, or
whose properties encoding would change. What it appends is what `Appending` would append of the same messages, except
that a block has one store time. A pure build and the log of a group deliver nothing this way.

Owns nothing, as Appending. `append` changes only memory and never awaits.
"""

from __future__ import annotations

import struct
from typing import Final, TypeAlias

from triomq.protocol.clock import NowMs
from triomq.protocol.speedups import fast_path
from triomq.store.contents import Contents, Opened
from triomq.store.fail_stop import FailStop
from triomq.store.live_settings import LiveSettings
from triomq.store.queues.consume_queue import ENTRY, ConsumeQueue
from triomq.store.queues.dispatch import RecordOfMany, SharedEntry
from triomq.store.refusals import Refusals
from triomq.store.results import PutResult, PutStatus
from triomq.store.writing.appending import MAX_PENDING_BYTES, refusal_of
from triomq.store.writing.committing import Committing

_WithHead: TypeAlias = tuple[ConsumeQueue, bytearray]

_HEAD: Final = struct.Struct(">iq")
_QUEUE_OFFSET_AT: Final = 4
_set_queue_offset: Final = struct.Struct(">q").pack_into
_MAX_QUEUE_ID: Final = 0x7FFFFFFF
_PUT_OK: Final = PutStatus.PUT_OK
_take_records: Final = fast_path("take_records", __name__)
_entry_at: Final = ENTRY.unpack_from


class RealQueues:
    """The queues to which the messages of a batch go. `by_key` has by REAL_TOPIC, \\x01 and REAL_QID, as they are in
    the properties, the queue and its head, which is what a record says of it: queue id 4, queue offset of the next
    message 8, topic. Several keys may lead to one queue whose topic has fewer queues than before: it has one head."""

    __slots__ = ("_by_queue", "by_key")

    def __init__(self) -> None:
        self.by_key: dict[bytes, _WithHead] = {}
        self._by_queue: dict[ConsumeQueue, _WithHead] = {}

    def add(self, key: bytes, queue: ConsumeQueue) -> None:
        with_head = self._by_queue.get(queue)
        if with_head is None:
            head = bytearray(_HEAD.pack(queue.queue_id, 0) + queue.topic_bytes)
            with_head = self._by_queue[queue] = queue, head
        self.by_key[key] = with_head

    def set_next_offsets(self) -> None:
        """Set the queue offsets of the next messages in the heads."""
        for queue, head in self._by_queue.values():
            _set_queue_offset(head, _QUEUE_OFFSET_AT, queue.next_offset)


class Delivery:
    """What one call delivered: the entries up to `position`, with one result for all of them, None if there are none.
    `sizes` has those of the messages of each queue, in bytes. `unknown` is the key of a queue that `RealQueues` lacks,
    if that is why it ended."""

    __slots__ = ("position", "result", "sizes", "unknown")

    def __init__(self, position: int) -> None:
        self.position = position
        self.unknown = b""
        self.result: PutResult | None = None
        self.sizes: dict[ConsumeQueue, list[int]] = {}


class Delivering:
    """See the module's docstring. `written_from` is the log offset from which on this process wrote all records."""

    __slots__ = ("_committing", "_fail_stop", "_log", "_now_ms", "_queues", "_refusals", "_settings", "written_from")

    def __init__(
        self,
        contents: Contents,
        settings: LiveSettings,
        refusals: Refusals,
        fail_stop: FailStop,
        committing: Committing,
        now_ms: NowMs,
    ) -> None:
        self._log = contents.log
        self._queues = contents.queues
        self._settings = settings
        self._refusals = refusals
        self._fail_stop = fail_stop
        self._committing = committing
        self._now_ms = now_ms
        self.written_from = 0

    def begin(self, opened: Opened) -> None:
        self.written_from = opened.log_end

    def learn_queue(self, queues: RealQueues, key: bytes, topic: str, queue_id: int) -> bool:
        """Add the queue for messages with this key. Return False if they cannot be delivered this way."""
        if queue_id > _MAX_QUEUE_ID or refusal_of(topic, queue_id) is not None:
            return False
        queue = self._queues.get(topic, queue_id)
        if queue.ext is not None:
            return False
        queues.add(key, queue)
        return True

    def append(self, entries: bytes, at: int, queues: RealQueues, due_ms: int, room_bytes: int) -> Delivery | None:
        """Append the messages of the queue entries from position `at` on that are due at `due_ms`, in `room_bytes` of
        delayed records, until something is unusual. Return None if this store delivers nothing this way."""
        commit_log = self._log
        if _take_records is None or commit_log.needs_quorum:
            return None
        delivery = Delivery(at)
        first: int = _entry_at(entries, at)[0]
        file = commit_log.sequence.find(first) if first >= self.written_from else None
        if file is None or self._refusals.first is not None:
            return delivery
        mapped = file.map()
        queues.set_next_offsets()
        begin, store_timestamp = commit_log.next_offset, self._now_ms()
        taken: list[RecordOfMany] = []
        longest = self._settings.max_message_bytes
        place = mapped, file.start, self.written_from, min(commit_log.committed_offset, file.end), 0, 0, b""
        to = (commit_log.tail, queues.by_key, taken, due_ms, longest, begin, commit_log.room(), store_timestamp)
        count = len(entries)
        try:
            delivery.position, _, delivery.unknown = _take_records(
                entries, at, count, longest, room_bytes, count, *place, b"", b"", to
            )
            if taken:
                self._appended(taken, store_timestamp, delivery)
        except BaseException as error:  # the tail may hold messages that nobody knows of
            self._fail_stop.fail("a delivery", error)
        if commit_log.pending_bytes > MAX_PENDING_BYTES:
            self._committing.commit()
        return delivery

    def _appended(self, taken: list[RecordOfMany], store_timestamp: int, delivery: Delivery) -> None:
        """Let what is in the tail wait for the commit."""
        begin = taken[0][2]
        end = taken[-1][2] + taken[-1][3]
        result = delivery.result = PutResult(
            _PUT_OK,
            physical_offset=begin,
            size_bytes=end - begin,
            queue_offset=taken[0][1],
            store_timestamp=store_timestamp,
            message_count=len(taken),
        )
        for each in taken:
            queue = each[0]
            queue.next_offset = each[1] + 1
            sizes = delivery.sizes.get(queue)
            if sizes is None:
                sizes = delivery.sizes[queue] = []
            sizes.append(each[3])
        self._committing.pending.append(SharedEntry(result, taken))
        self._log.next_offset = end
