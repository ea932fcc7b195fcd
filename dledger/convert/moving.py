"""One record at another physical offset.

Three places of a record name physical offsets:

    PHYSICALOFFSET                its own
    preparedTransactionOffset     of a committed message: that of its half message
    TRAN_REPLACES_OFFSET          a property of TrioMQ's copies of half messages: that of the half message they replace

Everything else names queue offsets, which do not change: op messages (their body), the chain of a transaction's copies,
positions of delayed messages. Message ids that hold a physical offset (ORIGIN_MESSAGE_ID, traces) stay as they were,
since applications have seen them; a query by such an id finds nothing any more, one by UNIQ_KEY or key does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from triomq.protocol import property_names as names
from triomq.protocol import record, sys_flag
from triomq.protocol.properties import MAX_PROPERTIES_BYTES
from triomq.protocol.record import RecordFields
from triomq.protocol.system_topics import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC, UNDELIVERABLE_TOPIC

HALF_TOPIC: Final = TRANS_HALF_TOPIC.encode()

_COPIES: Final = (HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC.encode(), UNDELIVERABLE_TOPIC.encode())
_REPLACES: Final = names.TRANSACTION_REPLACES.encode() + b"\x01"
_SEPARATOR: Final = b"\x02"
_BEFORE_BODY_BYTES: Final = 12
"""preparedTransactionOffset, 8 bytes, and the length of the body, 4 bytes, are in front of the body."""

FindHalf = Callable[[int], int | None]
"""Old physical offset of a half message -> new one, None if the log has no half message there any longer."""


def renamed(data: bytes, fields: RecordFields, find_half: FindHalf) -> bytearray:
    """Return a record with the new offsets of half messages that it names. Where a half
    message is gone, the record names none: its prepared offset is 0, as in a message without a transaction, and
    TRAN_REPLACES_OFFSET is left out."""
    moved = bytearray(data)
    if sys_flag.transaction_type(fields.sys_flag) == sys_flag.TRANSACTION_COMMIT:
        at = fields.body_at - _BEFORE_BODY_BYTES
        moved[at : at + 8] = (find_half(fields.prepared_transaction_offset) or 0).to_bytes(8, "big", signed=True)
    if fields.topic in _COPIES and _REPLACES in fields.properties:
        old = fields.properties
        new = _properties(old, find_half)
        moved[len(moved) - len(old) - 2 :] = len(new).to_bytes(2, "big") + new
        moved[:4] = len(moved).to_bytes(4, "big")
    return moved


def _properties(text: bytes, find_half: FindHalf) -> bytes:
    """Return the stored properties with the new offset in the place of the old one."""
    others = [part for part in text.split(_SEPARATOR) if not part.startswith(_REPLACES)]
    parts: list[bytes] = []
    for part in text.split(_SEPARATOR):
        if part.startswith(_REPLACES):
            old = part[len(_REPLACES) :]
            new = find_half(int(old)) if old.isdigit() else None
            part = _REPLACES + b"%d" % new if new is not None else b""
            if not part:
                continue
        parts.append(part)
    with_new = _SEPARATOR.join(parts)
    return with_new if len(with_new) <= MAX_PROPERTIES_BYTES else _SEPARATOR.join(others)


def set_offset(data: bytearray, physical_offset: int) -> None:
    """Let a record say where it is."""
    data[record.PHYSICAL_OFFSET_AT : record.PHYSICAL_OFFSET_AT + 8] = physical_offset.to_bytes(8, "big")
