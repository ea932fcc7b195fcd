"""Driver and broker killed with SIGKILL in the middle of a stream: each message arrives exactly once."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MESSAGES = 14_000
DRIVER_KILLS = 2
BROKER_KILLS = 2


@pytest.fixture
def fragile(tmp_path: Path) -> Iterator[Any]:
    from interop_cluster import find_peer, running_cluster

    target = os.environ.get("TRIOMQ_INTEROP_TARGET", "triomq")
    if target == "apache" and find_peer() is None:
        pytest.skip("Apache's daemons: no peer script (set TRIOMQ_PEER)")
    with running_cluster(target, tmp_path / "cluster") as running:
        yield running


class Driver:
    """A Spark driver with its JVM and Python workers: one session, killed as a whole."""

    def __init__(self, argv: list[str], log_path: Path) -> None:
        self.log_path = log_path
        with log_path.open("wb") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True)

    def kill(self) -> None:
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                if int(stat.read_text().rpartition(")")[2].split()[3]) == self.process.pid:
                    os.kill(int(stat.parent.name), signal.SIGKILL)
        self.process.wait()

    def says(self, text: str) -> bool:
        log = self.log_path.read_text(errors="replace")
        assert self.process.poll() is None or text in log, log[-2000:]
        return text in log


def keys_in(spark: Any, cluster: Any, topic: str) -> Counter[str]:
    table = spark.read.format("rocketmq").options(nameServer=cluster.namesrv_address, subscribe=topic).load()
    return Counter(row["keys"] for row in table.select("keys").collect())


def test_kills_lose_and_double_nothing(spark: Any, fragile: Any, tmp_path: Path) -> None:
    from interop_processes import wait_until

    source, target = fragile.create_topic("KillFrom", 4), fragile.create_topic("KillTo", 3)
    rows = spark.range(0, MESSAGES, numPartitions=2).selectExpr("concat('b', id) as body", "concat('k', id) as keys")
    writer = rows.write.format("rocketmq").options(nameServer=fragile.namesrv_address, topic=source)
    writer.mode("append").save()
    argv = [
        sys.executable, str(Path(__file__).with_name("stream_driver.py")), fragile.namesrv_address, source, target,
        str(tmp_path / "checkpoint"),
    ]  # fmt: skip
    chance = random.Random(7)
    offsets = tmp_path / "checkpoint" / "offsets"

    def batches() -> int:
        return sum(path.name.isdigit() for path in offsets.iterdir()) if offsets.is_dir() else 0

    def new_batches(count: int) -> None:
        before = batches()
        wait_until(lambda: batches() >= before + count, 120, f"{count} more batches")

    pause = threading.Event()
    for number in range(DRIVER_KILLS):
        driver = Driver(argv, tmp_path / f"driver{number}.log")
        new_batches(2)
        if number < BROKER_KILLS:
            pause.wait(chance.uniform(0, 0.5))
            fragile.broker.kill()
            fragile.broker.start()
            new_batches(2)
        pause.wait(chance.uniform(0, 0.7))
        driver.kill()
    last = Driver([*argv, "once"], tmp_path / "driver-last.log")
    wait_until(lambda: last.says("over"), 240, "the rest of the stream")
    last.kill()
    assert keys_in(spark, fragile, source) == Counter(f"k{number}" for number in range(MESSAGES))
    arrived = keys_in(spark, fragile, target)
    assert [key for key, count in arrived.items() if count > 1] == []
    assert len(arrived) == MESSAGES
