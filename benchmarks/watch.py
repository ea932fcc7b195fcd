"""Run a daemon for a long time and sample its anonymous memory and its descriptors. Linux only."""

from __future__ import annotations

import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import trio

PROJECT = Path(__file__).resolve().parent.parent
MIB = 1 << 20
BOOT_SECONDS = 30.0
STOP_SECONDS = 30.0


@dataclass
class Watch:
    """Samples of one process, one per `period_seconds`. memory_bytes: RssAnon, so without the mapped files of a store.
    late_seconds: the largest delay of this process's own event loop; if that approaches the time-outs of its clients,
    they fail for lack of CPU time.
    """

    period_seconds: float
    memory_bytes: list[int] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)
    late_seconds: float = 0.0

    async def run(self, pid: int) -> None:
        """Take samples until cancelled."""
        while True:
            due = trio.current_time() + self.period_seconds
            await trio.sleep_until(due)
            self.late_seconds = max(self.late_seconds, trio.current_time() - due)
            self.memory_bytes.append(own_memory_bytes(pid))
            self.descriptors.append(len(descriptors(pid)))

    def memory_between(self, begin: float, end: float) -> int:
        """Return the median of the samples (at least one) between two points of the run (0: begin, 1: end)."""
        first = min(int(len(self.memory_bytes) * begin), len(self.memory_bytes) - 1)
        return int(statistics.median(self.memory_bytes[first : max(first + 1, int(len(self.memory_bytes) * end))]))


def is_flat(before_bytes: int, after_bytes: int, *, growth: float, growth_bytes: int) -> bool:
    """Return whether memory grew by at most this ratio plus these bytes."""
    return after_bytes <= before_bytes * (1 + growth) + growth_bytes


def own_memory_bytes(pid: int) -> int:
    """Return the process's resident memory without mapped files."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/{pid}/status says nothing of RssAnon")


def descriptors(pid: int) -> list[str]:
    """Return what each open descriptor is: the path of a file, or a text like "socket:[4711]"."""
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.append(str(entry.readlink()))
        except OSError:
            continue  # closed meanwhile
    return found


def open_sockets(pid: int) -> int:
    return sum(name.startswith("socket:") for name in descriptors(pid))


def free_port() -> int:
    """Return a free port whose neighbours two below and one above are free."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        try:
            for step in (-2, 0, 1):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port + step))
        except OSError:
            continue
        return port


@contextmanager
def daemon(module: str, lines: dict[str, str], directory: Path) -> Iterator[int]:
    """Run a daemon until the block ends; yield its pid. Raises RuntimeError if it does not start."""
    conf = directory / f"{module}.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    environment = dict(os.environ, PYTHONPATH=str(PROJECT / "src"), HOME=str(directory))
    output = directory / f"{module}.log"
    with output.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", f"triomq.{module}", "-c", str(conf)],
            env=environment,
            stdout=log,
            stderr=log,
            cwd=directory,
        )
    try:
        deadline = time.monotonic() + BOOT_SECONDS
        while b"boot success" not in output.read_bytes():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{module} did not start: {output.read_text()}")
            time.sleep(0.02)
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
