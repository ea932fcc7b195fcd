"""Strangers on the HA port of a broker process: they are no copies and keep the slave out neither."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

from replication_processes import Cluster, create_topic, send_many

OK, SLAVE_NOT_AVAILABLE = 0, 11
SILENT = 80
TRANSFER = struct.Struct(">qi")


def received_until(stranger: socket.socket, end: int) -> int:
    """Read transfers until the log up to `end` has come; return how far it has."""
    with stranger.makefile("rb") as stream:
        at = 0
        while at < end:
            offset, size = TRANSFER.unpack(stream.read(TRANSFER.size))
            at = offset + len(stream.read(size))
    return at


def test_strangers_are_no_copies_and_do_not_keep_the_slave_out(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    strangers: list[socket.socket] = []

    def connect() -> socket.socket:
        stranger = socket.create_connection(("127.0.0.1", cluster.master.port + 1), timeout=10)
        strangers.append(stranger)
        return stranger

    try:
        cluster.namesrv.start()
        cluster.master.start()
        create_topic(cluster.master, "T")
        assert send_many(cluster.master, "T", 1) == [SLAVE_NOT_AVAILABLE]
        for _ in range(SILENT):
            connect()
        echo = connect()
        echo.sendall(struct.pack(">q", 1))  # the log from its second byte on
        end = received_until(echo, len(cluster.master.log()))
        for _ in range(5):
            echo.sendall(struct.pack(">q", end))
            assert send_many(cluster.master, "T", 1) == [SLAVE_NOT_AVAILABLE]
            end = received_until(echo, len(cluster.master.log()))
        echo.close()
        for _ in range(SILENT):
            connect()
        cluster.slave.start()
        cluster.wait_replicating("T")
        assert send_many(cluster.master, "T", 100) == [OK] * 100
        cluster.wait_equal()
    finally:
        for stranger in strangers:
            stranger.close()
        cluster.end()
