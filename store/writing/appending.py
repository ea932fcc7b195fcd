"""Appending: from a MessageToStore to the bytes of a record behind the pending ones of the log.

Owns nothing: bytes and offsets belong to the commit log and the queues, and the entries of what is appended wait in
`Committing.pending`. `append` changes only memory and never awaits: the order of the calls is the order of the log, and
only the store's own thread may call it.
"""

from __future__ import annotations

import struct
from typing import Final

from triomq.protocol import properties as property_text
from triomq.protocol import property_names as names
from triomq.protocol import record, sys_flag
from triomq.protocol.clock import NowMs
from triomq.protocol.message_to_store import Place
from triomq.protocol.record import BatchUnit
from triomq.protocol.stored_properties import StoredProperties, read, read_properties
from triomq.store.contents import Contents
from triomq.store.fail_stop import FailStop
from triomq.store.live_settings import LiveSettings
from triomq.store.log.deletion_record import deletion_record
from triomq.store.log.table_record import table_record
from triomq.store.queues.consume_queue import ConsumeQueue
from triomq.store.queues.dispatch import Dispatch, DispatchEntry, RecordOfMany, SharedEntry
from triomq.store.queues.queue_table import check_queue_name
from triomq.store.refusals import Refusals
from triomq.store.results import MessageToStore, PutResult, PutStatus
from triomq.store.writing.committing import Committing

_PUT_OK: Final = PutStatus.PUT_OK

_SEPARATOR: Final = property_text.PROPERTY_SEPARATOR.encode()
_SEPARATOR_BYTE: Final = 2

MAX_PROPERTIES_BYTES: Final = property_text.MAX_PROPERTIES_BYTES
# The number of bytes by which a record may exceed maxMessageSize.
RECORD_ALLOWANCE_BYTES: Final = 64 * 1024
# An append commits when more than this is pending, so the tail buffer is bounded whatever the caller does.
MAX_PENDING_BYTES: Final = 8 * 1024 * 1024


