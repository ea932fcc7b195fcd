"""The data source `rocketmq`: batch and streaming reads, batch and streaming writes.

    spark.read.format("rocketmq").option("nameServer", "127.0.0.1:9876").option("subscribe", "Orders").load()

The readers live in Spark's planning worker on the driver; their `read` runs in the executors, with a new connection for
each task. The state of a stream is in its checkpoint: positions as JSON (triomq.spark.positions). A reader holds
nothing but its options, the target of Trigger.AvailableNow and the time of the last trigger.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import inf
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.subscription import TAG
from triomq.spark import positions
from triomq.spark.cluster import Cluster
from triomq.spark.columns import check_columns
from triomq.spark.options import SOURCE_OPTIONS, Bound, OptionTable, SourceOptions, columns_to_read, source_options
from triomq.spark.positions import Positions
from triomq.spark.pushdown import MAX_OFFSET, Limits, pushed
from triomq.spark.reading import Plan, QueuePart, latest, read_part, wanted_tags


def columns_of(schema: Any, row_format: str) -> list[str]:
    """Return the checked column names of a StructType."""
    return check_columns([(item.name, item.dataType.simpleString()) for item in schema.fields], row_format)


def ddl(columns: dict[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


class RocketMQSource(DataSource):  # type: ignore[misc, unused-ignore]
    """Registered as `rocketmq`."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> str:
        source_options(self.options, streaming=False)  # what is wrong is said by load(), and not by the first action
        return ddl(columns_to_read(OptionTable(self.options, SOURCE_OPTIONS)))

    def reader(self, schema: Any) -> BatchReader:
        options = source_options(self.options, streaming=False)
        return (PushingBatchReader if options.push_down_filters else BatchReader)(options, schema)

    def streamReader(self, schema: Any) -> StreamReader:
        return StreamReader(source_options(self.options, streaming=True), schema)

    def writer(self, schema: Any, overwrite: bool) -> Any:
        from triomq.spark.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        from triomq.spark.sink import stream_writer

        return stream_writer(self.options, schema)


class BatchReader(DataSourceReader):  # type: ignore[misc, unused-ignore]
    def __init__(self, options: SourceOptions, schema: Any) -> None:
        self.options = options
        self.names = columns_of(schema, options.row_format)
        self.arrow_schema = to_arrow_schema(schema, timezone="UTC")
        self.limits = Limits()

    def partitions(self) -> list[QueuePart]:
        with Cluster(self.options.connection) as cluster:
            return self.planned(Plan(self.options, cluster))

    def planned(self, plan: Plan) -> list[QueuePart]:
        """Return the parts of the read. Raises OptionError, DataLost, BrokerError."""
        options, limits = self.options, self.limits
        queues = plan.queues()
        plan.check_filter(queues)
        starts = plan.within_ends(plan.bound(options.starting, queues, "starting"), options.starting)
        ends = plan.within_ends(plan.bound(options.ending, queues, "ending"), options.ending)
        queues = [queue for queue in queues if limits.allows(queue.topic, queue.broker_name, queue.queue_id)]
        if limits.tags is not None and not limits.tags:
            return []
        starts, ends = self._within(plan, queues, starts, ends)
        return plan.parts(starts, ends)

    def _within(
        self, plan: Plan, queues: list[MessageQueue], starts: Positions, ends: Positions
    ) -> tuple[Positions, Positions]:
        limits = self.limits
        begin_ms, end_ms = limits.min_ms, limits.max_ms
        by_time = {} if not begin_ms else plan.bound(Bound(positions.EARLIEST, None, begin_ms), queues, "starting")
        until_time = (
            {} if end_ms >= MAX_OFFSET else plan.bound(Bound(positions.LATEST, None, end_ms + 1), queues, "ending")
        )
        begins = {queue: max(starts[queue], limits.min_offset, by_time.get(queue, 0)) for queue in queues}
        limited = {
            queue: min(ends[queue], limits.max_offset + 1, until_time.get(queue, MAX_OFFSET)) for queue in queues
        }
        return begins, limited

    def read(self, partition: Any) -> Iterator[Any]:
        return read_part(partition, self.options, self.names, self.arrow_schema)


