"""Running plain functions in Spark tasks, with Arrow in and out.

DataFrame.mapInArrow would do, but asks for pandas; Python data sources do not. Reading: one task for each piece of
work, whose rows become a DataFrame. Writing: each task hands its Arrow batches to a function. The functions travel by
name, so they must stand in a module.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

Walk = Callable[[Any], Iterable[tuple[Any, ...]]]
"""A piece of work -> its rows."""
Take = Callable[[Any, Iterator[Any]], None]
"""(argument, Arrow batches of one partition) -> nothing."""


def packed(work: Any) -> str:
    """Work as the text of an option."""
    return base64.b64encode(pickle.dumps(work)).decode("ascii")


def unpacked(text: str) -> Any:
    """The inverse."""
    return pickle.loads(base64.b64decode(text))


def run_pieces(spark: Any, walk: Walk, pieces: Sequence[Any], ddl: str) -> Any:
    """A DataFrame of the rows that `walk` gives for each piece; one task for each."""
    from triomq.spark.jobs.pieces_source import PiecesSource

    spark.dataSource.register(PiecesSource)
    reader = spark.read.format("triomq-pieces").option("ddl", ddl).option("work", packed((walk, list(pieces))))
    return reader.load()


def give_batches(table: Any, take: Take, argument: Any) -> None:
    """Run `take(argument, Arrow batches)` for each partition of a DataFrame."""
    from triomq.spark.jobs.pieces_source import PiecesSource

    table.sparkSession.dataSource.register(PiecesSource)
    table.write.format("triomq-pieces").option("work", packed((take, argument))).mode("append").save()