class Appending:
    """Checks, places and encodes messages (see the module docstring)."""

    def __init__(
        self,
        contents: Contents,
        settings: LiveSettings,
        dispatch: Dispatch,
        refusals: Refusals,
        fail_stop: FailStop,
        committing: Committing,
        now_ms: NowMs,
    ) -> None:
        self._log = contents.log
        self._queues = contents.queues
        self._settings = settings
        self._dispatch = dispatch
        self._refusals = refusals
        self._fail_stop = fail_stop
        self._committing = committing
        self._now_ms = now_ms

    def append(self, message: MessageToStore) -> PutResult:
        if self._refusals.first is not None and (reason := self._refusals.after_a_look()) is not None:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason=reason)
        try:
            queue = self._queues.get(message.topic, message.queue_id)
        except ValueError as error:
            return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=str(error))
        properties, more = message.properties, None
        if properties.special is not None and self._settings.now.enable_multi_dispatch:
            try:
                properties, more = self._take_more_queues(message)
            except ValueError as error:
                return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=str(error))
        topic = queue.topic_bytes
        body_bytes = len(message.body)
        topic_bytes = len(topic)
        properties_bytes = len(properties.text)
        size = record.FIXED_BYTES + body_bytes + topic_bytes + properties_bytes
        size += len(message.born_host) + len(message.store_host) - 16
        if topic_bytes > record.MAX_TOPIC_BYTES or properties_bytes > MAX_PROPERTIES_BYTES:
            return _too_long(topic, properties.text)
        limit = self._settings.max_message_bytes
        if body_bytes > limit or size > limit + RECORD_ALLOWANCE_BYTES:
            return PutResult(
                PutStatus.MESSAGE_ILLEGAL, reason=f"body of {body_bytes} bytes exceeds maxMessageSize {limit}"
            )
        commit_log = self._log
        if size > commit_log.longest_record_bytes:
            return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=f"a record of {size} bytes does not fit into a log file")
        try:
            result = self._encode(message, properties, queue, size)
            if more is not None and result.is_ok:
                # One entry per queue, even if the message names a queue more than once.
                self._committing.pending[-1].more_queues = list(dict(more).items())
                for other in dict(more):
                    other.next_offset += 1
        except BaseException as error:  # the tail may hold half of a record
            self._fail_stop.fail("an append", error)
        if commit_log.next_offset - commit_log.written_offset > MAX_PENDING_BYTES:
            self._committing.commit()
        return result

    def _encode(
        self, message: MessageToStore, properties: StoredProperties, queue: ConsumeQueue, size: int
    ) -> PutResult:
        commit_log = self._log
        is_queued = not message.sys_flag & sys_flag.TRANSACTION_PREPARED  # the bit that prepared and rollback share
        queue_offset = queue.next_offset if is_queued else 0
        result = PutResult(_PUT_OK, commit_log.place(size), size, queue_offset, self._now_ms(), 1)
        try:
            record.encode_into(commit_log.tail, queue.topic_bytes, message, result, properties.text)
        except struct.error as error:
            return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=f"a number does not fit its field: {error}")
        commit_log.next_offset = result.physical_offset + size
        tags_code = properties.tags_code
        if message.deliver_after_ms > 0:
            tags_code = result.store_timestamp + message.deliver_after_ms
        if is_queued:
            queue.next_offset = queue_offset + 1
        entry = DispatchEntry(
            result,
            queue if is_queued else None,
            message.topic,
            properties,
            tags_code,
            message.sys_flag,
            result,
        )
        self._committing.pending.append(entry)
        return result

    def append_deletion(self, topic: str) -> PutResult | None:
        """Append the record of a topic's deletion (deletion_record.py)."""
        return self.append_note(deletion_record(topic, self._now_ms()), despite=("disk",))

    def append_tables(self, body: bytes) -> PutResult | None:
        """Append a record with changes of tables (table_record.py). Only a leader of a group may do so. One that has
        just been elected writes its tables before it accepts messages."""
        return self.append_note(table_record(body, self._now_ms()), despite=("disk", "role"))

    def append_note(self, message: MessageToStore, *, despite: tuple[str, ...]) -> PutResult | None:
        """Append a record for brokers that no client gets, `despite` some causes that refuse messages: to a disk that
        is nearly full, since administrators make room there. Return None on a slave, whose log is its master's: nothing
        is appended."""
        if self._settings.is_slave:
            return None
        self._refusals.after_a_look()
        for cause, reason in self._refusals.texts().items():
            if cause not in despite:
                return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason=reason)
        topic = message.topic
        queue = self._queues.get(topic, 0)
        size = record.FIXED_BYTES + len(queue.topic_bytes) + len(message.body) + len(message.properties.text)
        if len(message.properties.text) > MAX_PROPERTIES_BYTES:
            return _too_long(topic.encode(), message.properties.text)
        if size > self._log.longest_record_bytes:
            return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=f"a record of {size} bytes does not fit into a log file")
        try:
            return self._encode(message, message.properties, queue, size)
        except BaseException as error:  # the tail may hold half of a record
            self._fail_stop.fail("an append", error)

    def append_batch(self, message: MessageToStore, units: list[BatchUnit]) -> PutResult:
        """See DefaultMessageStore.append_batch."""
        if self._refusals.first is not None and (reason := self._refusals.after_a_look()) is not None:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason=reason)
        if not units:
            return PutResult(PutStatus.MESSAGE_ILLEGAL, reason="the batch is empty")
        limit = self._settings.max_message_bytes
        if len(message.body) > limit:
            return PutResult(
                PutStatus.MESSAGE_ILLEGAL, reason=f"a batch of {len(message.body)} bytes exceeds maxMessageSize {limit}"
            )
        try:
            queue = self._queues.get(message.topic, message.queue_id)
        except ValueError as error:
            return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=str(error))
        topic = queue.topic_bytes
        if len(topic) > record.MAX_TOPIC_BYTES:
            return _too_long(topic, message.properties.text)
        shared_bytes = record.FIXED_BYTES + len(topic) + len(message.born_host) + len(message.store_host) - 16
        record_limit = limit + RECORD_ALLOWANCE_BYTES
        shared = message.properties.text
        behind_separator = _SEPARATOR + shared
        texts: list[bytes] = []
        sizes: list[int] = []
        total = 0
        for unit in units:
            stored = unit.properties  # followed by those of the batch
            if not stored:
                stored = shared
            elif shared:
                stored = stored + (shared if stored[-1] == _SEPARATOR_BYTE else behind_separator)
            body_bytes = len(unit.body)
            properties_bytes = len(stored)
            if properties_bytes > MAX_PROPERTIES_BYTES:
                return _too_long(topic, stored)
            size = shared_bytes + body_bytes + properties_bytes
            if body_bytes > limit or size > record_limit:
                reason = f"a message of the batch has {size} bytes, which exceeds maxMessageSize {limit}"
                return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=reason)
            texts.append(stored)
            sizes.append(size)
            total += size
        if message.sys_flag & sys_flag.TRANSACTION_MASK:
            return PutResult(PutStatus.MESSAGE_ILLEGAL, reason="a batch cannot be part of a transaction")
        if total > self._log.longest_record_bytes:
            return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=f"a batch of {total} bytes does not fit into a log file")
        try:
            result = self._encode_batch(message, queue, units, texts, sizes)
        except BaseException as error:  # the tail may hold half of a batch
            self._fail_stop.fail("an append", error)
        if self._log.pending_bytes > MAX_PENDING_BYTES:
            self._committing.commit()
        return result

    def _encode_batch(
        self, shared: MessageToStore, queue: ConsumeQueue, units: list[BatchUnit], texts: list[bytes], sizes: list[int]
    ) -> PutResult:
        """Encode the units, each with its stored properties and its size, one behind the other: all or none."""
        commit_log = self._log
        offsets = commit_log.place_all(sizes)
        end = offsets[-1] + sizes[-1]
        tail, topic = commit_log.tail, queue.topic_bytes
        tail_length = len(tail)
        queue_offset, store_timestamp = queue.next_offset, self._now_ms()
        result = PutResult(
            _PUT_OK,
            physical_offset=offsets[0],
            size_bytes=end - offsets[0],
            queue_offset=queue_offset,
            store_timestamp=store_timestamp,
            message_count=len(units),
        )
        message, place = shared.with_content(0, b""), Place(store_timestamp)  # of each unit in turn
        records: list[RecordOfMany] = []
        for number in range(len(units)):
            unit, stored, physical_offset = units[number], texts[number], offsets[number]
            place.physical_offset = physical_offset
            place.queue_offset = queue_offset
            message.flag = unit.flag
            message.body = unit.body
            try:
                record.encode_into(tail, topic, message, place, stored)
            except struct.error as error:
                del tail[tail_length:]
                return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=f"a number does not fit its field: {error}")
            tags_code, uniq_key, keys, _, _ = read_properties(stored, ())
            records.append((queue, queue_offset, physical_offset, sizes[number], tags_code, uniq_key, keys))
            queue_offset += 1
        commit_log.next_offset = end
        queue.next_offset = queue_offset
        result.physical_offsets = offsets
        if queue.ext is None and not commit_log.needs_quorum:
            self._committing.pending.append(SharedEntry(result, records))
        else:
            self._committing.pending.extend(_entry_of_each(shared, texts, records, result))
        return result

    def _take_more_queues(
        self, message: MessageToStore
    ) -> tuple[StoredProperties, list[tuple[ConsumeQueue, int]] | None]:
        """Return the queues of INNER_MULTI_DISPATCH, each with the queue offset of this message, and the properties
        that say so; None instead of queues if it names none, or has entered them before it was stored again. Raises
        ValueError."""
        properties = message.properties
        queue_names = properties.get(names.INNER_MULTI_DISPATCH)
        if queue_names is None or properties.get(names.INNER_MULTI_QUEUE_OFFSET) is not None:
            return properties, None
        queues = [self._dispatch.multi_queue(name, message.queue_id) for name in queue_names.split(",")]
        more = [(queue, queue.next_offset) for queue in queues]
        offsets = ",".join([str(offset) for _, offset in more])
        return properties.without(names.WAIT).with_({names.INNER_MULTI_QUEUE_OFFSET: offsets}), more


