"""A whole NameServer: expiry, closed connections, sockets, and failures to start."""

from __future__ import annotations

import socket
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing
from namesrv_fakes import FakeNamesrv, broker_fields, registration
from structlog.testing import capture_logs

from triomq.daemon.errors import ExitCode, StartError
from triomq.namesrv import upkeep
from triomq.namesrv.config import NamesrvSettings
from triomq.namesrv.controller import serve
from triomq.namesrv.kv_config import KvConfig
from triomq.namesrv.product_environment import AddressServer, ProductEnvironment
from triomq.namesrv.upkeep import log_kv_config, scan_silent_brokers
from triomq.protocol.bodies.name_list import TopicList
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.remoting.client import RemotingClient, open_client
from triomq.remoting.config import ServerSettings
from triomq.remoting.errors import RemotingTimeout

LOOPBACK = ServerSettings(listen_port=0, bind_address="127.0.0.1")


async def start(nursery: trio.Nursery, settings: NamesrvSettings | None = None) -> str:
    port: int = await nursery.start(partial(serve, settings or NamesrvSettings(), LOOPBACK))
    return f"127.0.0.1:{port}"


async def register(client: RemotingClient, address: str, topic: str) -> None:
    fields = {**broker_fields(), "haServerAddr": "10.0.0.1:10912"}
    request = new_request(RequestCode.REGISTER_BROKER, body=registration(topic).encode(), ext_fields=fields)
    assert (await client.invoke(address, request)).code == 0


async def topics(client: RemotingClient, address: str) -> list[str]:
    answer = await client.invoke(address, new_request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))
    return TopicList.decode(answer.body).topic_list


