"""The parts of a batch and of a micro-batch: what the options and the conditions of a query make of one queue."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, In, IsNotNull, LessThan, Not, StringStartsWith
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StringType, StructField, StructType
from stored_records import encoded
from test_spark_data_loss import FakeCluster

from triomq.spark.options import source_options
from triomq.spark.pushdown import MAX_TAGS
from triomq.spark.reading import Plan
from triomq.spark.source import PushingBatchReader, StreamReader

SCHEMA = StructType([StructField("keys", StringType())])


def values(**options: Any) -> dict[str, str]:
    return {"nameServer": "h:1", "subscribe": "T", **{name: str(value) for name, value in options.items()}}


def batch_reader(**options: Any) -> PushingBatchReader:
    return PushingBatchReader(source_options(values(**options), streaming=False), SCHEMA)


def batch_parts(reader: PushingBatchReader, cluster: FakeCluster) -> list[tuple[int, int]]:
    plan = Plan(reader.options, cluster)  # type: ignore[arg-type]
    return [(part.begin, part.end) for part in reader.planned(plan)]


def test_one_large_queue_is_read_by_many_tasks() -> None:
    cluster = FakeCluster(10, 110)
    assert batch_parts(batch_reader(), cluster) == [(10, 110)]
    assert batch_parts(batch_reader(maxRecordsPerPartition=50), cluster) == [(10, 60), (60, 110)]
    assert batch_parts(batch_reader(maxRecordsPerPartition=40), cluster) == [(10, 43), (43, 76), (76, 110)]
    assert len(batch_parts(batch_reader(maxRecordsPerPartition=50, minPartitions=4), cluster)) == 4


def test_a_large_micro_batch_is_read_by_many_tasks() -> None:
    stream = StreamReader(source_options(values(maxRecordsPerPartition=10), streaming=True), SCHEMA)
    stream._plan = Plan(stream.options, FakeCluster(0, 85))  # type: ignore[arg-type]
    start = {"T": {"b": {"0": 60}}}
    end = stream.latestOffset(start, ReadAllAvailable())
    assert [(part.begin, part.end) for part in stream.partitions(start, end)] == [(60, 68), (68, 76), (76, 85)]


def after(*filters: Filter, **options: Any) -> tuple[PushingBatchReader, list[Filter]]:
    """Return a reader that received these conditions, and those that it leaves to Spark."""
    reader = batch_reader(**options)
    return reader, list(reader.pushFilters(list(filters)))


@pytest.mark.parametrize(
    ("given", "conditions", "expression"),
    [
        ("*", [EqualTo(("tags",), "a")], "a"),
        ("*", [In(("tags",), ("b", "a"))], "a || b"),
        ("*", [In(("tags",), ("a", "b")), EqualTo(("tags",), "b")], "b"),
        ("a || b", [In(("tags",), ("b", "c"))], "b"),
    ],
)
def test_equality_and_in_on_tags_become_the_subscription(given: str, conditions: list[Filter], expression: str) -> None:
    reader, left = after(*conditions, filter=given)
    assert (reader.options.filter, left) == (expression, [])


def test_tags_that_exclude_each_other_read_nothing() -> None:
    for reader, _ in (
        after(EqualTo(("tags",), "a"), EqualTo(("tags",), "b")),
        after(EqualTo(("tags",), "a"), filter="b || c"),
    ):
        assert batch_parts(reader, FakeCluster(0, 50)) == []


@pytest.mark.parametrize(
    "condition",
    [
        EqualTo(("tags",), ""),
        EqualTo(("tags",), "*"),
        EqualTo(("tags",), " a"),
        EqualTo(("tags",), "a\x03"),
        EqualTo(("tags",), "a||b"),
        In(("tags",), ("a", None)),
        In(("tags",), tuple(f"t{number}" for number in range(MAX_TAGS + 1))),
        Not(EqualTo(("tags",), "a")),
        StringStartsWith(("tags",), "a"),
        EqualTo(("keys",), "a"),
    ],
)
def test_a_condition_that_no_expression_can_express_is_left_to_spark(condition: Filter) -> None:
    reader, left = after(condition)
    assert (reader.options.filter, left) == ("*", [condition])


def test_tags_are_left_to_spark_beside_an_sql92_expression() -> None:
    condition = EqualTo(("tags",), "a")
    reader, left = after(condition, filter="number > 1", filterType="SQL92")
    assert (reader.options.filter, left) == ("number > 1", [condition])


def test_offsets_are_exact_and_prune_ranges() -> None:
    known = [IsNotNull(("queueOffset",)), GreaterThan(("queueOffset",), 9), LessThan(("queueOffset",), 20)]
    reader, left = after(*known)
    assert left == []
    assert batch_parts(reader, FakeCluster(0, 50)) == [(10, 20)]
    elsewhere = EqualTo(("queueId",), 7)
    reader, left = after(elsewhere)
    assert (batch_parts(reader, FakeCluster(0, 50)), left) == ([], [])


def test_spark_tells_a_reader_conditions_and_nothing_else() -> None:
    """The guide says so: no columns, no aggregates, no limits, and no conditions for streams. A new version of
    pyspark that tells more fails here."""
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader

    def methods(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert methods(DataSourceReader) == {"partitions", "pushFilters", "read"}
    assert methods(DataSourceStreamReader) == {
        "commit",
        "getDefaultReadLimit",
        "initialOffset",
        "latestOffset",
        "partitions",
        "read",
        "reportLatestOffset",
        "stop",
    }


def test_columns_that_a_schema_leaves_out_are_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    from triomq.spark import record_columns

    def fails(*_: Any) -> Any:
        raise AssertionError("a column that nobody selected")

    for name in set(record_columns._BUILDERS) - {"keys"}:
        monkeypatch.setitem(record_columns._BUILDERS, name, fails)  # type: ignore[arg-type]
    columns = record_columns.RecordColumns(to_arrow_schema(SCHEMA, timezone="UTC"), ["keys"], "b")
    data = bytes(encoded(b"T", b"body", b"KEYS\x01k1\x02TAGS\x01a"))
    assert columns.add_run(data, 0, len(data), len(data)) == len(data)
    assert columns.take().to_pylist() == [{"keys": "k1"}]
