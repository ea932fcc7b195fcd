"""The data source behind `triomq.spark.jobs.pieces`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema

from triomq.spark.jobs.packing import Take, Walk, unpacked

ROWS_PER_BATCH: Final = 10_000


class PiecesSource(DataSource):  # type: ignore[misc, unused-ignore]
    """The format `triomq-pieces`."""

    @classmethod
    def name(cls) -> str:
        return "triomq-pieces"

    def schema(self) -> str:
        return str(self.options["ddl"])

    def reader(self, schema: Any) -> PiecesReader:
        walk, pieces = unpacked(self.options["work"])
        return PiecesReader(walk, pieces, schema)

    def writer(self, schema: Any, overwrite: bool) -> BatchesWriter:
        take, argument = unpacked(self.options["work"])
        return BatchesWriter(take, argument)


class PiecesReader(DataSourceReader):  # type: ignore[misc, unused-ignore]
    def __init__(self, walk: Walk, pieces: list[Any], schema: Any) -> None:
        self.walk = walk
        self.pieces = pieces
        self.arrow_schema = to_arrow_schema(schema, timezone="UTC")

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(piece) for piece in self.pieces]

    def read(self, partition: Any) -> Iterator[Any]:
        rows: list[tuple[Any, ...]] = []
        if partition.value is not None:
            for row in self.walk(partition.value):
                rows.append(row)
                if len(rows) >= ROWS_PER_BATCH:
                    yield self._batch(rows)
                    rows = []
        if rows:
            yield self._batch(rows)

    def _batch(self, rows: list[tuple[Any, ...]]) -> Any:
        import pyarrow as pa

        schema = self.arrow_schema
        columns = [pa.array(column, schema.field(at).type) for at, column in enumerate(zip(*rows, strict=True))]
        return pa.RecordBatch.from_arrays(columns, schema=schema)


class BatchesWriter(DataSourceArrowWriter):  # type: ignore[misc, unused-ignore]
    def __init__(self, take: Take, argument: Any) -> None:
        self.take = take
        self.argument = argument

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        self.take(self.argument, iterator)
        return WriterCommitMessage()