async def test_a_silent_broker_is_dropped_after_two_minutes(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    namesrv = FakeNamesrv(nursery)
    silent, lively = namesrv.connect(1), namesrv.connect(2)
    await namesrv.register("T", connection=silent)
    await namesrv.register("U", name="b-b", address="10.0.0.2:10911", connection=lively)
    nursery.start_soon(scan_silent_brokers, namesrv.routes, Counter())
    for _ in range(4):
        await trio.sleep(30)
        await namesrv.register("U", name="b-b", address="10.0.0.2:10911", connection=lively)
    # Scans run at 5, 15, ... 125 s; at 120 s the broker is not yet over the limit.
    assert namesrv.routes.topics() == ["T", "U"]
    await trio.sleep(6)
    assert namesrv.routes.topics() == ["U"]
    nursery.cancel_scope.cancel()


async def test_the_connection_of_a_silent_broker_is_closed(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    namesrv = FakeNamesrv(nursery)
    monkeypatch.setattr(upkeep, "Connection", type(namesrv.peer))
    await namesrv.register("T")
    nursery.start_soon(scan_silent_brokers, namesrv.routes, Counter())
    await trio.sleep(130)
    assert (namesrv.peer.is_open, namesrv.peer.close_reason) == (False, "the broker has not registered for too long")
    nursery.cancel_scope.cancel()


async def test_a_query_of_an_unchanged_data_version_keeps_a_broker_alive(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    namesrv = FakeNamesrv(nursery)
    await namesrv.register("T", version=1)
    nursery.start_soon(scan_silent_brokers, namesrv.routes, Counter())
    version = registration(version=1).topic_config_serialize_wrapper.data_version.encode()
    for _ in range(5):
        await trio.sleep(60)
        await namesrv.ask(RequestCode.QUERY_DATA_VERSION, broker_fields(), version)
    assert namesrv.routes.topics() == ["T"]
    nursery.cancel_scope.cancel()


async def test_a_closed_connection_takes_its_broker_along_at_once(nursery: trio.Nursery) -> None:
    namesrv = FakeNamesrv(nursery)
    broker, client = namesrv.connect(1), namesrv.connect(2)
    await namesrv.register("T", connection=broker)
    namesrv.disconnect(client)
    assert namesrv.routes.topics() == ["T"]
    namesrv.disconnect(broker)
    assert namesrv.routes.sizes() == {"topics": 0, "broker_names": 0, "brokers": 0}


async def test_the_kv_table_is_logged_every_ten_minutes(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    config = KvConfig(None)
    await config.put("N", "k", "v")
    with capture_logs() as logs:
        nursery.start_soon(log_kv_config, config)
        await trio.sleep(61)
        assert [(line["namespace"], line["key"], line["value"]) for line in logs] == [("N", "k", "v")]
        await trio.sleep(600)
        assert len(logs) == 2
    nursery.cancel_scope.cancel()


async def test_over_sockets(nursery: trio.Nursery) -> None:
    address = await start(nursery)
    async with open_client() as client:
        async with open_client() as broker:
            await register(broker, address, "T")
            assert await topics(client, address) == ["T"]
        with trio.fail_after(10):
            while await topics(client, address):
                await trio.lowlevel.checkpoint()
        answer = await client.invoke(address, new_request(9999))
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    nursery.cancel_scope.cancel()


async def test_two_namesrvs_live_beside_each_other(nursery: trio.Nursery) -> None:
    one, two = await start(nursery), await start(nursery)
    async with open_client() as client:
        await register(client, one, "T")
        assert (await topics(client, one), await topics(client, two)) == (["T"], [])
    nursery.cancel_scope.cancel()


async def test_cluster_test_forwards_to_another_namesrv(nursery: trio.Nursery) -> None:
    product = await start(nursery)
    test = await start(nursery, NamesrvSettings(cluster_test=True, namesrv_addr=f"127.0.0.1:1;{product}"))
    async with open_client() as client:
        await register(client, product, "There")
        request = new_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": "There"})
        request.version = 100
        answer = await client.invoke(test, request)
        assert answer.code == 0
        assert b'{0:"10.0.0.1:10911"}' in answer.body
        request = new_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": "Nowhere"})
        assert (await client.invoke(test, request)).code == ResponseCode.TOPIC_NOT_EXIST
    nursery.cancel_scope.cancel()


def test_the_url_of_the_address_server() -> None:
    assert AddressServer().url("center") == "http://jmenv.tbsite.net:8080/rocketmq/nsaddr-center?nofix=1"
    assert AddressServer("ns.example:80", "list").url("e") == "http://ns.example:80/rocketmq/list-e?nofix=1"


async def test_an_address_server_that_does_not_answer_is_no_route() -> None:
    async with open_client() as client:
        environment = ProductEnvironment(client, None, "http://127.0.0.1:1/rocketmq/nsaddr-center?nofix=1")
        request = new_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": "T"})
        with capture_logs() as logs:
            assert await environment.ask(request) is None
            assert await environment.ask(request) is None
        warnings = [line["event"] for line in logs if line["log_level"] == "warning"]
        assert warnings == ["address server not reached"]


class NobodyThere:
    """A client whose calls all fail; it records them."""

    def __init__(self) -> None:
        self.called: list[str] = []

    async def invoke(self, address: str, command: RemotingCommand, timeout_seconds: float) -> RemotingCommand:
        self.called.append(address)
        raise RemotingTimeout("no response")


async def test_requests_at_once_share_one_question_to_the_address_server() -> None:
    questions = 0

    async def respond(stream: trio.SocketStream) -> None:
        nonlocal questions
        questions += 1
        await stream.receive_some(1000)
        await trio.testing.wait_all_tasks_blocked()  # the other requests have come
        await stream.send_all(b"HTTP/1.0 200 OK\r\n\r\nns1:9876")
        await stream.aclose()

    client = NobodyThere()
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, respond, 0, host="127.0.0.1"))
        port = listeners[0].socket.getsockname()[1]
        environment = ProductEnvironment(client, None, f"http://127.0.0.1:{port}/list")  # type: ignore[arg-type]
        async with trio.open_nursery() as requests:
            for number in range(5):
                request = new_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": f"T{number}"})
                requests.start_soon(environment.ask, request)
        nursery.cancel_scope.cancel()
    assert (questions, client.called) == (1, ["ns1:9876"] * 5), "all of them use the list"


async def test_a_taken_port_is_told_in_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        with pytest.raises(StartError, match=rf"cannot listen on 127\.0\.0\.1:{port}: Address already") as caught:
            await serve(NamesrvSettings(), ServerSettings(listen_port=port, bind_address="127.0.0.1"))
    assert caught.value.exit_code == ExitCode.FAILED


async def test_a_torn_kv_file_refuses_the_start(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text("{")
    with pytest.raises(StartError):
        await serve(NamesrvSettings(kv_config_path=str(path)), LOOPBACK)
