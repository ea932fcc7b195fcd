"""Measure what hostile clients do to a daemon: its memory, and the latency of a healthy client beside them.

    bin/dev/bench-under-attack [--only WORD] [--daemon broker] [--seconds 8] [--budget-mib 128] [--nice -15]

For each attack a daemon of its own starts with that budget (maxRequestBytes), and a healthy client asks it one
question after another, with pauses: it sends a message to the broker, or asks the NameServer for a route. First it is
alone, then the attackers (benchmarks/attackers.py) are beside it, in a process that runs only when the daemon and the
healthy client do not need the processor, since attackers have machines of their own.

The table has the largest anonymous memory of the daemon, which must stay below the budget and 64 MiB, and the p99 of
the healthy client beside the attack as a multiple of its own, which should be at most 3. The command fails when memory
is above. Latencies are for the eye: they depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.attackers import DAEMONS, Attack, prepare
from benchmarks.curves import Peer, frame, messages
from benchmarks.watch import MIB, PROJECT, daemon, free_port, own_memory_bytes
from triomq.protocol.codes import RequestCode

PAUSE_SECONDS = 0.001
SAMPLE_SECONDS = 0.02
MOST_ABOVE_BUDGET_BYTES = 64 * MIB
MOST_TIMES_OWN = 3.0
HEALTHY_TOPIC = "Healthy"


@dataclass
class Seen:
    """What a healthy client met: seconds of each request, refusals, and the daemon's largest memory."""

    latencies: list[float]
    refused: int
    peak_bytes: int

    def p(self, share: float) -> float:
        """Return that quantile of the latencies in ms."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000


class Healthy:
    """A client that waits for each response before it asks again."""

    def __init__(self, port: int, pid: int, make: Callable[[int], bytes]) -> None:
        self._peer = Peer(port)
        self._pid = pid
        self._make = make

    def run(self, seconds: float) -> Seen:
        seen = Seen([], 0, 0)
        until = time.perf_counter() + seconds
        sampled = 0.0
        number = 0
        while (now := time.perf_counter()) < until:
            if now - sampled > SAMPLE_SECONDS:
                seen.peak_bytes = max(seen.peak_bytes, own_memory_bytes(self._pid))
                sampled = now
            request = self._make(number)
            number += 1
            began = time.perf_counter()
            self._peer.sock.sendall(request)
            try:
                while not self._peer.receive():
                    pass
            except RuntimeError:
                seen.refused += 1
            seen.latencies.append(time.perf_counter() - began)
            time.sleep(PAUSE_SECONDS)
        return seen


def question(name: str) -> Callable[[int], bytes]:
    if name == "broker":
        return messages(4, 1024, HEALTHY_TOPIC)
    asks = frame(RequestCode.GET_BROKER_CLUSTER_INFO, {})
    return lambda _: asks


def attacked(name: str, key: str, attack: Attack, given: argparse.Namespace, home: Path) -> tuple[Seen, Seen]:
    """Return what the healthy client saw alone, and beside the attack."""
    port = free_port()
    lines = {"listenPort": str(port), "maxRequestBytes": str(given.budget_mib * MIB)}
    if name == "broker":
        lines |= {"brokerIP1": "127.0.0.1", "storePathRootDir": str(home / "store"), "enablePropertyFilter": "true"}
    else:
        lines |= {"kvConfigPath": str(home / "kv.json"), "configStorePath": str(home / "namesrv.properties")}
    with daemon(name, lines, home) as pid:
        healthy = Healthy(port, pid, question(name))
        if name == "broker":
            prepare(port)
        healthy.run(1.0)
        alone = healthy.run(given.seconds / 2)
        environment = dict(os.environ, PYTHONPATH=f"{PROJECT}/src:{PROJECT}")
        command = [sys.executable, "-m", "benchmarks.attackers", name, key, str(port), "600"]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as attackers:
            try:
                assert attackers.stdout is not None
                attackers.stdout.readline()
                beside = healthy.run(given.seconds)
            finally:
                attackers.kill()
        if attackers.returncode >= 0:
            raise RuntimeError(f"the attackers {key} ended by themselves with {attackers.returncode}")
    return alone, beside


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="attacks whose name contains this")
    parser.add_argument("--daemon", choices=list(DAEMONS), help="only attacks of this daemon")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each attack")
    parser.add_argument("--budget-mib", type=int, default=128)
    parser.add_argument("--nice", type=int, default=0, help="below 0 (as root): go before what else this machine does")
    given = parser.parse_args()
    os.nice(given.nice)
    limit_mib = given.budget_mib + MOST_ABOVE_BUDGET_BYTES // MIB
    print(f"budget {given.budget_mib} MiB; memory must be at most {limit_mib} MiB; load {os.getloadavg()[0]:.1f}\n")
    print("| daemon | attack | memory, at most | p99 alone | p99 beside | times | longest | refused |")
    print("|---|---|---|---|---|---|---|---|")
    failed = 0
    for name, attacks in DAEMONS.items():
        if given.daemon not in (None, name):
            continue
        for key, attack in attacks.items():
            if given.only not in key:
                continue
            with tempfile.TemporaryDirectory(prefix="under-attack-") as home:
                try:
                    alone, beside = attacked(name, key, attack, given, Path(home))
                except (RuntimeError, OSError) as error:
                    print(f"| {name} | {attack.title} | {error} |", flush=True)
                    failed += 1
                    continue
            times = beside.p(0.99) / alone.p(0.99)
            peak_mib = beside.peak_bytes / MIB
            failed += peak_mib > limit_mib
            print(
                f"| {name} | {attack.title} | {peak_mib:.0f} MiB{' **above**' * (peak_mib > limit_mib)} | "
                f"{alone.p(0.99):.2f} ms | {beside.p(0.99):.2f} ms | {times:.1f}{' !' * (times > MOST_TIMES_OWN)} | "
                f"{beside.p(1):.0f} ms | {beside.refused} |",
                flush=True,
            )
    return 1 if failed else 0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
