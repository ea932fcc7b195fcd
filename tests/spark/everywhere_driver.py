"""A driver for everywhere.py, for any master: it reads a topic, writes its rows to another, and counts both.

everywhere_driver.py NAMESRV FROM TO
"""

from __future__ import annotations

import sys
from typing import Any


def versions(_: Any) -> list[str]:
    """Return where a task runs: its Python, and where triomq is from."""
    import triomq

    return [f"{sys.version_info.major}.{sys.version_info.minor} {triomq.__file__}"]


def main() -> None:
    from pyspark.sql import SparkSession

    import triomq.spark

    name_server, source, target = sys.argv[1:]
    spark = SparkSession.builder.appName("everywhere").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    triomq.spark.register(spark)
    rows = spark.read.format("rocketmq").options(nameServer=name_server, subscribe=source).load()
    rows.select("body", "keys").write.format("rocketmq").options(nameServer=name_server, topic=target).mode(
        "append"
    ).save()
    copied = spark.read.format("rocketmq").options(nameServer=name_server, subscribe=target).load()
    places = sorted(set(spark.sparkContext.parallelize(range(4), 4).mapPartitions(versions).collect()))
    print("RESULT", rows.count(), copied.count(), *places, flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
