"""Consumer lag and end-to-end latency by group, over time.

Every --interval seconds the job asks the brokers for the offsets of each group and the ends of its queues. A sample
has, for each group and queue, the lag (messages between offset and end) and the delay (age in ms of the oldest message
that the group has not consumed; 0 when it has consumed all). The delay is the end-to-end latency of the message that
reaches the group next. At the end the job prints a table by group and window: the largest lag, and percentiles of the
delay over time. --to keeps the samples as Parquet, --html writes a page with plots. Only --to needs Spark's JVM.
"""

from __future__ import annotations

import argparse
import math
import sys
import threading
import time
from collections import defaultdict
from html import escape
from pathlib import Path
from typing import Any

from triomq.client.core.requests import Call
from triomq.protocol.bodies import fastjson
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import new_request
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.system_topics import RETRY_PREFIX
from triomq.spark.cluster import Cluster
from triomq.spark.jobs import report
from triomq.spark.jobs.progress import Progress
from triomq.spark.jobs.session import JobFailed, add_connection_options, check_folder, connection_options, open_session
from triomq.spark.options import DEFAULT_SOURCE_GROUP, OptionTable
from triomq.spark.options import connection_options as checked_connection
from triomq.spark.time_search import store_time

SUMMARY = "consumer lag and end-to-end latency by group over time"
COLUMNS = (
    "timeMs bigint, consumerGroup string, topic string, brokerName string, queueId int, lag bigint, delayMs bigint"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_connection_options(parser)
    parser.add_argument("--groups", help="only these groups, separated by commas (default: all with offsets)")
    parser.add_argument("--interval", type=float, default=5.0, metavar="S", help="seconds between samples (default 5)")
    parser.add_argument("--samples", type=int, default=12, metavar="N", help="number of samples (default 12)")
    parser.add_argument(
        "--window", type=int, default=60, metavar="S", help="seconds of a row of the table (default 60)"
    )
    parser.add_argument("--retry-topics", action="store_true", help="also %%RETRY%% topics")
    parser.add_argument("--to", metavar="DIR", help="append the samples to this folder as Parquet")
    parser.add_argument("--html", metavar="FILE", help="write a page with plots")


def run(arguments: argparse.Namespace) -> int:
    if arguments.samples < 1 or arguments.interval <= 0 or arguments.window < 1:
        raise JobFailed("--samples, --interval and --window must be more than 0")
    options = checked_connection(OptionTable(connection_options(arguments), ()))
    groups = {name.strip() for name in (arguments.groups or "").split(",") if name.strip()}
    if arguments.to:
        check_folder(arguments, arguments.to, "--to")
    progress = Progress("lag", arguments.samples, unit=" samples", quiet=arguments.quiet)
    rows: list[tuple[Any, ...]] = []
    wait = threading.Event()
    with Cluster(options) as cluster:
        for number in range(arguments.samples):
            started = time.monotonic()
            rows += sample(cluster, groups, arguments.retry_topics, time.time_ns() // 1_000_000)
            progress.advance(note=f"{len(rows):,} rows")
            if number + 1 < arguments.samples:
                wait.wait(max(arguments.interval - (time.monotonic() - started), 0))
    progress.finish()
    if not rows:
        sys.stdout.write("no group has offsets\n")
        return 1
    if arguments.to:
        open_session("lag", arguments).createDataFrame(rows, COLUMNS).write.mode("append").parquet(arguments.to)
    summary = summarize(rows, arguments.window)
    sys.stdout.write(as_text(summary))
    if arguments.html:
        Path(arguments.html).write_text(as_html(rows, summary), "utf-8")
    return 0


def sample(cluster: Cluster, groups: set[str], with_retry: bool, now_ms: int) -> list[tuple[Any, ...]]:
    """Return rows of COLUMNS, one per group and queue with an offset."""
    rows = []
    for broker_name, address in cluster.brokers().items():
        offsets = _group_offsets(cluster, address, broker_name, groups, with_retry)
        ends = cluster.max_offsets(sorted({queue for queue, _ in offsets}))
        for (queue, group), offset in sorted(offsets.items()):
            lag = max(ends[queue] - offset, 0)
            stored_ms = store_time(cluster, queue, offset, DEFAULT_SOURCE_GROUP) if lag else 0
            delay = max(now_ms - stored_ms, 0) if stored_ms else 0
            rows.append((now_ms, group, queue.topic, broker_name, queue.queue_id, lag, delay))
    return rows


def _group_offsets(
    cluster: Cluster, address: str, broker_name: str, groups: set[str], with_retry: bool
) -> dict[tuple[MessageQueue, str], int]:
    """Return (queue, group) -> offset, as the broker keeps them in consumerOffset.json."""

    def offsets() -> Call[Any]:
        request = new_request(RequestCode.GET_ALL_CONSUMER_OFFSET)
        return Call(request, "asking for all consumer offsets", lambda response: fastjson.loads(response.body))

    table = cluster.until_done(offsets().action, lambda: cluster.call(address, offsets()))
    found = {}
    for name, queues in (table.get("offsetTable") or {}).items():
        topic, _, group = name.rpartition("@")
        is_wanted = group in groups if groups else not group.startswith(("SPARK_SINK_", "CID_RMQ_SYS_"))
        if not is_wanted or (topic.startswith(RETRY_PREFIX) and not with_retry) or cluster.find_route(topic) is None:
            continue
        for queue_id, offset in queues.items():
            found[MessageQueue(topic, broker_name, int(queue_id)), group] = int(offset)
    return found


def summarize(rows: list[tuple[Any, ...]], window_seconds: int) -> list[dict[str, Any]]:
    """Return one row per group and window: the largest total lag, and percentiles of the delay (nearest rank)."""
    totals: dict[tuple[str, int], dict[int, int]] = defaultdict(lambda: defaultdict(int))
    delays: dict[tuple[str, int], list[int]] = defaultdict(list)
    for time_ms, group, _, _, _, lag, delay_ms in rows:
        key = group, time_ms // (window_seconds * 1000) * window_seconds * 1000
        totals[key][time_ms] += lag
        delays[key].append(delay_ms)
    found = []
    for key in sorted(totals):
        ordered = sorted(delays[key])
        found.append(
            {
                "consumerGroup": key[0],
                "windowMs": key[1],
                "maxLag": max(totals[key].values()),
                **{name: ordered[max(0, math.ceil(share * len(ordered)) - 1)] for name, share in _SHARES.items()},
                "max": ordered[-1],
            }
        )
    return found


_SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def as_text(summary: list[dict[str, Any]]) -> str:
    """The table for a terminal."""
    lines = [f"{'window (UTC)':<20}{'group':<32}{'max lag':>12}{'p50':>10}{'p90':>10}{'p99':>10}{'max':>10}"]
    for row in summary:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(row["windowMs"] / 1000))
        lines.append(
            f"{when:<20}{row['consumerGroup'][:31]:<32}{row['maxLag']:>12,}"
            + "".join(f"{as_time(row[name]):>10}" for name in (*_SHARES, "max"))
        )
    return "\n".join(lines) + "\n"


def as_time(milliseconds: int) -> str:
    """Return a duration with its two largest units: 850ms, 12.3s, 29m 55s, 7h 02m, 12d 05h."""
    seconds = milliseconds // 1000
    if seconds < 1:
        return f"{milliseconds}ms"
    if seconds < 60:
        return f"{milliseconds // 100 / 10}s"
    if seconds < 3600:
        return f"{seconds // 60}m {seconds % 60:02}s"
    if seconds < 86_400:
        return f"{seconds // 3600}h {seconds % 3600 // 60:02}m"
    return f"{seconds // 86_400}d {seconds % 86_400 // 3600:02}h"


def as_html(rows: list[tuple[Any, ...]], summary: list[dict[str, Any]]) -> str:
    """A page with lag and delay over time."""
    lag: dict[str, dict[float, float]] = defaultdict(lambda: defaultdict(float))
    delay: dict[str, dict[float, float]] = defaultdict(lambda: defaultdict(float))
    for time_ms, group, _, _, _, behind, delay_ms in rows:
        lag[group][time_ms / 1000] += behind
        delay[group][time_ms / 1000] = max(delay[group][time_ms / 1000], delay_ms)
    return report.page(
        "Consumer lag",
        f"<h2>Lag (messages)</h2>{report.lines({name: sorted(at.items()) for name, at in lag.items()}, 'UTC')}"
        f"<h2>Delay (ms, slowest queue)</h2>"
        f"{report.lines({name: sorted(at.items()) for name, at in delay.items()}, 'UTC')}"
        f"<h2>By window</h2><pre>{escape(as_text(summary))}</pre>",
    )
