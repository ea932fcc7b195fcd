"""The Spark session of a job, and the options that all jobs share."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from triomq.spark.cluster import Cluster

MOST_TASKS: Final = 1024


class JobFailed(Exception):
    """Ends a job with one line on standard error and exit code 2."""


def add_spark_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--master", help="Spark master when the job is not started by spark-submit (default: local[*])")
    parser.add_argument(
        "--conf", action="append", default=[], metavar="KEY=VALUE", help="Spark configuration; may be repeated"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def add_connection_options(parser: argparse.ArgumentParser, *, is_required: bool = True) -> None:
    parser.add_argument(
        "-n", "--name-server", required=is_required, metavar="HOST:PORT", help="name servers, separated by ;"
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the source or sink `rocketmq`, like accessKey=... (docs/spark.md); may be repeated",
    )


def pairs(given: list[str], option: str) -> dict[str, str]:
    """Parse NAME=VALUE texts. Raises JobFailed."""
    table = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise JobFailed(f"{option}: {text!r} is not NAME=VALUE")
        table[name] = value
    return table


def connection_options(arguments: argparse.Namespace) -> dict[str, str]:
    return {"nameServer": arguments.name_server, **pairs(arguments.option, "--option")}


def check_folder(arguments: argparse.Namespace, path: str, option: str, *, reads: str = "") -> None:
    """Raise JobFailed for a local folder that cannot be written, or with `reads`, has no such entry: before a JVM
    starts, which takes seconds. Folders of other file systems and of other machines are left to Spark."""
    if not _is_here(arguments) or ("://" in path and not path.startswith("file:")):
        return
    local = Path(path.removeprefix("file://").removeprefix("file:"))
    if reads:
        if not (local / reads).exists():
            raise JobFailed(f"{option}: {path} holds no archive (no {reads})")
        return
    present = next(each for each in (local, *local.absolute().parents) if each.exists())
    if not present.is_dir():
        raise JobFailed(f"{option}: {present} is not a directory")
    if not os.access(present, os.W_OK | os.X_OK):
        raise JobFailed(f"{option}: {present} cannot be written by this account")


def _is_here(arguments: argparse.Namespace) -> bool:
    """Return whether a path without a scheme is one of this machine: no cluster, and Hadoop's own file system."""
    if any(name in os.environ for name in ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "HADOOP_CONF_DIR")):
        return False
    settings = " ".join(arguments.conf)
    is_elsewhere = any(key in settings for key in ("fs.defaultFS", "spark.remote", "spark.master"))
    return not is_elsewhere and (arguments.master or "local").startswith("local")


def check_topics(cluster: Cluster, topics: Iterable[str], option: str) -> None:
    """Raise JobFailed for a topic that no name server knows, Unreachable if none responds."""
    for topic in topics:
        if cluster.settled_route(topic) is None:
            raise JobFailed(f"{option}: topic {topic!r} does not exist")


def open_session(name: str, arguments: argparse.Namespace) -> Any:
    """Return the session of spark-submit, or a new one, with the formats registered."""
    from pyspark.sql import SparkSession

    from triomq.spark.registration import context_of, register

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(f"mqpipeline {name}")
    settings = pairs(arguments.conf, "--conf")
    is_remote = "spark.remote" in settings or "SPARK_REMOTE" in os.environ
    if arguments.master:
        builder = builder.master(arguments.master)
    elif not is_remote and "spark.master" not in settings and "PYSPARK_GATEWAY_PORT" not in os.environ:
        builder = builder.master("local[*]")
        settings.setdefault("spark.ui.enabled", "false")
    if not is_remote:
        settings.setdefault("spark.ui.showConsoleProgress", "false")
    settings.setdefault("spark.sql.session.timeZone", "UTC")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    context = context_of(spark)
    if context is not None:
        context.setLogLevel(settings.get("spark.log.level", "ERROR"))
    register(spark)
    _opened.append(spark)
    return spark


def parallelism(spark: Any) -> int:
    """Return how many tasks run at a time. Spark Connect does not say it, but cuts ranges into that many."""
    from pyspark.sql import functions as F

    from triomq.spark.registration import context_of

    context = context_of(spark)
    if context is not None:
        return max(int(context.defaultParallelism), 1)
    numbers = spark.range(MOST_TASKS).select(F.spark_partition_id().alias("number"))
    return int(numbers.agg(F.max("number")).first()[0]) + 1


def stop_session() -> None:
    """Stop the session that `open_session` made, if it did."""
    while _opened:
        _opened.pop().stop()


_opened: list[Any] = []


def one_line(error: BaseException) -> str:
    """Return the line that explains a Spark error: the last one of the Python traceback inside, or else the first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith(("triomq.spark.errors.", "pyspark.errors"))]
    return (ours[-1].partition(": ")[2] if ours else lines[0] if lines else type(error).__name__)[:500]
