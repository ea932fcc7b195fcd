"""A slave in another network (a Linux network namespace): partitions, lost packets, delay."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from interop_processes import wait_until
from replication_network import Network, TunCable, make_network
from replication_processes import Cluster, Traffic, create_topic, send_many

pytestmark = pytest.mark.slow

OK = 0


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    try:
        network = make_network()
    except OSError as error:
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
        broker.host = host
        broker.namesrv = f"{network.master_ip}:{port}"
    cluster.slave.command_prefix = ["ip", "netns", "exec", network.namespace]
    try:
        cluster.start()
        create_topic(cluster.master, "T")
        cluster.wait_replicating("T")
        yield cluster
    finally:
        network.cable.mend()
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
                network.cable.cut()
                wait_until(lambda: send_many(cluster.master, "T", 1) == [11], 30, "the master gives the slave up")
                network.cable.mend()
                acknowledged_more(traffic)
        finally:
            traffic.stop()
        assert traffic.codes.get(12, 0) > 0  # the puts that waited at that moment
        assert_nothing_lost(cluster, traffic)


def test_a_cable_that_comes_and_goes_loses_nothing(network: Network, tmp_path: Path) -> None:
    with running(network, tmp_path) as cluster:
        traffic = Traffic(cluster.master, "T")
        try:
            for number in range(25):
                network.cable.cut()
                time.sleep(0.02 * (number % 9))
                network.cable.mend()
                time.sleep(0.15)
            acknowledged_more(traffic)
        finally:
            traffic.stop()
        assert_nothing_lost(cluster, traffic)


@pytest.mark.parametrize(
    "faults",
    [{"delay_seconds": 0.03, "jitter_seconds": 0.02}, {"loss": 0.05}],
    ids=["delay and reordering", "loss"],
)
def test_delayed_and_lost_packets_lose_nothing(network: Network, tmp_path: Path, faults: dict[str, float]) -> None:
    cable = network.cable
    if not cable.disturb(**faults):
        pytest.skip("delay and loss: no TUN devices here, and tc has no netem")
    before = (cable.reordered, cable.lost) if isinstance(cable, TunCable) else (0, 0)
    try:
        with running(network, tmp_path) as cluster:
            traffic = Traffic(cluster.master, "T")
            acknowledged_more(traffic, 60)
            assert_nothing_lost(cluster, traffic)
    finally:
        cable.calm()
    if isinstance(cable, TunCable):
        assert (cable.lost if "loss" in faults else cable.reordered) > before["loss" in faults]
