"""Messages, with the accessors of the C++ client."""

from __future__ import annotations

from triomq.client.compat.values import MessageProperty
from triomq.protocol import message as core


class Message:
    """A message to send."""

    def __init__(self, topic: str) -> None:
        self.core = core.Message(topic)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and self.core == other.core

    def __repr__(self) -> str:
        return f"<Message {self.core!r}>"

    def set_keys(self, keys: str) -> None:
        self.core.keys = keys

    def set_tags(self, tags: str) -> None:
        self.core.tags = tags

    def set_body(self, body: str | bytes) -> None:
        self.core.body = body.encode() if isinstance(body, str) else body

    def set_property(self, key: str, value: str) -> None:
        self.core.properties[key] = value

    def set_delay_time_level(self, delay_time_level: int) -> None:
        self.core.delay_level = delay_time_level


class ReceivedMessage:
    """A message received. Tags, keys and properties that it does not have are empty."""

    def __init__(self, message: core.MessageExt) -> None:
        self.raw = message

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ReceivedMessage) and self.raw == other.raw

    @property
    def topic(self) -> str:
        return self.raw.topic

    @property
    def tags(self) -> bytes:
        return self.get_property(MessageProperty.TAGS)

    @property
    def keys(self) -> bytes:
        return self.get_property(MessageProperty.KEYS)

    @property
    def body(self) -> bytes:
        return self.raw.body

    @property
    def id(self) -> str:
        return self.raw.msg_id

    @property
    def delay_time_level(self) -> int:
        return self.raw.delay_level

    @property
    def queue_id(self) -> int:
        return self.raw.queue_id

    @property
    def reconsume_times(self) -> int:
        return self.raw.reconsume_times

    @property
    def store_size(self) -> int:
        return self.raw.store_size_bytes

    @property
    def born_timestamp(self) -> int:
        return self.raw.born_timestamp

    @property
    def store_timestamp(self) -> int:
        return self.raw.store_timestamp

    @property
    def queue_offset(self) -> int:
        return self.raw.queue_offset

    @property
    def commit_log_offset(self) -> int:
        return self.raw.physical_offset

    @property
    def prepared_transaction_offset(self) -> int:
        return self.raw.prepared_transaction_offset

    def get_property(self, prop: str | bytes | MessageProperty) -> bytes:
        if isinstance(prop, MessageProperty):
            prop = prop.value
        name = prop.decode() if isinstance(prop, bytes) else prop
        return self.raw.properties.get(name, "").encode()

    def __getitem__(self, key: str | bytes | MessageProperty) -> bytes:
        return self.get_property(key)

    def __str__(self) -> str:
        return self.body.decode("utf-8", "replace")

    def __bytes__(self) -> bytes:
        return self.body

    def __repr__(self) -> str:
        return f"<ReceivedMessage topic={self.topic!r} id={self.id!r} body={self.body!r}>"


RecvMessage = ReceivedMessage
"""The name that early versions of the wrapper used."""
