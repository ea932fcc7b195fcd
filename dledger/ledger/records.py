"""Whether the body of an entry is a whole record of the commit log.

Nothing in an entry covers its body, and all members must have equal bytes, so no checksum can be added. The record
inside has a CRC of the message's body, and lengths that must add up. As in the commit log, what a torn write does to
topic and properties without changing a length stays unnoticed.
"""

from __future__ import annotations

from triomq.dledger.wire.bodies import ENTRY_HEADER_BYTES, Entry
from triomq.protocol import record
from triomq.protocol.errors import RecordError


def is_whole_record(entry: Entry) -> bool:
    """Return whether the body is one record, made for this position, with the message body that its CRC covers."""
    body = entry.body
    try:
        fields = record.read_fields(body, 0, len(body))
    except RecordError:
        return False
    message = body[fields.body_at : fields.body_at + fields.body_length]
    is_made_here = fields.size_bytes == len(body) and fields.physical_offset == entry.pos + ENTRY_HEADER_BYTES
    return is_made_here and (not message or record.body_crc(message) == fields.body_crc)
