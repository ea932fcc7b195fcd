"""Replay an archive: Parquet files back into topics.

The job keeps the order within each queue: all messages of an archived queue go to one queue, in the order of their
offsets. That is the queue with the same broker and id, if the target topic has all of them; else the queue with the
same id, if one broker has the whole target topic (--queues same demands one of these two); else a queue selected by the
name of the archived queue (--queues hash). Tags, keys, user properties and message ids (UNIQ_KEY) are restored; offsets
and times are new.

A run has a name (--run, by default made of folder and target). Run again under the same name after a failure, the job
sends only what is missing, even if the archive has grown. A topic that several brokers would have to create must exist
before.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from typing import Final

from triomq.protocol.message_queue import MessageQueue
from triomq.spark.cluster import Cluster
from triomq.spark.jobs.folders import open_folder
from triomq.spark.jobs.progress import watching
from triomq.spark.jobs.session import (
    JobFailed,
    add_connection_options,
    check_folder,
    connection_options,
    open_session,
    parallelism,
)
from triomq.spark.options import OptionTable
from triomq.spark.options import connection_options as checked_connection

SUMMARY = "send an archive's messages back into topics"
PARTS: Final = 32
"""Tasks, whatever the number of cores and queues: what an earlier run sent is found by the task of the same number."""
SAME_QUEUE: Final = ("brokerName", "queueId")
SAME_ID: Final = ("queueId",)
BY_NAME: Final = ("shardingKey",)


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
    check_folder(arguments, arguments.source, "--from", reads="_manifest")
    with Cluster(checked_connection(OptionTable(connection_options(arguments), ()))) as cluster:
        cluster.topics_matching("")  # is somebody there?
    spark = open_session("replay", arguments)
    if not open_folder(spark, arguments.source).names("_manifest"):
        raise JobFailed(f"--from: {arguments.source} holds no archive (no _manifest)")
    from pyspark.sql import functions as F

    # a topic named 2024 is still a string
    spark.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    table = spark.read.option("basePath", arguments.source).parquet(f"{arguments.source}/topic=*")
    if arguments.topics:
        table = table.where(F.col("topic").isin([name.strip() for name in arguments.topics.split(",")]))
    if arguments.from_date:
        table = table.where(F.col("date") >= arguments.from_date)
    if arguments.to_date:
        table = table.where(F.col("date") <= arguments.to_date)
    options = connection_options(arguments)
    # topic, broker and queue; the broker of a store directory may be unknown
    table = table.withColumn("shardingKey", F.concat_ws("/", "topic", F.coalesce("brokerName", F.lit("")), "queueId"))
    target = F.lit(arguments.to_topic) if arguments.to_topic else F.col("topic")
    archived = table.select(target.alias("topic"), "brokerName", "queueId", "shardingKey").distinct().collect()
    wanted = {MessageQueue(row["topic"], row["brokerName"] or "", row["queueId"]) for row in archived}
    with Cluster(checked_connection(OptionTable(options, ()))) as cluster:
        columns = _placed(cluster, wanted, arguments.queues)
    ordered = table.repartition(PARTS, "shardingKey").sortWithinPartitions("shardingKey", "queueOffset")
    chosen = ordered.select("body", "tags", "keys", "properties", target.alias("topic"), *columns)
    name = arguments.run_name or f"replay {arguments.source} {arguments.to_topic or ''}"
    writer = chosen.write.format("rocketmq").options(**options).option("writeId", name)
    if arguments.rate:
        at_once = max(min(len(archived), PARTS, parallelism(spark)), 1)
        writer = writer.option("maxRatePerTask", max(arguments.rate // at_once, 1))
    with watching(spark, "replay", arguments.quiet):
        writer.mode("append").save()
    topics = ", ".join(sorted({queue.topic for queue in wanted}))
    sys.stdout.write(f"{table.count():,} messages of {arguments.source} are in {topics}\n")
    return 0


def _placed(cluster: Cluster, wanted: Iterable[MessageQueue], how: str) -> tuple[str, ...]:
    """Return the sink's columns that send each archived queue to one queue. `wanted`: the archived queues, with their
    target topics; `how`: the value of --queues. Raises JobFailed."""
    highest: dict[str, int] = {}
    for queue in wanted:
        highest[queue.topic] = max(highest.get(queue.topic, 0), queue.queue_id)
    targets = {topic: _writable(cluster, topic) for topic in highest}
    if how == "hash":
        return BY_NAME
    if all(queue in targets[queue.topic] for queue in wanted):
        return SAME_QUEUE
    misfits = [
        topic
        for topic, queues in targets.items()
        if len({queue.broker_name for queue in queues}) != 1 or highest[topic] >= len(queues)
    ]
    if not misfits:
        return SAME_ID
    if how == "same":
        raise JobFailed(f"--queues same: topic {misfits[0]!r} does not have all the archived queues")
    return BY_NAME


def _writable(cluster: Cluster, topic: str) -> list[MessageQueue]:
    """Return the queues of a topic. For one that the sink will create these are the same as in a second run. Raises
    JobFailed."""
    route = cluster.publish_route(topic)
    if route is None:
        return []
    if route.is_template and len({queue.broker_name for queue in route.publish}) > 1:
        raise JobFailed(f"topic {topic!r} does not exist; create it first, since several brokers would have it")
    return route.publish
