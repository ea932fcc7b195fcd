"""Delivering: delayed messages that are due, from their records to the queues for which they wait, many at a time.

A record that is delivered differs from the one that waited only in its place, its topic and its store time. So
`deliver_records` copies the records of a block of queue entries from the mapped log behind its pending bytes, and
changes these. It stops at everything about which the caller has to decide: a message that is not due, or a record that
was on the disk when the process started, that would not fit into the log file, that names no queue, or whose properties
encoding would change. What it appends is what `Appending` would append of the same messages,
except that a block has one store time. The log of a group delivers nothing this way.

Owns nothing, as Appending. `append` changes only memory and never awaits.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from triomq.protocol import property_names as names
from triomq.protocol import sys_flag
from triomq.protocol.clock import NowMs
from triomq.protocol.errors import RecordError
from triomq.protocol.message_to_store import Place
from triomq.protocol.properties import MAX_PROPERTIES_BYTES, NAME_VALUE_SEPARATOR
from triomq.protocol.record import RecordFields, encode_into, read_fields, stored_again
from triomq.protocol.speedups import accelerated
from triomq.protocol.stored_properties import NONE, Noted, read_properties
from triomq.store.contents import Contents, Opened
from triomq.store.fail_stop import FailStop
from triomq.store.live_settings import LiveSettings
from triomq.store.queues.consume_queue import ENTRY, ENTRY_BYTES, ConsumeQueue
from triomq.store.queues.dispatch import RecordOfMany, SharedEntry
from triomq.store.queues.queue_table import QueueTable
from triomq.store.refusals import Refusals
from triomq.store.results import PutResult, PutStatus
from triomq.store.writing.appending import MAX_PENDING_BYTES, refusal_of
from triomq.store.writing.committing import Committing

_WithHead: TypeAlias = tuple[ConsumeQueue, bytearray]
_To: TypeAlias = tuple[bytearray, dict[bytes, tuple[Any, bytearray]], list[Any], int, int, int, int]

_HEAD: Final = struct.Struct(">iq")
_QUEUE_OFFSET_AT: Final = 4
_set_queue_offset: Final = struct.Struct(">q").pack_into
_MAX_QUEUE_ID: Final = 0x7FFFFFFF
MAX_QUEUE_ID_DIGITS: Final = 10
"""The digits of the largest queue id."""
LOWEST_TAGS_CODE: Final = -(2**31)
"""A smaller value is the address of a ConsumeQueueExt unit, not a tags code."""
_PUT_OK: Final = PutStatus.PUT_OK
_REAL_QUEUE: Final[tuple[str, ...]] = (names.REAL_TOPIC, names.REAL_QUEUE_ID)
_entry_at: Final = ENTRY.unpack_from

QueueOf: TypeAlias = Callable[[str, int], int | None]
"""(topic, queue id) -> the queue id to which its messages go now; None if the caller has to decide about each."""


def deliver_records_reference(
    entries: bytes, at: int, room: int, due: int, log: mmap.mmap | bytes, start: int, low: int, high: int, to: _To
) -> tuple[int, bytes]:
    """Deliver the messages of the queue entries from position `at` on that are due at `due` (ms), in `room` bytes of
    delayed records. Return the position of the first that is not delivered, and the key of its queue if `to` lacks
    that.

    `log` are the bytes of the log from its offset `start` on, of which those from `low` to `high` may be read. `to` is
    (tail, queues by key, delivered records, the longest delayed record, the log offset of the next record, the bytes
    that may be appended, store time in ms); the first three grow, as do the queue offsets in the heads (RealQueues).
    """
    tail, queues, delivered, longest, physical_offset, left, store_timestamp = to
    low, high = max(low, start), min(high, start + len(log))
    while 0 <= at <= len(entries) - ENTRY_BYTES:
        begin, size, code = _entry_at(entries, at)
        if not 0 < size <= min(room, longest, high - begin) or begin < low or not LOWEST_TAGS_CODE <= code <= due:
            return at, b""
        data = bytes(log[begin - start : begin - start + size])
        found = due_message(data, begin)
        if found is None:
            return at, b""
        fields, key, (tags_code, uniq_key, keys, _, _) = found
        if key not in queues:
            return at, key
        queue, head = queues[key]
        queue_id, queue_offset = _HEAD.unpack_from(head)
        place = Place(store_timestamp, physical_offset=physical_offset, queue_offset=queue_offset)
        one = bytearray()
        message = stored_again(data, fields, "", queue_id, NONE)
        encode_into(one, bytes(head[_HEAD.size :]), message, place, fields.properties)
        if len(one) > left:
            return at, b""
        tail += one
        delivered.append((queue, queue_offset, physical_offset, len(one), tags_code, uniq_key, keys))
        _set_queue_offset(head, _QUEUE_OFFSET_AT, queue_offset + 1)
        physical_offset += len(one)
        left -= len(one)
        room -= size
        at += ENTRY_BYTES
    return at, b""


def is_queue_id(text: str) -> bool:
    """Return whether a property has the decimal number of a queue, which may be beyond the largest."""
    return text.isascii() and text.isdigit() and len(text) <= MAX_QUEUE_ID_DIGITS


def due_message(data: bytes, physical_offset: int) -> tuple[RecordFields, bytes, Noted] | None:
    """Return the fields of a delayed record, the key of its real queue, and what its properties say. Return None for
    anything but a whole record that says that it is at this offset, is not of a transaction, has a CRC, and names its
    real queue in properties that encoding would not change."""
    try:
        fields = read_fields(data, 0, len(data))
    except RecordError:
        return None
    noted = read_properties(fields.properties, _REAL_QUEUE)
    _, _, _, real_queue, is_encoded = noted
    if (fields.size_bytes, fields.physical_offset) != (len(data), physical_offset) or real_queue is None:
        return None
    if fields.sys_flag & sys_flag.TRANSACTION_MASK or fields.body_crc < 0 or not is_encoded:
        return None
    topic, queue_text = real_queue
    if topic is None or queue_text is None or len(fields.properties) > MAX_PROPERTIES_BYTES:
        return None
    if not is_queue_id(queue_text):
        return None
    return fields, f"{topic}{NAME_VALUE_SEPARATOR}{queue_text}".encode(), noted


_deliver_records: Final[Any] = accelerated(deliver_records_reference, "triomq.store")


class DueBlock:
    """Queue entries of delayed messages, next to one another, with the position of the first that is not delivered."""

    __slots__ = ("entries", "position")

    def __init__(self, entries: bytes) -> None:
        """`entries` as `Reading.packed_entries` returns them."""
        self.entries = entries
        self.position = 0

    @property
    def count(self) -> int:
        return len(self.entries) // ENTRY_BYTES

    def head(self) -> tuple[int, int, int] | None:
        """Return physical offset, size in bytes and tags code of the first entry that is not delivered, None behind the
        last one."""
        return _entry_at(self.entries, self.position) if self.position < len(self.entries) else None

    def skip(self) -> None:
        """Move past the first entry."""
        self.position += ENTRY_BYTES


class RealQueues:
    """The queues to which the messages of a batch go. `by_key` has by REAL_TOPIC, \\x01 and REAL_QID, as they are in
    the properties, the queue and its head, which is what a record says of it: queue id 4, queue offset of the next
    message 8, topic. Several keys may lead to one queue whose topic has fewer queues than before: it has one head."""

    def __init__(self, queues: QueueTable, queue_of: QueueOf) -> None:
        self._queues = queues
        self._queue_of = queue_of
        self.by_key: dict[bytes, _WithHead] = {}
        self._by_queue: dict[ConsumeQueue, _WithHead] = {}

    def learn(self, key: bytes) -> bool:
        """Add the queue with this key. Return False if the caller has to decide about each of its messages."""
        topic, _, queue_text = key.decode("ascii").rpartition(NAME_VALUE_SEPARATOR)
        queue_id = self._queue_of(topic, int(queue_text)) if topic else None
        if queue_id is None or queue_id > _MAX_QUEUE_ID or refusal_of(topic, queue_id) is not None:
            return False
        queue = self._queues.get(topic, queue_id)
        if queue.ext is not None:
            return False
        with_head = self._by_queue.get(queue)
        if with_head is None:
            head = bytearray(_HEAD.pack(queue.queue_id, queue.next_offset) + queue.topic_bytes)
            with_head = self._by_queue[queue] = queue, head
        self.by_key[key] = with_head
        return True

    def set_next_offsets(self) -> None:
        """Set the queue offsets of the next messages in the heads."""
        for queue, head in self._by_queue.values():
            _set_queue_offset(head, _QUEUE_OFFSET_AT, queue.next_offset)


class Delivery:
    """What one call delivered: one result for all messages, and the sizes of those of each queue, in bytes."""

    __slots__ = ("result", "sizes")

    def __init__(self, result: PutResult) -> None:
        self.result = result
        self.sizes: dict[ConsumeQueue, list[int]] = {}


class Delivering:
    """See the module's docstring. `written_from` is the log offset from which on this process wrote all records."""

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

    def real_queues(self, queue_of: QueueOf) -> RealQueues:
        """Return the queues of a batch, which are asked for as its messages come."""
        return RealQueues(self._queues, queue_of)

    def append(self, block: DueBlock, queues: RealQueues, due_ms: int, room_bytes: int) -> Delivery | None:
        """Append the messages of the block that are due at `due_ms`, in `room_bytes` of delayed records, up to one
        about which the caller has to decide, to which the block moves. Return None if that is the first."""
        commit_log = self._log
        head = block.head()
        if head is None or commit_log.needs_quorum or self._refusals.first is not None:
            return None
        file = commit_log.sequence.find(head[0]) if head[0] >= self.written_from else None
        if file is None:
            return None
        log = file.map(), file.start, self.written_from, min(commit_log.committed_offset, file.end)
        queues.set_next_offsets()
        begin, store_timestamp = commit_log.next_offset, self._now_ms()
        longest, left = self._settings.max_message_bytes, commit_log.room()
        taken: list[RecordOfMany] = []
        delivery: Delivery | None = None
        try:
            while True:
                to = commit_log.tail, queues.by_key, taken, longest, begin, left, store_timestamp
                before = block.position
                block.position, unknown = _deliver_records(block.entries, before, room_bytes, due_ms, *log, to)
                if not unknown or not queues.learn(unknown):
                    break
                for at in range(before, block.position, ENTRY_BYTES):
                    room_bytes -= _entry_at(block.entries, at)[1]
                end = taken[-1][2] + taken[-1][3] if taken else begin
                begin, left = end, left - (end - begin)
            if taken:
                delivery = self._appended(taken, store_timestamp)
        except BaseException as error:  # the tail may hold messages that nobody knows of
            self._fail_stop.fail("a delivery", error)
        if commit_log.pending_bytes > MAX_PENDING_BYTES:
            self._committing.commit()
        return delivery

    def _appended(self, taken: list[RecordOfMany], store_timestamp: int) -> Delivery:
        """Let what is in the tail wait for the commit."""
        begin = taken[0][2]
        end = taken[-1][2] + taken[-1][3]
        result = PutResult(
            _PUT_OK,
            physical_offset=begin,
            size_bytes=end - begin,
            queue_offset=taken[0][1],
            store_timestamp=store_timestamp,
            message_count=len(taken),
        )
        delivery = Delivery(result)
        for each in taken:
            queue = each[0]
            queue.next_offset = each[1] + 1
            sizes = delivery.sizes.get(queue)
            if sizes is None:
                sizes = delivery.sizes[queue] = []
            sizes.append(each[3])
        self._committing.pending.append(SharedEntry(result, taken))
        self._log.next_offset = end
        return delivery
