"""Measure SYNC_FLUSH, where messages are on the disk before the response, beside Apache's broker.

    bin/dev/bench-sync-flush [--seconds 5] [--rounds 3] [--only NAME] [--peer PATH] [--directory DIR]

Each round starts both brokers in turn, each with flushDiskType=SYNC_FLUSH and a store of its own on the same file
system (`--directory`; a directory in memory would measure nothing), and gives both the same load: ready-made frames
from this process over some connections, each with a window of unanswered messages. The table has the medians and their
ratio. `bare` is a loop of pwrite and fdatasync of the same bytes: what the disk gives to a single writer.

`--peer` is a script that starts Apache's broker (`PATH broker DIRECTORY PORT NAMESRV KEY=VALUE...`). The default is the
one of the tests, which fetches it from Maven Central; without Java and Maven TrioMQ is measured alone.
"""

from __future__ import annotations

import argparse
import os
import select
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from benchmarks.boot import free_port
from benchmarks.curves import Peer, message

PROJECT = Path(__file__).resolve().parent.parent
TOPIC = "SyncFlush"
QUEUES = 4
WARM_UP_SECONDS = 1.0
SETTINGS = {"flushDiskType": "SYNC_FLUSH", "waitTimeMillsInSendQueue": "60000"}
LENGTH = struct.Struct(">i")
READY_FRAMES = 4096


@dataclass(frozen=True)
class Workload:
    connections: int
    window: int
    body_bytes: int

    @property
    def name(self) -> str:
        return f"{self.connections}x{self.window} of {self.body_bytes} B"


WORKLOADS = (Workload(4, 64, 1024), Workload(64, 1, 1024), Workload(1, 1, 1024), Workload(4, 64, 128))


@dataclass(frozen=True)
class Figures:
    """Messages a second, milliseconds until a response, messages per second of the broker's CPU time."""

    rate: float
    p50_ms: float
    p99_ms: float
    rate_of_cpu: float


