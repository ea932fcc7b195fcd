"""The columns of rows: their names and Spark types. triomq.spark.record_columns fills them.

There are two row formats. `rocketmq` has RocketMQ's own fields; `kafka` has the columns of Spark's Kafka source, so
that queries written for Kafka run unchanged (partition = queueId, timestamp = store time, key = KEYS). A user's schema
may name any subset of the known columns, in any order; columns that it leaves out cost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from triomq.spark.errors import OptionError

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
"""Further columns that a user's schema may name."""

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


def default_columns(row_format: str, include_properties: bool, *, of_store: bool = False) -> dict[str, str]:
    """Return column name -> Spark type for reads without a schema."""
    if row_format == "kafka":
        return {**KAFKA_COLUMNS, **({"headers": KAFKA_HEADERS} if include_properties else {})}
    columns = STORE_COLUMNS if of_store else ROCKETMQ_COLUMNS
    return {name: kind for name, kind in columns.items() if include_properties or name != "properties"}


def chosen_columns(names: Sequence[str], row_format: str) -> dict[str, str]:
    """Return column name -> Spark type for reads with the option `columns`. Raises OptionError."""
    known = _known(row_format)
    for name in names:
        if name not in known:
            raise OptionError(f"option columns: there is no column {name!r}; the columns are {', '.join(known)}")
    return {name: known[name] for name in names}


def _known(row_format: str) -> dict[str, str]:
    return {**KAFKA_COLUMNS, "headers": KAFKA_HEADERS} if row_format == "kafka" else {**STORE_COLUMNS, **MORE_COLUMNS}


def check_columns(asked: Sequence[tuple[str, str]], row_format: str) -> list[str]:
    """Return the names of the requested (name, Spark type) columns. Raises OptionError for the first invalid one."""
    known = _known(row_format)
    names = []
    for name, kind in asked:
        expected = known.get(name)
        if expected is None:
            raise OptionError(f"schema: there is no column {name!r}; the columns are {', '.join(known)}")
        if kind != expected:
            raise OptionError(f"schema: column {name!r} is {expected}, not {kind}")
        names.append(name)
    if not names:
        raise OptionError(f"schema: it has no column; the columns are {', '.join(known)}")
    return names
