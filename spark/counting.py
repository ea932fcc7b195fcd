"""The number of messages that a batch read would return, asked of the brokers instead of Spark.

Spark does not ask a Python source for counts: `frame.count()` reads every message. This asks for the ends of queues.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.types import LongType, StructField, StructType

from triomq.protocol.subscription import SUB_ALL
from triomq.spark.options import source_options
from triomq.spark.source import BatchReader

_CHEAP = StructType([StructField("queueOffset", LongType())])


def count(**options: Any) -> int:
    """Return the number of messages that a batch read with these options of the source `rocketmq` returns.

    Without `filter` this costs a few requests per queue, and as many as bisection needs for each bound in time, however
    many messages there are. A message whose file was deleted counts until its broker notes that: RocketMQ's brokers do
    with every run of their cleaner, every 10 seconds. With `filter` the brokers must send the messages that match, with
    their bodies, to this process, one queue after another: the protocol has no request for less. For many matching
    messages `frame.count()` is faster, since its tasks run at the same time.

    Raises OptionError, DataLost and BrokerError, as the read does.
    """
    checked = source_options({**options, "rowFormat": "rocketmq"}, streaming=False)
    reader = BatchReader(checked, _CHEAP)
    parts = reader.partitions()
    if checked.filter == SUB_ALL:
        return sum(part.end - part.begin for part in parts)
    return sum(batch.num_rows for part in parts for batch in reader.read(part))
