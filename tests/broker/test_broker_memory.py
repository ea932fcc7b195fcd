"""Clients that leave frames unfinished and responses unread: what the broker holds for them stays within its budget,
and others are served."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
from broker_whole import WholeBroker, pull_fields, whole_broker

from triomq.protocol.command import new_request
from triomq.protocol.frame import encode_frame
from triomq.remoting.connection import Connection
from triomq.remoting.memory import LEAST_BYTES
from triomq.remoting.poller import RECEIVE_BYTES

MIB = 1024 * 1024
ATTACKERS = 8
PATIENCE_SECONDS = 20


class Opened:
    """A broker, and the connections that it has opened."""

    def __init__(self, broker: WholeBroker) -> None:
        self.broker = broker
        self.connections: list[Connection] = []
        broker.controller.serving.tables.listeners.on_open(self.connections.append)

    async def connect(self) -> trio.SocketStream:
        host, _, port = self.broker.address.rpartition(":")
        return await trio.open_tcp_stream(host, int(port))


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Opened]:
    async with whole_broker(tmp_path, maxRequestBytes="1", maxMessageSize="4194304") as broker:
        await broker.create_topic("T", 1)
        yield Opened(broker)


async def test_half_frames_wait_in_their_sockets(opened: Opened) -> None:
    """Eight announce 15 MiB each and send 14 of them; half of the budget is 32 MiB."""
    streams = [await opened.connect() for _ in range(ATTACKERS)]
    async with trio.open_nursery() as nursery:
        for stream in streams:
            nursery.start_soon(stream.send_all, (15 * MIB).to_bytes(4, "big") + bytes(14 * MIB))

        def held_bytes() -> int:
            return sum(connection._decoder.held_bytes for connection in opened.connections)

        with trio.fail_after(PATIENCE_SECONDS):
            while held_bytes() < 28 * MIB or sum(each.paused for each in opened.connections) < ATTACKERS - 2:
                assert (await opened.broker.send("T", bytes(1000))).code == 0
        assert opened.connections[0].backpressure.memory.limit_bytes == LEAST_BYTES
        assert opened.connections[0].backpressure.memory.granted_bytes <= LEAST_BYTES // 2
        assert held_bytes() <= LEAST_BYTES // 2 + ATTACKERS * RECEIVE_BYTES
        assert (await opened.broker.send("T", bytes(200_000))).code == 0
        nursery.cancel_scope.cancel()


async def test_responses_that_nobody_reads_are_not_made(opened: Opened) -> None:
    for _ in range(4):
        assert (await opened.broker.send("T", bytes(200_000))).code == 0
    fields = {name: str(value) for name, value in pull_fields("T").items()}
    pulls = encode_frame(new_request(11, ext_fields=fields)) * 2000
    streams = [await opened.connect() for _ in range(4)]
    async with trio.open_nursery() as nursery:
        for stream in streams:
            nursery.start_soon(stream.send_all, pulls)
        with trio.fail_after(PATIENCE_SECONDS):
            while sum(connection.paused for connection in opened.connections) < len(streams):
                await trio.lowlevel.checkpoint()
        assert 0 < opened.connections[0].backpressure.memory.held_bytes < len(streams) * 6 * MIB
        assert (await opened.broker.send("T")).code == 0
        nursery.cancel_scope.cancel()
