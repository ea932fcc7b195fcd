"""Bodies of entries are records of the commit log: whether one is whole, and the one with which a leader opens a term.

Nothing in an entry covers its body, and all members must have equal bytes, so no checksum can be added. The record
inside has a CRC of the message's body, and lengths that must add up. As in the commit log, zeros in the topic or a
sector of them in the properties are noticed: a torn write leaves nothing else there.
"""

from __future__ import annotations

from triomq.dledger.wire.bodies import ENTRY_HEADER_BYTES, Entry
from triomq.protocol import record, stored_properties, sys_flag
from triomq.protocol.errors import RecordError
from triomq.protocol.message_to_store import MessageToStore, Place
from triomq.store.log.log_scan import is_torn

TERM_TOPIC = b"rmq_sys_TRIOMQ_TERM"


def is_whole_record(entry: Entry) -> bool:
    """Return whether the body is one record, made for this position, with the message body that its CRC covers, and
    without a sector of zeros in topic or properties."""
    body = entry.body
    try:
        fields = record.read_fields(body, 0, len(body))
    except RecordError:
        return False
    message = body[fields.body_at : fields.body_at + fields.body_length]
    is_made_here = fields.size_bytes == len(body) and fields.physical_offset == entry.pos + ENTRY_HEADER_BYTES
    return (
        is_made_here
        and 0 not in fields.topic
        and not is_torn(fields.properties, entry.pos + entry.size - len(fields.properties), entry.pos + entry.size)
        and (not message or record.body_crc(message) == fields.body_crc)
    )


def opening_record(physical_offset: int, store_timestamp: int, store_host: bytes) -> bytes:
    """Return the record that a leader appends to commit entries of older terms. Its length is always the same.

    It is of type rollback: RocketMQ's members and ours enter such a record into no queue and no index, and it takes no
    queue offset."""
    message = MessageToStore(
        TERM_TOPIC.decode(),
        0,
        b"",
        stored_properties.NONE,
        born_timestamp=store_timestamp,
        born_host=store_host,
        store_host=store_host,
        sys_flag=sys_flag.TRANSACTION_ROLLBACK,
    )
    data = bytearray()
    place = Place(physical_offset=physical_offset, queue_offset=0, store_timestamp=store_timestamp)
    record.encode_into(data, TERM_TOPIC, message, place, b"")
    return bytes(data)
