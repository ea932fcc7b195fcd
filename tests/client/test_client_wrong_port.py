"""Ports of other kinds of servers in place of a name server's: the client says what listens there."""

from __future__ import annotations

import http.server
import logging
import threading
from collections.abc import Iterator

import pytest
import trio
from client_fakes import NAME_SERVER, FakeCluster
from trio.testing import MockClock

from triomq.client.api import Message, NameServersUnreachable, Producer, PushConsumer
from triomq.protocol.codes import ResponseCode
from triomq.protocol.command import RemotingCommand, new_response
from triomq.testing import LocalCluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as found:
        yield found


@pytest.fixture(scope="module")
def broker(cluster: LocalCluster) -> str:
    return cluster.brokers["broker-a"]


async def refusal(address: str) -> str:
    began = trio.current_time()
    async with Producer("P", name_server=address) as producer:
        with pytest.raises(NameServersUnreachable) as caught:
            await producer.send(Message("T", b"m"))
    assert trio.current_time() - began < 2.9, "it does not wait for the time limit of the send"
    assert caught.value.are_wrong
    return str(caught.value)


async def test_a_broker_in_place_of_a_name_server(broker: str) -> None:
    text = "that is a broker's port, not a NameServer's: a NameServer's is usually 9876"
    assert await refusal(broker) == f"no name server responded ({broker}: {text})."


async def test_the_ha_port_in_place_of_a_name_server(broker: str) -> None:
    host, _, port = broker.rpartition(":")
    assert f"that is the HA port of the broker at {broker}" in await refusal(f"{host}:{int(port) + 1}")


async def test_an_http_server_in_place_of_a_name_server() -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        assert "that is the port of an HTTP server" in await refusal(f"127.0.0.1:{server.server_address[1]}")
        server.shutdown()
        thread.join(10)


async def test_a_right_name_server_is_asked_when_another_address_is_wrong(cluster: LocalCluster, broker: str) -> None:
    both = [broker, cluster.name_server]
    async with Producer("P", name_server=both) as producer:
        await producer.send(Message("T", b"m"))


class BrokerInsteadOfNameServer(FakeCluster):
    """It refuses what only name servers know."""

    def route(self, request: RemotingCommand) -> RemotingCommand:
        return new_response(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)


async def test_a_consumer_warns_of_the_wrong_port_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    BrokerInsteadOfNameServer.installed(monkeypatch)
    with caplog.at_level(logging.INFO):
        async with PushConsumer("G", name_server=NAME_SERVER) as consumer:
            consumer.subscribe("T")
            await trio.sleep(150)
    lines = [text for text in caplog.messages if "that is a broker's port" in text]
    assert len(lines) == 3, caplog.messages
