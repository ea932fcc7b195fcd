"""Replay an archive: Parquet files back into topics.

The order within each queue is kept: all messages of an archived queue go to one queue, in the order of their offsets.
They go to the queue of the same id when the target topic has it (--queues same), or each archived queue to one that its
name selects (--queues hash, the default when ids do not fit). Tags, keys and user properties are restored, message ids
(UNIQ_KEY) as well; offsets and times are new.

The run has a name (--run, by default the folder's and the target's); run again under the same name after a failure it
sends only what is missing.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from mqspark.cluster import Cluster
from mqspark.jobs.folders import Folder
from mqspark.jobs.progress import watching
from mqspark.jobs.session import JobFailed, add_connection_options, connection_options, open_session
from mqspark.options import OptionTable
from mqspark.options import connection_options as checked_connection
from mqspark.sending import NEW_TOPIC_QUEUES
from protocol.system_topics import AUTO_CREATE_TOPIC

SUMMARY = "send an archive's messages back into topics"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_connection_options(parser)
    parser.add_argument("--from", dest="source", required=True, metavar="DIR", help="folder that `archive` made")
    parser.add_argument("--topics", help="only these archived topics, separated by commas")
    parser.add_argument("--to-topic", help="send everything to this topic instead of the archived ones")
    parser.add_argument("--from-date", metavar="YYYY-MM-DD", help="first day (store time, UTC)")
    parser.add_argument("--to-date", metavar="YYYY-MM-DD", help="last day")
    parser.add_argument(
        "--queues", choices=("auto", "same", "hash"), default="auto", help="which queue each one goes to"
    )
    parser.add_argument(
        "--rate", type=int, default=0, metavar="N", help="at most N messages a second in all (0: no limit)"
    )
    parser.add_argument("--run", dest="run_name", help="name of this replay; the same name never sends a message twice")


def run(arguments: argparse.Namespace) -> int:
    spark = open_session("replay", arguments)
    if not Folder(spark, arguments.source).names("_manifest"):
        raise JobFailed(f"--from: {arguments.source} holds no archive (no _manifest)")
    from pyspark.sql import functions as F

    # a topic called 2024 is still a text
    spark.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    table = spark.read.option("basePath", arguments.source).parquet(f"{arguments.source}/topic=*")
    if arguments.topics:
        table = table.where(F.col("topic").isin([name.strip() for name in arguments.topics.split(",")]))
    if arguments.from_date:
        table = table.where(F.col("date") >= arguments.from_date)
    if arguments.to_date:
        table = table.where(F.col("date") <= arguments.to_date)
    options = connection_options(arguments)
    origin = F.concat_ws("/", "topic", F.coalesce("brokerName", F.lit("")), "queueId")
    targets = (
        [arguments.to_topic]
        if arguments.to_topic
        else [row["topic"] for row in table.select("topic").distinct().collect()]
    )
    keeps_ids = arguments.queues == "same" or (arguments.queues == "auto" and _ids_fit(options, targets, table))
    queues = table.select(origin.alias("origin")).distinct().count()
    parts = max(min(queues, spark.sparkContext.defaultParallelism), 1)
    ordered = (
        table.withColumn("origin", origin).repartition(parts, "origin").sortWithinPartitions("origin", "queueOffset")
    )
    columns = ["body", "tags", "keys", "properties"]
    chosen = ordered.select(
        *columns,
        (F.lit(arguments.to_topic) if arguments.to_topic else F.col("topic")).alias("topic"),
        F.col("queueId") if keeps_ids else F.col("origin").alias("shardingKey"),
    )
    name = arguments.run_name or f"replay {arguments.source} {arguments.to_topic or ''}"
    writer = chosen.write.format("rocketmq").options(**options).option("writeId", name)
    if arguments.rate:
        writer = writer.option("maxRatePerTask", max(arguments.rate // parts, 1))
    with watching(spark, "replay", arguments.quiet):
        writer.mode("append").save()
    sys.stdout.write(f"{table.count():,} messages of {arguments.source} are in {', '.join(sorted(targets))}\n")
    return 0


def _ids_fit(options: dict[str, str], topics: list[str], table: Any) -> bool:
    """Whether every target topic has the archived queue ids, at one broker."""
    highest = table.agg({"queueId": "max"}).first()[0]
    if highest is None:
        return False
    with Cluster(checked_connection(OptionTable(options, ()))) as cluster:
        for topic in topics:
            route = cluster.find_route(topic)
            if route is None:
                # the sink will create it; the answer must be the same when this replay is run again
                template = cluster.find_route(AUTO_CREATE_TOPIC)
                queues = [queue for queue in template.writable if queue.queue_id < NEW_TOPIC_QUEUES] if template else []
            else:
                queues = route.writable
            if len({queue.broker_name for queue in queues}) != 1 or highest >= len(queues):
                return False
    return True
