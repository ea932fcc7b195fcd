"""The columns that the sink accepts, and the message made of each row.

    body         binary or string, required          (value)
    topic        string, unless the option names it
    tags, keys   string; several keys are separated by blanks                        (key)
    queueId      int: this queue of the topic, of broker `brokerName` where there are several     (partition)
    shardingKey  string: rows of one key go to one queue, in order
    delayLevel   int: 1-based; 0 or null: at once
    properties   map<string,string>                   (headers: array<struct<key,value>>)

Names in brackets are those of Spark's Kafka sink, which work as well. Properties that brokers and clients set
themselves are dropped from `properties`, so that rows of the source can be written unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from triomq.protocol import properties, system_topics
from triomq.protocol import property_names as names
from triomq.protocol.errors import RequestRefused
from triomq.protocol.properties import MAX_PROPERTIES_BYTES
from triomq.spark import markers
from triomq.spark.errors import OptionError

_TYPES: Final[dict[str, tuple[str, ...]]] = {
    "body": ("binary", "string"),
    "topic": ("string",),
    "tags": ("string",),
    "keys": ("string", "binary"),
    "queueId": ("int", "bigint", "smallint", "tinyint"),
    "brokerName": ("string",),
    "shardingKey": ("string",),
    "delayLevel": ("int", "bigint", "smallint", "tinyint"),
    "properties": ("map<string,string>",),
    "headers": ("array<struct<key:string,value:binary>>",),
}
_KAFKA_NAMES: Final = {"value": "body", "key": "keys", "partition": "queueId"}
_IGNORED: Final = frozenset(
    {
        "queueOffset",
        "bornTimestamp",
        "storeTimestamp",
        "msgId",
        "physicalOffset",
        "offset",
        "timestamp",
        "timestampType",
        "flag",
        "sysFlag",
        "reconsumeTimes",
        "bornHost",
        "storeHost",
        "offsetMsgId",
    }
)
"""Columns of the sources that describe where a message was. They are not written."""

_KEPT_SYSTEM_PROPERTIES: Final = frozenset({names.KEYS, names.TAGS, names.UNIQ_KEY, names.BUYER_ID})


def sink_columns(schema: Any, topic: str | None) -> dict[str, int]:
    """Return message field -> position of its column. Raises OptionError naming the column that is wrong."""
    found: dict[str, int] = {}
    for at, item in enumerate(schema.fields):
        name = _KAFKA_NAMES.get(item.name, item.name)
        if name in _IGNORED:
            continue
        kinds = _TYPES.get(name)
        if kinds is None:
            raise OptionError(f"sink: column {item.name!r} is not one of {', '.join(_TYPES)}; drop or rename it")
        kind = item.dataType.simpleString()
        if kind not in kinds:
            raise OptionError(f"sink: column {item.name!r} is {kind}, not {' or '.join(kinds)}")
        if name in found:
            raise OptionError(f"sink: column {item.name!r}: {name} is given twice")
        found[name] = at
    if "body" not in found:
        raise OptionError("sink: there is no column body (or value)")
    if "topic" not in found and topic is None:
        raise OptionError("sink: there is neither a column topic nor the option topic")
    return found


@dataclass(slots=True)
class OutgoingMessage:
    """One row, ready to be sent. `digest` is empty when the write is not idempotent."""

    topic: str
    body: bytes
    properties: bytes
    queue_id: int | None
    broker_name: str | None
    sharding_key: str | None
    delay_level: int
    digest: str

    @property
    def size_bytes(self) -> int:
        return len(self.body) + len(self.properties) + 22


class RowReader:
    """Turns Arrow batches into messages. `marker_prefix` is None when the write is not idempotent."""

    def __init__(
        self, columns: Mapping[str, int], topic: str | None, marker_prefix: str | None, make_uniq_key: Any
    ) -> None:
        self._columns = columns
        self._topic = topic
        self._marker_prefix = marker_prefix
        self._make_uniq_key = make_uniq_key
        self._checked_topics: set[str] = set()

    def messages(self, batch: Any) -> list[OutgoingMessage]:
        """Return the messages of one pyarrow RecordBatch, in order. Raises OptionError for rows that cannot be sent."""
        columns = {name: batch.column(at).to_pylist() for name, at in self._columns.items()}
        nothing = [None] * batch.num_rows
        fields = [columns.get(name, nothing) for name in _TYPES]
        return [self._message(row) for row in zip(*fields, strict=True)]

    def _message(self, row: Sequence[Any]) -> OutgoingMessage:
        body, topic, tags, keys, queue_id, broker_name, sharding_key, delay_level, given, headers = row
        if topic is None:
            topic = self._topic
        if topic is None or body is None:
            which = f" with keys {str(keys)[:64]!r}" if keys is not None else ""
            raise OptionError(f"sink: a row{which} has no {'topic' if topic is None else 'body'}")
        if topic not in self._checked_topics:
            self._check_topic(topic)
        if isinstance(body, str):
            body = body.encode()
        table = _user_properties(given, headers)
        if tags is not None:
            table[names.TAGS] = tags
        if keys is not None:
            table[names.KEYS] = keys if isinstance(keys, str) else keys.decode("utf-8", "replace")
        if delay_level:
            table[names.DELAY] = str(delay_level)
        digest = ""
        if self._marker_prefix is not None:
            digest = _row_digest(body, topic, table, queue_id, broker_name, sharding_key)
            table[markers.MARKER] = self._marker_prefix + digest
        if names.UNIQ_KEY not in table:
            table[names.UNIQ_KEY] = self._make_uniq_key()
        text = properties.encode(table)
        if len(text) > MAX_PROPERTIES_BYTES:
            raise OptionError(f"sink: a row for topic {topic!r} has {len(text)} bytes of properties; 32767 are allowed")
        return OutgoingMessage(topic, body, text, queue_id, broker_name, sharding_key, delay_level or 0, digest)

    def _check_topic(self, topic: str) -> None:
        try:
            system_topics.check_topic_name(topic)
            system_topics.check_may_send(topic)
        except RequestRefused as error:
            raise OptionError(f"sink: topic {topic!r}: {error.remark}") from None
        self._checked_topics.add(topic)


def _user_properties(given: Any, headers: Any) -> dict[str, str]:
    table: dict[str, str] = {}
    for name, value in given or ():
        table[name] = value
    for header in headers or ():
        table[header["key"]] = (header["value"] or b"").decode("utf-8", "replace")
    return {
        name: value
        for name, value in table.items()
        if name and value and name != markers.MARKER and (name in _KEPT_SYSTEM_PROPERTIES or name not in names.RESERVED)
    }


def _row_digest(body: bytes, topic: str, table: Mapping[str, str], queue_id: Any, broker: Any, sharding: Any) -> str:
    fields = [body, topic.encode()]
    fields += [f"{name}\x01{value}".encode("utf-8", "replace") for name, value in sorted(table.items())]
    fields.append(f"{queue_id} {broker} {sharding}".encode())
    return markers.digest(fields)
