"""The record that says in the log: here a topic was deleted.

    topic "rmq_sys_TRIOMQ_DELETED" | type rollback | properties TRIOMQ_DELETED_TOPIC = name of the topic | no body

It is a message of type rollback, so it enters neither queue nor index, and RocketMQ 4.9.7 passes it when it makes its
queues from the log. Records of the topic in front of it belong to a life that is over. Since it is a record, a cut of
the log takes it together with what lies behind it, slaves receive it at its place, and retention ends it.
"""

from __future__ import annotations

from typing import Final

from triomq.protocol import properties, stored_properties, sys_flag
from triomq.protocol.message_to_store import MessageToStore

DELETION_TOPIC: Final = "rmq_sys_TRIOMQ_DELETED"
DELETED_TOPIC: Final = "TRIOMQ_DELETED_TOPIC"
"""The property with the name of the deleted topic."""
_NO_HOST: Final = bytes(8)


def deletion_record(topic: str, now_ms: int) -> MessageToStore:
    """Return the message that notes the deletion of a topic at `now_ms`."""
    return MessageToStore(
        DELETION_TOPIC,
        0,
        b"",
        born_timestamp=now_ms,
        born_host=_NO_HOST,
        store_host=_NO_HOST,
        sys_flag=sys_flag.TRANSACTION_ROLLBACK,
        properties=stored_properties.of({DELETED_TOPIC: topic}),
    )


def deleted_topic(topic: str, flags: int, stored: bytes) -> str | None:
    """Return the name of the topic that this record deletes; None for any other record."""
    if topic != DELETION_TOPIC or flags & sys_flag.TRANSACTION_MASK != sys_flag.TRANSACTION_ROLLBACK:
        return None
    return properties.parse_bytes(stored).get(DELETED_TOPIC)
