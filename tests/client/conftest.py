"""Servers to test the client against: TrioMQ in this process, and real Apache RocketMQ 4.9 and 5 (marked `interop`)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
import trio
from apache_peer import find_peer
from client_apache5 import start_broker, start_namesrv
from client_cluster import BROKER_SETTINGS, LIMIT_SECONDS, Cluster, Daemon, until_registered
from free_ports import free_port

from triomq.broker.embedded import LocalCluster
from triomq.client.administer.admin import Admin
from triomq.client.api import ClientConfig, Producer, TransactionProducer


@pytest.fixture(autouse=True)
def patient_clients(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that runs tests may stall for seconds; allow clients of real servers more time."""
    if {"triomq", "apache", "apache5", "apache_acl", "cluster"} & set(request.fixturenames):
        for function, name in (
            (ClientConfig.__init__, "request_timeout_seconds"),
            (Producer.__init__, "send_timeout_seconds"),
            (TransactionProducer.__init__, "send_timeout_seconds"),
            (Admin.__init__, "timeout_seconds"),
        ):
            monkeypatch.setitem(function.__kwdefaults__, name, float(LIMIT_SECONDS))
        monkeypatch.setattr("triomq.client.consume.group_consumer.LEAVE_SECONDS", float(LIMIT_SECONDS))


@pytest.fixture(scope="session")
def triomq() -> Iterator[Cluster]:
    """Start TrioMQ in a thread of this process."""
    settings = dict(setting.split("=", 1) for setting in BROKER_SETTINGS)
    with LocalCluster(settings={**settings, "configUpdateWithoutAcl": "true"}) as local:
        yield Cluster(local.name_server, local.brokers["broker-a"])


@pytest.fixture(
    params=[
        "triomq",
        pytest.param("apache", marks=pytest.mark.interop),
        pytest.param("apache5", marks=pytest.mark.interop),
    ]
)
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """Return each of the three in turn."""
    found: Cluster = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="session")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Start Apache RocketMQ 4.9.7; skip the test if Java or Maven is absent."""
    running = os.environ.get("TRIOMQ_APACHE")
    if running:
        name_server, _, address = running.partition(",")
        yield Cluster(name_server, address, is_apache=True)
        return
    script = find_peer()
    if script is None:
        pytest.skip("Apache's daemons: no Java or no Maven")
    directory = tmp_path_factory.mktemp("apache")
    name_server = f"127.0.0.1:{free_port()}"
    broker_port = free_port()
    namesrv = Daemon(str(script), "namesrv", str(directory / "namesrv"), name_server.rpartition(":")[2])
    try:
        broker = Daemon(
            str(script), "broker", str(directory / "broker"), str(broker_port), name_server, *BROKER_SETTINGS
        )
        try:
            yield Cluster(name_server, f"127.0.0.1:{broker_port}", is_apache=True)
        finally:
            broker.stop()
    finally:
        namesrv.stop()


@pytest.fixture(scope="session")
def apache5(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Start Apache RocketMQ 5.3.3; skip the test if Java or Maven is absent."""
    for tool, name in (("java", "Java"), ("mvn", "Maven")):
        if shutil.which(tool) is None:
            pytest.skip(f"Apache RocketMQ 5: no {name}")
    directory = tmp_path_factory.mktemp("apache5")
    port, broker_port = free_port(), free_port()
    name_server = f"127.0.0.1:{port}"
    namesrv = start_namesrv(directory / "namesrv", port)
    try:
        broker = start_broker(directory / "broker", broker_port, name_server, BROKER_SETTINGS)
        try:
            cluster = Cluster(name_server, f"127.0.0.1:{broker_port}", is_apache=True)
            trio.run(until_registered, cluster)
            yield cluster
        finally:
            broker.stop()
    finally:
        namesrv.stop()
