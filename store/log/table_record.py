"""The record that carries changes of a broker's tables in the log of a group.

    topic "rmq_sys_TRIOMQ_TABLES" | type rollback | body: what changed, as broker/group/table_log.py writes it

It is a message of type rollback, so it enters neither queue nor index, and RocketMQ 4.9.7 passes it when it dispatches
its log. Members receive it at its place: what lies behind it was decided with the tables as it leaves them.
"""

from __future__ import annotations

from typing import Final

from triomq.protocol import stored_properties, sys_flag
from triomq.protocol.message_to_store import MessageToStore

TABLES_TOPIC: Final = "rmq_sys_TRIOMQ_TABLES"
_NO_HOST: Final = bytes(8)


def table_record(body: bytes, now_ms: int) -> MessageToStore:
    """Return the message that carries these changes, made at `now_ms`."""
    return MessageToStore(
        TABLES_TOPIC,
        0,
        body,
        stored_properties.NONE,
        born_timestamp=now_ms,
        born_host=_NO_HOST,
        store_host=_NO_HOST,
        sys_flag=sys_flag.TRANSACTION_ROLLBACK,
    )


def is_table_record(topic: str, flags: int) -> bool:
    """Return whether a record with this topic and these flags carries changes of tables."""
    return topic == TABLES_TOPIC and flags & sys_flag.TRANSACTION_MASK == sys_flag.TRANSACTION_ROLLBACK
