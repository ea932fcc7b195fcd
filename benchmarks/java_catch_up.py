"""Measure what Java producers keep of their rate while a Java consumer catches up, beside RocketMQ's broker.

    python benchmarks/java_catch_up.py --peer COMMAND [--project DIR]... [--seconds 8] [--rounds 3] [--backlog 4000000]

`--peer` starts the other side ("COMMAND broker DIR PORT NAMESRV KEY=VALUE..."), and "COMMAND cp" prints the class path
of the Java client, which needs Java 17. `--project` names a copy of this project to measure, a compiled one for
instance, and may be given several times (default: this one).

32 producer threads of one virtual machine send messages of 128 bytes to 1,024 queues, each waiting for its response;
first alone, then beside a push consumer, a virtual machine of its own, that begins at the first of `--backlog`
messages. Shown are the messages a second of both, the median, 99th and 99.9th percentile of the sends in milliseconds,
and CPU seconds of the broker in a second. Broker and clients share the processors: on two cores the clients want both.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from replication import Figures, Pair, Side, running, show_all, sides_of

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPIC = "CatchUp"
SOURCE = Path(__file__).parent / "java" / "CatchUp.java"
THREADS, BODY_BYTES = "32", "128"
WARM_UP_SECONDS = 6
BROKER = {"autoCreateTopicEnable": "true", "defaultTopicQueueNums": "1024"}


class Client:
    """A virtual machine with the client; see CatchUp.java."""

    def __init__(self, class_path: str, *words: str) -> None:
        self.process = subprocess.Popen(
            ["java", "-Xmx2g", "-cp", class_path, str(SOURCE), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.answer()

    def answer(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{shlex.join(map(str, self.process.args))} has ended")  # type: ignore[arg-type]
        return line.strip()

    def ask(self, line: str) -> str:
        assert self.process.stdin is not None
        print(line, file=self.process.stdin, flush=True)
        return self.answer()


@contextmanager
def client(class_path: str, *words: str) -> Iterator[Client]:
    made = Client(class_path, *words)
    try:
        yield made
    finally:
        made.process.kill()
        made.process.wait()


def measure(side: Side, class_path: str, seconds: int, backlog: int, directory: Path | None) -> Figures:
    """Return the figures of a fresh broker."""
    with ExitStack() as stack:
        pair = stack.enter_context(running(side, "ASYNC_MASTER", directory, **BROKER))
        words = ("produce", pair.name_server, TOPIC, THREADS, BODY_BYTES)
        producer = stack.enter_context(client(class_path, *words))
        producer.ask(f"measure {WARM_UP_SECONDS}")
        producer.ask(f"fill {backlog}")
        time.sleep(2)  # what the fill has left to do in the broker
        alone = measure_sends(producer, pair, seconds)
        consumer = stack.enter_context(client(class_path, "consume", pair.name_server, TOPIC))
        producer.ask(f"measure {WARM_UP_SECONDS}")
        before = int(consumer.ask("count"))
        beside = measure_sends(producer, pair, seconds)
        received = int(consumer.ask("count"))
    return {
        **{f"alone {name}": figure for name, figure in alone.items()},
        **{f"beside {name}": figure for name, figure in beside.items()},
        "consumed/s": (received - before) / seconds,
        "left": backlog - received,
        "kept": beside["msgs/s"] / alone["msgs/s"],
        "p99 times": beside["p99 ms"] / alone["p99 ms"],
    }


def measure_sends(producer: Client, pair: Pair, seconds: int) -> Figures:
    before = pair.master.cpu_seconds()
    rate, *percentiles = map(float, producer.ask(f"measure {seconds}").split())
    named = zip(("p50 ms", "p99 ms", "p999 ms"), percentiles, strict=True)
    figures = {name: microseconds / 1000 for name, microseconds in named}
    return {"msgs/s": rate, **figures, "cores": (pair.master.cpu_seconds() - before) / seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True, type=shlex.split, help="command that starts the other side's brokers")
    parser.add_argument("--project", type=Path, action="append", help="a copy of this project to measure")
    parser.add_argument("--only", help="measure this side alone")
    parser.add_argument("--seconds", type=int, default=8, help="measured time alone, and beside the consumer")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds, of which the median is shown")
    parser.add_argument("--backlog", type=int, default=4_000_000, help="messages for the consumer")
    parser.add_argument("--directory", type=Path, help="where stores are made, and removed afterwards")
    parser.add_argument("--json", type=Path, help="write every figure there")
    given = parser.parse_args()
    class_path = subprocess.run([*given.peer, "cp"], check=True, capture_output=True, text=True).stdout.strip()
    found: dict[str, list[Figures]] = {}
    for _ in range(given.rounds):
        for side in sides_of(given.project, given.peer):
            if given.only in (None, side.name):
                figures = measure(side, class_path, given.seconds, given.backlog, given.directory)
                print(f"{side.name}: {figures}", file=sys.stderr)
                found.setdefault(side.name, []).append(figures)
    show_all({"catch-up": found}, given.json)


if __name__ == "__main__":
    main()
