"""Compare the CPU time of a message in Python clients: ours, nats-py (JetStream), redis-py (streams) and aiokafka.

    bin/dev/bench-python-clients [--messages 20000] [--rounds 5] [--only triomq,nats-py] [--workloads send] [--json]

    send        one acknowledged send of 1 KiB after another, a quarter of --messages
    send_many   as many in flight as the library has by itself: `send_many`; nats-py `publish_async`, redis-py pipelines
                of 100, aiokafka `send` and `flush`, which puts several messages in a request
    receive     messages of 1 KiB with acknowledgement: `async for` (`for`); nats-py `fetch(32)` and `ack`, redis-py
                XREADGROUP COUNT 32 and XACK, aiokafka `async for` with its automatic commits

Shown are microseconds of CPU time of the client's process (user and system) for each message, as medians of the rounds.
Each run is a process of its own; opening and closing the client do not count, nor does storing what is received. The
libraries take turns in every round, so that other load reaches them alike. The servers are processes of their own and
run all the time; their CPU time is not shown. TrioMQ's is a broker with ASYNC_FLUSH, and no other server syncs before
it acknowledges.

Made on first use, in the user's cache: an environment with the other clients (python_peers.txt; redis-py with hiredis,
its parser in C), nats-server (Go), Kafka (Java and Maven), and Redis, if it is not installed, from Debian's packages.
What cannot be had is left out, and a line says why.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.peer_servers import (
    PEERS,
    Missing,
    ToolFailed,
    output_of,
    peers_python,
    running_kafka,
    running_nats,
    running_redis,
)
from triomq.broker.embedded import ProcessCluster
from triomq.protocol.speedups import running_build

PROJECT = Path(__file__).resolve().parent.parent
RUN_SECONDS = 120
WORKLOADS = {"send": "send", "send_many": "send_many", "receive": "loop"}
"""By workload: what benchmarks/python_facades.py calls it."""
SEND_SHARE = 4
"""Single sends take the longest, so there are fewer of them."""


class Client(NamedTuple):
    """A column of the table: its heading, the library's name for --only, and the server that it needs."""

    heading: str
    library: str
    server: str


CLIENTS = [
    Client("triomq", "triomq", "TrioMQ"),
    Client("triomq.aio", "triomq", "TrioMQ"),
    Client("triomq.blocking", "triomq", "TrioMQ"),
    Client("nats-py", "nats-py", "NATS"),
    Client("redis-py asyncio", "redis-py", "Redis"),
    Client("redis-py", "redis-py", "Redis"),
    Client("aiokafka", "aiokafka", "Kafka"),
]
FACADES = {"triomq": "trio", "triomq.aio": "asyncio", "triomq.blocking": "blocking"}


@contextmanager
def running_triomq() -> Iterator[str]:
    with ProcessCluster() as cluster:
        yield cluster.name_server


@contextmanager
def port_of(server: Callable[[], AbstractContextManager[tuple[object, int]]]) -> Iterator[str]:
    with server() as (_, port):
        yield str(port)


SERVERS: dict[str, Callable[[], AbstractContextManager[str]]] = {
    "TrioMQ": running_triomq,
    "NATS": lambda: port_of(running_nats),
    "Redis": lambda: port_of(running_redis),
    "Kafka": lambda: port_of(running_kafka),
}


def chosen(libraries: str) -> list[Client]:
    """Return the clients of the libraries named, separated by commas. Raises ArgumentTypeError."""
    names = libraries.split(",")
    known = list(dict.fromkeys(client.library for client in CLIENTS))
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError(f"no library is called {name!r}; there are {', '.join(known)}")
    return [client for client in CLIENTS if client.library in names]


def chosen_workloads(workloads: str) -> list[str]:
    """Return the workloads named, separated by commas, in the order of the table. Raises ArgumentTypeError."""
    names = workloads.split(",")
    for name in names:
        if name not in WORKLOADS:
            raise argparse.ArgumentTypeError(f"no workload is called {name!r}; there are {', '.join(WORKLOADS)}")
    return [name for name in WORKLOADS if name in names]


def table(headings: Sequence[str], figures: Mapping[str, Mapping[str, Sequence[float]]]) -> str:
    """Return a table in Markdown: a row for each workload, in it the median for each client, whose rounds are given."""
    lines = [f"| | {' | '.join(headings)} |", "|---" * (len(headings) + 1) + "|"]
    for workload, rounds in figures.items():
        cells = (f"{statistics.median(rounds[heading]):.1f}" for heading in headings)
        lines.append(f"| `{workload}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def measure(client: Client, workload: str, server: str, messages: int, python: Path) -> float:
    """Return the microseconds of CPU time of a message, from a run in a process of its own."""
    if workload == "send":
        messages = max(1, messages // SEND_SHARE)
    if client.library == "triomq":
        facade = FACADES[client.heading]
        command = [sys.executable, "-m", "benchmarks.python_facades", "--server", server, "--facades", facade, "--json"]
        command += ["--only", WORKLOADS[workload], "--rounds", "1", "--messages", str(messages)]
        command += ["--sends", str(messages)]
    else:
        command = [str(python), "-m", "benchmarks.python_peers", client.heading, workload, server, str(messages)]
    environment = dict(os.environ)
    if client.library != "triomq":
        environment["PYTHONPATH"] = str(PROJECT)
    figure = json.loads(output_of(command, PROJECT, RUN_SECONDS, environment).splitlines()[-1])
    if client.library == "triomq":
        return float(figure[0]["cpu_us"][FACADES[client.heading]])
    return float(figure)


def start(stack: ExitStack, clients: Sequence[Client]) -> dict[str, str]:
    """Start the servers of these clients; return their addresses, and say which cannot be had."""
    addresses = {}
    for name in dict.fromkeys(client.server for client in clients):
        try:
            addresses[name] = stack.enter_context(SERVERS[name]())
        except (Missing, ToolFailed) as error:
            print(f"{name} is left out: {error}", file=sys.stderr, flush=True)
    return addresses


def versions() -> str:
    """Return what is compared, in words."""
    peers = [line for line in PEERS.read_text().split() if "==" in line]
    return f"Python {platform.python_version()}, TrioMQ ({running_build()}), {', '.join(sorted(peers))}"


def stop(*_: object) -> None:
    """End as after an error: all servers end, too."""
    sys.exit(1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", type=chosen, default=CLIENTS)
    parser.add_argument("--workloads", type=chosen_workloads, default=list(WORKLOADS))
    parser.add_argument("--json", action="store_true", help="print the figures of all rounds, too")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, stop)
    python = Path(sys.executable)
    if any(client.library != "triomq" for client in given.only):
        try:
            python = peers_python()
        except ToolFailed as error:
            sys.exit(f"the other clients cannot be installed, --only triomq measures ours alone: {error}")
    with ExitStack() as stack:
        addresses = start(stack, given.only)
        clients = [client for client in given.only if client.server in addresses]
        figures: dict[str, dict[str, list[float]]] = {
            workload: {client.heading: [] for client in clients} for workload in given.workloads
        }
        for nth in range(given.rounds):
            print(f"round {nth + 1} of {given.rounds}, load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
            for workload in given.workloads:
                for client in clients:
                    took = measure(client, workload, addresses[client.server], given.messages, python)
                    figures[workload][client.heading].append(took)
    print(f"µs of CPU time a message, medians of {given.rounds} rounds of {given.messages:,}; {versions()}\n")
    print(table([client.heading for client in clients], figures))
    if given.json:
        print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
