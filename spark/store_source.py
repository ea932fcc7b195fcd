"""The data source `rocketmq-store`: messages straight from a store directory, without a broker.

    spark.read.format("rocketmq-store").load("/data/store")

`split=segment` (default) reads every message of the log in physical order, one task per segment, including messages
that are in no queue (half messages, deleted topics). `split=queue` reads what consumers would get, one task per range
of a queue. Driver and executors must see the files under the same path.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.record import QUEUE_ID_AT
from triomq.spark import positions
from triomq.spark.errors import DataLost, OptionError
from triomq.spark.options import STORE_OPTIONS, OptionTable, StoreOptions, columns_to_read, store_options
from triomq.spark.pushdown import MAX_OFFSET, Limits, pushed
from triomq.spark.source import columns_of, ddl
from triomq.spark.store_files import (
    FILLER_SIZE,
    MappedSegment,
    QueueFiles,
    Segment,
    configuration_of,
    map_at,
    next_record,
    no_log,
    queue_directories,
    recovered_end,
    segments,
    store_timestamp,
    used_segments,
)

if TYPE_CHECKING:
    from triomq.spark.record_columns import RecordColumns

_PLACE = struct.Struct(">i4xqq")  # queue id, queue offset, physical offset


class SegmentPart(InputPartition):  # type: ignore[misc, unused-ignore]
    """One segment up to a physical offset. `is_last`: bytes that are not a record end it without an error."""

    def __init__(self, segment: Segment, begin: int, end: int, is_last: bool) -> None:
        self.segment = segment
        self.begin = begin
        self.end = end
        self.is_last = is_last


class QueueFilesPart(InputPartition):  # type: ignore[misc, unused-ignore]
    """Offsets [begin, end) of one consume queue."""

    def __init__(self, topic: str, queue_id: int, directory: str, begin: int, end: int, log_end: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.directory = directory
        self.begin = begin
        self.end = end
        self.log_end = log_end


class StoreSource(DataSource):  # type: ignore[misc, unused-ignore]
    """Registered as `rocketmq-store`."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq-store"

    def schema(self) -> str:
        store_options(self.options)  # what is wrong is said by load(), and not by the first action
        return ddl(columns_to_read(OptionTable(self.options, STORE_OPTIONS), of_store=True))

    def reader(self, schema: Any) -> StoreReader:
        options = store_options(self.options)
        return (PushingStoreReader if options.push_down_filters else StoreReader)(options, schema)


