"""Measure the Spark sources and the sink: messages of 1 KiB with four properties, per core.

    benchmarks/spark_source.py [--messages N] [--name-server HOST:PORT] [--store DIR] [--cores 1,2]

Without --store a commit log is made in a temporary directory; broker figures need --name-server (a topic is filled and
read). Each source is measured alone (`reader`: bytes to Arrow batches in one process) and through Spark into its noop
sink on local[N] for each N of --cores (a topic in at least N tasks), beside Spark's own reading of the
same rows from Parquet. With --name-server also three ways to count the messages. "A CPU second" counts all processes of
the driver: JVM and Python workers, not the broker. It hardly depends on other load.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

BODY_BYTES = 1024
SEGMENT_BYTES = 64 * 1024 * 1024


def make_store(root: Path, messages: int) -> None:
    """Make a commit log of `messages` records, in segments, without queues."""
    from triomq.protocol import record, stored_properties
    from triomq.protocol.message_to_store import MessageToStore, Place

    (root / "commitlog").mkdir(parents=True)
    pool = os.urandom(1 << 24)
    host = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
    now_ms = time.time_ns() // 1_000_000
    start = 0
    tail = bytearray()
    for number in range(messages):
        text = (
            f"UNIQ_KEY\x01FD00000000000000000000000000000244E94E0E2F2A{number:08X}\x02CLUSTER\x01DefaultCluster"
            f"\x02TAGS\x01Tag{number % 4}\x02KEYS\x01key-{number}"
        ).encode()
        begin = number * 7919 % (len(pool) - BODY_BYTES)  # distinct bodies: Parquet would store equal ones once
        body = pool[begin : begin + BODY_BYTES]
        if len(tail) + 2048 > SEGMENT_BYTES:
            start = close_segment(root, start, tail)
            tail = bytearray()
        message = MessageToStore(
            "Bench",
            number % 4,
            body,
            stored_properties.read(text),
            born_timestamp=now_ms,
            born_host=host,
            store_host=host,
        )
        place = Place(physical_offset=start + len(tail), queue_offset=number // 4, store_timestamp=now_ms)
        record.encode_into(tail, b"Bench", message, place, text)
    close_segment(root, start, tail)


def close_segment(root: Path, start: int, tail: bytearray) -> int:
    from triomq.protocol import record

    left = SEGMENT_BYTES - len(tail)
    data = bytes(tail) + record.encode_blank(left) + bytes(left - 8)
    (root / "commitlog" / f"{start:020d}").write_bytes(data)
    return start + SEGMENT_BYTES


def drain(batches: Iterator[Any]) -> int:
    return sum(batch.num_rows for batch in batches)


def cpu_seconds() -> float:
    """Return user and system time of this process and all its living descendants."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            parents[int(stat.parent.name)] = int(fields[1])
            ticks[int(stat.parent.name)] = sum(map(int, fields[11:15]))
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(ticks[pid] for pid in ours if pid in ticks) / os.sysconf("SC_CLK_TCK")


@contextmanager
def measured(name: str, count: Callable[[], int]) -> Iterator[None]:
    wall, cpu = time.perf_counter(), cpu_seconds()
    yield
    wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
    rows = count()
    print(f"{name:<50}{rows:>10,}{rows / wall:>14,.0f}{rows / max(cpu, 0.01):>14,.0f}", flush=True)


def schema_of(columns: dict[str, str]) -> Any:
    from pyspark.sql import types

    kinds = {
        "string": types.StringType(),
        "int": types.IntegerType(),
        "bigint": types.LongType(),
        "binary": types.BinaryType(),
        "timestamp": types.TimestampType(),
        "map<string,string>": types.MapType(types.StringType(), types.StringType()),
    }
    return types.StructType([types.StructField(name, kinds[kind]) for name, kind in columns.items()])


