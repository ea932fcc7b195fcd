"""Running plain functions in Spark tasks, with Arrow in and out.

DataFrame.mapInArrow would do, but it requires pandas; Python data sources do not. Reading runs one task per piece of
work, whose rows become a DataFrame. Writing passes the Arrow batches of each task to a function. The functions travel
by name, so they must be defined in a module.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from triomq.spark.jobs.packing import Take, Walk, packed


def run_pieces(spark: Any, walk: Walk, pieces: Sequence[Any], ddl: str) -> Any:
    """Return a DataFrame of the rows that `walk` yields for each piece, one task per piece."""
    from triomq.spark.jobs.pieces_source import PiecesSource

    spark.dataSource.register(PiecesSource)
    reader = spark.read.format("triomq-pieces").option("ddl", ddl).option("work", packed((walk, list(pieces))))
    return reader.load()


def give_batches(table: Any, take: Take, argument: Any) -> None:
    """Run `take(argument, Arrow batches)` for each partition of a DataFrame."""
    from triomq.spark.jobs.pieces_source import PiecesSource

    table.sparkSession.dataSource.register(PiecesSource)
    table.write.format("triomq-pieces").option("work", packed((take, argument))).mode("append").save()
