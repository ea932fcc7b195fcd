"""A program for a Spark Connect session: reads a topic, streams it into another one, and archives it.

connect_driver.py NAME_SERVER SOURCE TARGET DIRECTORY
"""

from __future__ import annotations

import sys

from small_spark import JAVA_OPTIONS

import triomq.spark


def main(name_server: str, source: str, target: str, directory: str) -> None:
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    builder = SparkSession.builder.remote("local[1]").config("spark.driver.extraJavaOptions", JAVA_OPTIONS)
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    assert "connect" in type(spark).__module__
    triomq.spark.register(spark)
    server = {"nameServer": name_server}

    table = spark.read.format("rocketmq").options(**server, subscribe=source).load()
    print("rows", table.count(), table.filter(F.col("tags") == "Aa").count())

    stream = spark.readStream.format("rocketmq").options(**server, subscribe=source, startingOffsets="earliest").load()
    writer = stream.select("body", "tags", "keys").writeStream.format("rocketmq").options(**server, topic=target)
    query = writer.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()
    print("copied", triomq.spark.count(**server, subscribe=target))
    lag = triomq.spark.lag(query.lastProgress, **server)
    print("lag", sum(messages for queues in lag[source].values() for messages in queues.values()))

    from triomq.spark.jobs import main as jobs

    words = ["archive", "-n", name_server, "--topics", source, "--to", f"{directory}/archive", "--quiet"]
    print("archive", jobs.run(words))
    words = ["replay", "-n", name_server, "--from", f"{directory}/archive", "--to-topic", target, "--quiet"]
    print("replay", jobs.run([*words, "--rate", "1000000"]))
    print("replayed", triomq.spark.count(**server, subscribe=target))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
