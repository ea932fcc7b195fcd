"""Measure how long a broker takes to start after a kill, by the amount of log it reads again, beside Apache's broker.

    python -m benchmarks.store_recovery [--gib 2] [--rounds 3] [--peer tests/apache/peer] [--cold]

One store of 1 KiB messages is written, without a checkpoint and with an abort file: the broker reads everything again
and rebuilds all queue and index entries. Each round starts a broker on a copy of it, and one on an empty directory; the
difference between their times to the "boot success" line is the recovery. `--cold` drops the copy from the page cache
first. Peak resident memory is that of the broker on the copy.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import trio

from benchmarks.boot import free_port
from benchmarks.store_directory import drop_pages, make

PROJECT = Path(__file__).resolve().parent.parent
GIVE_UP_SECONDS = 600.0


@dataclass
class Start:
    seconds: float
    cpu_seconds: float
    peak_bytes: int


def cpu_seconds(pid: int) -> float:
    """Return user and system time of all threads so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def start_broker(argv: list[str], home: Path) -> Start:
    """Start a broker and kill it after its boot line. Return the seconds until then."""
    environment = dict(os.environ, HOME=str(home), JAVA_TOOL_OPTIONS="")
    environment.setdefault("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    began = time.monotonic()
    with (home / "output.log").open("wb") as errors:
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if "boot success" in line:
                return Start(time.monotonic() - began, cpu_seconds(process.pid), peak_bytes(process.pid))
        raise RuntimeError(f"{argv[0]} did not start:\n{(home / 'output.log').read_text()[-2000:]}")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def triomq(home: Path) -> list[str]:
    (home / "broker.conf").write_text(
        f"listenPort={free_port()}\nbrokerIP1=127.0.0.1\nstorePathRootDir={home}/store\n"
        f"storePathCommitLog={home}/store/commitlog\n"
    )
    return [sys.executable, "-P", "-m", "triomq.broker", "-c", str(home / "broker.conf")]


def apache(peer: Path, home: Path, namesrv: str) -> list[str]:
    return [str(peer), "broker", str(home), str(free_port()), namesrv]


def measure(kind: str, argv_of: object, original: Path, directory: Path, rounds: int, cold: bool) -> None:
    assert callable(argv_of)
    empty: list[Start] = []
    whole: list[Start] = []
    peak = 0
    for number in range(rounds):
        home = directory / f"{kind}-{number}-empty"
        home.mkdir()
        empty.append(start_broker(argv_of(home), home))
        home = directory / f"{kind}-{number}"
        home.mkdir()
        subprocess.run(["cp", "-r", "--sparse=always", str(original), str(home / "store")], check=True)
        if cold:
            drop_pages(home / "store")
        started = start_broker(argv_of(home), home)
        whole.append(started)
        peak = max(peak, started.peak_bytes)
        shutil.rmtree(home)
    base = min(start.seconds for start in empty)
    base_cpu = min(start.cpu_seconds for start in empty)
    median = statistics.median(start.seconds for start in whole) - base
    cpu = statistics.median(start.cpu_seconds for start in whole) - base_cpu
    times = ", ".join(f"{start.seconds - base:.1f}" for start in whole)
    print(
        f"{kind:8} recovery {median:6.1f} s (rounds: {times}), {cpu:.1f} s of CPU; start when empty {base:.2f} s; "
        f"peak {peak / (1 << 20):.0f} MiB",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--only", choices=["triomq", "apache"])
    parser.add_argument("--store", type=Path, help="an existing directory to copy, instead of a new one")
    parser.add_argument("--peer", type=Path, default=PROJECT / "tests" / "apache" / "peer")
    given = parser.parse_args()
    os.environ["PYTHONPATH"] = str(PROJECT)
    with tempfile.TemporaryDirectory(prefix="recovery-") as name:
        directory = Path(name)
        original = given.store or directory / "original"
        if given.store is None:
            count = trio.run(lambda: make(original, given.gib, body_bytes=1024, is_closed=False))
            print(f"{count} messages in {given.gib:g} GiB", flush=True)
        if given.only != "apache":
            measure("triomq", triomq, original, directory, given.rounds, given.cold)
        if given.only != "triomq" and shutil.which("java") and shutil.which("mvn"):
            port = free_port()
            (directory / "namesrv").mkdir()
            conf = directory / "namesrv.conf"
            conf.write_text(f"listenPort={port}\nkvConfigPath={directory}/kv.json\n")
            namesrv = subprocess.Popen(
                [sys.executable, "-P", "-m", "triomq.namesrv", "-c", str(conf)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=dict(os.environ, HOME=name),
            )
            try:
                measure(
                    "apache",
                    lambda home: apache(given.peer, home, f"127.0.0.1:{port}"),
                    original,
                    directory,
                    given.rounds,
                    given.cold,
                )
            finally:
                namesrv.kill()
                namesrv.wait()


if __name__ == "__main__":
    main()
