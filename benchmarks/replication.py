"""Measure what a slave costs its master and how fast it catches up, beside RocketMQ's pair on the same machine.

    bin/dev/bench-replication --load COMMAND [--peer COMMAND] [--project DIR]... [--seconds 4] [--rounds 1]
                          [--only NAME] [--catch-up-gib 2] [--catch-up-bytes 4096] [--json FILE]

`--load` is a raw load generator: called as "COMMAND send -addr HOST:PORT -seconds S -codec json -conns N -window M
-size B", it prints one JSON object with `msgs_per_s` and `p99_ms`. `--peer` starts the other side: "COMMAND broker DIR
PORT NAMESRV KEY=VALUE...". `--project` names a copy of this project to measure, a compiled one for instance, and may be
given several times (default: this one). A slave on a machine of its own leaves its master's cores and disk alone:
`--slave-idle` and `--slave-directory` (in memory, or on another disk) approximate that on one machine. `--only
elsewhere` comes closest: no broker, but a link that receives the log as fast as it is sent, discards it in the kernel,
reports offsets, and starts again when it has everything. To the master it looks like a slave, and it
costs almost nothing.

For each role of the master (alone, ASYNC_MASTER and SYNC_MASTER with a slave) and each load: messages a second, 99th
percentile, microseconds of CPU time a message of master and slave, the slave's lag (most seen, and at the end) and the
time until it had caught up. Then a slave that starts some gigabytes behind: its megabytes a second while nobody sends
(`--only undisturbed`) and while 16 clients send and each wait for their response (`--only catch-up`), with the master's
99th percentile beside the same without a slave. Only one pair runs at a time; the load generator is held to one core,
the brokers are free. Standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from boot import PROJECT, answer, frame, free_port

TOPIC = "brokerload"
GIVE_UP_SECONDS = 120.0
POLL_SECONDS = 0.02
LOOK_SECONDS = 0.25
"""Between two questions for the lag, which cost the brokers some milliseconds."""
TICKS = os.sysconf("SC_CLK_TCK")
SEND_MESSAGE, GET_MAX_OFFSET, RUNTIME_INFO = 10, 30, 28
OK = 0
REPORT_BYTES = 1024 * 1024
"""What a slave elsewhere takes at a time, at most."""

LOADS = {
    "4x64": ["-conns", "4", "-window", "64"],
    "64x1": ["-conns", "64", "-window", "1"],
}
ROLES = {"alone": ("ASYNC_MASTER", False), "async": ("ASYNC_MASTER", True), "sync": ("SYNC_MASTER", True)}
WITH_CATCH_UP = ["-conns", "16", "-window", "1"]

Figures = dict[str, float]


class Server:
    """A daemon that is ready when it prints "boot success"."""

    def __init__(self, command: list[str], home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "HOME": str(home), "TRIOMQ_LOG_DIR": str(home / "logs")}
        environment.pop("NAMESRV_ADDR", None)
        # The files of the peer are where its user has them.
        environment.setdefault("XDG_CACHE_HOME", str(Path.home() / ".cache"))
        self._output = (home / "output").open("wb")
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=self._output, start_new_session=True
        )
        ready = threading.Event()
        threading.Thread(target=self._read, args=(ready,), daemon=True).start()
        if not ready.wait(GIVE_UP_SECONDS) or self.process.poll() is not None:
            self.stop()
            raise SystemExit(f"{shlex.join(command)} did not start; see {home / 'output'}")

    def _read(self, ready: threading.Event) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._output.write(line)
            if b"boot success" in line:
                ready.set()
        ready.set()

    @property
    def worker(self) -> int:
        """Return the process that does the work if the command is a wrapper that did not exec."""
        pid = self.process.pid
        while len(children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split()) == 1:
            pid = int(children[0])
        return pid

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.worker}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def stop(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(GIVE_UP_SECONDS)
                break


class Side:
    """The brokers of one side, and how to start them. `slave_idle`: slaves run only on an otherwise idle processor."""

    def __init__(
        self, name: str, command: Callable[[Path, int, str, dict[str, str]], list[str]], slave_idle: bool = False
    ) -> None:
        self.name = name
        self.command = command
        self.slave_prefix = ["chrt", "--idle", "0"] if slave_idle else []


def our_command(project: Path, home: Path, port: int, name_server: str, settings: dict[str, str]) -> list[str]:
    values = {"listenPort": str(port), "namesrvAddr": name_server, "storePathRootDir": f"{home}/store", **settings}
    values["storePathCommitLog"] = f"{home}/store/commitlog"
    home.mkdir(parents=True, exist_ok=True)
    config = home / "broker.conf"
    config.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    return [str(project / "bin" / "mqbroker"), "-c", str(config)]


def peer_command(peer: list[str], home: Path, port: int, name_server: str, settings: dict[str, str]) -> list[str]:
    return [*peer, "broker", str(home), str(port), name_server, *(f"{key}={value}" for key, value in settings.items())]


class Pair:
    """A master of one side, with a slave if one was started."""

    def __init__(
        self, side: Side, directory: Path, name_server: str, role: str, slave_directory: Path | None, **settings: str
    ) -> None:
        self.side = side
        self.directory = directory
        self.slave_directory = slave_directory or directory
        self.name_server = name_server
        self.master_port = free_port()
        self.master = self._start("master", self.master_port, brokerRole=role, brokerId="0", **settings)
        self.slave: Server | None = None
        self.slave_port = 0

    def _start(self, name: str, port: int, **settings: str) -> Server:
        common = {"brokerName": "broker-a", "brokerIP1": "127.0.0.1", "brokerIP2": "127.0.0.1"}
        # RocketMQ's slave sends nothing for haSendHeartbeatInterval after it has connected.
        common["haSendHeartbeatInterval"] = "1000"
        is_slave = name == "slave"
        home = (self.slave_directory if is_slave else self.directory) / name
        prefix = self.side.slave_prefix if is_slave else []
        return Server([*prefix, *self.side.command(home, port, self.name_server, {**common, **settings})], home)

    def start_slave(self) -> None:
        self.slave_port = self.slave_port or free_port()
        ha_address = f"127.0.0.1:{self.master_port + 1}"
        self.slave = self._start("slave", self.slave_port, brokerRole="SLAVE", brokerId="1", haMasterAddress=ha_address)

    def stop_slave(self) -> None:
        if self.slave is not None:
            self.slave.stop()
            self.slave = None

    def stop(self) -> None:
        self.stop_slave()
        self.master.stop()

    def log_end(self, port: int) -> int:
        """Return the offset at which the log of that broker ends."""
        for _ in range(50):
            code, _, body = exchange(port, RUNTIME_INFO, {})
            if code == OK and body:
                return int(json.loads(body)["table"]["commitLogMaxOffset"])
            time.sleep(POLL_SECONDS)  # RocketMQ's broker prints its line before it is ready
        raise SystemExit(f"the broker of {self.side.name} does not say where its log ends")

    def lag_bytes(self) -> int:
        slave_end = self.log_end(self.slave_port)
        return max(0, self.log_end(self.master_port) - slave_end)

    def wait_caught_up(self) -> float:
        """Wait until the slave has the whole log of its master. Return the seconds."""
        began = time.monotonic()
        while self.lag_bytes():
            if time.monotonic() - began > GIVE_UP_SECONDS:
                raise SystemExit(f"the slave of {self.side.name} does not catch up")
            time.sleep(LOOK_SECONDS if time.monotonic() - began > LOOK_SECONDS else POLL_SECONDS)
        return time.monotonic() - began

    def wait_acknowledged(self) -> None:
        """Wait until a message is stored and, with SYNC_MASTER, on the slave."""
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while exchange(self.master_port, SEND_MESSAGE, message_fields(), b"are you there")[0] != OK:
            if time.monotonic() > deadline:
                raise SystemExit(f"the slave of {self.side.name} does not acknowledge")
            time.sleep(POLL_SECONDS)

    def stored(self) -> int:
        """Return the number of messages in the load's topic."""
        answers = [exchange(self.master_port, GET_MAX_OFFSET, {"topic": TOPIC, "queueId": str(n)}) for n in range(4)]
        return sum(int(fields["offset"]) for _, fields, _ in answers)


