"""Measure our Spark source and sink beside Spark's own for Kafka, with the same rows on the same machine.

    bin/dev/bench-spark-kafka [--rows 400000] [--cores 1,2] [--rounds 3]

Kafka's sink stores a row at least once. Ours is measured as it is by default, each row once, and with idempotence=none,
which is as much as Kafka's. Rows have a key, a value of 1 KiB, and come from Parquet; topics have four partitions or
queues. Written are key and value, with acks=all, and read are the seven columns of the Kafka source (ours with
rowFormat=kafka), into Spark's noop sink. For each number of cores a driver is started; after a round that does not
count, both sides take turns. Shown are medians of the rounds: rows a second by the clock, rows a CPU second of the
driver (JVM and Python workers), and of driver and broker together. Neither broker syncs before it acknowledges. Nothing
else should run meanwhile.

Made on first use, in the user's cache: Kafka and its connector (Java and Maven), and the PySpark of the connector's
version, which both sides run in.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.peer_servers import HERE, Missing, ToolFailed, cached, need, run_tool, running_kafka
from benchmarks.spark_source import cpu_seconds
from triomq.broker.embedded import ProcessCluster

CONNECTOR_POM = HERE / "kafka" / "spark" / "pom.xml"
PYSPARK = "pyspark==4.2.0"
TOPIC = "SparkBench"
QUEUES = 4
BODY_BYTES = 1024


class Figures(NamedTuple):
    """Rows a second, rows a CPU second of the driver, and of driver and broker."""

    clock: float
    driver: float
    both: float


class Side(NamedTuple):
    """One of the brokers: the format and options of its source, if that is measured, and of its sink, and the process
    ids of it."""

    name: str
    format: str
    read: dict[str, str] | None
    write: dict[str, str]
    processes: set[int]


def connector() -> Path:
    """Return the directory of the connector's jars."""
    need("java", "mvn")

    def copy(directory: Path) -> None:
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={directory}"]
        run_tool("mvn", "--quiet", "--batch-mode", "--file", CONNECTOR_POM, *goal)

    return cached("spark-kafka", CONNECTOR_POM.read_bytes(), copy)


def pyspark() -> Path:
    """Return the directory of the connector's PySpark."""

    def install(directory: Path) -> None:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
        run_tool(*pip, "--no-deps", "--target", directory, PYSPARK)

    return cached("pyspark", PYSPARK.encode() + sys.version.encode(), install)


