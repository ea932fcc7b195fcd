"""The fuzz targets: the C functions that read untrusted bytes from a network or a disk.

A target accepts any bytes. It calls the C function and its Python definition and fails if they differ; the sanitizers
in the extension find memory errors.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import fast_paths

from triomq.protocol import frame
from triomq.protocol import record as stored_record
from triomq.protocol import stored_properties as stored
from triomq.protocol.command import JSON, ROCKETMQ, RemotingCommand
from triomq.protocol.entries import decode_entries
from triomq.protocol.errors import FrameError, HeaderFieldError, RecordError
from triomq.protocol.headers import base
from triomq.protocol.headers.send import SendMessageRequestHeaderV2
from triomq.protocol.message import MessageExt
from triomq.protocol.stored_properties import SPECIAL
from triomq.store.log import scanned_record
from triomq.store.queues.consume_queue import ENTRY, ENTRY_BYTES, FILLER_SIZE_BYTES
from triomq.store.writing.delivering import deliver_records_reference, due_message

Target = Callable[[bytes], None]

_COLUMNS = base.schema_columns(SendMessageRequestHeaderV2)


def targets(protocol: ModuleType, store: ModuleType) -> dict[str, Target]:
    """Return name -> target, over these two extensions."""

    def binary_header(data: bytes) -> None:
        usual = usual_frame(ROCKETMQ, data)
        if usual is not None:
            assert _values(frame.decode_rocketmq(data, b"")) == usual

    def json_header(data: bytes) -> None:
        usual = usual_frame(JSON, data)
        if usual is not None:
            assert _values(frame.decode_json(data, b"")) == usual

    def usual_frame(codec: int, header: bytes) -> tuple[Any, ...] | None:
        """Return the values of a frame with this header, None if it is not usual."""
        data = (4 + len(header)).to_bytes(4, "big") + bytes([codec]) + len(header).to_bytes(3, "big") + header
        fast = protocol.read_frames(data, 0, len(data), len(header))
        assert fast == fast_paths.frames(data, 0, len(data), len(header))
        return fast_paths.values_of(fast[1][0]) if fast[1] else None

    def header_record(data: bytes) -> None:
        fast = protocol.read_header(data, SendMessageRequestHeaderV2, _COLUMNS)
        assert fast == fast_paths.header_record(data, SendMessageRequestHeaderV2, _COLUMNS)
        if fast is not None and data.isascii():
            assert fast == base.decode_header(SendMessageRequestHeaderV2, decode_entries(data, 0, len(data)))

    def stored_properties(data: bytes) -> None:
        for wanted in ((), SPECIAL):
            assert protocol.read_properties(data, wanted) == stored.read_properties_reference(data, wanted)
        added = {"REAL_TOPIC": "T", "REAL_QID": "0"}
        fast = protocol.properties_with(data, added, SPECIAL)
        assert fast is None or fast == stored.properties_with_reference(data, added, SPECIAL)

    def sent_properties(data: bytes) -> None:
        text = data.decode("latin-1")
        fast = protocol.properties_to_store(text, "cluster", SPECIAL)
        assert fast is None or fast == stored.properties_to_store_reference(text, "cluster", SPECIAL)

    def record(data: bytes) -> None:
        """Read a record; the first two bytes of the input give its position."""
        at, rest = int.from_bytes(data[:2], "big", signed=True), data[2:]
        for end in (len(rest), len(rest) - 1, len(rest) + 1):
            assert store.scan_record(rest, at, end) == scanned_record.scan_record_reference(rest, at, end)

    def pulled_records(data: bytes) -> None:
        """Make messages of the records of a pull response."""
        end, messages = protocol.take_messages(data, 0, MessageExt, stored_record._SLOTS, None)
        assert (end, messages) == fast_paths.messages(data, 0, MessageExt, stored_record._SLOTS, None)

    def due_record(data: bytes) -> None:
        """Deliver a delayed message, whose record lies where it says."""
        at = int.from_bytes(data[28:36], "big")
        if at >> 62:
            return
        usual = due_message(data, at)
        found = []
        for deliver in (store.deliver_records, deliver_records_reference):
            queues = {usual[1] if usual is not None else b"": ("queue", bytearray(13))}
            tail, delivered = bytearray(), []
            to = (tail, queues, delivered, len(data), 0, 1 << 30, 0)
            entry = ENTRY.pack(at, len(data), 0)
            position = deliver(entry, 0, len(data), 0, data, at, at, at + len(data), to)
            found.append((position, tail, delivered))
        assert found[0] == found[1]
        assert found[0][0] == (20 if usual is not None else 0, b"")

    def taken_record(data: bytes) -> None:
        """Take a record of before if it is sound. Queue and topic are what it says itself, its offset is 0."""
        queue_id, topic, is_sound = 0, b"", False
        with contextlib.suppress(RecordError):
            fields = stored_record.read_fields(data, 0, len(data))
            queue_id, topic = fields.queue_id, fields.topic
            body = data[fields.body_at : fields.body_at + fields.body_length]
            is_own = (fields.size_bytes, fields.physical_offset) == (len(data), 0)
            is_sound = is_own and stored_record.body_crc(body) == fields.body_crc
        entry, most = ENTRY.pack(0, len(data), 0), FILLER_SIZE_BYTES - 1
        taken = store.take_records(entry, 0, 1, most, most, 1, data, 0, 0, most, 1, queue_id, topic, b"", b"")
        assert taken == ((ENTRY_BYTES, 1, data) if is_sound else (0, 0, b""))

    def frames(data: bytes) -> None:
        """A connection's decoder must raise nothing but FrameError, whatever the bytes."""
        assert protocol.read_frames(data, 0, 1 << 20, 1 << 20) == fast_paths.frames(data, 0, 1 << 20, 1 << 20)
        with contextlib.suppress(FrameError):
            for command in frame.FrameDecoder(1 << 20).feed(data):
                with contextlib.suppress(HeaderFieldError, UnicodeDecodeError):
                    command.header(SendMessageRequestHeaderV2)

    found = (
        binary_header,
        json_header,
        header_record,
        stored_properties,
        sent_properties,
        record,
        taken_record,
        pulled_records,
        due_record,
        frames,
    )
    return {target.__name__: target for target in found}


def _values(command: RemotingCommand) -> tuple[Any, ...]:
    return (
        *(command.code, command.language, command.version, command.opaque, command.flag),
        *(command.remark, command.ext_fields),
    )
