"""The Spark session of a job, and the options that all jobs share."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any, Final

MOST_TASKS: Final = 1024


class JobFailed(Exception):
    """Ends a job with one line on standard error and exit code 2."""


def add_spark_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--master", help="Spark master when the job is not started by spark-submit (default: local[*])")
    parser.add_argument(
        "--conf", action="append", default=[], metavar="KEY=VALUE", help="Spark configuration; may be repeated"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def add_connection_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-n", "--name-server", required=True, metavar="HOST:PORT", help="name servers, separated by ;")
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
