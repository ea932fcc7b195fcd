"""Measure a DLedger group of brokers, beside a group of RocketMQ's on the same machine.

    bin/dev/bench-dledger --load COMMAND [--peer COMMAND] [--project DIR]... [--seconds 5] [--rounds 3] [--only NAME]
                      [--catch-up-gib 1] [--empty-idle] [--directory DIR] [--json FILE]

`--load`, `--peer` and `--project` are those of bin/dev/bench-replication, and so is the output. Measured are:

    sends      a group of three: messages a second, 99th percentile, messages for each CPU second of all members
    failover   seconds from the last acknowledged send to the next, as the leader is killed and as it is stopped, while
               one client sends to the leader; `fast` says the same with dLegerFastElection, which is ours alone
    catch-up   a member that comes back empty beside producers: its megabytes a second, and the leader's 99th
               percentile meanwhile beside that of the two members alone. With `--empty-idle` it takes no processor
               time from the others, as on a machine of its own
    one        a group of one beside a plain broker

Only one group runs at a time; the load generator is held to one core, the members are free. Standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from boot import PROJECT, free_port
from replication import (
    GIVE_UP_SECONDS,
    LOADS,
    LOOK_SECONDS,
    OK,
    POLL_SECONDS,
    RUNTIME_INFO,
    SEND_MESSAGE,
    WITH_CATCH_UP,
    Figures,
    Server,
    Side,
    exchange,
    message_fields,
    run_load,
    show_all,
    sides_of,
)

GROUP = "RaftNode00"
BODY_BYTES = 1024
FILL_BYTES = 4096
SETTLE_SECONDS = 3.0
"""Until members that have just started have told each other their ends, so that a leader can hand over."""
BETWEEN_SENDS_SECONDS = 0.005


class Group:
    """Brokers that are members of one group; a plain broker if `members` is 0."""

    def __init__(self, side: Side, directory: Path, name_server: str, members: int, **settings: str) -> None:
        self.side = side
        self._directory = directory
        self._name_server = name_server
        names = [f"n{number}" for number in range(max(1, members))]
        self.ports = {name: free_port() for name in names}
        self._settings = {"brokerName": GROUP, "brokerIP1": "127.0.0.1", **settings}
        if members:
            peers = ";".join(f"{name}-127.0.0.1:{free_port()}" for name in names)
            self._settings |= {"enableDLegerCommitLog": "true", "dLegerGroup": GROUP, "dLegerPeers": peers}
        self._is_group = bool(members)
        self.running: dict[str, Server] = {}

    def start(self, member: str, *, prefix: Sequence[str] = ()) -> None:
        settings = {**self._settings, "dLegerSelfId": member} if self._is_group else self._settings
        home = self._directory / member
        command = self.side.command(home, self.ports[member], self._name_server, settings)
        self.running[member] = Server([*prefix, *command], home)

    def start_all(self) -> None:
        """Start all members at once, as a group needs two to elect a leader."""
        starting = [threading.Thread(target=self.start, args=(member,)) for member in self.ports]
        for each in starting:
            each.start()
        for each in starting:
            each.join()

    def kill(self, member: str) -> None:
        server = self.running.pop(member)
        os.killpg(server.process.pid, signal.SIGKILL)
        server.stop()

    def stop(self, member: str) -> None:
        self.running.pop(member).stop()

    def end(self) -> None:
        for member in list(self.running):
            self.stop(member)

    def empty(self, member: str) -> None:
        """Remove all that a stopped member had."""
        shutil.rmtree(self._directory / member)

    def cpu_seconds(self) -> float:
        return sum(server.cpu_seconds() for server in self.running.values())

    def try_send(self, member: str) -> bool:
        """Return whether a member acknowledges a message; only the leader does."""
        try:
            code, _, _ = exchange(self.ports[member], SEND_MESSAGE, message_fields(), b"are you there")
        except OSError:
            return False
        return code == OK

    def leader(self) -> str:
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while time.monotonic() < deadline:
            for member in self.running:
                if self.try_send(member):
                    return member
            time.sleep(POLL_SECONDS)
        raise SystemExit(f"the group of {self.side.name} has no leader")

    def log_end(self, member: str) -> int:
        with suppress(OSError, KeyError, ValueError):
            code, _, body = exchange(self.ports[member], RUNTIME_INFO, {})
            if code == OK:
                return int(json.loads(body)["table"]["commitLogMaxOffset"])
        return 0


@contextmanager
def running(side: Side, directory: Path | None, members: int, **settings: str) -> Iterator[Group]:
    home = Path(tempfile.mkdtemp(prefix=f"group-{side.name}-", dir=directory))
    port = free_port()
    (home / "namesrv.conf").write_text(f"listenPort={port}\nkvConfigPath={home}/kvConfig.json\n")
    name_server = Server([str(PROJECT / "bin" / "mqnamesrv"), "-c", str(home / "namesrv.conf")], home / "namesrv")
    group = Group(side, home, f"127.0.0.1:{port}", members, **settings)
    try:
        group.start_all()
        group.leader()
        time.sleep(SETTLE_SECONDS)
        yield group
    finally:
        group.end()
        name_server.stop()
        shutil.rmtree(home, ignore_errors=True)


def measure_load(group: Group, load: list[str], arguments: list[str], seconds: float) -> Figures:
    port = group.ports[group.leader()]
    before = group.cpu_seconds()
    began = time.monotonic()
    figures = run_load(load, port, arguments, seconds, BODY_BYTES)
    # The rate is over the time of the run itself; what it sent in all is rate times time.
    taken = min(seconds, time.monotonic() - began)
    figures["per_cpu_s"] = figures["msgs_per_s"] * taken / (group.cpu_seconds() - before)
    return figures


def measure_sends(side: Side, arguments: argparse.Namespace, members: int = 3) -> dict[str, Figures]:
    with running(side, arguments.directory, members) as group:
        # The first load warms up the other side's just-in-time compiler and the files.
        measure_load(group, arguments.load, LOADS["4x64"], arguments.seconds)
        return {name: measure_load(group, arguments.load, flags, arguments.seconds) for name, flags in LOADS.items()}


class Sending:
    """One client that sends one message after the other to the leader. `longest` is the longest time between two
    acknowledgements since it was set to 0."""

    def __init__(self, group: Group) -> None:
        self.acknowledged = 0
        self.longest = 0.0
        self._group = group
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        last = time.monotonic()
        members = list(self._group.ports)
        while not self._over.wait(BETWEEN_SENDS_SECONDS):
            if not self._group.try_send(members[0]):
                members.append(members.pop(0))
                continue
            now = time.monotonic()
            self.longest = max(self.longest, now - last)
            last = now
            self.acknowledged += 1

    def wait_more(self, count: int = 50) -> None:
        until = self.acknowledged + count
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while self.acknowledged < until:
            if time.monotonic() > deadline:
                raise SystemExit("nothing is acknowledged")
            time.sleep(POLL_SECONDS)

    def end(self) -> None:
        self._over.set()
        self._thread.join()


def measure_failover(side: Side, arguments: argparse.Namespace, **settings: str) -> Figures:
    figures: Figures = {}
    with running(side, arguments.directory, 3, **settings) as group:
        sending = Sending(group)
        for name, end in (("killed_s", group.kill), ("stopped_s", group.stop)):
            leader = group.leader()
            sending.wait_more()
            sending.longest = 0.0
            end(leader)
            sending.wait_more()
            figures[name] = sending.longest
            group.start(leader)
            time.sleep(SETTLE_SECONDS)
        sending.end()
    return figures


def measure_catch_up(side: Side, arguments: argparse.Namespace) -> Figures:
    with running(side, arguments.directory, 3) as group:
        measure_load(group, arguments.load, LOADS["4x64"], arguments.seconds)
        leader = group.leader()
        empty = next(member for member in group.ports if member != leader)
        group.stop(empty)
        group.empty(empty)
        leader = group.leader()
        port = group.ports[leader]
        while group.log_end(leader) < arguments.catch_up_gib * (1 << 30):
            run_load(arguments.load, port, LOADS["4x64"], 2, FILL_BYTES)
        time.sleep(arguments.seconds)  # what was written is written back
        quiet = run_load(arguments.load, port, WITH_CATCH_UP, arguments.seconds, BODY_BYTES)
        behind = group.log_end(leader)
        group.start(empty, prefix=side.slave_prefix)
        began = time.monotonic()
        during = run_load(arguments.load, port, WITH_CATCH_UP, arguments.seconds, BODY_BYTES)
        still_behind = group.log_end(leader) - group.log_end(empty)
        while group.log_end(empty) < behind:
            if time.monotonic() - began > GIVE_UP_SECONDS:
                raise SystemExit(f"the empty member of {side.name} does not catch up")
            time.sleep(LOOK_SECONDS)
        taken = time.monotonic() - began
        time.sleep(SETTLE_SECONDS)
        after = run_load(arguments.load, port, WITH_CATCH_UP, arguments.seconds, BODY_BYTES)
        return {
            "all_p99_ms": after["p99_ms"],
            "all_msgs_per_s": after["msgs_per_s"],
            "quiet_p99_ms": quiet["p99_ms"],
            "p99_ms": during["p99_ms"],
            "ratio": during["p99_ms"] / quiet["p99_ms"],
            "quiet_msgs_per_s": quiet["msgs_per_s"],
            "msgs_per_s": during["msgs_per_s"],
            "behind_mb": behind / 1e6,
            "still_behind_mb": still_behind / 1e6,
            "mb_per_s": behind / 1e6 / taken,
        }


def measured(side: Side, arguments: argparse.Namespace) -> Iterator[tuple[str, Figures]]:
    """Yield name and figures of everything that `--only` asks for."""
    is_ours = side.name != "peer"
    if "sends".startswith(arguments.only):
        for name, figures in measure_sends(side, arguments).items():
            yield f"sends {name}", figures
    if "failover".startswith(arguments.only):
        yield "failover", measure_failover(side, arguments)
        if is_ours:
            yield "failover fast", measure_failover(side, arguments, dLegerFastElection="true")
    if "catch-up".startswith(arguments.only):
        yield "catch-up", measure_catch_up(side, arguments)
    if "one".startswith(arguments.only):
        for members, kind in ((0, "plain"), (1, "group of one")):
            for name, figures in measure_sends(side, arguments, members).items():
                yield f"one {name} {kind}", figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--load", required=True, type=shlex.split, help="command of the load generator")
    parser.add_argument("--peer", type=shlex.split, help="command that starts the other side's brokers")
    parser.add_argument("--project", type=Path, action="append", help="a copy of this project to measure")
    parser.add_argument("--seconds", type=float, default=5, help="measured time of each load")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds, of which the median is shown")
    parser.add_argument("--only", default="", help="what begins so: sends, failover, catch-up, one")
    parser.add_argument("--catch-up-gib", type=float, default=1, help="what an empty member lacks")
    parser.add_argument("--empty-idle", action="store_true", help="it gets the cores when nobody else wants them")
    parser.add_argument("--directory", type=Path, help="where stores are made, and removed afterwards")
    parser.add_argument("--json", type=Path, help="write every figure there")
    arguments = parser.parse_args()
    sides = sides_of(arguments.project, arguments.peer, slave_idle=arguments.empty_idle)
    everything: dict[str, dict[str, list[Figures]]] = {}
    for _ in range(arguments.rounds):
        for side in sides:
            for name, figures in measured(side, arguments):
                everything.setdefault(name, {}).setdefault(side.name, []).append(figures)
                print(f"{side.name} {name}: {figures}", file=sys.stderr)
    show_all(everything, arguments.json)


if __name__ == "__main__":
    main()