class StoreReader(DataSourceReader):  # type: ignore[misc, unused-ignore]
    def __init__(self, options: StoreOptions, schema: Any) -> None:
        self.options = options
        self.names = columns_of(schema, options.row_format)
        self.arrow_schema = to_arrow_schema(schema, timezone="UTC")
        self.limits = Limits(
            min_ms=options.begin_ms or 0,
            max_ms=MAX_OFFSET if options.end_ms is None else options.end_ms - 1,
            min_physical=options.begin_physical or 0,
            max_physical=MAX_OFFSET if options.end_physical is None else options.end_physical - 1,
        )
        self.broker_name = options.broker_name or configuration_of(options.root).get("brokerName")

    def partitions(self) -> list[InputPartition]:
        found = used_segments(segments(self.options.commit_log_paths))
        if not found:
            raise OptionError(no_log(self.options.root, self.options.commit_log_paths))
        log_end = recovered_end(self.options.root, found) if self.options.log_end == "recovered" else found[-1].end
        return self._segment_parts(found, log_end) if self.options.split == "segment" else self._queue_parts(log_end)

    def _segment_parts(self, found: list[Segment], log_end: int) -> list[InputPartition]:
        limits = self.limits
        parts: list[InputPartition] = []
        for segment in found:
            end = min(segment.end, log_end, limits.max_physical + 1)
            if segment.start < end and segment.end > limits.min_physical:
                is_last = segment is found[-1] or end < segment.end
                parts.append(SegmentPart(segment, max(limits.min_physical, segment.start), end, is_last))
        return parts

    def _queue_parts(self, log_end: int) -> list[InputPartition]:
        ranges = []
        directories = {}
        for topic, queue_id, directory in queue_directories(self.options.root):
            if self._takes(topic, queue_id):
                with QueueFiles(directory) as files:
                    begin = max(files.first, self.limits.min_offset)
                    end = min(files.end(), self.limits.max_offset + 1)
                queue = MessageQueue(topic, self.broker_name or "", queue_id)
                directories[queue] = directory
                ranges.append((queue, begin, end))
        return [
            QueueFilesPart(queue.topic, queue.queue_id, directories[queue], begin, end, log_end)
            for queue, begin, end in positions.split(
                ranges, self.options.min_partitions, self.options.max_records_per_partition
            )
        ]

    def _takes(self, topic: str, queue_id: int) -> bool:
        return self._wants_topic(topic) and self.limits.allows(topic, self.broker_name, queue_id)

    def _wants_topic(self, topic: str) -> bool:
        options = self.options
        if options.topic_pattern is not None:
            return re.fullmatch(options.topic_pattern, topic) is not None
        return not options.topics or topic in options.topics

    # -- in the executors --------------------------------------------------------------------------------------------

    def read(self, partition: Any) -> Iterator[Any]:
        from triomq.spark.record_columns import RecordColumns  # see triomq.spark.reading.read_part

        columns = RecordColumns(self.arrow_schema, self.names, self.broker_name)
        if isinstance(partition, SegmentPart):
            yield from self._read_segment(partition, columns)
        elif isinstance(partition, QueueFilesPart):
            yield from self._read_queue(partition, columns)

    def _read_segment(self, part: SegmentPart, columns: RecordColumns) -> Iterator[Any]:
        from triomq.spark.record_columns import why_not

        segment = part.segment
        size = segment.size_bytes
        end = min(part.end - segment.start, size)
        with MappedSegment(segment) as data:
            keeps = self._selection(columns, data)
            at = 0
            while at < end:
                stop = columns.add_run(data, at, end, size, keeps=keeps, check_crc=part.is_last)
                if columns.is_full:
                    yield columns.take()
                if stop == at:
                    skipped = next_record(data, at, size)
                    if skipped == 0 or part.is_last:
                        break
                    if skipped < 0:
                        self._damaged(segment, at, "bytes that are not a record; the rest of the segment is skipped")
                        break
                    self._damaged(segment, at, why_not(data, at, size))
                    stop += skipped
                at = stop
            if len(columns):
                yield columns.take()

    def _selection(self, columns: RecordColumns, data: Any) -> Callable[[], bool] | None:
        """Return a predicate on the last record of `columns`, or None when every record is wanted."""
        limits = self.limits
        if not self.options.topics and self.options.topic_pattern is None and limits == Limits():
            return None
        takes: dict[tuple[str, int], bool] = {}

        def keeps() -> bool:
            at = columns.last_at
            queue_id, queue_offset, physical_offset = _PLACE.unpack_from(data, at + QUEUE_ID_AT)
            key = (columns.last_topic, queue_id)
            taken = takes.get(key)
            if taken is None:
                taken = takes[key] = self._takes(*key)
            return (
                taken
                and limits.min_offset <= queue_offset <= limits.max_offset
                and limits.min_physical <= physical_offset <= limits.max_physical
                and limits.min_ms <= store_timestamp(data, at) <= limits.max_ms
            )

        return keeps

    def _read_queue(self, part: QueueFilesPart, columns: RecordColumns) -> Iterator[Any]:
        from triomq.spark.record_columns import why_not

        limits = self.limits
        log = used_segments(segments(self.options.commit_log_paths))
        mapped: tuple[Segment, Any] | None = None
        with QueueFiles(part.directory) as files:
            for queue_offset, physical, size, _ in files.entries(part.begin, part.end):
                if size == FILLER_SIZE or physical >= part.log_end:
                    continue
                if not limits.min_physical <= physical <= limits.max_physical:
                    continue
                if mapped is None or not mapped[0].start <= physical < mapped[0].end:
                    mapped = map_at(log, physical)
                if mapped is None or next_record(mapped[1], physical - mapped[0].start, mapped[0].size_bytes) != size:
                    if log and physical >= log[0].start:
                        self._dangling(part, queue_offset, physical)
                    continue
                segment, data = mapped
                at = physical - segment.start
                if not limits.min_ms <= store_timestamp(data, at) <= limits.max_ms:
                    continue
                if columns.is_full or not columns.fits(data, at):
                    yield columns.take()
                if columns.add_run(data, at, at + 1, at + size) == at:
                    self._damaged(segment, at, why_not(data, at, at + size))
        if len(columns):
            yield columns.take()

    def _dangling(self, part: QueueFilesPart, queue_offset: int, physical: int) -> None:
        if self.options.fail_on_data_loss:
            raise DataLost(
                f"{part.directory}: the entry at queue offset {queue_offset} points to physical offset {physical}, "
                "where its record is not"
            )

    def _damaged(self, segment: Segment, at: int, what: str) -> None:
        if self.options.fail_on_data_loss:
            raise DataLost(f"{segment.path}, physical offset {segment.start + at}: {what}")


class PushingStoreReader(StoreReader):
    """Takes conditions of the query; see triomq.spark.source.PushingBatchReader."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        self.limits, remaining = pushed(filters, self.limits, has_broker=self.broker_name is not None)
        return remaining