def message_fields() -> dict[str, str]:
    values = ("bench", TOPIC, "TBW102", "4", "0", "0", str(time.time_ns() // 1_000_000), "0", "")
    names = ("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp")
    return dict(zip((*names, "flag", "properties"), values, strict=True))


def exchange(port: int, code: int, fields: dict[str, str], body: bytes = b"") -> tuple[int, dict[str, str], bytes]:
    """Send one request. Return response code, fields and body."""
    return answer(port, frame(code, fields, body))


@contextmanager
def running(
    side: Side, role: str, directory: Path | None, slave_directory: Path | None = None, **settings: str
) -> Iterator[Pair]:
    """Run a NameServer and a master; `settings` are keys of the master's configuration."""
    home = Path(tempfile.mkdtemp(prefix=f"replication-{side.name}-", dir=directory))
    slave_home = Path(tempfile.mkdtemp(prefix="replication-slave-", dir=slave_directory)) if slave_directory else None
    port = free_port()
    (home / "namesrv.conf").write_text(f"listenPort={port}\nkvConfigPath={home}/kvConfig.json\n")
    name_server = Server([str(PROJECT / "bin" / "mqnamesrv"), "-c", str(home / "namesrv.conf")], home / "namesrv")
    try:
        pair = Pair(side, home, f"127.0.0.1:{port}", role, slave_home, **settings)
        try:
            yield pair
        finally:
            pair.stop()
    finally:
        name_server.stop()
        shutil.rmtree(home, ignore_errors=True)
        if slave_home is not None:
            shutil.rmtree(slave_home, ignore_errors=True)


class LagWatch:
    """Sample the lag periodically; `most` is the largest sample."""

    def __init__(self, pair: Pair) -> None:
        self.most = 0
        self._pair = pair
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            self.most = max(self.most, self._pair.lag_bytes())

    def stop(self) -> None:
        self._over.set()
        self._thread.join()


def run_load(load: list[str], port: int, arguments: list[str], seconds: float, size_bytes: int = 1024) -> Figures:
    pin = ["taskset", "-c", str(max(os.sched_getaffinity(0)))] if shutil.which("taskset") else []
    common = ["-addr", f"127.0.0.1:{port}", "-codec", "json", "-seconds", str(seconds), "-size", str(size_bytes)]
    done = subprocess.run([*pin, *load, "send", *common, *arguments], check=True, capture_output=True, text=True)
    figures: dict[str, Any] = json.loads(done.stdout)
    return {"msgs_per_s": figures["msgs_per_s"], "p99_ms": figures["p99_ms"], "failed": figures["failed"]}


def measure_load(pair: Pair, load: list[str], arguments: list[str], seconds: float) -> Figures:
    """Measure one run of a load against a running pair."""
    pair.wait_acknowledged()
    before = pair.stored()
    master_cpu = pair.master.cpu_seconds()
    slave_cpu = pair.slave.cpu_seconds() if pair.slave is not None else 0.0
    watch = LagWatch(pair) if pair.slave is not None else None
    figures = run_load(load, pair.master_port, arguments, seconds)
    if watch is not None:
        figures["end_lag_mb"] = pair.lag_bytes() / 1e6
        figures["caught_up_s"] = pair.wait_caught_up()
        watch.stop()
        figures["most_lag_mb"] = watch.most / 1e6
    messages = pair.stored() - before
    figures["master_us"] = (pair.master.cpu_seconds() - master_cpu) / messages * 1e6
    if pair.slave is not None:
        figures["slave_us"] = (pair.slave.cpu_seconds() - slave_cpu) / messages * 1e6
    return figures


def fill(pair: Pair, load: list[str], gib: float, body_bytes: int) -> int:
    """Extend the master's log by `gib`. Return its previous end."""
    begin = pair.log_end(pair.master_port)
    while pair.log_end(pair.master_port) - begin < gib * (1 << 30):
        run_load(load, pair.master_port, LOADS["4x64"], 2, body_bytes)
    return begin


def measure_quiet(pair: Pair, load: list[str], seconds: float) -> Figures:
    """Measure producers without a slave."""
    quiet = run_load(load, pair.master_port, WITH_CATCH_UP, seconds)
    return {"quiet_p99_ms": quiet["p99_ms"], "quiet_msgs_per_s": quiet["msgs_per_s"]}


def leave_behind(pair: Pair, load: list[str], gib: float, body_bytes: int) -> int:
    """Leave a stopped slave that has only the start of the log. Return the offset at which the rest begins."""
    pair.start_slave()
    pair.wait_acknowledged()
    pair.wait_caught_up()
    pair.stop_slave()
    return fill(pair, load, gib, body_bytes)


def start_behind(pair: Pair, begin: int) -> int:
    """Start the slave again and wait until it has received something. Return the number of bytes that it then lacks."""
    pair.start_slave()
    while (behind := pair.lag_bytes()) >= pair.log_end(pair.master_port) - begin:
        time.sleep(POLL_SECONDS)
    return behind


def measure_undisturbed(pair: Pair, load: list[str], seconds: float, gib: float, body_bytes: int) -> Figures:
    """Measure how fast a slave catches up while nobody sends; the pair is ASYNC_MASTER."""
    begin = leave_behind(pair, load, gib, body_bytes)
    time.sleep(seconds)
    cpu = pair.master.cpu_seconds()
    behind = start_behind(pair, begin)
    began = time.monotonic()
    pair.wait_caught_up()
    figures = {"behind_mb": behind / 1e6, "mb_per_s": behind / 1e6 / (time.monotonic() - began)}
    assert pair.slave is not None
    return figures | {"slave_cpu_s": pair.slave.cpu_seconds(), "master_cpu_s": pair.master.cpu_seconds() - cpu}


def measure_catch_up(pair: Pair, load: list[str], seconds: float, gib: float, body_bytes: int) -> Figures:
    """Measure how fast a slave catches up during sends, and what that costs the producers."""
    begin = leave_behind(pair, load, gib, body_bytes)
    figures = measure_quiet(pair, load, seconds)
    cpu = pair.master.cpu_seconds()
    behind = start_behind(pair, begin)
    began = time.monotonic()
    during = run_load(load, pair.master_port, WITH_CATCH_UP, seconds)
    figures["still_behind_mb"] = pair.lag_bytes() / 1e6
    pair.wait_caught_up()
    taken = time.monotonic() - began
    figures |= {"p99_ms": during["p99_ms"], "msgs_per_s": during["msgs_per_s"]}
    figures["ratio"] = during["p99_ms"] / figures["quiet_p99_ms"]
    figures["behind_mb"] = behind / 1e6
    figures["mb_per_s"] = behind / 1e6 / taken
    assert pair.slave is not None
    figures["slave_cpu_s"] = pair.slave.cpu_seconds()
    figures["master_cpu_s"] = pair.master.cpu_seconds() - cpu
    pair.stop_slave()
    return figures


class SlaveElsewhere:
    """A stand-in for a slave on another machine: it discards the bytes of the log. It catches up from `begin`
    repeatedly until it is stopped; `taken` counts bytes.
    """

    def __init__(self, pair: Pair, begin: int) -> None:
        self.taken = 0
        self._pair = pair
        self._begin = begin
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            with socket.create_connection(("127.0.0.1", self._pair.master_port + 1)) as link:
                link.settimeout(GIVE_UP_SECONDS)
                link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 64 * 1024)
                self._catch_up(link, self._pair.log_end(self._pair.master_port) - self._begin)

    def _catch_up(self, link: socket.socket, behind: int) -> None:
        """Receive `behind` bytes. Transfer headers count as log bytes, so the reported offset is a little low, never
        high."""
        link.sendall(struct.pack(">q", self._begin))
        buffer = bytearray(REPORT_BYTES)
        got = 0
        while got < behind - REPORT_BYTES and not self._over.is_set():
            got += link.recv_into(buffer, REPORT_BYTES, socket.MSG_TRUNC)
            link.sendall(struct.pack(">q", self._begin + got * 99 // 100))
        self.taken += got

    def stop(self) -> None:
        self._over.set()
        self._thread.join()


def measure_elsewhere(pair: Pair, load: list[str], seconds: float, gib: float, body_bytes: int) -> Figures:
    """Measure a master without a slave, then with one that is always far behind; the master is ASYNC_MASTER."""
    pair.wait_acknowledged()
    begin = fill(pair, load, gib, body_bytes)
    figures = measure_quiet(pair, load, seconds)
    slave = SlaveElsewhere(pair, begin)
    began = time.monotonic()
    during = run_load(load, pair.master_port, WITH_CATCH_UP, seconds)
    slave.stop()
    figures |= {"p99_ms": during["p99_ms"], "msgs_per_s": during["msgs_per_s"]}
    figures["ratio"] = during["p99_ms"] / figures["quiet_p99_ms"]
    figures["mb_per_s"] = slave.taken / 1e6 / (time.monotonic() - began)
    return figures


BEHIND = {"undisturbed": measure_undisturbed, "catch-up": measure_catch_up, "elsewhere": measure_elsewhere}


def show(name: str, by_side: dict[str, list[Figures]]) -> None:
    print(f"\n{name}")
    keys = list(dict.fromkeys(key for rounds in by_side.values() for figures in rounds for key in figures))
    print(f"  {'':12}" + "".join(f"{key:>18}" for key in keys))
    for side, rounds in by_side.items():
        cells = [[figures[key] for figures in rounds if key in figures] for key in keys]
        print(f"  {side:12}" + "".join(f"{statistics.median(cell):18.6g}" if cell else " " * 18 for cell in cells))
    sys.stdout.flush()


def show_all(everything: dict[str, dict[str, list[Figures]]], path: Path | None) -> None:
    """Print what was measured, and write every figure to a file if there is one."""
    for name in sorted(everything):
        show(name, everything[name])
    if path is not None:
        path.write_text(json.dumps(everything, indent=1))


def sides_of(projects: list[Path] | None, peer: list[str] | None, *, slave_idle: bool = False) -> list[Side]:
    """Return the sides to measure: copies of this project, and the peer if there is one."""
    sides: list[Side] = []
    for project in projects or [PROJECT]:
        name = "compiled" if any(project.glob("store/*/*.so")) else "plain"  # the C speedups are one level higher
        if any(side.name == name for side in sides):
            name = project.resolve().name
        sides.append(Side(name, partial(our_command, project.resolve()), slave_idle))
    if peer:
        sides.append(Side("peer", partial(peer_command, peer), slave_idle))
    return sides


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--load", required=True, type=shlex.split, help="command of the load generator")
    parser.add_argument("--peer", type=shlex.split, help="command that starts the other side's brokers")
    parser.add_argument("--project", type=Path, action="append", help="a copy of this project to measure")
    parser.add_argument("--seconds", type=float, default=4, help="measured time of each load")
    parser.add_argument("--rounds", type=int, default=1, help="number of rounds, of which the median is shown")
    parser.add_argument("--only", default="", help="what begins so: alone, sync 64x1, catch-up")
    parser.add_argument("--catch-up-gib", type=float, default=2, help="how far behind a slave starts")
    parser.add_argument("--catch-up-bytes", type=int, default=4096, help="bodies of the messages that it lacks")
    parser.add_argument("--slave-idle", action="store_true", help="slaves get the cores when nobody else wants them")
    parser.add_argument("--directory", type=Path, help="where stores are made, and removed afterwards")
    parser.add_argument("--slave-directory", type=Path, help="where slaves have their stores, if elsewhere")
    parser.add_argument("--json", type=Path, help="write every figure there")
    arguments = parser.parse_args()
    sides = sides_of(arguments.project, arguments.peer, slave_idle=arguments.slave_idle)
    everything: dict[str, dict[str, list[Figures]]] = {}
    for _ in range(arguments.rounds):
        for side in sides:
            for role_name, (role, has_slave) in ROLES.items():
                chosen = {
                    name: flags for name, flags in LOADS.items() if f"{role_name} {name}".startswith(arguments.only)
                }
                if not chosen:
                    continue
                with running(side, role, arguments.directory, arguments.slave_directory) as pair:
                    if has_slave:
                        pair.start_slave()
                    # The first load warms up the other side's just-in-time compiler and the files.
                    measure_load(pair, arguments.load, LOADS["4x64"], arguments.seconds)
                    for name, flags in chosen.items():
                        found = measure_load(pair, arguments.load, flags, arguments.seconds)
                        by_side = everything.setdefault(f"{role_name} {name}", {})
                        by_side.setdefault(side.name, []).append(found)
                        print(f"{side.name} {role_name} {name}: {found}", file=sys.stderr)
            for name, measure in BEHIND.items():
                if not name.startswith(arguments.only) or arguments.catch_up_gib <= 0:
                    continue
                with running(side, "ASYNC_MASTER", arguments.directory, arguments.slave_directory) as pair:
                    found = measure(
                        pair, arguments.load, arguments.seconds, arguments.catch_up_gib, arguments.catch_up_bytes
                    )
                    everything.setdefault(name, {}).setdefault(side.name, []).append(found)
                    print(f"{side.name} {name}: {found}", file=sys.stderr)
    show_all(everything, arguments.json)


if __name__ == "__main__":
    main()
