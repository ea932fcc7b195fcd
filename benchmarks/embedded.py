"""Measure how soon an embedded cluster is ready, and how long hours of virtual time take.

    python benchmarks/embedded.py [--runs 5]

    first            LocalCluster in a fresh interpreter, imports included
    again            a second one in the same interpreter
    process          ProcessCluster, from its start to registered brokers
    retries          sixteen refusals into the dead letter topic (4 h 45 min), with the Python client in this process
    delay            level 18 (2 h)
    transaction      three checks of a half message, then its commit
    retention        a file of 40 hours goes at 04:00

Seconds of the wall clock, best and median of the runs. For Java and Go clients: `pytest -s
tests/interop/test_interop_virtual_time.py` prints how long their ladders take.
"""

from __future__ import annotations

import argparse
import datetime
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from triomq import blocking  # noqa: E402
from triomq.broker.embedded import LocalCluster, ProcessCluster, VirtualClock  # noqa: E402
from triomq.client.core.results import ConsumeStatus, LocalTransactionState  # noqa: E402
from triomq.protocol.message import Message, MessageExt  # noqa: E402

HOUR_SECONDS = 3600
FIRST = """
import time
began = time.perf_counter()
from triomq.broker.embedded import LocalCluster
with LocalCluster():
    print(time.perf_counter() - began)
"""


def first() -> float:
    done = subprocess.run([sys.executable, "-c", FIRST], cwd=ROOT, capture_output=True, text=True, check=True)
    return float(done.stdout)


def again() -> float:
    began = time.perf_counter()
    with LocalCluster():
        return time.perf_counter() - began


def process() -> float:
    began = time.perf_counter()
    with ProcessCluster():
        return time.perf_counter() - began


def retries() -> float:
    clock = VirtualClock(patience_seconds=10)
    tries: list[int] = []

    def refuse(message: MessageExt) -> ConsumeStatus:
        tries.append(message.reconsume_times)
        return ConsumeStatus.RECONSUME_LATER

    with (
        LocalCluster(clock=clock) as cluster,
        blocking.Producer("p", name_server=cluster.name_server) as producer,
        blocking.PushConsumer("g", name_server=cluster.name_server) as consumer,
    ):
        producer.send(Message("Ladder", b"x"))
        consumer.subscribe("Ladder")
        consumer.listen(refuse)
        consumer.wait_assigned("%RETRY%g")
        began = time.perf_counter()
        clock.advance_until(lambda: len(tries) == 17, at_most_seconds=6 * HOUR_SECONDS)
        return time.perf_counter() - began


def delay() -> float:
    clock = VirtualClock(patience_seconds=10)
    arrived: list[bytes] = []
    with (
        LocalCluster(clock=clock) as cluster,
        blocking.Producer("p", name_server=cluster.name_server) as producer,
        blocking.PushConsumer("g", name_server=cluster.name_server) as consumer,
    ):
        message = Message("Later", b"x")
        message.delay_level = 18
        producer.send(message)
        consumer.subscribe("Later")
        consumer.listen(lambda message: arrived.append(message.body))
        consumer.wait_assigned("Later")
        began = time.perf_counter()
        clock.advance_until(lambda: arrived, at_most_seconds=3 * HOUR_SECONDS)
        return time.perf_counter() - began


def transaction() -> float:
    clock = VirtualClock(patience_seconds=10)
    asked: list[str] = []
    arrived: list[bytes] = []

    def check(message: MessageExt) -> LocalTransactionState:
        asked.append(message.msg_id)
        return LocalTransactionState.COMMIT_MESSAGE if len(asked) == 3 else LocalTransactionState.UNKNOW

    with (
        LocalCluster(clock=clock) as cluster,
        blocking.TransactionProducer(
            "p", lambda message, argument: LocalTransactionState.UNKNOW, check, name_server=cluster.name_server
        ) as producer,
        blocking.PushConsumer("g", name_server=cluster.name_server) as consumer,
    ):
        consumer.subscribe("Deals")
        consumer.listen(lambda message: arrived.append(message.body))
        producer.send_in_transaction(Message("Deals", b"x"))
        consumer.wait_assigned("Deals")
        began = time.perf_counter()
        clock.advance_until(lambda: arrived, at_most_seconds=HOUR_SECONDS)
        return time.perf_counter() - began


def retention() -> float:
    clock = VirtualClock(datetime.datetime(2024, 5, 1, 12, 0))
    with (
        tempfile.TemporaryDirectory() as directory,
        LocalCluster(
            clock=clock,
            store=directory,
            settings={"mappedFileSizeCommitLog": "65536", "fileReservedTime": "24"},
        ) as cluster,
        blocking.Producer("p", name_server=cluster.name_server) as producer,
    ):
        for _ in range(10):
            producer.send(Message("Old", random.randbytes(30_000)))
        oldest = Path(directory, "commitlog", "0" * 20)
        assert oldest.exists()
        clock.advance(24 * HOUR_SECONDS)
        began = time.perf_counter()
        clock.advance_to(datetime.time(4, 1))
        taken = time.perf_counter() - began
        assert not oldest.exists()
        return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    again()
    measured: tuple[Callable[[], float], ...] = (first, again, process, retries, delay, transaction, retention)
    for story in measured:
        seconds = [story() for _ in range(options.runs)]
        print(
            f"{story.__name__:<12} {min(seconds):.3f} s (best), {statistics.median(seconds):.3f} s (median)", flush=True
        )


if __name__ == "__main__":
    main()
