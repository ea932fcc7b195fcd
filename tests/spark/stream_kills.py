"""Kill driver and broker of a running stream with SIGKILL.

    bin/dev/soak-spark-kills [KILLS] [--target triomq|apache] [--seed N]

A Spark driver copies one topic to another. Half of the kills hit the broker, which is restarted while the stream
continues. The other half hit the driver with its JVM and its Python workers; a new one continues from the checkpoint.
At the end each message must be in the target exactly once.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent / "shared"), str(HERE.parent / "interop")]

import stream_driver  # noqa: E402
from interop_cluster import Cluster, running_cluster  # noqa: E402
from interop_processes import wait_until  # noqa: E402
from small_spark import small_session  # noqa: E402

MESSAGES_PER_BATCH = 400
BATCHES_PER_KILL = 8
"""How many micro-batches of messages there are for each kill: the stream must not be through before the last one."""
BATCH_SECONDS = 300


class Driver:
    """A Spark driver with its JVM and Python workers: one process session, killed as a whole."""

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


@dataclass(frozen=True, slots=True)
class Counted:
    """What was sent, and how often each message arrived."""

    messages: int
    batches: int
    driver_kills: int
    broker_kills: int
    missing: list[str]
    doubled: list[str]

    @property
    def is_exact(self) -> bool:
        return not self.missing and not self.doubled


def fill(cluster: Cluster, topic: str, count: int) -> None:
    """Send messages with the keys k0, k1, ... and distinct bodies."""
    from triomq.protocol import properties
    from triomq.spark.cluster import Cluster as Brokers
    from triomq.spark.options import ConnectionOptions
    from triomq.spark.outgoing import OutgoingMessage
    from triomq.spark.sending import Sender

    with Brokers(ConnectionOptions((cluster.namesrv_address,))) as brokers:
        sender = Sender(
            brokers, "fill", batch_bytes=65_536, retries=3, stored=None, now_ms=lambda: time.time_ns() // 1_000_000
        )
        count_of_queues = len(sender.queues(topic))
        for number in range(count):
            table = properties.encode({"KEYS": f"k{number}"})
            sender.add(OutgoingMessage(topic, b"b%d" % number, table, number % count_of_queues, None, None, 0, ""))
        sender.flush()


def keys_in(cluster: Cluster, topic: str) -> Counter[str]:
    """Return how often each key is in a topic; reads without a Spark session."""
    from pyspark.sql.types import StringType, StructField, StructType

    from triomq.spark.options import source_options
    from triomq.spark.source import BatchReader

    options = source_options({"nameServer": cluster.namesrv_address, "subscribe": topic}, streaming=False)
    reader = BatchReader(options, StructType([StructField("keys", StringType())]))
    return Counter(
        key for part in reader.partitions() for batch in reader.read(part) for key in batch.column(0).to_pylist()
    )


def copy_under_fire(
    cluster: Cluster,
    work: Path,
    driver_kills: int,
    broker_kills: int,
    chance: random.Random,
    last_session: Callable[[], Any],
    say: Any = None,
) -> Counted:
    """Copy a topic while drivers and brokers are killed, each at a random moment of a micro-batch. At least one driver
    runs; the kills of the broker are spread over the drivers. The session that `last_session` returns copies the rest.
    """
    total = (driver_kills + broker_kills) * BATCHES_PER_KILL * MESSAGES_PER_BATCH
    source, target = cluster.create_topic("KillFrom", 4), cluster.create_topic("KillTo", 3)
    fill(cluster, source, total)
    checkpoint = work / "checkpoint"
    argv = [sys.executable, str(HERE / "stream_driver.py"), cluster.namesrv_address, source, target, str(checkpoint)]
    environment_path = os.pathsep.join(filter(None, [str(HERE.parents[1]), os.environ.get("PYTHONPATH")]))
    os.environ["PYTHONPATH"] = environment_path
    pause = threading.Event()

    def batches() -> int:
        offsets = checkpoint / "offsets"
        return sum(path.name.isdigit() for path in offsets.iterdir()) if offsets.is_dir() else 0

    def new_batches(driver: Driver, count: int) -> None:
        before = batches()

        def are_there() -> bool:
            assert driver.process.poll() is None, driver.log_path.read_text(errors="replace")[-2000:]
            return batches() >= before + count

        wait_until(are_there, BATCH_SECONDS, f"{count} more batches")

    for number in range(driver_kills):
        driver = Driver([*argv, str(MESSAGES_PER_BATCH)], work / f"driver{number}.log")
        try:
            new_batches(driver, 2)
            for _ in range(broker_kills * number // driver_kills, broker_kills * (number + 1) // driver_kills):
                pause.wait(chance.uniform(0, 0.5))
                cluster.broker.kill()
                cluster.broker.start()
                new_batches(driver, 1)
            pause.wait(chance.uniform(0, 0.7))
        finally:
            driver.kill()
        if say is not None:
            say(f"driver {number + 1} of {driver_kills} killed, {batches()} batches begun")
    begun = batches()
    assert begun * MESSAGES_PER_BATCH < total, "the stream was through before the last kill"
    stream_driver.copy(
        last_session(),
        cluster.namesrv_address,
        source,
        target,
        str(checkpoint),
        10 * MESSAGES_PER_BATCH,
        availableNow=True,
    )
    expected = {f"k{number}" for number in range(total)}
    assert keys_in(cluster, source) == Counter(expected)
    arrived = keys_in(cluster, target)
    doubled = [key for key, count in arrived.items() if count > 1 or key not in expected]
    return Counted(total, begun, driver_kills, broker_kills, sorted(expected - set(arrived)), sorted(doubled))


def session() -> Any:
    import triomq.spark

    os.environ["PYSPARK_PYTHON"] = sys.executable
    made = small_session("local[2]")
    triomq.spark.register(made)
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kills", nargs="?", type=int, default=20, help="of drivers and brokers together")
    parser.add_argument("--target", choices=("triomq", "apache"), default="triomq", help="whose broker")
    parser.add_argument("--seed", type=int, default=None)
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else random.randrange(1 << 30)
    print(f"seed {seed}", flush=True)
    began = time.monotonic()
    drivers = max(given.kills // 2, 1)
    with tempfile.TemporaryDirectory(prefix="spark-kills-") as name:
        work = Path(name)
        with running_cluster(given.target, work / "cluster") as cluster:
            counted = copy_under_fire(
                cluster,
                work,
                drivers,
                given.kills - drivers,
                random.Random(seed),
                session,
                lambda text: print(f"{time.monotonic() - began:6.0f} s  {text}", flush=True),
            )
    print(
        f"{counted.driver_kills} drivers and {counted.broker_kills} brokers killed in {counted.batches} micro-batches: "
        f"{counted.messages} messages, {len(counted.missing)} missing, {len(counted.doubled)} more than once; "
        f"{time.monotonic() - began:.0f} s"
    )
    return 0 if counted.is_exact else 1


if __name__ == "__main__":
    sys.exit(main())
