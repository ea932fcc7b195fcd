"""The daemons of a run: two NameServers, a SYNC_MASTER with its slave, and a master with SYNC_FLUSH, each on a host and
a small disk of its own; and what a fault does to one of them.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import interop_wire as wire
from chaos_network import Host, mount_memory
from chaos_plan import Fault
from interop_processes import Child, wait_until

PROJECT = Path(__file__).resolve().parents[2]
NAME_SERVER_PORT, BROKER_PORT = 9876, 10911
BOOT_SECONDS = 60
STOP_SECONDS = 60
TOPIC = "Chaos"
QUEUES = 4
GET_MAX_OFFSET = 30

BROKER_SETTINGS = {
    "mappedFileSizeCommitLog": str(1 << 21),
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "5000",
    "maxIndexNum": "20000",
    # A full disk must not delete what the run has to find again.
    "cleanFileForciblyEnable": "false",
    "fileReservedTime": "720",
    "registerNameServerPeriod": "10000",
    "flushConsumerOffsetInterval": "1000",
    "haSendHeartbeatInterval": "1000",
    "haHousekeepingInterval": "5000",
    "waitTimeMillsInSendQueue": "5000",
    "brokerClusterName": "ChaosCluster",
}
ROLES = {
    "a0": {"brokerName": "broker-a", "brokerId": "0", "brokerRole": "SYNC_MASTER", "flushDiskType": "ASYNC_FLUSH"},
    "a1": {"brokerName": "broker-a", "brokerId": "1", "brokerRole": "SLAVE", "flushDiskType": "ASYNC_FLUSH"},
    "b0": {"brokerName": "broker-b", "brokerId": "0", "brokerRole": "ASYNC_MASTER", "flushDiskType": "SYNC_FLUSH"},
}
MASTERS = {"broker-a": "a0", "broker-b": "b0"}
NAME_SERVERS = ("n1", "n2")


def build_clock(directory: Path) -> Path:
    """Build the library that lets the wall clock of a process be stepped. Raises OSError if there is no compiler."""
    library = directory / "clock_shift.so"
    source = Path(__file__).with_name("clock_shift.c")
    command = ["cc", "-shared", "-fPIC", "-O2", "-o", str(library), str(source), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise OSError(f"clock_shift.c does not compile: {done.stderr[-1000:]}")
    return library


class Member:
    """One daemon. It is started again after each end; an end that no fault asked for is a problem."""

    def __init__(self, name: str, host: Host, directory: Path, clock: Path) -> None:
        self.name = name
        self.host = host
        self.directory = directory
        self.disk = directory / "disk"
        self.problems: list[str] = []
        self.starts = 0
        self._clock = clock
        self._child: Child | None = None
        self._module = ""
        shift = directory / "clock"
        shift.write_bytes(bytes(8))
        with shift.open("r+b") as file:
            self._shift = mmap.mmap(file.fileno(), 8)

    @property
    def configuration(self) -> Path:
        return self.directory / "daemon.conf"

    @property
    def store(self) -> Path:
        return self.disk / "store"

    def configure(self, module: str, settings: dict[str, str]) -> None:
        self._module = module
        self.configuration.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    def start(self) -> None:
        environment = {
            **os.environ,
            "HOME": str(self.directory),
            "PYTHONPATH": str(PROJECT / "src"),
            "LD_PRELOAD": str(self._clock),
            "TRIOMQ_CLOCK_SHIFT": str(self.directory / "clock"),
            "TRIOMQ_LOG_DIR": "-",
        }
        command = [sys.executable, "-P", "-m", self._module, "-c", str(self.configuration)]
        log = self.directory / "output.log"
        self._child = Child([*self.host.inside, *command], log_path=log, env=environment)
        self.starts += 1

    def wait_up(self) -> None:
        assert self._child is not None
        self._child.wait_for_log("boot success", BOOT_SECONDS)

    def look(self) -> None:
        """Start it again if it ended by itself."""
        if self._child is not None and (status := self._child.process.poll()) is not None:
            self.problems.append(f"{self.name} ended by itself with {status}:\n{self._child.log_tail(30)}")
            self.start()

    def stop(self) -> None:
        """End it in an orderly way, which must succeed in time."""
        if self._child is not None:
            status = self._child.end(signal.SIGTERM, STOP_SECONDS)
            if status != 0:
                self.problems.append(f"{self.name} stopped with {status}:\n{self._child.log_tail(30)}")
            self._child = None

    def begin(self, fault: Fault, others: dict[str, Member]) -> None:
        """Do what the fault says. Raises OSError."""
        if fault.kind == "kill":
            assert self._child is not None
            self._child.end(signal.SIGKILL)
            self._child = None
        elif fault.kind == "stop":
            self._signal(signal.SIGSTOP)
        elif fault.kind == "partition":
            other = others.get(fault.way)
            self.host.cut(fault.way, other.host if other is not None else None)
        elif fault.kind == "disk":
            self._fill()
        else:
            self._step(fault.step_seconds)

    def mend(self, fault: Fault) -> None:
        if fault.kind == "kill":
            self.start()
        elif fault.kind == "stop":
            self._signal(signal.SIGCONT)
        elif fault.kind == "partition":
            self.host.mend()
        elif fault.kind == "disk":
            (self.disk / "filler").unlink()
        else:
            self._step(0)

    def free_disk(self) -> None:
        subprocess.run(["umount", str(self.disk)], check=True, timeout=30)

    def _signal(self, number: int) -> None:
        assert self._child is not None
        os.kill(self._child.pid, number)

    def _fill(self) -> None:
        with (self.disk / "filler").open("wb") as file:
            while (state := os.statvfs(self.disk)).f_bavail:
                with contextlib.suppress(OSError):  # the member has written meanwhile
                    os.posix_fallocate(file.fileno(), 0, file.seek(0, os.SEEK_END) + state.f_bavail * state.f_bsize)

    def _step(self, seconds: int) -> None:
        self._shift[:] = struct.pack("=q", seconds * 1_000_000_000)


class Cluster:
    """All members by name. The router of the network reaches each, also during a partition."""

    def __init__(self, directory: Path, clock: Path, disk_bytes: int) -> None:
        self.members: dict[str, Member] = {}
        self.clients = Host("clients", 1)
        for number, name in enumerate((*NAME_SERVERS, *ROLES), start=2):
            place = directory / name
            place.mkdir()
            self.members[name] = Member(name, Host(name, number), place, clock)
        self.name_servers = [f"{self.members[name].host.address}:{NAME_SERVER_PORT}" for name in NAME_SERVERS]
        for name in NAME_SERVERS:
            place = directory / name
            settings = {"listenPort": str(NAME_SERVER_PORT), "kvConfigPath": str(place / "kvConfig.json")}
            self.members[name].configure("triomq.namesrv", settings)
        for name, role in ROLES.items():
            member = self.members[name]
            mount_memory(member.disk, disk_bytes)
            settings = {
                "listenPort": str(BROKER_PORT),
                "namesrvAddr": ";".join(self.name_servers),
                "brokerIP1": member.host.address,
                "brokerIP2": member.host.address,
                "storePathRootDir": str(member.store),
                "storePathCommitLog": str(member.store / "commitlog"),
                **BROKER_SETTINGS,
                **role,
            }
            member.configure("triomq.broker", settings)

    def __iter__(self) -> Iterator[Member]:
        return iter(self.members.values())

    def start(self) -> None:
        for member in self:
            member.start()
        for member in self:
            member.wait_up()
        self.wait_registered(60)
        for name in MASTERS.values():
            self._make_topic(self.members[name])
        wait_until(self._is_routed, 30, f"both NameServers know topic {TOPIC} at both masters")

    def wait_registered(self, seconds: float) -> None:
        wait_until(self._is_registered, seconds, "both NameServers know all brokers")

    def _is_registered(self) -> bool:
        for member in self:
            member.look()
        texts = [f"{self.members[name].host.address}:{BROKER_PORT}".encode() for name in ROLES]
        answers = [self._ask(address, wire.GET_BROKER_CLUSTER_INFO) for address in self.name_servers]
        return all(answer is not None and all(text in answer.body for text in texts) for answer in answers)

    def _is_routed(self) -> bool:
        fields = {"topic": TOPIC, "acceptStandardJsonOnly": "true"}
        answers = [self._ask(address, wire.GET_ROUTEINFO_BY_TOPIC, fields) for address in self.name_servers]
        return all(a is not None and a.code == 0 and all(b.encode() in a.body for b in MASTERS) for a in answers)

    @staticmethod
    def _ask(address: str, code: int, fields: dict[str, str] | None = None) -> wire.Answer | None:
        try:
            return wire.ask(address, code, fields)
        except (OSError, AssertionError):
            return None

    @staticmethod
    def _make_topic(member: Member) -> None:
        fields = {
            "topic": TOPIC,
            "defaultTopic": "TBW102",
            "readQueueNums": QUEUES,
            "writeQueueNums": QUEUES,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": "false",
        }
        answer = wire.ask(f"{member.host.address}:{BROKER_PORT}", wire.UPDATE_AND_CREATE_TOPIC, fields)
        assert answer.code == 0, f"topic {TOPIC} not made: {answer}"

    def wait_equal(self, seconds: float) -> None:
        """Wait until the slave has the master's log."""
        master, slave = self.members["a0"], self.members["a1"]

        def is_equal() -> bool:
            for member in self:
                member.look()
            return log_of(master.store) == log_of(slave.store)

        wait_until(is_equal, seconds, "the slave has its master's log")

    def stop(self) -> None:
        for member in reversed(list(self)):
            member.stop()

    @property
    def problems(self) -> list[str]:
        return [problem for member in self for problem in member.problems]


def log_of(store: Path) -> bytes:
    """Return the written part of a commit log."""
    files = sorted((store / "commitlog").glob("[0-9]*"))
    return b"".join(file.read_bytes() for file in files).rstrip(b"\0")
