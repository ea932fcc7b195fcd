"""A slave in a network of its own (a Linux network namespace): partitions, lost packets, delay."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from interop_processes import wait_until
from replication_processes import Cluster, Traffic, create_topic, send_many

pytestmark = pytest.mark.slow

OK = 0


def ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


class Network:
    """Two ends of one cable: here (`master_ip`) and in a namespace (`slave_ip`)."""

    def __init__(self) -> None:
        number = os.getpid() % 250
        self.namespace = f"triomq-{os.getpid()}"
        self.cable, self.far_end = f"tqm{os.getpid() % 100000}", f"tqs{os.getpid() % 100000}"
        self.master_ip, self.slave_ip = f"10.213.{number}.1", f"10.213.{number}.2"

    def make(self) -> None:
        ip("netns", "add", self.namespace)
        ip("link", "add", self.cable, "type", "veth", "peer", "name", self.far_end)
        ip("link", "set", self.far_end, "netns", self.namespace)
        ip("addr", "add", f"{self.master_ip}/24", "dev", self.cable)
        ip("link", "set", self.cable, "up")
        for arguments in (
            ("addr", "add", f"{self.slave_ip}/24", "dev", self.far_end),
            ("link", "set", self.far_end, "up"),
            ("link", "set", "lo", "up"),
        ):
            ip("-n", self.namespace, *arguments)

    def remove(self) -> None:
        for arguments in (("link", "del", self.cable), ("netns", "del", self.namespace)):
            subprocess.run(["ip", *arguments], capture_output=True, check=False)

    def cut(self) -> None:
        """Packets vanish; nobody is told."""
        ip("-n", self.namespace, "link", "set", self.far_end, "down")

    def mend(self) -> None:
        ip("-n", self.namespace, "link", "set", self.far_end, "up")

    def disturb(self, *netem: str) -> bool:
        """Delay or loss by the kernel; False when it cannot."""
        command = ["tc", "qdisc", "replace", "dev", self.cable, "root", "netem", *netem]
        return (
            shutil.which("tc") is not None and not subprocess.run(command, capture_output=True, check=False).returncode
        )


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    if shutil.which("ip") is None:
        pytest.skip("network namespaces: there is no `ip` (iproute2)")
    network = Network()
    try:
        network.make()
    except OSError as error:
        network.remove()
        pytest.skip(f"network namespaces: {error}")
    yield network
    network.remove()


@contextmanager
def running(network: Network, directory: Path, **settings: str) -> Iterator[Cluster]:
    cluster = Cluster(
        directory, haSendHeartbeatInterval="500", haHousekeepingInterval="2500", slaveTimeout="500", **settings
    )
    port = cluster.namesrv.address.partition(":")[2]
    for broker, host in ((cluster.master, network.master_ip), (cluster.slave, network.slave_ip)):
        broker.settings.update(brokerIP1=host, brokerIP2=host)
        broker.address = f"{host}:{broker.port}"
        broker.ha_address = f"{host}:{broker.port + 1}"
        broker.namesrv = f"{network.master_ip}:{port}"
    cluster.slave.command_prefix = ["ip", "netns", "exec", network.namespace]
    try:
        cluster.start()
        create_topic(cluster.master, "T")
        cluster.wait_replicating("T")
        yield cluster
    finally:
        network.mend()
        cluster.end()


def acknowledged_more(traffic: Traffic, number: int = 20, seconds: float = 60) -> None:
    before = len(traffic.acknowledged)
    wait_until(lambda: len(traffic.acknowledged) > before + number, seconds, "sends are acknowledged")


def assert_nothing_lost(cluster: Cluster, traffic: Traffic) -> None:
    traffic.stop()
    cluster.wait_replicating("T")
    cluster.wait_equal()
    kept = cluster.slave.log()
    assert len(traffic.acknowledged) > 40
    assert [body for body in traffic.acknowledged if body not in kept] == []


def test_a_partition_ends_the_wait_and_heals(network: Network, tmp_path: Path) -> None:
    with running(network, tmp_path) as cluster:
        traffic = Traffic(cluster.master, "T")
        try:
            for _ in range(2):
                acknowledged_more(traffic)
                network.cut()
                wait_until(lambda: send_many(cluster.master, "T", 1) == [11], 30, "the master gives the slave up")
                network.mend()
                acknowledged_more(traffic)
        finally:
            traffic.stop()
        assert traffic.codes.get(12, 0) > 0  # those that waited when it happened
        assert_nothing_lost(cluster, traffic)


def test_a_cable_that_comes_and_goes_loses_nothing(network: Network, tmp_path: Path) -> None:
    with running(network, tmp_path) as cluster:
        traffic = Traffic(cluster.master, "T")
        try:
            for number in range(25):
                network.cut()
                time.sleep(0.02 * (number % 9))
                network.mend()
                time.sleep(0.15)
            acknowledged_more(traffic)
        finally:
            traffic.stop()
        assert_nothing_lost(cluster, traffic)


@pytest.mark.parametrize("netem", [("delay", "50ms", "20ms"), ("loss", "5%")], ids=lambda netem: netem[0])
def test_the_kernels_delay_and_loss_lose_nothing(network: Network, tmp_path: Path, netem: tuple[str, ...]) -> None:
    if not network.disturb(*netem):
        pytest.skip("delay and loss by the kernel: tc has no netem here")
    try:
        with running(network, tmp_path) as cluster:
            traffic = Traffic(cluster.master, "T")
            acknowledged_more(traffic, 60)
            assert_nothing_lost(cluster, traffic)
    finally:
        subprocess.run(["tc", "qdisc", "del", "dev", network.cable, "root"], capture_output=True, check=False)
