"""One range of a queue as Arrow record batches. Needs pyarrow, and no Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from triomq.protocol.message_queue import MessageQueue
from triomq.spark.errors import DataLost
from triomq.spark.pulling import QueueRange
from triomq.spark.record_columns import BYTES_PER_BATCH, RecordColumns, why_not


def queue_batches(
    pulled: QueueRange, queue: MessageQueue, columns: RecordColumns, keeps: Callable[[], bool] | None = None
) -> Iterator[Any]:
    """Yield the records of a range in order. `keeps`: see RecordColumns.add_run. Raises DataLost, BrokerError."""
    buffer = bytearray()
    for body, begin, end in pulled.bodies():
        at = len(buffer)
        buffer += body
        size = len(buffer)
        while (stop := columns.add_run(buffer, at, size, size, begin, end, keeps=keeps, check_crc=True)) < size:
            if stop == at:
                why = why_not(buffer, at, size)
                raise DataLost(f"{queue.topic}/{queue.broker_name}/{queue.queue_id}, behind offset {begin}: {why}")
            at = stop
            if columns.is_full:
                yield columns.take()
        if len(buffer) >= BYTES_PER_BATCH or columns.is_full:
            if len(columns):
                yield columns.take()
            buffer = bytearray()
    if len(columns):
        yield columns.take()
