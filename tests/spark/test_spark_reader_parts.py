"""The parts of a batch and of a micro-batch: what the options and the conditions of a query make of one queue."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StringType, StructField, StructType
from test_spark_data_loss import FakeCluster

from triomq.spark.options import source_options
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