def children() -> set[int]:
    """Return the process ids of the children of this process."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.add(int(stat.parent.name))
    return found


def cpu_of(processes: set[int]) -> float:
    """Return user and system time of processes, in seconds."""
    ticks = 0
    for process in processes:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(map(int, fields[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def measured(rows: int, work: Callable[[], None], processes: set[int]) -> Figures:
    wall, driver, broker = time.perf_counter(), cpu_seconds(), cpu_of(processes)
    work()
    wall = time.perf_counter() - wall
    # The servers are children of this process, so cpu_seconds has their time, too.
    both, broker = cpu_seconds() - driver, cpu_of(processes) - broker
    return Figures(rows / wall, rows / max(both - broker, 0.01), rows / max(both, 0.01))


@contextmanager
def session(cores: int, jars: Path) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    import triomq.spark

    builder = SparkSession.builder.master(f"local[{cores}]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    spark = builder.config("spark.jars", ",".join(str(jar) for jar in sorted(jars.glob("*.jar")))).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    triomq.spark.register(spark)
    try:
        yield spark
    finally:
        spark.stop()


def make_rows(spark: Any, path: str, rows: int) -> None:
    """Write rows with bodies that cannot be compressed to Parquet."""
    from pyspark.sql import functions as f

    words = [f.sha2(f.concat(f.col("id").cast("string"), f.lit(str(part))), 512) for part in range(BODY_BYTES // 128)]
    key = f.concat(f.lit("key-"), f.col("id").cast("string")).cast("binary")
    table = spark.range(rows).select(key.alias("key"), f.concat(*words).cast("binary").alias("value"))
    table.write.mode("overwrite").option("compression", "uncompressed").parquet(path)


def compare(spark: Any, sides: list[Side], path: str, rounds: int, rows: int) -> dict[tuple[str, str], list[Figures]]:
    """Return the figures of each round, by what was done and side."""
    found: dict[tuple[str, str], list[Figures]] = {}
    values = spark.read.parquet(path)
    for number in range(rounds + 1):
        for side in sides:
            sink = values.write.format(side.format).options(**side.write).mode("append")
            figures = measured(rows, sink.save, side.processes)
            if number:
                found.setdefault(("sink", side.name), []).append(figures)
    readable = [side for side in sides if side.read is not None]
    for number in range(rounds + 1):
        for side in readable:
            table = spark.read.format(side.format).options(**side.read).load()
            noop = table.write.format("noop").mode("overwrite")
            stored = rows * (rounds + 1)
            figures = measured(stored, noop.save, side.processes)
            if number:
                found.setdefault(("source", side.name), []).append(figures)
    for side in readable:
        count = spark.read.format(side.format).options(**side.read).load().count()
        assert count == rows * (rounds + 1), f"{side.name} has {count} rows of {rows * (rounds + 1)}"
    return found


def show(cores: int, found: dict[tuple[str, str], list[Figures]]) -> None:
    for what in ("sink", "source"):
        medians = {}
        for (done, name), figures in found.items():
            if done == what:
                medians[name] = Figures(*[statistics.median(column) for column in zip(*figures, strict=True)])
                shown = "".join(f"{value:>14,.0f}" for value in medians[name])
                print(f"{what}, local[{cores}], {name:<28}{shown}", flush=True)
        for name in medians.keys() - {"Kafka"}:
            ratios = [mine / other for mine, other in zip(medians[name], medians["Kafka"], strict=True)]
            shown = "".join(f"{ratio:>14.2f}" for ratio in ratios)
            print(f"{what}, local[{cores}], {name + ' / Kafka':<28}{shown}", flush=True)


def run(rows: int, cores: list[int], rounds: int) -> None:
    jars = connector()
    sys.path.insert(0, str(pyspark()))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(pyspark()), os.environ.get("PYTHONPATH", "")])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    print(f"{'':<46}{'rows a s':>14}{'CPU s, driver':>14}{'CPU s, both':>14}")
    for number in cores:
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="spark-kafka-"))
            before = children()
            kafka = stack.enter_context(running_kafka(partitions=QUEUES))
            cluster = stack.enter_context(ProcessCluster())
            started = children() - before
            servers = f"127.0.0.1:{kafka.port}"
            kafka_write = {"kafka.bootstrap.servers": servers, "topic": TOPIC, "kafka.acks": "all"}
            kafka_read = {"kafka.bootstrap.servers": servers, "subscribe": TOPIC, "startingOffsets": "earliest"}
            ours_read = {"nameServer": cluster.name_server, "subscribe": TOPIC, "rowFormat": "kafka"}
            ours_write = {"nameServer": cluster.name_server, "topic": TOPIC}
            ours, theirs = started - {kafka.process.pid}, {kafka.process.pid}
            repeats = {**ours_write, "topic": f"{TOPIC}Repeats", "idempotence": "none"}
            sides = [
                Side("Kafka", "kafka", kafka_read, kafka_write, theirs),
                Side("TrioMQ", "rocketmq", ours_read, ours_write, ours),
                Side("TrioMQ, at least once", "rocketmq", None, repeats, ours),
            ]
            spark = stack.enter_context(session(number, jars))
            make_rows(spark, f"{folder}/rows", rows)
            show(number, compare(spark, sides, f"{folder}/rows", rounds, rows))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--cores", default="1,2", help="task slots to measure with, separated by commas")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    try:
        run(arguments.rows, [int(text) for text in arguments.cores.split(",")], arguments.rounds)
    except (Missing, ToolFailed) as error:
        print(f"bench-spark-kafka: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
