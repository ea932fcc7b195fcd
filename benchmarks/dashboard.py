"""Measure what the dashboard of a broker costs: messages beside somebody who looks, and memory.

    bin/dev/bench-dashboard [--rounds 5] [--seconds 4] [--topics 1000] [--groups 100] [--nice -15]

Sends: a client sends one message after another, with pauses, alone and beside a visitor, several times in alternation.
The visitor is a process that loads the overview, the topics and the groups each second over one connection. It is no
browser: that one runs on another machine, and what it does there costs the broker nothing. The table has the medians
of all rounds; p99 beside the visitor should be at most 1.2 times that alone.

Memory: anonymous memory of a broker without a dashboard, of one whose dashboard nobody has visited, which should be at
most 1 MiB more, and of that one after 20 visits. Each is the median of several processes.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.curves import Peer
from benchmarks.under_attack import Healthy, Seen, question
from benchmarks.watch import MIB, PROJECT, daemon, free_port, own_memory_bytes

PAGES = ("/", "/topics", "/groups")
SECONDS_BETWEEN_VISITS = 1.0
VISITS = 20
SETTLE_SECONDS = 2.0
MOST_TIMES_ALONE = 1.2
MOST_IDLE_BYTES = MIB


def visit(port: int, times: int, pause_seconds: float) -> None:
    """Load the pages this many times."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    for number in range(times):
        began = time.monotonic()
        for page in PAGES:
            connection.request("GET", page)
            response = connection.getresponse()
            response.read()
            if response.status != 200:
                raise RuntimeError(f"{page} is a {response.status}")
        if number == 0 and pause_seconds:
            print("visited", flush=True)
        time.sleep(max(0.0, pause_seconds - (time.monotonic() - began)))


@contextmanager
def visitor(port: int) -> Iterator[None]:
    """Run a visitor beside this program. Raises RuntimeError if it ends by itself."""
    environment = dict(os.environ, PYTHONPATH=f"{PROJECT}/src:{PROJECT}")
    command = [sys.executable, "-m", "benchmarks.dashboard", "--visit", str(port)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()  # everything is loaded
            yield
        finally:
            process.kill()
    if process.returncode >= 0:
        raise RuntimeError(f"the visitor ended by itself with {process.returncode}")


@contextmanager
def broker(home: Path, given: argparse.Namespace, dashboard: int) -> Iterator[tuple[int, int]]:
    """Run a broker with these topics and groups; yield its port and pid."""
    topics = {f"topic-{number:04}": {"topicName": f"topic-{number:04}"} for number in range(given.topics)}
    groups = {f"group-{number:04}": {"groupName": f"group-{number:04}"} for number in range(given.groups)}
    config = home / "store/config"
    config.mkdir(parents=True, exist_ok=True)
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    (config / "subscriptionGroup.json").write_text(json.dumps({"subscriptionGroupTable": groups}))
    port = free_port()
    lines = {"listenPort": str(port), "brokerIP1": "127.0.0.1", "storePathRootDir": str(home / "store")}
    if dashboard:
        lines["dashboardPort"] = str(dashboard)
    with daemon("broker", lines, home) as pid:
        yield port, pid


def sends(given: argparse.Namespace) -> bool:
    """Print the latencies of sends; return whether they are within the bound."""
    alone: list[Seen] = []
    beside: list[Seen] = []
    with tempfile.TemporaryDirectory(prefix="bench-dashboard-") as home:
        dashboard = free_port()
        with broker(Path(home), given, dashboard) as (port, pid):
            visit(dashboard, 1, 0.0)
            healthy = Healthy(port, pid, question("broker"))
            healthy.run(1.0)
            for _ in range(given.rounds):
                alone.append(healthy.run(given.seconds))
                with visitor(dashboard):
                    beside.append(healthy.run(given.seconds))
    print("| sends | alone | beside a visitor | times |")
    print("|---|---|---|---|")
    times = 0.0
    for name, share in (("p50", 0.5), ("p99", 0.99), ("longest", 1.0)):
        before, after = [statistics.median(seen.p(share) for seen in all_seen) for all_seen in (alone, beside)]
        times = after / before if name == "p99" else times
        print(f"| {name} | {before:.2f} ms | {after:.2f} ms | {after / before:.2f} |")
    pairs = ", ".join(f"{one.p(0.99):.2f}/{two.p(0.99):.2f}" for one, two in zip(alone, beside, strict=True))
    print(f"\np99 of each round, ms: {pairs}\n", flush=True)
    return times <= MOST_TIMES_ALONE


def memory(given: argparse.Namespace) -> bool:
    """Print the memory of brokers; return whether an unvisited dashboard is within the bound."""
    without: list[int] = []
    unvisited: list[int] = []
    visited: list[int] = []
    for _ in range(given.rounds):
        for dashboard in (0, free_port()):
            with (
                tempfile.TemporaryDirectory(prefix="bench-dashboard-") as home,
                broker(Path(home), given, dashboard) as (port, pid),
            ):
                Peer(port).sock.close()
                time.sleep(SETTLE_SECONDS)
                (unvisited if dashboard else without).append(own_memory_bytes(pid))
                if dashboard:
                    visit(dashboard, VISITS, 0.0)
                    visited.append(own_memory_bytes(pid))
    least = statistics.median(without)
    print("| anonymous memory | MiB | more, MiB |")
    print("|---|---|---|")
    for name, found in (("no dashboard", without), ("never visited", unvisited), (f"{VISITS} visits", visited)):
        median = statistics.median(found)
        print(f"| {name} | {median / MIB:.1f} | {(median - least) / MIB:.2f} |")
    return statistics.median(unvisited) - least <= MOST_IDLE_BYTES


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="of sends, alone and beside, in each round")
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--nice", type=int, default=0, help="below 0 (as root): go before what else this machine does")
    parser.add_argument("--only", choices=["sends", "memory"])
    parser.add_argument("--visit", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.visit is not None:
        visit(given.visit, sys.maxsize, SECONDS_BETWEEN_VISITS)
        return 0
    os.nice(given.nice)
    print(f"{given.topics} topics, {given.groups} groups; load {os.getloadavg()[0]:.1f}\n")
    results = [part(given) for part in (sends, memory) if given.only in (None, part.__name__)]
    return 0 if all(results) else 1


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
