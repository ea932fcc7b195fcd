"""A NameServer and a broker as processes on free ports with their own store: TrioMQ's or the real Apache ones (4.9.7,
or 5.3.3 as `apache5`).

Both kinds get the same configuration keys, so every scenario can run against both. A run against Apache's validates the
test.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import interop_wire as wire
from apache5_peer import broker_command, namesrv_command
from apache_peer import find_peer
from free_ports import PortTaken, free_port
from interop_processes import Child, wait_until

PROJECT = Path(__file__).resolve().parents[2]
BOOT_SECONDS = 60
STARTS = 3
# A virtual machine that lives for seconds: these options reduce the CPU time of a start by a fifth.
SOON_UP = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
CLUSTER_NAME = "DefaultCluster"
BROKER_NAME = "broker-a"

# Small files, frequent persistence, and what the scenarios need; everything else has its default.
BROKER_SETTINGS = {
    "mappedFileSizeCommitLog": "67108864",
    "flushConsumerOffsetInterval": "1000",
    # The default, with 1 s for level 3, which is the first retry level.
    "messageDelayLevel": "1s 5s 1s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
    "enablePropertyFilter": "true",
    "traceTopicEnable": "true",
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "1000",
    "transactionCheckMax": "60",  # the C++ client's first heartbeat may follow its first send by half a minute
    "registerNameServerPeriod": "10000",
    "waitTimeMillsInSendQueue": "5000",
}


class Daemon:
    """One daemon, which can be stopped, killed and restarted on the same port and directory."""

    def __init__(self, argv: list[str], directory: Path, address: str) -> None:
        self.argv = argv
        self.directory = directory
        self.address = address
        self.child: Child | None = None

    def start(self) -> None:
        self.begin()
        self.wait_up()

    def begin(self) -> None:
        """Start the process; `wait_up` waits until it serves."""
        environment = dict(os.environ, HOME=str(self.directory), JAVA_TOOL_OPTIONS=SOON_UP)
        environment["XDG_CACHE_HOME"] = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
        self.child = Child(self.argv, log_path=self.directory / "output.log", env=environment)

    def wait_up(self) -> None:
        assert self.child is not None
        self.child.wait_for_log("boot success", BOOT_SECONDS)

    def _end(self, first_signal: int) -> int | None:
        if self.child is None:
            return None
        status = self.child.end(first_signal, timeout_seconds=30)
        self.child = None
        return status

    def stop(self) -> int | None:
        """Send SIGTERM: a clean shutdown."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)


