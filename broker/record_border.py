"""Whether a physical offset that a client names is the border of a record.

Bytes inside of a body can look like a record, and its length can reach over records of other topics. The entry of a
consume queue is written by the broker alone: an offset counts if the queue that the record names leads there.
"""

from __future__ import annotations

from typing import Final

from triomq.protocol import properties as property_text
from triomq.protocol import property_names as names
from triomq.protocol.errors import RecordError
from triomq.protocol.record import RecordFields, read_fields
from triomq.protocol.system_topics import (
    SCHEDULE_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
    UNDELIVERABLE_TOPIC,
)
from triomq.store.reading.reading import Reading

INTERNAL_TOPICS: Final = frozenset(
    {SCHEDULE_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC, UNDELIVERABLE_TOPIC}
)
"""Topics that only the broker writes, with messages of all other topics."""


def is_border(reading: Reading, physical_offset: int, data: bytes, record: RecordFields) -> bool:
    """Return whether `data`, read at `physical_offset` and decoded as `record`, is a message of its queue."""
    topic = record.topic.decode("utf-8", "replace")
    for begin, size, _ in reading.queue_entries(topic, record.queue_id, record.queue_offset, 1):
        return begin == physical_offset and size == len(data)
    return False


def topic_of(data: bytes) -> str | None:
    """Return the topic in a record, None if it cannot be read."""
    try:
        return read_fields(data, 0, len(data)).topic.decode("utf-8", "replace")
    except RecordError:
        return None


def topic_at(reading: Reading, physical_offset: int, data: bytes) -> str | None:
    """Return the topic of the message that was read at `physical_offset`, None if no message begins there. A delayed
    or half message belongs to the topic that it was sent to."""
    try:
        record = read_fields(data, 0, len(data))
    except RecordError:
        return None
    if not is_border(reading, physical_offset, data, record):
        return None
    topic = record.topic.decode("utf-8", "replace")
    if topic in INTERNAL_TOPICS:
        return property_text.parse_bytes(record.properties).get(names.REAL_TOPIC, topic)
    return topic
