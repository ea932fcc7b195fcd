"""Measure sends and fetches beside NATS JetStream, in one run on the same machine.

    python -m benchmarks.nats_jetstream [--seconds 5] [--rounds 3]

Both get the same load over raw connections from one Go program (benchmarks/nats), which is pinned to one processor; the
servers are free. They take turns. A send is acknowledged when the server has written it to its file; neither side
syncs before that (ASYNC_FLUSH; JetStream's sync_interval). Fetches read messages that nobody acknowledges, in batches
of 32, and ask for the next batch when one has come. Shown are the medians; per CPU second of the server is what a
noisy machine changes least. Needs Go, which builds the load and nats-server once into the user's cache.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.curves import Broker, Peer, make_topic, running_broker
from benchmarks.peer_servers import go_program, running_nats

STORED = 50_000
"""Messages of each queue or subject that fetches read."""

WORKLOADS = {
    "send 4x64, 1 KiB": ("send", ["-connections", "4", "-window", "64"]),
    "send 64x1, 1 KiB": ("send", ["-connections", "64", "-window", "1"]),
    "send 4x64, 128 B": ("send", ["-connections", "4", "-window", "64", "-size", "128"]),
    "fetch of 32, 4x1": ("fetch", ["-connections", "4", "-window", "1", "-stored", str(STORED)]),
}


@dataclass(frozen=True)
class Figures:
    """Messages a second by the clock, and messages per CPU second of the server."""

    rate: float
    per_cpu_second: float


def run_load(load: Path, system: str, what: str, port: int, options: list[str], cpu: Callable[[], float]) -> Figures:
    """Run the load; `cpu` tells the seconds that the server has used."""
    command = [str(load), *options, system, what, f"127.0.0.1:{port}"]
    if (pin := shutil.which("taskset")) is not None:
        command = [pin, "-c", str(max(os.sched_getaffinity(0))), *command]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()  # "begin"
        before = cpu()
        words = process.stdout.readline().split()
        used = cpu() - before
    if process.returncode or len(words) != 2:
        raise RuntimeError(f"{system} {what} failed; see above")
    messages, seconds = int(words[0]), float(words[1])
    return Figures(messages / seconds, messages / used)


def fill(load: Path, system: str, port: int) -> None:
    """Store what fetches read."""
    options = ["-connections", "4", "-window", "64", "-count", str(STORED)]
    subprocess.run([str(load), *options, system, "send", f"127.0.0.1:{port}"], check=True)


@contextmanager
def running_jetstream(load: Path) -> Iterator[Broker]:
    """Run a NATS server with the stream of the load."""
    began = time.monotonic()
    with running_nats() as (process, port):
        subprocess.run([str(load), "nats", "setup", f"127.0.0.1:{port}"], check=True)
        yield Broker(process, port, time.monotonic() - began)


def measure(load: Path, name: str, seconds: float) -> tuple[Figures, Figures]:
    """Return the figures of TrioMQ and of NATS, each of a fresh server."""
    what, options = WORKLOADS[name]
    options = [*options, "-lasts", f"{seconds}s"]
    with running_broker() as broker:
        make_topic(Peer(broker.port), 64, "Bench")
        if what == "fetch":
            fill(load, "rocketmq", broker.port)
        ours = run_load(load, "rocketmq", what, broker.port, options, broker.cpu_seconds)
    with running_jetstream(load) as nats:
        if what == "fetch":
            fill(load, "nats", nats.port)
        theirs = run_load(load, "nats", what, nats.port, options, nats.cpu_seconds)
    return ours, theirs


def median(rounds: list[Figures]) -> Figures:
    return Figures(
        statistics.median(each.rate for each in rounds), statistics.median(each.per_cpu_second for each in rounds)
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    load = go_program("natsload", ".")
    print(f"machine: {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    print("| workload | TrioMQ | NATS JetStream | ratio | per CPU second | ratio |\n|---|---|---|---|---|---|")
    for name in WORKLOADS:
        rounds = [measure(load, name, given.seconds) for _ in range(given.rounds)]
        ours, theirs = (median(list(side)) for side in zip(*rounds, strict=True))
        print(
            f"| {name} | {ours.rate:,.0f} | {theirs.rate:,.0f} | {ours.rate / theirs.rate:.2f} "
            f"| {ours.per_cpu_second:,.0f} and {theirs.per_cpu_second:,.0f} "
            f"| {ours.per_cpu_second / theirs.per_cpu_second:.2f} |",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
