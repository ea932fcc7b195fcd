"""Message traces joined into timelines: sent, stored, consumed.

Producers and consumers with tracing enabled record what they do in the topic RMQ_SYS_TRACE_TOPIC, or in a topic of your
own. This job parses these records (RocketMQ: TraceDataEncoder) and joins them by message id:

    msgId topic tags keys producerGroup storeHost sentMs sendCostMs isSent
    consumerGroup retry consumeStartMs consumeCostMs isConsumed waitMs endToEndMs

There is one row per delivery of a message, and one row with nulls for a message that was never consumed. waitMs lasts
from the end of the send to the start of consumption, endToEndMs from the start of the send to the end of consumption.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any, Final

from triomq.protocol.system_topics import TRACE_TOPIC
from triomq.spark.cluster import Cluster
from triomq.spark.jobs.progress import watching
from triomq.spark.jobs.session import JobFailed, add_connection_options, check_folder, connection_options, open_session
from triomq.spark.options import OptionTable
from triomq.spark.options import connection_options as checked_connection

SUMMARY = "join the message-trace topic into send, store, consume timelines"
HOW_TO_TRACE: Final = (
    "Messages are traced when producers and consumers ask for it (trace=True in Python, enableMsgTrace in Java) and "
    "the trace topic exists (traceTopicEnable=true at a broker, or a topic of your own with --trace-topic)"
)
_FIELD: Final = "\x01"
_RECORD: Final = "\x02"

TRACE_COLUMNS: Final = (
    "kind string, timeMs bigint, groupName string, topic string, msgId string, requestId string, tags string, "
    "keys string, storeHost string, bodyLength int, costMs int, offsetMsgId string, isSuccess boolean, retry int"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_connection_options(parser)
    parser.add_argument("--trace-topic", default=TRACE_TOPIC, help=f"default {TRACE_TOPIC}")
    parser.add_argument("--since-ms", type=int, help="only traces stored since this time")
    parser.add_argument("--msg-id", help="only this message")
    parser.add_argument("--topic", help="only messages of this topic")
    parser.add_argument("--to", metavar="DIR", help="write the timelines as Parquet")
    parser.add_argument("--show", type=int, default=20, metavar="N", help="rows printed (default 20)")


def run(arguments: argparse.Namespace) -> int:
    options = connection_options(arguments)
    with Cluster(checked_connection(OptionTable(options, ()))) as cluster:
        if cluster.settled_route(arguments.trace_topic) is None:
            raise JobFailed(f"topic {arguments.trace_topic!r} does not exist. {HOW_TO_TRACE}")
    if arguments.to:
        check_folder(arguments, arguments.to, "--to")
    spark = open_session("trace", arguments)
    reader = spark.read.format("rocketmq").schema("body binary").options(**options)
    reader = reader.option("subscribe", arguments.trace_topic)
    if arguments.since_ms is not None:
        reader = reader.option("startingTimestamp", arguments.since_ms)
    with watching(spark, "trace", arguments.quiet):
        table = timelines(trace_records(reader.load()))
        if arguments.topic:
            table = table.where(table["topic"] == arguments.topic)
        if arguments.msg_id:
            table = table.where(table["msgId"] == arguments.msg_id)
        table = table.orderBy("sentMs", "consumeStartMs").persist()
        count = table.count()
        if arguments.to:
            table.write.mode("append").parquet(arguments.to)
        rows = table.limit(arguments.show).collect()
    for row in rows:
        sys.stdout.write(as_text(row.asDict()))
    sys.stdout.write(f"{count:,} timelines\n")
    if not count:
        sys.stderr.write(f"mqpipeline trace: no trace matches. {HOW_TO_TRACE}\n")
    return 0 if count else 1


def trace_records(bodies: Any) -> Any:
    """Return the trace records in message bodies (a DataFrame with the column `body`) as rows of TRACE_COLUMNS."""
    from pyspark.sql import functions as F

    field = F.split(F.col("record"), _FIELD)
    table = bodies.select(F.explode(F.split(F.decode("body", "UTF-8"), _RECORD)).alias("record"))
    table = table.where("record <> ''").select(field.alias("f"))
    return table.select(*[F.expr(f"{_case(name)}").cast(kind).alias(name) for name, kind in _columns()])


def _columns() -> Iterator[tuple[str, str]]:
    for part in TRACE_COLUMNS.split(", "):
        name, kind = part.split(" ")
        yield name, kind


# Position of each column in the records of each kind (TraceDataEncoder.encoderFromContextBean); the kind is field 0.
_PLACES: Final[dict[str, dict[str, int]]] = {
    "Pub": {
        "timeMs": 1,
        "groupName": 3,
        "topic": 4,
        "msgId": 5,
        "tags": 6,
        "keys": 7,
        "storeHost": 8,
        "bodyLength": 9,
        "costMs": 10,
        "offsetMsgId": 12,
        "isSuccess": 13,
    },
    "SubBefore": {"timeMs": 1, "groupName": 3, "requestId": 4, "msgId": 5, "retry": 6, "keys": 7},
    "SubAfter": {"requestId": 1, "msgId": 2, "costMs": 3, "isSuccess": 4, "keys": 5},
    "EndTransaction": {"timeMs": 1, "groupName": 3, "topic": 4, "msgId": 5, "tags": 6, "keys": 7, "storeHost": 8},
}


def _case(name: str) -> str:
    if name == "kind":
        return "f[0]"
    cases = " ".join(
        f"when f[0] = '{kind}' then nullif(try_element_at(f, {places[name] + 1}), '')"
        for kind, places in _PLACES.items()
        if name in places
    )
    return f"case {cases} end"


def timelines(traces: Any) -> Any:
    """Return one row per delivery of each message."""
    from pyspark.sql import functions as F

    sent = (
        traces.where("kind = 'Pub'")
        .groupBy("msgId")
        .agg(
            *[F.first(name).alias(name) for name in ("topic", "tags", "keys", "storeHost", "offsetMsgId")],
            F.first("groupName").alias("producerGroup"),
            F.min("timeMs").alias("sentMs"),
            F.first("costMs").alias("sendCostMs"),
            F.max("isSuccess").alias("isSent"),
        )
    )
    began = (
        traces.where("kind = 'SubBefore'")
        .selectExpr("msgId", "requestId", "groupName as consumerGroup", "timeMs as consumeStartMs", "retry")
        .dropDuplicates(["msgId", "requestId"])
    )
    ended = (
        traces.where("kind = 'SubAfter'")
        .selectExpr("msgId", "requestId", "costMs as consumeCostMs", "isSuccess as isConsumed")
        .dropDuplicates(["msgId", "requestId"])
    )
    deliveries = began.join(ended, ["msgId", "requestId"], "left")
    joined = sent.join(deliveries, ["msgId"], "full")
    return joined.withColumn("waitMs", F.expr("consumeStartMs - (sentMs + sendCostMs)")).withColumn(
        "endToEndMs", F.expr("consumeStartMs + consumeCostMs - sentMs")
    )


def as_text(row: dict[str, Any]) -> str:
    """Return one timeline as text for a terminal."""
    lines = [f"{row['msgId']}  topic {row['topic']}  tags {row['tags']}  keys {row['keys']}"]
    if row["sentMs"] is not None:
        state = "sent" if row["isSent"] else "NOT SENT"
        where = f"stored at {row['storeHost']} after {row['sendCostMs']} ms"
        lines.append(f"  {state} at {row['sentMs']} by {row['producerGroup']}, {where}")
    if row["consumeStartMs"] is not None:
        state = {True: "consumed", False: "FAILED", None: "unfinished"}[row["isConsumed"]]
        lines.append(
            f"  {state} from {row['consumeStartMs']} by {row['consumerGroup']} in {row['consumeCostMs']} ms"
            f" (retry {row['retry']}, waited {row['waitMs']} ms, end to end {row['endToEndMs']} ms)"
        )
    return "\n".join(lines) + "\n"
