"""Rows: which columns there are, and how stored records become Arrow columns.

Two shapes. `rocketmq` has RocketMQ's own fields; `kafka` has the columns of Spark's Kafka source, so that queries
written for Kafka run unchanged (partition = queueId, timestamp = store time, key = KEYS). A schema given by the user
may name any subset of the known columns, in any order; columns nobody asked for cost nothing.

`RecordColumns` collects records of one stream in read order and gives them out as Arrow record batches. It works on
raw record bytes (protocol.record) without making a message object for each.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final
from zlib import crc32

from mqspark.errors import OptionError
from protocol import compression, message_id, sys_flag
from protocol.address import HostPort
from protocol.errors import BodyError, RecordError
from protocol.record import FIXED_BYTES, MESSAGE_MAGIC

ROCKETMQ_COLUMNS: Final[dict[str, str]] = {
    "topic": "string",
    "brokerName": "string",
    "queueId": "int",
    "queueOffset": "bigint",
    "body": "binary",
    "tags": "string",
    "keys": "string",
    "properties": "map<string,string>",
    "bornTimestamp": "timestamp",
    "storeTimestamp": "timestamp",
    "msgId": "string",
}
"""The default row: name and Spark type."""

STORE_COLUMNS: Final[dict[str, str]] = {**ROCKETMQ_COLUMNS, "physicalOffset": "bigint"}
"""The default row of store directories."""

MORE_COLUMNS: Final[dict[str, str]] = {
    "physicalOffset": "bigint",
    "flag": "int",
    "sysFlag": "int",
    "reconsumeTimes": "int",
    "bornHost": "string",
    "storeHost": "string",
    "preparedTransactionOffset": "bigint",
    "bodyCrc": "int",
    "storeSize": "int",
    "offsetMsgId": "string",
    "recordCrc32": "bigint",
}
"""Columns that a schema given by the user may ask for beside the default ones."""

KAFKA_COLUMNS: Final[dict[str, str]] = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
}
KAFKA_HEADERS: Final = "array<struct<key:string,value:binary>>"

LOG_APPEND_TIME: Final = 1
ROWS_PER_BATCH: Final = 8192
BYTES_PER_BATCH: Final = 8 * 1024 * 1024

_V4 = struct.Struct(">iiiiiqqiq8sq8siqi")
_LAYOUTS = {
    0: _V4,
    sys_flag.BORN_HOST_V6: struct.Struct(">iiiiiqqiq20sq8siqi"),
    sys_flag.STORE_HOST_V6: struct.Struct(">iiiiiqqiq8sq20siqi"),
    sys_flag.BORN_HOST_V6 | sys_flag.STORE_HOST_V6: struct.Struct(">iiiiiqqiq20sq20siqi"),
}
_SYS_FLAG = struct.Struct(">i")


def default_columns(row_format: str, include_properties: bool, *, of_store: bool = False) -> dict[str, str]:
    """Name -> Spark type of the row when the user gives no schema."""
    if row_format == "kafka":
        return {**KAFKA_COLUMNS, **({"headers": KAFKA_HEADERS} if include_properties else {})}
    columns = STORE_COLUMNS if of_store else ROCKETMQ_COLUMNS
    return {name: kind for name, kind in columns.items() if include_properties or name != "properties"}


def check_columns(asked: Sequence[tuple[str, str]], row_format: str) -> list[str]:
    """Names of the asked (name, Spark type) columns. Raises OptionError naming the first that cannot be given."""
    known = {**KAFKA_COLUMNS, "headers": KAFKA_HEADERS} if row_format == "kafka" else {**STORE_COLUMNS, **MORE_COLUMNS}
    names = []
    for name, kind in asked:
        expected = known.get(name)
        if expected is None:
            raise OptionError(f"schema: there is no column {name!r}; the columns are {', '.join(known)}")
        if kind != expected:
            raise OptionError(f"schema: column {name!r} is {expected}, not {kind}")
        names.append(name)
    if not names:
        raise OptionError(f"schema: no column is asked for; the columns are {', '.join(known)}")
    return names


class RecordColumns:
    """Collects records as columns. One owner, one thread; emptied by every `take`."""

    __slots__ = (
        "_bodies",
        "_body_bytes",
        "_broker_name",
        "_builders",
        "_heads",
        "_properties",
        "_raw_crcs",
        "_schema",
        "_tables",
        "_topic_names",
        "_topics",
        "_wants_bodies",
        "_wants_crcs",
        "_wants_properties",
    )

    def __init__(self, schema: Any, names: Sequence[str], broker_name: str | None, *, reads_tags: bool = False) -> None:
        """`schema` is the pyarrow schema of the columns `names`; `last_tags` is there only with `reads_tags`."""
        self._schema = schema
        self._builders: list[tuple[Callable[[RecordColumns, Any], Any], Any]] = [
            (_BUILDERS[name], schema.field(at).type) for at, name in enumerate(names)
        ]
        self._broker_name = broker_name
        self._topic_names: dict[bytes, str] = {}
        self._wants_bodies = not {"body", "value"}.isdisjoint(names)
        self._wants_properties = reads_tags or not _FROM_PROPERTIES.isdisjoint(names)
        self._wants_crcs = "recordCrc32" in names
        self._clear()

    def _clear(self) -> None:
        self._heads: list[tuple[Any, ...]] = []
        self._bodies: list[bytes] = []
        self._topics: list[bytes] = []
        self._properties: list[bytes] = []
        self._raw_crcs: list[int] = []
        self._tables: list[dict[str, str]] = []
        self._body_bytes = 0

    @property
    def is_full(self) -> bool:
        return len(self._heads) >= ROWS_PER_BATCH or self._body_bytes >= BYTES_PER_BATCH

    def __len__(self) -> int:
        return len(self._heads)

    def add(self, data: bytes | memoryview, at: int, end: int, *, check_crc: bool = True) -> tuple[Any, ...]:
        """Take the record at `at`, which lies wholly before `end`; the answer is its fixed fields (TOTALSIZE first).
        Raises RecordError for anything that is no record."""
        if end - at < FIXED_BYTES:
            raise RecordError(f"{end - at} bytes are too few for a record")
        hosts = _SYS_FLAG.unpack_from(data, at + 36)[0] & 0x30
        layout = _V4 if not hosts else _LAYOUTS[hosts]
        body_at = at + layout.size
        if body_at > end:
            raise RecordError("a record is cut short inside its fixed fields")
        head = layout.unpack_from(data, at)
        size = head[0]
        body_end = body_at + head[14]
        record_end = at + size
        if head[1] != MESSAGE_MAGIC or record_end > end or head[14] < 0 or body_end >= record_end:
            raise RecordError(f"{head[0]} bytes with magic {head[1] & 0xFFFFFFFF:#010x} are no record")
        topic_end = body_end + 1 + data[body_end]
        if record_end - topic_end - 2 != data[topic_end] << 8 | data[topic_end + 1]:
            raise RecordError(f"the lengths inside a record of {size} bytes do not add up")
        if self._wants_bodies or check_crc:
            body = bytes(data[body_at:body_end])
            if check_crc and body and crc32(body) & 0x7FFFFFFF != head[2]:
                raise RecordError("the body of a record does not match its CRC")
            if self._wants_bodies:
                if head[7] & sys_flag.COMPRESSED and body:
                    body = _inflated(body, head[7])
                self._bodies.append(body)
                self._body_bytes += len(body)
        self._heads.append(head)
        self._topics.append(bytes(data[body_end + 1 : topic_end]))
        if self._wants_properties:
            self._properties.append(bytes(data[topic_end + 2 : record_end]))
            self._body_bytes += record_end - topic_end
        if self._wants_crcs:
            self._raw_crcs.append(crc32(data[at:record_end]))
        return head

    def drop_last(self) -> None:
        """Take the last record out again (a filter said no)."""
        self._heads.pop()
        self._topics.pop()
        if self._wants_bodies:
            self._bodies.pop()
        if self._wants_properties:
            self._properties.pop()
        if self._wants_crcs:
            self._raw_crcs.pop()

    @property
    def last_topic(self) -> str:
        return self._topic_name(self._topics[-1])

    @property
    def last_head(self) -> tuple[Any, ...]:
        """Fixed fields of the last record, in the order of the layout."""
        return self._heads[-1]

    @property
    def last_tags(self) -> str | None:
        return _parse(self._properties[-1]).get("TAGS")

    def take(self) -> Any:
        """Everything collected as one pyarrow RecordBatch; empties the collection."""
        import pyarrow as pa

        self._tables = [_parse(raw) for raw in self._properties]
        arrays = [build(self, kind) for build, kind in self._builders]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        self._clear()
        return batch

    # -- one builder for each column: (collection, pyarrow type) -> array ----------------------------------------

    def _topic_name(self, raw: bytes) -> str:
        name = self._topic_names.get(raw)
        if name is None:
            name = self._topic_names[raw] = raw.decode("utf-8", "replace")
        return name

    def _build_topic(self, kind: Any) -> Any:
        import pyarrow as pa

        return pa.array([self._topic_name(raw) for raw in self._topics], kind)

    def _build_broker_name(self, kind: Any) -> Any:
        import pyarrow as pa

        return pa.repeat(pa.scalar(self._broker_name, kind), len(self._heads))

    def _build_body(self, kind: Any) -> Any:
        import pyarrow as pa

        # joined at once: letting Arrow grow its buffer costs several times as much
        ends = array("i", accumulate(map(len, self._bodies), initial=0))
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(self._bodies))]
        return pa.Array.from_buffers(kind, len(self._bodies), buffers)

    def _build_key(self, kind: Any) -> Any:
        import pyarrow as pa

        return pa.array(
            [None if (keys := table.get("KEYS")) is None else keys.encode() for table in self._tables], kind
        )

    def _build_properties(self, kind: Any) -> Any:
        import pyarrow as pa

        names: list[str] = []
        values: list[str] = []
        offsets = [0]
        for table in self._tables:
            names += table
            values += table.values()
            offsets.append(len(names))
        offset_array = pa.array(offsets, pa.int32())
        return pa.MapArray.from_arrays(offset_array, pa.array(names, kind.key_type), pa.array(values, kind.item_type),
                                       type=kind)  # fmt: skip

    def _build_headers(self, kind: Any) -> Any:
        import pyarrow as pa

        rows = [[{"key": name, "value": value.encode()} for name, value in table.items()] for table in self._tables]
        return pa.array(rows, kind)

    def _build_msg_id(self, kind: Any) -> Any:
        import pyarrow as pa

        return pa.array(
            [
                table.get("UNIQ_KEY") or message_id.offset_message_id(head[11], head[6])
                for table, head in zip(self._tables, self._heads, strict=True)
            ],
            kind,
        )

    def _build_offset_msg_id(self, kind: Any) -> Any:
        import pyarrow as pa

        return pa.array([message_id.offset_message_id(head[11], head[6]) for head in self._heads], kind)

    def _build_timestamp_type(self, kind: Any) -> Any:
        import pyarrow as pa

        return pa.repeat(pa.scalar(LOG_APPEND_TIME, kind), len(self._heads))

    def _build_record_crc(self, kind: Any) -> Any:
        import pyarrow as pa

        return pa.array(self._raw_crcs, kind)


def _inflated(body: bytes, flags: int) -> bytes:
    try:
        return compression.decompress(body, sys_flag.compression_type(flags))
    except BodyError as error:
        raise RecordError(str(error)) from error


def _parse(raw: bytes) -> dict[str, str]:
    table = {}
    if raw:
        for pair in raw.decode("utf-8", "replace").split("\x02"):
            name, _, value = pair.partition("\x01")
            if value and name:
                table[name] = value
    return table


def _number(field: int) -> Callable[[RecordColumns, Any], Any]:
    def build(columns: RecordColumns, kind: Any) -> Any:
        import pyarrow as pa

        return pa.array([head[field] for head in columns._heads], kind)

    return build


def _timestamp(field: int) -> Callable[[RecordColumns, Any], Any]:
    def build(columns: RecordColumns, kind: Any) -> Any:
        import pyarrow as pa

        microseconds = pa.array([head[field] * 1000 for head in columns._heads], pa.int64())
        return microseconds.view(kind)

    return build


def _host(field: int) -> Callable[[RecordColumns, Any], Any]:
    def build(columns: RecordColumns, kind: Any) -> Any:
        import pyarrow as pa

        texts: dict[bytes, str] = {}
        for head in columns._heads:
            if head[field] not in texts:
                texts[head[field]] = HostPort.from_packed(head[field]).text
        return pa.array([texts[head[field]] for head in columns._heads], kind)

    return build


def _property(name: str) -> Callable[[RecordColumns, Any], Any]:
    def build(columns: RecordColumns, kind: Any) -> Any:
        import pyarrow as pa

        return pa.array([table.get(name) for table in columns._tables], kind)

    return build


_FROM_PROPERTIES: Final = frozenset({"tags", "keys", "key", "properties", "headers", "msgId"})
_BUILDERS: Final[Mapping[str, Callable[[RecordColumns, Any], Any]]] = {
    "topic": RecordColumns._build_topic,
    "brokerName": RecordColumns._build_broker_name,
    "queueId": _number(3),
    "partition": _number(3),
    "flag": _number(4),
    "queueOffset": _number(5),
    "offset": _number(5),
    "physicalOffset": _number(6),
    "sysFlag": _number(7),
    "bornTimestamp": _timestamp(8),
    "bornHost": _host(9),
    "storeTimestamp": _timestamp(10),
    "timestamp": _timestamp(10),
    "storeHost": _host(11),
    "reconsumeTimes": _number(12),
    "preparedTransactionOffset": _number(13),
    "bodyCrc": _number(2),
    "storeSize": _number(0),
    "body": RecordColumns._build_body,
    "value": RecordColumns._build_body,
    "tags": _property("TAGS"),
    "keys": _property("KEYS"),
    "key": RecordColumns._build_key,
    "properties": RecordColumns._build_properties,
    "headers": RecordColumns._build_headers,
    "msgId": RecordColumns._build_msg_id,
    "offsetMsgId": RecordColumns._build_offset_msg_id,
    "timestampType": RecordColumns._build_timestamp_type,
    "recordCrc32": RecordColumns._build_record_crc,
}