class Sender:
    """One connection that keeps its window full of ready-made frames, and measures the time of each message."""

    def __init__(self, port: int, frames: Iterator[bytes], window: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._frames = frames
        self._rest = b""
        self._sent_at: list[float] = []
        self.window = window

    def send(self, count: int) -> None:
        now = time.perf_counter()
        self._sent_at += [now] * count
        self.sock.sendall(b"".join([next(self._frames) for _ in range(count)]))

    def receive(self) -> list[float]:
        """Read once and return the durations of the completed messages, in order. Raises RuntimeError."""
        data = self._rest + self.sock.recv(1 << 18)
        if len(data) == len(self._rest):
            raise ConnectionError("the broker closed a connection")
        at = count = 0
        while len(data) >= at + 4:
            (length,) = LENGTH.unpack_from(data, at)
            if len(data) < at + 4 + length:
                break
            if b'"code":0,' not in data[at : at + 4 + length]:
                raise RuntimeError(f"refused: {data[at : at + 4 + length]!r}")
            at += 4 + length
            count += 1
        self._rest = data[at:]
        answered, self._sent_at = self._sent_at[:count], self._sent_at[count:]
        now = time.perf_counter()
        return [now - sent for sent in answered]


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def load(port: int, pid: int, workload: Workload, seconds: float) -> Figures:
    """Measure after a warm-up; end without requests in flight."""
    body = b"x" * workload.body_bytes
    frames = cycle([message(QUEUES, body, TOPIC, number) for number in range(READY_FRAMES)])
    senders = {}
    for _ in range(workload.connections):
        sender = Sender(port, frames, workload.window)
        senders[sender.sock.fileno()] = sender
    taken: list[float] = []
    with select.epoll() as poller:
        for fd, sender in senders.items():
            poller.register(fd, select.EPOLLIN)
            sender.send(sender.window)
        drive(poller, senders, WARM_UP_SECONDS)
        cpu, began = cpu_seconds(pid), time.perf_counter()
        taken = drive(poller, senders, seconds)
        elapsed = time.perf_counter() - began
        cpu = cpu_seconds(pid) - cpu
    for sender in senders.values():
        sender.sock.close()
    taken.sort()
    milliseconds = [taken[int((len(taken) - 1) * part)] * 1000 for part in (0.5, 0.99)]
    return Figures(len(taken) / elapsed, *milliseconds, len(taken) / max(cpu, 0.01))


def drive(poller: select.epoll, senders: dict[int, Sender], seconds: float) -> list[float]:
    """Send the next message for each response, for `seconds`."""
    until = time.perf_counter() + seconds
    taken: list[float] = []
    while time.perf_counter() < until:
        for fd, _ in poller.poll(1):
            came = senders[fd].receive()
            taken += came
            if came:
                senders[fd].send(len(came))
    return taken


def bare_syncs(directory: Path, size: int, seconds: float) -> float:
    """Append `size` bytes at a time, each with fdatasync, to a sparse file of full size. Return the rate."""
    fd, name = tempfile.mkstemp(dir=directory)
    try:
        os.ftruncate(fd, 1 << 30)
        data, count, began = b"x" * size, 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            os.pwrite(fd, data, count * size)
            os.fdatasync(fd)
            count += 1
        return count / (time.perf_counter() - began)
    finally:
        os.close(fd)
        Path(name).unlink()


@contextmanager
def running(argv: list[str], home: Path, *, boot: bytes = b"boot success") -> Iterator[int]:
    """Run a daemon; yield its process id after its boot line, which has these words."""
    environment = dict(os.environ, HOME=str(home), TRIOMQ_LOG_DIR=f"{home}/logs", JAVA_TOOL_OPTIONS="")
    environment.setdefault("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    with (home / "output.log").open("ab") as errors:
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=errors, env=environment)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if boot in line:
                break
        else:
            raise RuntimeError(f"{argv[0]} did not start:\n{(home / 'output.log').read_text()[-2000:]}")
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


@contextmanager
def broker(peer: Path | None, home: Path) -> Iterator[tuple[int, int]]:
    """Run Apache's broker, or ours if `peer` is None, with our NameServer. Yield process id and port."""
    namesrv_port, port = free_port(), free_port()
    (home / "namesrv.conf").write_text(f"listenPort={namesrv_port}\nkvConfigPath={home}/kv.json\n")
    with running([str(PROJECT / "bin" / "mqnamesrv"), "-c", str(home / "namesrv.conf")], home):
        namesrv = f"127.0.0.1:{namesrv_port}"
        settings = [f"{key}={value}" for key, value in SETTINGS.items()]
        if peer is not None:
            argv = [str(peer), "broker", str(home), str(port), namesrv, *settings]
        else:
            lines = [f"listenPort={port}", f"namesrvAddr={namesrv}", "brokerIP1=127.0.0.1"]
            lines += [f"storePathRootDir={home}/store", *settings]
            (home / "broker.conf").write_text("\n".join(lines) + "\n")
            argv = [str(PROJECT / "bin" / "mqbroker"), "-c", str(home / "broker.conf")]
        with running(argv, home) as pid:
            yield pid, port


def measure(peer: Path | None, directory: Path, workloads: list[Workload], seconds: float) -> list[Figures]:
    with tempfile.TemporaryDirectory(prefix="sync-flush-", dir=directory) as home, broker(peer, Path(home)) as at:
        pid, port = at
        Peer(port).sock.close()
        load(port, pid, Workload(4, 64, 1024), max(1.0, seconds / 2))  # a just-in-time compiler needs a warm-up
        return [load(port, pid, workload, seconds) for workload in workloads]


def show(name: str, cells: list[str]) -> None:
    print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def median(rounds: list[list[Figures]], number: int) -> Figures:
    figures = [figures[number] for figures in rounds]
    return Figures(
        statistics.median(each.rate for each in figures),
        statistics.median(each.p50_ms for each in figures),
        statistics.median(each.p99_ms for each in figures),
        statistics.median(each.rate_of_cpu for each in figures),
    )


def found_peer() -> Path | None:
    """Return the interoperability tests' script that starts Apache's daemons, if Java and Maven are installed."""
    return PROJECT / "tests" / "apache" / "peer" if shutil.which("java") and shutil.which("mvn") else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="workloads whose name contains this")
    parser.add_argument("--peer", type=Path, default=found_peer())
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    given = parser.parse_args()
    workloads = [workload for workload in WORKLOADS if given.only in workload.name]
    sides: dict[str, Path | None] = {"TrioMQ": None} | ({"Apache": given.peer} if given.peer else {})
    rounds: dict[str, list[list[Figures]]] = {side: [] for side in sides}
    for number in range(given.rounds):
        for side in sorted(sides, reverse=number % 2 == 0):
            rounds[side].append(measure(sides[side], given.directory, workloads, given.seconds))
    bare = bare_syncs(given.directory, 1024, 1.0)
    print(f"bare: {bare:.0f} syncs of 1024 B a second, {1000 / bare:.2f} ms each\n")
    show("connections x window", ["side", "messages/s", "p50 ms", "p99 ms", "messages/CPU s"])
    print("|---" * 6 + "|")
    for number, workload in enumerate(workloads):
        medians = {side: median(figures, number) for side, figures in rounds.items()}
        for side, each in medians.items():
            cells = [side, f"{each.rate:.0f}", f"{each.p50_ms:.2f}", f"{each.p99_ms:.2f}", f"{each.rate_of_cpu:.0f}"]
            show(workload.name, cells)
        if "Apache" in medians:
            ours, theirs = medians["TrioMQ"], medians["Apache"]
            ratios = [ours.rate / theirs.rate, theirs.p50_ms / ours.p50_ms, theirs.p99_ms / ours.p99_ms]
            ratios.append(ours.rate_of_cpu / theirs.rate_of_cpu)
            show(workload.name, ["better by", *(f"{ratio:.2f}x" for ratio in ratios)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
