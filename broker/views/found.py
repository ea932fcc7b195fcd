"""A message that a page found in the store, and its row in a list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from triomq.broker.views.bodies import line_of
from triomq.protocol import message_id
from triomq.protocol import property_names as names
from triomq.protocol.message import KEY_SEPARATOR
from triomq.protocol.record import RecordFields

_LINE_BYTES: Final = 160


@dataclass(slots=True)
class MessageRow:
    """`id` locates the message on this broker, `key` is the id that its producer gave it."""

    id: str
    topic: str
    queue: int
    offset: int
    stored_ms: int
    unique_key: str
    tags: str
    keys: str
    bytes: int
    begin: str


@dataclass(slots=True)
class Found:
    """A message and the topic that it was sent to."""

    data: bytes
    fields: RecordFields
    properties: dict[str, str]
    topic: str
    at: int

    @property
    def id(self) -> str:
        return message_id.offset_message_id(self.fields.store_host, self.at)

    @property
    def body(self) -> bytes:
        return self.data[self.fields.body_at : self.fields.body_at + self.fields.body_length]

    def has_key(self, key: str) -> bool:
        keys = self.properties.get(names.KEYS, "").split(KEY_SEPARATOR)
        return key in keys or key == self.properties.get(names.UNIQ_KEY)

    def row(self) -> MessageRow:
        fields, texts = self.fields, self.properties
        return MessageRow(
            self.id,
            fields.topic.decode("utf-8", "replace"),
            fields.queue_id,
            fields.queue_offset,
            fields.store_timestamp,
            texts.get(names.UNIQ_KEY, ""),
            texts.get(names.TAGS, ""),
            texts.get(names.KEYS, ""),
            fields.body_length,
            line_of(self.body, fields.sys_flag, _LINE_BYTES),
        )
