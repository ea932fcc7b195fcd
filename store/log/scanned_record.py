"""The fields of a record in the log that dispatch, recovery and slaves need: everything but hosts, flags and the body.

The layout is that of protocol/record.py. `scan_record` reads the records that almost every log consists of, those with
IPv4 hosts; `record.read_fields` reads all of them.
"""

from __future__ import annotations

import struct
from typing import Final

from triomq.protocol import record
from triomq.protocol.message_to_store import Place
from triomq.protocol.record import RecordFields
from triomq.protocol.speedups import accelerated

# TOTALSIZE, MAGICCODE, BODYCRC, QUEUEID, QUEUEOFFSET, PHYSICALOFFSET, SYSFLAG, STORETIMESTAMP, BODYLENGTH of a record
# with two IPv4 hosts.
_HEAD: Final = struct.Struct(">iiii4xqqi16xq20xi")
HEAD_BYTES: Final = _HEAD.size
_HOSTS_V6: Final = 0x30


def scan_record_reference(
    data: bytes, at: int, end: int
) -> tuple[int, int, int, int, int, int, int, int, bytes, bytes] | None:
    """Return (size, body CRC, queue id, queue offset, physical offset, sys flag, store timestamp, body length, topic,
    stored properties) of the record with IPv4 hosts that begins at `at` of `data` and ends at or before `end`.

    Return None for anything else. Only the magic and the lengths are checked."""
    if at < 0 or end > len(data) or end - at < HEAD_BYTES:
        return None
    size, magic, crc, queue_id, queue_offset, physical_offset, flags, time, body_length = _HEAD.unpack_from(data, at)
    if (
        magic != record.MESSAGE_MAGIC
        or flags & _HOSTS_V6
        or not record.FIXED_BYTES <= size <= end - at
        or not 0 <= body_length <= size - record.FIXED_BYTES
    ):
        return None
    record_end: int = at + size
    topic_at: int = at + HEAD_BYTES + body_length + 1
    properties_at: int = topic_at + data[topic_at - 1] + 2
    if (
        properties_at > record_end
        or data[properties_at - 2] << 8 | data[properties_at - 1] != record_end - properties_at
    ):
        return None
    topic = data[topic_at : properties_at - 2]
    stored_properties = data[properties_at:record_end]
    return size, crc, queue_id, queue_offset, physical_offset, flags, time, body_length, topic, stored_properties


scan_record: Final = accelerated(scan_record_reference)


class ScannedRecord(Place):
    """The fields of a record that the scan returns."""

    __slots__ = ("properties", "queue_id", "sys_flag", "topic")

    def __init__(
        self,
        *,
        physical_offset: int,
        size_bytes: int,
        queue_id: int,
        queue_offset: int,
        sys_flags: int,
        store_timestamp: int,
        topic: bytes,
        stored_properties: bytes,
    ) -> None:
        # Sets the place itself: each record would pay for the call.
        self.physical_offset = physical_offset
        self.size_bytes = size_bytes
        self.queue_id = queue_id
        self.queue_offset = queue_offset
        self.sys_flag = sys_flags
        self.store_timestamp = store_timestamp
        self.topic = topic
        self.properties = stored_properties


def quick_record(data: bytes, at: int, limit: int, physical_offset: int) -> ScannedRecord | None:
    """Return the record with IPv4 hosts that begins at `at` of `data` and ends at or before `limit`, or None for
    anything else. Its lengths are checked; its own PHYSICALOFFSET is not."""
    found = scan_record(data, at, limit)
    if found is None:
        return None
    size, _, queue_id, queue_offset, _, flags, store_timestamp, _, topic, stored_properties = found
    return ScannedRecord(
        physical_offset=physical_offset,
        size_bytes=size,
        queue_id=queue_id,
        queue_offset=queue_offset,
        sys_flags=flags,
        store_timestamp=store_timestamp,
        topic=topic,
        stored_properties=stored_properties,
    )


def scanned(fields: RecordFields, physical_offset: int) -> ScannedRecord:
    """Return the fields of a decoded record at this offset as a ScannedRecord."""
    return ScannedRecord(
        physical_offset=physical_offset,
        size_bytes=fields.size_bytes,
        queue_id=fields.queue_id,
        queue_offset=fields.queue_offset,
        sys_flags=fields.sys_flag,
        store_timestamp=fields.store_timestamp,
        topic=fields.topic,
        stored_properties=fields.properties,
    )