class Cluster:
    """One NameServer and one broker."""

    _topics = count(1)

    def __init__(
        self,
        target: str,
        directory: Path,
        settings: dict[str, str] | None = None,
        namesrv_settings: dict[str, str] | None = None,
    ) -> None:
        self.target = target
        self.directory = directory
        self.settings = {**BROKER_SETTINGS, **(settings or {})}
        self.namesrv_settings = namesrv_settings or {}
        for part in ("namesrv", "broker"):
            (directory / part).mkdir(parents=True)
        self.store = directory / "broker" / "store"
        self._draw_ports()

    def _draw_ports(self) -> None:
        namesrv_port, broker_port = free_port(), free_port()
        self.namesrv_address = f"127.0.0.1:{namesrv_port}"
        self.broker_address = f"127.0.0.1:{broker_port}"
        commands = {"apache": self._apache_commands, "apache5": self._apache5_commands}
        namesrv_argv, broker_argv = commands.get(self.target, self._triomq_commands)(namesrv_port, broker_port)
        self.namesrv = Daemon(namesrv_argv, self.directory / "namesrv", self.namesrv_address)
        self.broker = Daemon(broker_argv, self.directory / "broker", self.broker_address)

    def _apache_commands(self, namesrv_port: int, broker_port: int) -> tuple[list[str], list[str]]:
        peer = find_peer()
        assert peer is not None, "Apache's daemons need Java and Maven"
        pairs = [f"{key}={value}" for key, value in self.settings.items()]
        return (
            [str(peer), "namesrv", str(self.directory / "namesrv"), str(namesrv_port)],
            [str(peer), "broker", str(self.directory / "broker"), str(broker_port), self.namesrv_address, *pairs],
        )

    def _apache5_commands(self, namesrv_port: int, broker_port: int) -> tuple[list[str], list[str]]:
        broker = self.directory / "broker"
        return (
            namesrv_command(self.directory / "namesrv", namesrv_port),
            broker_command(broker, broker_port, self.namesrv_address, self.settings),
        )

    def _triomq_commands(self, namesrv_port: int, broker_port: int) -> tuple[list[str], list[str]]:
        namesrv, broker = self.directory / "namesrv", self.directory / "broker"
        namesrv_pairs = {
            "listenPort": str(namesrv_port),
            "kvConfigPath": str(namesrv / "namesrv" / "kvConfig.json"),
            **self.namesrv_settings,
        }
        pairs = {
            "listenPort": str(broker_port),
            "namesrvAddr": self.namesrv_address,
            "brokerIP1": "127.0.0.1",
            "brokerName": BROKER_NAME,
            "storePathRootDir": str(self.store),
            "storePathCommitLog": str(self.store / "commitlog"),
            **self.settings,
        }
        for path, settings in ((namesrv / "namesrv.conf", namesrv_pairs), (broker / "broker.conf", pairs)):
            path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return (
            [str(PROJECT / "bin" / "mqnamesrv"), "-c", str(namesrv / "namesrv.conf")],
            [str(PROJECT / "bin" / "mqbroker"), "-c", str(broker / "broker.conf")],
        )

    def start(self) -> None:
        """Start both for the first time, on other ports if theirs have been taken."""
        for starts_left in reversed(range(STARTS)):
            try:
                self.namesrv.start()
                self.broker.start()
                break
            except PortTaken:
                self.stop()
                if not starts_left:
                    raise
                self._draw_ports()
        self.wait_registered()

    def stop(self) -> None:
        self.broker.stop()
        self.namesrv.stop()

    def verify_store(self) -> None:
        """Check that the store of a stopped TrioMQ broker is sound, whatever the tests did to the broker."""
        if self.target != "triomq":
            return
        configuration = str(self.directory / "broker" / "broker.conf")
        argv = [sys.executable, "-m", "triomq.store", "verify", str(self.store), "-c", configuration]
        done = subprocess.run(argv, cwd=PROJECT, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, f"store verify failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"

    def is_registered(self) -> bool:
        answer = wire.ask(self.namesrv_address, wire.GET_BROKER_CLUSTER_INFO)
        return answer.code == 0 and self.broker_address.encode() in answer.body

    def wait_registered(self, timeout_seconds: float = 35) -> None:
        wait_until(self.is_registered, timeout_seconds, "the broker is registered at the NameServer")

    def route(self, topic: str) -> Any:
        """Return the topic's route from the NameServer, or None."""
        fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
        answer = wire.ask(self.namesrv_address, wire.GET_ROUTEINFO_BY_TOPIC, fields)
        return wire.lenient_json(answer.body) if answer.code == 0 else None

    def create_topic(self, name: str, queues: int = 4, *, numbered: bool = True) -> str:
        """Create a topic with a number appended, so that each test has its own; return its name."""
        topic = f"{name}_{next(self._topics)}" if numbered else name
        fields = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": queues,
            "writeQueueNums": queues,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": "false",
        }
        answer = wire.ask(self.broker_address, wire.UPDATE_AND_CREATE_TOPIC, fields)
        assert answer.code == 0, f"topic {topic} not made: {answer}"
        wait_until(lambda: self.route(topic), 10, f"the NameServer knows topic {topic}")
        return topic

    def store_offsets(self, topic: str, group: str, offsets: dict[int, int]) -> None:
        """Store what the group has consumed of each queue, as its clients do.

        A Java client stores it ten seconds after its start, and without waiting when it stops. On a busy machine that
        update can be lost with its connection.
        """
        for queue_id, offset in offsets.items():
            fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "commitOffset": offset}
            assert wire.ask(self.broker_address, wire.UPDATE_CONSUMER_OFFSET, fields).code == 0


@contextmanager
def running_cluster(
    target: str,
    directory: Path,
    settings: dict[str, str] | None = None,
    namesrv_settings: dict[str, str] | None = None,
) -> Iterator[Cluster]:
    """Start a cluster. `namesrv_settings` are for TrioMQ's NameServer; Apache's script accepts none."""
    cluster = Cluster(target, directory, settings, namesrv_settings)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        for daemon in (cluster.broker, cluster.namesrv):
            daemon.kill()
    try:
        cluster.verify_store()
    finally:
        shutil.rmtree(cluster.store, ignore_errors=True)
