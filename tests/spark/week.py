"""A week of a broker with archiveBeforeDelete in virtual time: messages each hour, table and archive each day, both
killed at random writes and started again, and the retention sweep at 04:00. Run as a program for many weeks:

python tests/spark/week.py [WEEKS]
"""

from __future__ import annotations

import datetime
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from triomq.blocking import Admin, Message, PullConsumer
from triomq.broker.embedded import VirtualClock
from triomq.pipeline.tables import parquet as parquet_table
from triomq.spark.jobs import folders
from triomq.spark.jobs import main as jobs
from triomq.testing import LocalCluster

TOPIC = "Week"
DAYS = 7
HOURS = 24
SETTINGS = {
    "archiveBeforeDelete": "true",
    "fileReservedTime": "48",
    "deleteWhen": "04",
    "mappedFileSizeCommitLog": str(1 << 17),
    "mappedFileSizeConsumeQueue": "2000",
    # What is due rarely is passed quickly.
    "registerNameServerPeriod": "60000",
    "cleanResourceInterval": "600000",
    "flushConsumerOffsetInterval": "3600000",
    "flushIntervalCommitLog": "600000",
    "flushIntervalConsumeQueue": "600000",
    "flushDelayOffsetInterval": "3600000",
    "transactionCheckInterval": "3600000",
}
BEGIN = datetime.datetime(2026, 3, 2, 0, 30)
BODY_BYTES = 900


class Killed(BaseException):
    """What a process does not survive; no code handles it."""


class Week:
    """What happened. `sent` are the keys of all messages."""

    def __init__(self, seed: int, folder: Path, cluster: LocalCluster, clock: VirtualClock, per_hour: int) -> None:
        self._rng = random.Random(seed)
        self._folder = folder
        self._cluster = cluster
        self._clock = clock
        self._per_hour = per_hour
        self._may_kill = False
        self.sent: list[str] = []
        self.kills = 0

    def may_kill(self) -> None:
        if self._may_kill and self._rng.random() < 0.06:
            self.kills += 1
            raise Killed

    def run(self, producer: Any, archive_days: int) -> None:
        for day in range(DAYS):
            table_at, archive_at = self._rng.sample(range(HOURS), 2)
            for hour in range(HOURS):
                self._send(producer)
                if hour == table_at:
                    self._until_done(self.keep_table)
                if hour == archive_at and day % archive_days == 0:
                    self._until_done(self.archive)
                self._clock.advance_to(BEGIN + datetime.timedelta(days=day, hours=hour + 1))
        self.keep_table()
        self.archive()

    def _send(self, producer: Any) -> None:
        keys = [f"k{len(self.sent) + number}" for number in range(self._per_hour)]
        bodies = [self._rng.randbytes(BODY_BYTES) for _ in keys]
        producer.send_batch([Message(TOPIC, body, keys=key) for key, body in zip(keys, bodies, strict=True)])
        self.sent += keys

    def _until_done(self, job: Callable[[], None]) -> None:
        """Run a job, and again after each kill."""
        self._may_kill = True
        while True:
            try:
                job()
                break
            except Killed:
                continue
        self._may_kill = False

    def keep_table(self) -> None:
        words = ["-n", self._cluster.name_server, "--topic", TOPIC, "--to", str(self._folder / "table")]
        given = ["table", *words, "--format", "parquet", "--once", "--quiet", "--commit-rows", "40"]
        assert jobs.run(given) == 0

    def archive(self) -> None:
        root = next(self._cluster.store.rglob("commitlog")).parent
        assert jobs.run(["archive", "--store", str(root), "--to", str(self._folder / "archive"), "--quiet"]) == 0


@contextmanager
def killed_at_writes(may_kill: Callable[[], None]) -> Iterator[None]:
    """Call `may_kill` before and behind each write of the jobs that counts."""

    def around(method: Callable[..., Any]) -> Callable[..., Any]:
        def called(*given: Any, **named: Any) -> Any:
            may_kill()
            result = method(*given, **named)
            may_kill()
            return result

        return called

    target, folder = parquet_table.ParquetTarget, folders.HadoopFolder
    methods: list[tuple[type, str]] = [(target, "_add_manifest"), (target, "_stage"), (target, "_finish")]
    methods += [(folder, "rename"), (folder, "_create"), (folder, "remove")]
    before = [(owner, name, getattr(owner, name)) for owner, name in methods]
    for owner, name, method in before:
        setattr(owner, name, around(method))
    try:
        yield
    finally:
        for owner, name, method in before:
            setattr(owner, name, method)


def run_week(seed: int, spark: Any, folder: Path, per_hour: int, archive_days: int = 1) -> Counter[str]:
    """Live through a week with an archive every `archive_days`. Raises AssertionError if a message is lost or there
    twice; return what happened."""
    from triomq.blocking import Producer

    clock = VirtualClock(BEGIN, settle_seconds=0.002, patience_seconds=0.0)
    with LocalCluster(clock=clock, store=folder / "store", settings=SETTINGS) as cluster:
        with Admin(name_server=cluster.name_server) as admin:
            admin.create_topic(TOPIC, read_queues=2, write_queues=2)
        week = Week(seed, folder, cluster, clock, per_hour)
        with Producer("week", name_server=cluster.name_server) as producer, killed_at_writes(week.may_kill):
            week.run(producer, archive_days)
        with PullConsumer("readers", name_server=cluster.name_server) as consumer:
            deleted = sum(consumer.min_offset(queue) for queue in consumer.queues(TOPIC))
        archived = spark.read.parquet(f"{folder}/archive").where(f"topic = '{TOPIC}'").select("keys").collect()
        table = spark.read.parquet(f"{folder}/table").select("keys").collect()
    for what, rows in (("archive", archived), ("table", table)):
        counts = Counter(row["keys"] for row in rows)
        assert sorted(counts) == sorted(week.sent), f"the {what} lacks messages"
        assert max(counts.values()) == 1, f"the {what} has messages twice"
    assert 0 < deleted < len(week.sent), "retention deletes what is old, and nothing else"
    return Counter(sent=len(week.sent), deleted=deleted, kills=week.kills)


def main() -> None:
    from small_spark import small_session

    import triomq.spark

    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = small_session("local[2]")
    triomq.spark.register(spark)
    for seed in range(int(sys.argv[1]) if len(sys.argv) > 1 else 20):
        with tempfile.TemporaryDirectory(prefix="week-") as folder:
            print(seed, dict(run_week(seed, spark, Path(folder), 12)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