class PushingBatchReader(BatchReader):
    """Takes conditions of the query. Only by option: Spark 4.3 keeps what the last query with conditions planned in the
    frame (PythonDataSourceV2.setReadInfo), and gives it to the other queries of that frame."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        given = wanted_tags(self.options)
        self.limits, remaining = pushed(
            filters,
            replace(self.limits, tags=given),
            takes_tags=self.options.filter_type == TAG,
            has_exact_offsets=True,
        )
        if self.limits.tags != given:
            self.options = replace(self.options, filter=" || ".join(sorted(self.limits.tags or ())))
        return remaining


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc, unused-ignore]
    def __init__(self, options: SourceOptions, schema: Any) -> None:
        self.options = options
        self.names = columns_of(schema, options.row_format)
        self.arrow_schema = to_arrow_schema(schema, timezone="UTC")
        self._plan: Plan | None = None
        self._is_filter_checked = False
        self._target: Positions | None = None
        self._latest: Positions = {}
        self._triggered_at = -inf  # the first batch waits for nothing

    # -- on the driver -----------------------------------------------------------------------------------------------

    @property
    def plan(self) -> Plan:
        """Created on the driver on first use: it holds connections, which cannot be pickled."""
        if self._plan is None:
            self._plan = Plan(self.options, Cluster(self.options.connection))
        return self._plan

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_plan": None}

    def initialOffset(self) -> dict[str, Any]:
        queues = self.plan.queues()
        starts = self.plan.bound(self.options.starting, queues, "starting")
        return positions.to_tree(starts)

    def getDefaultReadLimit(self) -> ReadLimit:
        if self.options.max_rows_per_trigger is not None:
            return ReadMaxRows(self.options.max_rows_per_trigger)
        if self.options.min_rows_per_trigger is not None:
            return ReadMinRows(self.options.min_rows_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ends()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begins = positions.from_tree(start, "checkpoint")
        ends = dict(self._target) if self._target is not None else self._ends()
        self._latest = dict(ends)
        missing: Positions = {}
        for queue, offset in begins.items():
            if queue in ends:
                ends[queue] = self.plan.checked_end(queue, offset, ends[queue])
            else:
                missing[queue] = offset
        ends |= self.plan.ends_of_missing(missing)
        if self._target is None and not isinstance(limit, ReadAllAvailable) and self._waits_for_more(begins, ends):
            return start
        if isinstance(limit, ReadMaxRows):
            ends = positions.limited(begins, ends, limit.max_rows)
        self._triggered_at = time.monotonic()
        return positions.to_tree(ends)

    def _ends(self) -> Positions:
        self.plan.cluster.forget_routes()
        queues = self.plan.queues(skip_missing=True)
        if not self._is_filter_checked:
            self.plan.check_filter(queues)
            self._is_filter_checked = True
        return latest(self.plan, queues)

    def _waits_for_more(self, begins: Positions, ends: Positions) -> bool:
        minimum = self.options.min_rows_per_trigger
        if minimum is None:
            return False
        available = sum(max(0, end - begins.get(queue, 0)) for queue, end in ends.items())
        waited_ms = (time.monotonic() - self._triggered_at) * 1000
        return available < minimum and waited_ms < self.options.max_trigger_delay_ms

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return positions.to_tree(self._latest) if self._latest else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[QueuePart]:
        return self.plan.parts(positions.from_tree(start, "checkpoint"), positions.from_tree(end, "checkpoint"))

    def commit(self, end: dict[str, Any]) -> None:
        """With commitOffsets, store the position as the group's offsets at the brokers, so that its lag can be
        watched."""
        if self.options.commit_offsets:
            self.plan.cluster.store_group_offsets(self.options.group, positions.from_tree(end, "checkpoint"))

    def stop(self) -> None:
        if self._plan is not None:
            self._plan.cluster.close()
            self._plan = None

    # -- in the executors --------------------------------------------------------------------------------------------

    def read(self, partition: Any) -> Iterator[Any]:
        return read_part(partition, self.options, self.names, self.arrow_schema)
