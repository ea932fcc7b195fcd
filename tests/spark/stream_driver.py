"""A Spark driver that copies one topic to another until it is killed:

stream_driver.py NAMESRV SOURCE TARGET CHECKPOINT MESSAGES_PER_BATCH
"""

from __future__ import annotations

import os
import sys
from typing import Any


def copy(
    spark: Any, name_server: str, source: str, target: str, checkpoint: str, batch_rows: int, **trigger: Any
) -> None:
    """Copy one topic to another, starting at the checkpoint, until the trigger ends."""
    options = {"nameServer": name_server, "retryTimeoutMs": "120000"}
    table = (
        spark.readStream.format("rocketmq")
        .options(**options, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=batch_rows)
        .load()
    )
    writer = (
        table.select("body", "keys")
        .writeStream.format("rocketmq")
        .options(**options, topic=target, batchBytes="4096", checkpointLocation=checkpoint)
    )
    writer.trigger(**trigger).start().awaitTermination()


def main(name_server: str, source: str, target: str, checkpoint: str, batch_rows: str) -> None:
    from small_spark import small_session

    import triomq.spark

    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = small_session("local[2]")
    triomq.spark.register(spark)
    copy(spark, name_server, source, target, checkpoint, int(batch_rows), processingTime="0 seconds")


if __name__ == "__main__":
    main(*sys.argv[1:])
