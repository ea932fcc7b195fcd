"""The sink of the format `rocketmq`: it turns the rows of a batch, or of a stream's micro-batches, into messages.

With idempotence=batch (the default) a streaming query stores each row exactly once, across task retries, failed
batches, and restarts from its checkpoint after any crash of driver, executor or broker, provided that

* running a batch again computes the same rows in each partition, in any order: replayable sources, no random functions,
  a fixed spark.sql.shuffle.partitions;
* no second attempt of a task writes at the same time (leave speculation off), and no lost request is stored later than
  the attempt that follows it;
* brokers keep what they have confirmed, and retention has not deleted the messages of the last batch.

A batch write (df.write) is safe against task retries in the same way, and with the option writeId also against running
the whole job again. With idempotence=none every row is stored at least once.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from triomq.protocol.message_id import UniqKeyMaker
from triomq.protocol.message_queue import MessageQueue
from triomq.spark import markers
from triomq.spark.cluster import Cluster
from triomq.spark.errors import OptionError
from triomq.spark.options import SinkOptions, sink_options
from triomq.spark.outgoing import RowReader, sink_columns
from triomq.spark.positions import Positions
from triomq.spark.sending import Sender
from triomq.spark.time_search import offsets_at_time

BATCH_ID = "streaming.sql.batchId"
QUERY_ID = "sql.streaming.queryId"
CLOCK_SLACK_MS = 60_000
"""How far the clocks of driver and brokers may differ. Matters only for task retries of a batch write without
writeId."""

FindBegins = Callable[[Cluster, Sequence[MessageQueue]], Positions | None]


class Written(WriterCommitMessage):  # type: ignore[misc, unused-ignore]
    """What one task reports: its target queues and its counts of rows."""

    def __init__(self, key: str, queues: list[MessageQueue], sent: int, skipped: int) -> None:
        self.key = key
        self.queues = queues
        self.sent = sent
        self.skipped = skipped


def batch_writer(given: Mapping[str, str], schema: Any, overwrite: bool) -> BatchWriter:
    if overwrite:
        raise OptionError("sink: a topic cannot be overwritten; use mode('append')")
    options = sink_options(given)
    return BatchWriter(options, sink_columns(schema, options.topic))


def stream_writer(given: Mapping[str, str], schema: Any) -> StreamWriter:
    options = sink_options(given)
    return StreamWriter(options, sink_columns(schema, options.topic))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class _TaskWrite:
    """The write of one task. `key` is empty when the write is not idempotent."""

    def __init__(self, options: SinkOptions, columns: Mapping[str, int], key: str, batch_id: int) -> None:
        self.options = options
        self.columns = columns
        self.key = key
        self.batch_id = batch_id
        context = TaskContext.get()
        self.partition_id = context.partitionId() if context is not None else 0
        self.attempt = context.attemptNumber() if context is not None else 0

    def run(self, batches: Iterator[Any], find_begins: FindBegins) -> Written:
        maker = UniqKeyMaker(secrets.token_bytes(4), os.getpid(), self.partition_id)
        prefix = markers.prefix(self.key, self.batch_id, self.partition_id) if self.key else None
        rows = RowReader(self.columns, self.options.topic, prefix, lambda: maker.make(_now_ms()))
        with Cluster(self.options.connection) as cluster:
            stored = None
            if prefix is not None:
                stored = markers.StoredRows(
                    cluster, prefix, self.options.group, lambda queues: find_begins(cluster, queues)
                )
            sender = Sender(
                cluster,
                self.options.group,
                batch_bytes=self.options.batch_bytes,
                retries=self.options.retries,
                now_ms=_now_ms,
                stored=stored,
                max_rate=self.options.max_rate_per_task,
                first_queue=self.partition_id + self.batch_id,
            )
            for batch in batches:
                for message in rows.messages(batch):
                    sender.add(message)
            sender.flush()
            return Written(self.key, sender.used_queues(), sender.sent, sender.skipped)


class BatchWriter(DataSourceArrowWriter):  # type: ignore[misc, unused-ignore]
    def __init__(self, options: SinkOptions, columns: Mapping[str, int]) -> None:
        self.options = options
        self.columns = columns
        self.started_ms = _now_ms()
        self.key = markers.write_key(options.write_id or secrets.token_hex(16)) if options.is_idempotent else ""

    def write(self, iterator: Iterator[Any]) -> Written:
        task = _TaskWrite(self.options, self.columns, self.key, 0)

        def find_begins(cluster: Cluster, queues: Sequence[MessageQueue]) -> Positions | None:
            if self.options.write_id is not None:
                return markers.Beginnings(cluster, self.key, 0).find(queues, task.partition_id)
            if task.attempt == 0:
                return None
            since = self.started_ms - CLOCK_SLACK_MS
            return offsets_at_time(cluster, dict.fromkeys(queues, since), self.options.group, queues)

        return task.run(iterator, find_begins)


class StreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc, unused-ignore]
    def __init__(self, options: SinkOptions, columns: Mapping[str, int]) -> None:
        self.options = options
        self.columns = columns

    def write(self, iterator: Iterator[Any]) -> Written:
        context = TaskContext.get()
        query_id = context.getLocalProperty(QUERY_ID) if context is not None else None
        batch_id = context.getLocalProperty(BATCH_ID) if context is not None else None
        if self.options.is_idempotent and (query_id is None or batch_id is None):
            raise OptionError("option idempotence: Spark passes no batch number to tasks; set idempotence=none")
        key = markers.write_key(self.options.write_id or str(query_id)) if self.options.is_idempotent else ""
        task = _TaskWrite(self.options, self.columns, key, int(batch_id or 0))

        def find_begins(cluster: Cluster, queues: Sequence[MessageQueue]) -> Positions:
            return markers.Beginnings(cluster, key, task.batch_id).find(queues, task.partition_id)

        return task.run(iterator, find_begins)

    def commit(self, messages: list[Any], batchId: int) -> None:
        """Note where the next batch begins, so that it need not read what this one stored."""
        done = [message for message in messages if isinstance(message, Written) and message.key]
        queues = sorted({queue for message in done for queue in message.queues})
        if queues:
            with Cluster(self.options.connection) as cluster:
                markers.Beginnings(cluster, done[0].key, batchId).commit(queues)