def _entry_of_each(
    shared: MessageToStore, texts: list[bytes], records: list[RecordOfMany], result: PutResult
) -> list[DispatchEntry]:
    """Return an entry for each message of a batch: a quorum has them one by one, and an ext unit needs all of it."""
    entries: list[DispatchEntry] = []
    for stored, each in zip(texts, records, strict=True):
        queue, queue_offset, physical_offset, size_bytes, tags_code, _, _ = each
        place = Place(
            result.store_timestamp, physical_offset=physical_offset, queue_offset=queue_offset, size_bytes=size_bytes
        )
        entries.append(DispatchEntry(place, queue, shared.topic, read(stored), tags_code, shared.sys_flag, result))
    return entries


def refusal_of(topic: str, queue_id: int) -> PutResult | None:
    """Return how a message for this queue would be refused whatever it holds, None if it would not."""
    try:
        check_queue_name(topic, queue_id)
    except ValueError as error:
        return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=str(error))
    topic_bytes = topic.encode("utf-8", "replace")
    return _too_long(topic_bytes, b"") if len(topic_bytes) > record.MAX_TOPIC_BYTES else None


def _too_long(topic: bytes, stored_properties: bytes) -> PutResult:
    status = PutStatus.MESSAGE_ILLEGAL
    if len(topic) > record.MAX_TOPIC_BYTES:
        reason = f"the topic has {len(topic)} bytes, the limit is {record.MAX_TOPIC_BYTES}"
    elif len(stored_properties.decode("utf-8", "replace")) > MAX_PROPERTIES_BYTES:
        reason = f"the properties have more than {MAX_PROPERTIES_BYTES} characters"
    else:
        status = PutStatus.PROPERTIES_SIZE_EXCEEDED
        reason = f"the properties have {len(stored_properties)} bytes, the limit is {MAX_PROPERTIES_BYTES}"
    return PutResult(status, reason=reason)
