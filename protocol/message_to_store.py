"""What a stored record is made from: a MessageToStore, and the Place where a store puts it.

`record.encode_into` turns the two into bytes. Both are passed whole, so that no call lists their numbers one after
another, where nobody would see two of them exchanged.
"""

from __future__ import annotations

from triomq.protocol.stored_properties import StoredProperties


class Place:
    """Where a record lies, in the log and in its queue, and when it was stored (ms)."""

    __slots__ = ("physical_offset", "queue_offset", "size_bytes", "store_timestamp")

    def __init__(
        self, store_timestamp: int, *, physical_offset: int = -1, queue_offset: int = -1, size_bytes: int = 0
    ) -> None:
        """`size_bytes` is 0 while nobody has asked for it; encoding a record does not need it. Where many places are
        made, the other members are set one by one: keywords cost more than the object."""
        self.physical_offset = physical_offset
        self.size_bytes = size_bytes
        self.queue_offset = queue_offset
        self.store_timestamp = store_timestamp


class MessageToStore:
    """One message on its way into the log (MessageExtBrokerInner). Delay and transaction rewriting is already done.

    Hosts are packed (8 or 20 bytes). The tags code of its queue entry is that of its properties; with
    `deliver_after_ms` > 0 it is the delivery time, STORETIMESTAMP + `deliver_after_ms`, for SCHEDULE_TOPIC_XXXX (see
    store.delay): the store time is known only at the append.
    """

    __slots__ = (
        "body",
        "body_crc",
        "born_host",
        "born_timestamp",
        "deliver_after_ms",
        "flag",
        "prepared_transaction_offset",
        "properties",
        "queue_id",
        "reconsume_times",
        "store_host",
        "sys_flag",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: StoredProperties,
        born_timestamp: int,
        born_host: bytes,
        store_host: bytes,
        flag: int = 0,
        sys_flag: int = 0,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
        deliver_after_ms: int = 0,
        body_crc: int = -1,
    ) -> None:
        """`body_crc` is BODYCRC, of a body that comes from a record; -1: encoding computes it."""
        self.topic = topic
        self.queue_id = queue_id
        self.body = body
        self.properties = properties
        self.born_timestamp = born_timestamp
        self.born_host = born_host
        self.store_host = store_host
        self.flag = flag
        self.sys_flag = sys_flag
        self.reconsume_times = reconsume_times
        self.prepared_transaction_offset = prepared_transaction_offset
        self.deliver_after_ms = deliver_after_ms
        self.body_crc = body_crc

    def with_content(self, flag: int, body: bytes) -> MessageToStore:
        """Return a message that differs from this one by flag and body."""
        return MessageToStore(
            self.topic,
            self.queue_id,
            body,
            self.properties,
            born_timestamp=self.born_timestamp,
            born_host=self.born_host,
            store_host=self.store_host,
            flag=flag,
            sys_flag=self.sys_flag,
            reconsume_times=self.reconsume_times,
            prepared_transaction_offset=self.prepared_transaction_offset,
            deliver_after_ms=self.deliver_after_ms,
        )
