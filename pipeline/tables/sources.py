"""Where the messages of a table come from: the brokers of a cluster, or the files of one broker's store."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from triomq.pipeline.tables.rows import MESSAGE_SCHEMA
from triomq.pipeline.tables.target import About
from triomq.protocol.message_queue import MessageQueue
from triomq.spark.cluster import Cluster
from triomq.spark.data_loss import text_of
from triomq.spark.errors import DataLost, OptionError
from triomq.spark.jobs.session import JobFailed
from triomq.spark.options import StoreOptions
from triomq.spark.positions import Positions, Range
from triomq.spark.pulling import Pull, QueueRange
from triomq.spark.queue_batches import queue_batches
from triomq.spark.record_columns import RecordColumns, why_not
from triomq.spark.store_files import (
    FILLER_SIZE,
    QueueFiles,
    configuration_of,
    map_at,
    next_record,
    no_log,
    queue_directories,
    recovered_end,
    segments,
    used_segments,
)

GROUP: Final = "TABLE_SOURCE"
CLUSTER_NAME: Final = "DefaultCluster"
"""What a broker without brokerClusterName belongs to."""


class Source(Protocol):
    """The messages of one topic."""

    @property
    def fails(self) -> bool:
        """failOnDataLoss."""

    def about(self) -> About:
        """What a table of this source is of."""

    def queues(self) -> list[MessageQueue]:
        """The queues that can be read, sorted; raises JobFailed without the topic."""

    def begins(self, queues: Sequence[MessageQueue]) -> Positions:
        """The offset of the oldest message of each queue."""

    def ends(self, queues: Sequence[MessageQueue]) -> Positions:
        """The offset behind the newest message of each queue."""

    def batches(self, queue: MessageQueue, begin: int, end: int) -> Generator[Any, None, None]:
        """Yield record batches with the messages of a range, in order; may be closed early. They have the columns of
        MESSAGE_SCHEMA, or those of the `schema` that the source was given."""


@dataclass(frozen=True, slots=True)
class BrokerSource:
    """A topic at its cluster."""

    cluster: Cluster
    topic: str
    fails: bool = True
    schema: Any = MESSAGE_SCHEMA

    def about(self) -> About:
        route = self.cluster.route(self.topic)
        return About(self.topic, min((broker.cluster or "" for broker in route.data.broker_datas), default=""))

    def queues(self) -> list[MessageQueue]:
        self.cluster.forget_routes()
        route = self.cluster.settled_route(self.topic)
        if route is None:
            raise JobFailed(f"--topic: topic {self.topic!r} does not exist")
        return sorted(route.subscribe)

    def begins(self, queues: Sequence[MessageQueue]) -> Positions:
        return self.cluster.min_offsets(list(queues))

    def ends(self, queues: Sequence[MessageQueue]) -> Positions:
        return self.cluster.max_offsets(list(queues))

    def batches(self, queue: MessageQueue, begin: int, end: int) -> Generator[Any, None, None]:
        pulled = QueueRange(self.cluster, queue, begin, end, Pull(GROUP, fail_on_data_loss=self.fails))
        try:
            yield from queue_batches(pulled, queue, RecordColumns(self.schema, self.schema.names, queue.broker_name))
        finally:
            pulled.close()


class StoreSource:
    """A topic in a store directory, which may be in use by a broker."""

    def __init__(self, options: StoreOptions, topic: str, schema: Any = MESSAGE_SCHEMA) -> None:
        configured = configuration_of(options.root)
        broker = options.broker_name or configured.get("brokerName")
        if not broker:
            raise JobFailed("--store: no broker.conf tells the name of the broker; add --option brokerName=NAME")
        self._options = options
        self._topic = topic
        self._schema = schema
        self._broker: str = broker
        self._cluster: str = configured.get("brokerClusterName", CLUSTER_NAME)

    @property
    def fails(self) -> bool:
        return self._options.fail_on_data_loss

    def about(self) -> About:
        return About(self._topic, self._cluster)

    def queues(self) -> list[MessageQueue]:
        if not self._log():
            raise OptionError(no_log(self._options.root, self._options.commit_log_paths))
        found = sorted(self._directories())
        if not found:
            raise JobFailed(f"--topic: topic {self._topic!r} does not exist in {self._options.root}")
        return found

    def begins(self, queues: Sequence[MessageQueue]) -> Positions:
        log = self._log()
        return self._offsets(queues, log[0].start if log else 0)

    def ends(self, queues: Sequence[MessageQueue]) -> Positions:
        log = self._log()
        is_recovered = self._options.log_end == "recovered"
        return self._offsets(queues, recovered_end(self._options.root, log) if is_recovered else log[-1].end)

    def batches(self, queue: MessageQueue, begin: int, end: int) -> Generator[Any, None, None]:
        columns = RecordColumns(self._schema, self._schema.names, queue.broker_name)
        log = self._log()
        with QueueFiles(self._directories()[queue]) as files:
            mapped = None
            for offset, physical, size, _ in files.entries(begin, end):
                if size == FILLER_SIZE:
                    continue
                if mapped is None or not mapped[0].start <= physical < mapped[0].end:
                    mapped = map_at(log, physical)
                segment, data = mapped if mapped is not None else (None, b"")
                at = 0 if segment is None else physical - segment.start
                if segment is None or next_record(data, at, segment.size_bytes) != size:
                    self._lost(f"{text_of(queue)}: offset {offset} points to {physical}, where its record is not")
                    continue
                if len(columns) and (columns.is_full or not columns.fits(data, at)):
                    yield columns.take()
                if columns.add_run(data, at, at + 1, at + size, check_crc=True) == at:
                    self._lost(f"{text_of(queue)}, offset {offset}: {why_not(data, at, at + size)}")
            if len(columns):
                yield columns.take()

    def _lost(self, what: str) -> None:
        if self.fails:
            raise DataLost(what)

    def _log(self) -> list[Any]:
        return used_segments(segments(self._options.commit_log_paths))

    def _directories(self) -> dict[MessageQueue, str]:
        return {
            MessageQueue(topic, self._broker, queue_id): directory
            for topic, queue_id, directory in queue_directories(self._options.root)
            if topic == self._topic
        }

    def _offsets(self, queues: Sequence[MessageQueue], physical: int) -> Positions:
        """Return the offset of the first entry of each queue that points there or behind it."""
        found = {}
        directories = self._directories()
        for queue in queues:
            with QueueFiles(directories[queue]) as files:
                first, end = files.first, files.end()
                entries = range(first, end)
                found[queue] = first + bisect_left(entries, physical, key=partial(_physical, files))
        return found


def _physical(files: QueueFiles, offset: int) -> int:
    """Return where an entry points to; entries that fill up the front of a queue are before everything."""
    _, physical, size, _ = next(files.entries(offset, offset + 1))
    return -1 if size == FILLER_SIZE else physical


def everything(source: Source) -> list[Range]:
    """Return the ranges that a new table would read."""
    queues = source.queues()
    begins, ends = source.begins(queues), source.ends(queues)
    return [(queue, begins[queue], ends[queue]) for queue in queues]
