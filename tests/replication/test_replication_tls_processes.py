"""TLS between daemons as processes: replication, registration, and RocketMQ's brokers on the other side."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
from apache_peer import find_peer
from interop_processes import wait_until
from replication_processes import Broker, Cluster, NameServer, create_topic, send_many
from tls_authority import Authority, needs_openssl

from triomq.protocol.bodies.route import ClusterInfo
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import new_request
from triomq.remoting.client import open_client
from triomq.remoting.tls import TlsSettings, client_context

pytestmark = [pytest.mark.slow, needs_openssl]
needs_apache = pytest.mark.skipif(find_peer() is None, reason="needs RocketMQ's daemons")


def accepting(authority: Authority, name: str) -> dict[str, str]:
    certificate, key = authority.issue(name)
    return {
        "tls.test.mode.enable": "false",
        "tls.server.certPath": certificate,
        "tls.server.keyPath": key,
        "tls.server.trustCertPath": str(authority.certificate),
    }


def connecting(authority: Authority, name: str) -> dict[str, str]:
    certificate, key = authority.issue(name)
    return {
        "tls.test.mode.enable": "false",
        "tls.client.certPath": certificate,
        "tls.client.keyPath": key,
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": str(authority.certificate),
    }


def in_java(values: dict[str, str]) -> list[str]:
    """Return the beginning of a command that gives system properties to RocketMQ's daemons."""
    return ["env", "JAVA_TOOL_OPTIONS=" + " ".join(f"-D{key}={value}" for key, value in values.items())]


@contextmanager
def running(cluster: Cluster) -> Iterator[Cluster]:
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.end()


def assert_replicates(cluster: Cluster) -> None:
    create_topic(cluster.master, "T")
    cluster.wait_replicating("T")
    assert send_many(cluster.master, "T", 100) == [0] * 100
    cluster.wait_equal()
    cluster.wait_equal_queues("T")


def test_a_pair_replicates_with_certificates_on_both_sides(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cluster = Cluster(tmp_path / "cluster")
    mode = {"tls.ha.mode": "enforcing"}
    cluster.master.settings.update(accepting(authority, "master"), **mode, **{"tls.ha.slaveNames": "the-slave"})
    cluster.slave.settings.update(connecting(authority, "the-slave"), **mode)
    with running(cluster):
        assert_replicates(cluster)


@needs_apache
def test_rocketmqs_slave_follows_a_permissive_master(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cluster = Cluster(tmp_path / "cluster", slave="apache")
    cluster.master.settings.update(accepting(authority, "master"), **{"tls.ha.mode": "permissive"})
    with running(cluster):
        assert_replicates(cluster)


@needs_apache
def test_rocketmqs_slave_of_an_enforcing_master_is_refused_with_a_reason(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cluster = Cluster(tmp_path / "cluster", slave="apache")
    cluster.master.settings.update(accepting(authority, "master"), **{"tls.ha.mode": "enforcing"})
    with running(cluster):
        child = cluster.master.daemon.child if cluster.master.daemon is not None else None
        assert child is not None
        wait_until(lambda: "link to the HA port refused" in child.log_text(), 40, "the master says why")
        assert "it does not use TLS" in child.log_text()


def registered(address: str, values: dict[str, str]) -> dict[int, str]:
    """Return the addresses of broker-a that a NameServer with TLS knows."""

    async def ask() -> bytes:
        async with open_client(tls_context=client_context(TlsSettings.from_values(values))) as client:
            return (await client.invoke(address, new_request(RequestCode.GET_BROKER_CLUSTER_INFO), 10)).body

    known = ClusterInfo.decode(trio.run(ask)).broker_addr_table.get("broker-a")
    return dict(known.broker_addrs) if known is not None else {}


@pytest.mark.parametrize("kind", ["triomq", pytest.param("apache", marks=needs_apache)])
def test_a_broker_registers_where_certificates_are_required(tmp_path: Path, kind: str) -> None:
    authority = Authority(tmp_path)
    namesrv = NameServer("triomq", tmp_path / "namesrv")
    required = {
        **accepting(authority, "namesrv"),
        "tls.server.mode": "enforcing",
        "tls.server.authClient": "true",
        "tls.server.need.client.auth": "require",
    }
    with (tmp_path / "namesrv" / "namesrv.conf").open("a") as conf:
        conf.writelines(f"{key}={value}\n" for key, value in required.items())
    # RocketMQ's broker does not start without a certificate for its own port.
    own = {**accepting(authority, "broker-port"), **connecting(authority, "broker-a"), "tls.enable": "true"}
    broker = Broker(kind, tmp_path / "broker", namesrv.address, {"brokerRole": "ASYNC_MASTER", "brokerId": "0"})
    if kind == "apache":
        broker.command_prefix = in_java(own)
    else:
        broker.settings.update(own)
    try:
        namesrv.start()
        broker.start()
        wait_until(
            lambda: registered(namesrv.address, connecting(authority, "test")) == {0: broker.address}, 60, "registered"
        )
    finally:
        broker.kill()
        namesrv.kill()
