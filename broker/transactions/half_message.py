"""HalfMessage: a half message as it is stored."""

from __future__ import annotations

from typing import Final

from triomq.protocol import properties as property_text
from triomq.protocol import property_names as names
from triomq.protocol.speedups import accelerated

_keys_and_tags: Final = accelerated(property_text.keys_and_tags_reference)
_LOOKED_FOR: Final = (
    *(names.PRODUCER_GROUP, names.REAL_TOPIC, names.REAL_QUEUE_ID, names.WAIT),
    *(names.DELAY, names.TRANSACTION_REPLACES),
)


def small_number(text: str | None) -> int | None:
    """Return the decimal number in a property, None if it holds none."""
    if text is None or len(text) > 18 or not text.isascii() or not text.isdigit():
        return None
    return int(text)


class PlainHalf:
    """What a commit needs of properties that are stored again as they are. `values` are those of _LOOKED_FOR."""

    __slots__ = ("group", "keys", "queue_text", "tags_code", "topic", "uniq_key", "wait")

    def __init__(self, tags_code: int, uniq_key: str | None, keys: str | None, values: tuple[str | None, ...]) -> None:
        self.tags_code = tags_code
        self.uniq_key = uniq_key
        self.keys = keys
        self.group, self.topic, self.queue_text, wait, _, _ = values
        self.wait = wait != "false"


class HalfMessage:
    """A half message as stored. Hosts are packed, timestamps are in ms; the offsets are those of its latest copy.

    Most half messages are committed as they were stored: `plain` has what that needs of their properties, which become
    a table only when somebody asks for it. Who asks may change it, and it is what counts from then on.
    """

    __slots__ = (
        "_properties",
        "body",
        "born_host",
        "born_timestamp",
        "flag",
        "physical_offset",
        "plain",
        "queue_id",
        "queue_offset",
        "reconsume_times",
        "store_host",
        "store_timestamp",
        "stored_properties",
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
        properties: dict[str, str] | None = None,
        stored_properties: bytes = b"",
    ) -> None:
        """`stored_properties` is the stored text, and read without `properties`."""
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
        self.stored_properties = stored_properties
        self._properties = properties
        self.plain: PlainHalf | None = None
        if properties is None:
            found = _keys_and_tags(stored_properties, _LOOKED_FOR)
            if found is not None and found[3][4] is None and found[3][5] is None:  # no delay, and it replaces nothing
                self.plain = PlainHalf(found[0], found[1], found[2], found[3])

    @property
    def properties(self) -> dict[str, str]:
        """The properties of the message itself. What its record replaces is a matter of that record."""
        properties = self._properties
        if properties is None:
            properties = self._properties = property_text.parse_bytes(self.stored_properties)
            properties.pop(names.TRANSACTION_REPLACES, None)
            self.plain = None
        return properties

    @property
    def group(self) -> str | None:
        """The group of its producers."""
        return self.plain.group if self.plain is not None else self.properties.get(names.PRODUCER_GROUP)

    @property
    def topic(self) -> str | None:
        """The topic to which a commit sends it."""
        return self.plain.topic if self.plain is not None else self.properties.get(names.REAL_TOPIC)

    @property
    def check_times(self) -> int:
        """Return how often its producer was asked."""
        return small_number(self.properties.get(names.TRANSACTION_CHECK_TIMES)) or 0
