"""A driver program on local-cluster[2,1,1024] for test_spark_session_cluster.py: it prints its results as JSON.

    cluster_driver.py STORE NAMESRV TOPIC

Exit code 3, with why on the last line of standard output: Spark starts no such cluster here.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

NOT_STARTED = 3
START_SECONDS = 240


def open_cluster() -> Any:
    """Open a session with two executors, or end this process."""
    from small_spark import JAVA_OPTIONS, small_session

    def give_up() -> None:
        sys.stdout.write(f"not started within {START_SECONDS} s\n")
        sys.stdout.flush()
        os._exit(NOT_STARTED)

    timer = threading.Timer(START_SECONDS, give_up)
    timer.daemon = True
    timer.start()
    try:
        session = small_session(
            "local-cluster[2,1,1024]",
            spark_scheduler_minRegisteredResourcesRatio="1.0",
            spark_scheduler_maxRegisteredResourcesWaitingTime=f"{START_SECONDS}s",
            spark_executor_memory="512m",
            spark_executor_extraJavaOptions=JAVA_OPTIONS,
            spark_executorEnv_PYTHONPATH=os.environ["PYTHONPATH"],
        )
        session.sparkContext.parallelize([1], 1).count()
    except Exception as error:
        sys.stdout.write(f"{type(error).__name__}: {str(error).splitlines()[:1]}\n")
        sys.stdout.flush()
        os._exit(NOT_STARTED)
    timer.cancel()
    return session


def executors(spark: Any) -> dict[str, Any]:
    """Return the number of executors, the Java processes whose Python workers ran tasks, and the driver's own."""

    def java_pid(_: Any) -> list[int]:
        with open(f"/proc/{os.getppid()}/stat") as daemon:  # Java -> pyspark.daemon -> worker
            return [int(daemon.read().rpartition(")")[2].split()[1])]

    infos = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
    pids = spark.sparkContext.parallelize(range(8), 8).mapPartitions(java_pid).collect()
    driver = spark._jvm.java.lang.ProcessHandle.current().pid()
    return {"executors": len(infos) - 1, "executor_pids": sorted(set(pids)), "driver_pid": driver}


def from_store(spark: Any, root: str) -> dict[str, Any]:
    table = spark.read.format("rocketmq-store").option("minPartitions", "4").load(root)
    return {"physical_offsets": sorted(row[0] for row in table.select("physicalOffset").collect())}


def to_broker_and_back(spark: Any, namesrv: str, topic: str) -> dict[str, Any]:
    rows = spark.range(0, 500, numPartitions=4).selectExpr(
        "cast(id as string) as body", "concat('k', id) as keys", "cast(id % 4 as int) as queueId"
    )
    options = {"nameServer": namesrv, "topic": topic}
    for _ in range(2):
        rows.write.format("rocketmq").options(**options).option("writeId", "once").mode("append").save()
    reading = {"nameServer": namesrv, "subscribe": topic, "minPartitions": "4"}
    batch = spark.read.format("rocketmq").options(**reading).load().select("keys").collect()
    stream = spark.readStream.format("rocketmq").options(**reading).option("startingOffsets", "earliest").load()
    query = (
        stream.select("keys")
        .writeStream.format("parquet")
        .option("checkpointLocation", "checkpoint")
        .trigger(availableNow=True)
        .start(f"{os.getcwd()}/stream")
    )
    query.awaitTermination()
    streamed = spark.read.parquet(f"{os.getcwd()}/stream").collect()
    return {"batch": sorted(row[0] for row in batch), "stream": sorted(row[0] for row in streamed)}


def main() -> None:
    spark = open_cluster()

    import triomq.spark

    triomq.spark.register(spark)
    found = {**from_store(spark, sys.argv[1]), **to_broker_and_back(spark, *sys.argv[2:4])}
    sys.stdout.write(json.dumps({**executors(spark), **found}) + "\n")
    spark.stop()


if __name__ == "__main__":
    main()
