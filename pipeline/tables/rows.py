"""The rows of a table: names, types, and the day by which the table is cut into partitions.

Types have the names of Spark's DDL, so that tables of all formats and the Spark source are described alike.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from triomq.spark.columns import ROCKETMQ_COLUMNS

TYPES: Final[dict[str, Any]] = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "date": pa.date32(),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}
PARTITION_COLUMNS: Final = ("date", "topic")
MESSAGE_SCHEMA: Final = pa.schema([(name, TYPES[kind]) for name, kind in ROCKETMQ_COLUMNS.items()])
RAW_SCHEMA: Final = MESSAGE_SCHEMA.append(pa.field("date", TYPES["date"]))


def with_date(messages: Any) -> Any:
    """Return a table of MESSAGE_SCHEMA with the UTC day of the store time."""
    stored = messages.column("storeTimestamp").cast(pa.timestamp("us"))  # Arrow keeps UTC: the zone is only a label
    return messages.append_column(RAW_SCHEMA.field("date"), stored.cast(pa.date32()))


def kind_of(arrow_type: Any) -> str:
    """Return the name of a type in TYPES, or Arrow's own; formats differ in the width of Arrow's offsets."""
    if pa.types.is_large_string(arrow_type) or pa.types.is_string_view(arrow_type):
        return "string"
    if pa.types.is_large_binary(arrow_type) or pa.types.is_binary_view(arrow_type):
        return "binary"
    if pa.types.is_map(arrow_type):
        return f"map<{kind_of(arrow_type.key_type)},{kind_of(arrow_type.item_type)}>"
    if pa.types.is_timestamp(arrow_type) and arrow_type.unit == "us" and arrow_type.tz in ("UTC", "+00:00"):
        return "timestamp"
    return next((name for name, known in TYPES.items() if known == arrow_type), str(arrow_type))


def kinds_of(schema: Any) -> dict[str, str]:
    """Return column name -> type name of an Arrow schema."""
    return {field.name: kind_of(field.type) for field in schema}


def difference(found: dict[str, str], wanted: dict[str, str]) -> str:
    """Return what is different in a table's columns, or an empty text."""
    for name, kind in wanted.items():
        if name not in found:
            return f"it has no column {name!r}"
        if found[name] != kind:
            return f"its column {name!r} is {found[name]}, not {kind}"
    more = [name for name in found if name not in wanted]
    return f"it has another column {more[0]!r}" if more else ""
