"""Rows of a source without a Spark session: the readers run in this process, as in a task."""

from __future__ import annotations

from typing import Any


def schema_of(columns: dict[str, str]) -> Any:
    """Return a StructType from column names and their Spark types."""
    from pyspark.sql import types

    kinds = {
        "string": types.StringType(),
        "int": types.IntegerType(),
        "bigint": types.LongType(),
        "binary": types.BinaryType(),
        "timestamp": types.TimestampType(),
        "map<string,string>": types.MapType(types.StringType(), types.StringType()),
        "array<struct<key:string,value:binary>>": types.ArrayType(
            types.StructType(
                [types.StructField("key", types.StringType()), types.StructField("value", types.BinaryType())]
            )
        ),
    }
    return types.StructType([types.StructField(name, kinds[kind]) for name, kind in columns.items()])


def rows_of(reader: Any) -> list[dict[str, Any]]:
    """Return all rows, task after task."""
    return [
        row
        for part in reader.partitions()
        for batch in reader.read(part)
        for row in batch.to_pylist(maps_as_pydicts="strict")
    ]


def store_rows(root: Any, columns: dict[str, str] | None = None, **options: str) -> list[dict[str, Any]]:
    """Return the rows of a store directory."""
    from triomq.spark.columns import default_columns
    from triomq.spark.options import store_options
    from triomq.spark.store_source import StoreReader

    checked = store_options({"path": str(root), **options})
    if columns is None:
        columns = default_columns(checked.row_format, checked.include_properties, of_store=True)
    return rows_of(StoreReader(checked, schema_of(columns)))


def topic_rows(cluster: Any, columns: dict[str, str] | None = None, **options: str) -> list[dict[str, Any]]:
    """Return the rows of a batch read from a broker."""
    from triomq.spark.columns import default_columns
    from triomq.spark.options import source_options
    from triomq.spark.source import BatchReader

    checked = source_options({"nameServer": cluster.namesrv_address, **options}, streaming=False)
    if columns is None:
        columns = default_columns(checked.row_format, checked.include_properties)
    return rows_of(BatchReader(checked, schema_of(columns)))
