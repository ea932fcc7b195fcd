"""HalfMessage: a half message as it is stored."""

from __future__ import annotations

from triomq.protocol import property_names as names
from triomq.protocol.stored_properties import StoredProperties


def small_number(text: str | None) -> int | None:
    """Return the decimal number in a property, None if it holds none."""
    if text is None or len(text) > 18 or not text.isascii() or not text.isdigit():
        return None
    return int(text)


class HalfMessage:
    """A half message as stored. Hosts are packed, timestamps are in ms; the offsets are those of its latest copy, and
    its properties those of the next one. What its record replaces is a matter of that record, and not among them."""

    __slots__ = (
        "body",
        "born_host",
        "born_timestamp",
        "flag",
        "physical_offset",
        "properties",
        "queue_id",
        "queue_offset",
        "reconsume_times",
        "store_host",
        "store_timestamp",
        "sys_flag",
    )

    def __init__(
        self,
        queue_id: int,
        queue_offset: int,
        physical_offset: int,
        store_timestamp: int,
        born_timestamp: int,
        born_host: bytes,
        store_host: bytes,
        flag: int,
        sys_flag: int,
        reconsume_times: int,
        body: bytes,
        properties: StoredProperties,
    ) -> None:
        self.queue_id = queue_id
        self.queue_offset = queue_offset
        self.physical_offset = physical_offset
        self.store_timestamp = store_timestamp
        self.born_timestamp = born_timestamp
        self.born_host = born_host
        self.store_host = store_host
        self.flag = flag
        self.sys_flag = sys_flag
        self.reconsume_times = reconsume_times
        self.body = body
        if properties.get(names.TRANSACTION_REPLACES) is not None:
            properties = properties.without(names.TRANSACTION_REPLACES)
        self.properties = properties

    @property
    def group(self) -> str | None:
        """The group of its producers."""
        return self.properties.get(names.PRODUCER_GROUP)

    @property
    def topic(self) -> str | None:
        """The topic to which a commit sends it."""
        return self.properties.get(names.REAL_TOPIC)

    @property
    def check_times(self) -> int:
        """Return how often its producer was asked."""
        return small_number(self.properties.get(names.TRANSACTION_CHECK_TIMES)) or 0