def measure_reader(name: str, reader: Any) -> None:
    counted = SimpleNamespace(rows=0)
    parts = reader.partitions()
    with measured(f"{name}, reader alone, 1 process", lambda: counted.rows):
        counted.rows = sum(drain(reader.read(part)) for part in parts)


def measure_spark(name: str, table: Any, cores: int) -> None:
    rows = table.count()
    for turn in ("first", "second", "third"):  # Java compiles its hot code during the first run
        with measured(f"{name}, Spark local[{cores}] to noop, {turn} run", lambda: rows):
            table.write.format("noop").mode("overwrite").save()


def measure_count(name: str, count: Callable[[], int]) -> None:
    counted = SimpleNamespace(rows=0)
    for turn in ("first", "second", "third"):
        with measured(f"{name}, {turn} run", lambda: counted.rows):
            counted.rows = count()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=600_000)
    parser.add_argument("--name-server")
    parser.add_argument("--store")
    parser.add_argument("--cores", default="1", help="task slots to measure with, separated by commas")
    parser.add_argument("--no-spark", action="store_true", help="only the readers")
    arguments = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    made = None
    root = arguments.store
    if root is None:
        made = tempfile.mkdtemp(prefix="spark-bench-")
        root = made
        make_store(Path(root), arguments.messages)
    try:
        run(arguments, root)
    finally:
        if made is not None:
            shutil.rmtree(made)


def run(arguments: argparse.Namespace, root: str) -> None:
    import triomq.spark
    from triomq.spark.columns import ROCKETMQ_COLUMNS, STORE_COLUMNS
    from triomq.spark.options import source_options, store_options
    from triomq.spark.source import BatchReader
    from triomq.spark.store_source import StoreReader

    print(f"{'':<50}{'messages':>10}{'a second':>14}{'a CPU second':>14}")
    narrow = {name: STORE_COLUMNS[name] for name in ("topic", "queueId", "queueOffset", "body", "storeTimestamp")}
    options = store_options({"path": root})
    measure_reader("store files, all columns", StoreReader(options, schema_of(STORE_COLUMNS)))
    measure_reader("store files, body and place only", StoreReader(options, schema_of(narrow)))
    if arguments.no_spark:
        return
    topic = f"SparkBench{os.getpid()}"
    broker = {"nameServer": arguments.name_server, "subscribe": topic}
    parquet = f"{root}/parquet"
    for number, cores in enumerate(map(int, arguments.cores.split(","))):
        spark = session(cores)
        store = spark.read.format("rocketmq-store").load(root)
        if not number:
            store.write.mode("overwrite").option("compression", "uncompressed").parquet(parquet)
        measure_spark("store files", store, cores)
        measure_spark("the same rows from Parquet", spark.read.parquet(parquet), cores)
        if arguments.name_server is not None:
            if not number:
                rows = store.select("body", "tags", "keys", "properties", "queueId")
                with measured(f"sink, Spark local[{cores}]", lambda: arguments.messages):
                    rows.write.format("rocketmq").options(nameServer=arguments.name_server, topic=topic).mode(
                        "append"
                    ).save()
                measure_reader(
                    "broker, all columns",
                    BatchReader(source_options(broker, streaming=False), schema_of(ROCKETMQ_COLUMNS)),
                )
            topic_rows = spark.read.format("rocketmq").options(**broker, minPartitions=str(cores)).load()
            measure_spark("broker", topic_rows, cores)
            if not number:
                rows_of_parquet = spark.read.parquet(parquet)
                measure_count("count, triomq.spark.count", lambda: triomq.spark.count(**broker))
                measure_count(f"count, Parquet, Spark local[{cores}]", rows_of_parquet.count)
                measure_count(f"count, broker, Spark local[{cores}]", topic_rows.count)
        spark.stop()


def session(cores: int) -> Any:
    from pyspark.sql import SparkSession

    import triomq.spark

    spark = (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    triomq.spark.register(spark)
    return spark


if __name__ == "__main__":
    main()
