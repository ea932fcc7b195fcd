"""Stored records for tests: `encoded` takes the fields by name, each with a value of its own that says nothing."""

from __future__ import annotations

from typing import Any

from triomq.protocol import record, stored_properties
from triomq.protocol.message_to_store import MessageToStore, Place

HOST = bytes(8)


def encoded(
    topic: bytes = b"T",
    body: bytes = b"",
    properties: bytes = b"",
    *,
    queue_id: int = 0,
    queue_offset: int = 0,
    physical_offset: int = 0,
    store_timestamp: int = 0,
    tail: bytearray | None = None,
    **values: Any,
) -> bytearray:
    """Append one record to `tail`, or to nothing, and return that. `values` are further ones of MessageToStore."""
    values = {"born_timestamp": 0, "born_host": HOST, "store_host": HOST, **values}
    name, stored = topic.decode("utf-8", "replace"), stored_properties.read(properties)
    message = MessageToStore(name, queue_id, body, stored, **values)
    place = Place(physical_offset=physical_offset, queue_offset=queue_offset, store_timestamp=store_timestamp)
    into = bytearray() if tail is None else tail
    record.encode_into(into, topic, message, place, properties)
    return into
