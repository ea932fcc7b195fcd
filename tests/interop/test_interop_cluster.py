"""The daemons of the tests use other ports if another process took theirs."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from free_ports import PortTaken
from interop_cluster import Cluster, running_cluster


def test_a_cluster_whose_port_was_taken_meanwhile_starts_on_others(tmp_path: Path) -> None:
    cluster = Cluster("triomq", tmp_path)
    before = cluster.broker_address
    port = int(before.rpartition(":")[2])
    with socket.create_server(("", port)):
        try:
            cluster.start()
            assert cluster.is_registered()
            assert cluster.broker_address != before
        finally:
            cluster.stop()


def test_a_daemon_that_is_started_again_keeps_its_port_or_fails(tmp_path: Path) -> None:
    with running_cluster("triomq", tmp_path) as cluster:
        cluster.broker.stop()
        port = int(cluster.broker_address.rpartition(":")[2])
        with socket.create_server(("", port)), pytest.raises(PortTaken, match="Address already in use"):
            cluster.broker.start()
