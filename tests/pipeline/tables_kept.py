"""What tests of tables look at: the job in this process or another, and the rows of a table in each format."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from triomq.blocking import Admin, Message, MessageQueue, Producer
from triomq.spark.jobs import main as jobs
from triomq.testing import LocalCluster

FORMATS = ("delta", "iceberg", "parquet")


def words(name_server: str, topic: str, folder: Path, kind: str, *more: str) -> list[str]:
    where = ["-n", name_server, "--topic", topic, "--to", str(folder), "--format", kind]
    return ["table", *where, "--quiet", "--option", "retryTimeoutMs=1000", *more]


def keep(cluster: LocalCluster, topic: str, folder: Path, kind: str, *more: str) -> int:
    """Run `mqpipeline table --once` and return its exit code."""
    return jobs.main(words(cluster.name_server, topic, folder, kind, "--once", *more))


def said(capsys: Any) -> tuple[str, str]:
    """Return what was printed, without the log of the broker in this process, which tests before may have turned on."""
    out, err = capsys.readouterr()
    lines = [line for line in out.splitlines(keepends=True) if re.match(r"\d{4}-\d\d-\d\d \d\d:", line) is None]
    return "".join(lines), err


def started(given: list[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "triomq.spark.jobs.main", *given]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def rows(folder: Path, topic: str, kind: str) -> Any:
    """Return the table as other programs read it, as an Arrow table."""
    if kind == "delta":
        from deltalake import DeltaTable

        return DeltaTable(folder).to_pyarrow_table()
    if kind == "iceberg":
        from pyiceberg.catalog.sql import SqlCatalog

        catalog = SqlCatalog("triomq", uri=f"sqlite:///{folder}/catalog.db", warehouse=folder.as_uri())
        try:
            return catalog.load_table(f"topics.{topic}").scan().to_arrow()
        finally:
            catalog.close()
    import pyarrow as pa
    from pyarrow import parquet

    files = sorted(folder.glob("date=*/topic=*/*.parquet"))
    return pa.concat_tables([parquet.ParquetFile(file).read() for file in files], promote_options="default")


def places(table: Any) -> list[tuple[int, int]]:
    """Return (queue id, queue offset) of each row, sorted."""
    return sorted(zip(table["queueId"].to_pylist(), table["queueOffset"].to_pylist(), strict=True))


def create(cluster: LocalCluster, topic: str, queues: int = 3) -> None:
    with Admin(name_server=cluster.name_server) as admin:
        admin.create_topic(topic, read_queues=queues, write_queues=queues)


def send(cluster: LocalCluster, topic: str, count: int, queues: int = 3) -> None:
    """Send `count` messages, in turn to each queue."""
    broker = next(iter(cluster.brokers))
    with Producer("writers", name_server=cluster.name_server) as producer:
        for number in range(count):
            message = Message(topic, b"%d" % number, tags="t", keys=f"k{number}", properties={"number": str(number)})
            producer.send(message, queue=MessageQueue(topic, broker, number % queues))


def send_bodies(cluster: LocalCluster, topic: str, bodies: list[bytes]) -> None:
    """Send bodies to queue 0."""
    queue = MessageQueue(topic, next(iter(cluster.brokers)), 0)
    with Producer("writers", name_server=cluster.name_server) as producer:
        for body in bodies:
            producer.send(Message(topic, body), queue=queue)
