"""A Spark driver of its own that copies one topic to another until it is killed:

stream_driver.py NAMESRV SOURCE TARGET CHECKPOINT MESSAGES_PER_BATCH [once]
"""

from __future__ import annotations

import os
import sys


def main(name_server: str, source: str, target: str, checkpoint: str, batch_rows: str, *mode: str) -> None:
    from pyspark.sql import SparkSession

    import mqspark

    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")  # it does not live long
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    mqspark.register(spark)
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
    writer = writer.trigger(availableNow=True) if mode else writer.trigger(processingTime="0 seconds")
    print("streaming", flush=True)
    writer.start().awaitTermination()
    print("over", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
