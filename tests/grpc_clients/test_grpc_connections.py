"""grpcServerPort: TLS, other protocols, what overtakes what, limits, accounts, and the end."""

from __future__ import annotations

import hashlib
import hmac
import socket
import ssl
import traceback
from pathlib import Path
from typing import Any

import pytest
import trio
from grpc_lab import LIMIT_SECONDS, TOPIC, Code, Lab, acknowledging, lab, message, receiving, true_soon
from structlog.testing import capture_logs

from triomq.broker.__main__ import _load
from triomq.broker.configuration import Configuration
from triomq.broker.controller import BrokerController
from triomq.broker.grpc import connection as grpc_connection
from triomq.broker.lifecycle.configuration_check import configuration_problems
from triomq.daemon.clock import system_now_ms
from triomq.daemon.command_line import parse_command_line
from triomq.daemon.environment import read_environment
from triomq.daemon.errors import StartError
from triomq.grpc_front import schema
from triomq.grpc_front.messages import encode_message
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import new_request
from triomq.protocol.frame import decode_frame, encode_frame
from triomq.protocol.speedups import running_build
from triomq.remoting.errors import ConnectionClosed

BEAT = schema.HeartbeatRequest(client_type=schema.ClientType.PRODUCER)
needs_python = pytest.mark.skipif(running_build() == "compiled", reason="compiled constants cannot be replaced")


async def talk(port: int, data: bytes) -> bytes:
    """Send bytes, and return everything that comes until the other side closes."""
    received = b""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(data)
        with trio.fail_after(LIMIT_SECONDS):
            while part := await stream.receive_some(65536):
                received += bytes(part)
    return received


def trusting() -> ssl.SSLContext:
    """Return the context of a client that trusts every certificate, as RocketMQ's do."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context


def test_mqbroker_serves_grpc_clients_unless_its_configuration_says_otherwise(tmp_path: Path) -> None:
    def loaded(text: str) -> tuple[int, bool]:
        (tmp_path / "broker.conf").write_text(text)
        options = parse_command_line("mqbroker", ["-c", str(tmp_path / "broker.conf")], letters="chmnp")
        configuration = Configuration.from_layers(_load(options, read_environment({"HOME": str(tmp_path)})))
        return configuration.broker.grpc_server_port, configuration.is_grpc_port_chosen

    assert loaded("") == (8081, False)
    assert loaded("grpcServerPort=0\n") == (0, True)
    assert loaded("grpcServerPort=9081\n") == (9081, True)
    assert Configuration.from_values({}).broker.grpc_server_port == 0, "an embedded broker"


@pytest.mark.parametrize("is_chosen", [True, False])
async def test_a_port_that_is_taken_matters_if_the_configuration_says_it(tmp_path: Path, is_chosen: bool) -> None:
    with socket.create_server(("", 0)) as holder:
        port = holder.getsockname()[1]
        values = {"listenPort": "0", "storePathRootDir": str(tmp_path), "grpcServerPort": str(port)}
        configuration = Configuration.from_values(values)
        configuration.is_grpc_port_chosen = is_chosen
        controller = BrokerController(configuration, now_ms=system_now_ms)
        refused = pytest.RaisesExc(StartError, match="or set grpcServerPort")
        with capture_logs() as lines:
            async with trio.open_nursery() as nursery:
                if is_chosen:
                    with pytest.RaisesGroup(refused, flatten_subgroups=True):
                        await nursery.start(controller.serve)
                else:
                    await nursery.start(controller.serve)
                nursery.cancel_scope.cancel()
    told = [line["error"] for line in lines if line["event"] == "gRPC port not opened"]
    reason = f"cannot listen on *:{port}: Address already in use"
    advice = "stop the process that uses it, or set grpcServerPort (0: no port)"
    assert told == ([] if is_chosen else [f"{reason}; {advice}"])


async def test_tls_and_plain_connections_share_the_port(broker: Lab) -> None:
    secured = await broker.client(tls=trusting())
    assert secured.stream.selected_alpn_protocol() == "h2"  # type: ignore[attr-defined]
    assert (await secured.send_message(b"1")).status == Code.OK
    assert (await (await broker.client()).send_message(b"2")).status == Code.OK


@pytest.mark.parametrize("is_secured", [False, True])
async def test_a_load_balancer_names_its_client(is_secured: bool) -> None:
    """Also in front of TLS. One that is listed must do so in each connection."""
    header = b"PROXY TCP4 203.0.113.7 10.9.9.9 5000 8081\r\n"
    async with lab(grpcProxyProtocolFrom="127.0.0.0/8") as broker:
        receiver = await broker.client("receiver", proxied=b"PROXY UNKNOWN\r\n")
        assert await receiver.receive("g", grpc_timeout="1S") == []
        client = await broker.client(proxied=header, tls=trusting() if is_secured else None)
        assert (await client.send_message(b"1")).status == Code.OK
        [got] = await receiver.receive("g", grpc_timeout="5S")
        assert got.system_properties.born_host == "203.0.113.7:5000"
        assert await talk(broker.port, b"PRI * HTTP/2") == b""


async def test_who_is_no_load_balancer_names_nobody(broker: Lab) -> None:
    answer = await talk(broker.port, b"PROXY TCP4 203.0.113.7 10.9.9.9 5000 8081\r\nPRI * HTTP/2.0\r\n\r\n")
    assert answer == b""


def test_the_list_of_load_balancers_is_checked() -> None:
    configuration = Configuration.from_values({"grpcProxyProtocolFrom": "balancer.example"})
    [problem] = [each for each in configuration_problems(configuration) if "grpcProxyProtocolFrom" in each]
    assert "give addresses or networks like 10.0.0.0/24" in problem


async def test_a_client_of_remoting_is_told_the_right_port(broker: Lab) -> None:
    request = new_request(RequestCode.GET_BROKER_RUNTIME_INFO)
    request.opaque = 7
    answer = decode_frame(await talk(broker.port, encode_frame(request)))
    assert (answer.opaque, answer.code) == (7, 3)
    right = broker.cluster.brokers["broker-a"].rpartition(":")[2]
    assert f"connect to the broker's port {right}" in (answer.remark or "")


async def test_a_browser_is_told_what_the_port_is(broker: Lab) -> None:
    answer = await talk(broker.port, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"this port is for gRPC" in answer


async def test_http_2_at_the_port_of_remoting_is_told_the_right_setting(broker: Lab) -> None:
    port = int(broker.cluster.brokers["broker-a"].rpartition(":")[2])
    answer = await talk(port, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\4" + bytes(5))
    assert answer[3] == 4  # SETTINGS
    assert answer[12] == 7  # GOAWAY
    assert b"they connect to grpcServerPort" in answer


async def test_heartbeats_overtake_everything_else(broker: Lab) -> None:
    client = await broker.client()
    await client.publishing()
    sends = [client.begin("SendMessage", message(b"%d" % number)) for number in range(20)]
    beat = client.begin("Heartbeat", BEAT)
    await client.flush()
    for stream_id in (*sends, beat):
        await client.answer(stream_id)
    assert client.order[0] == beat
    assert sorted(client.order[1:]) == sends


@pytest.mark.parametrize(
    ("changes", "status", "text"),
    [
        ({"path": "/apache.rocketmq.v2.MessagingService/PullMessage"}, 12, b"no method"),
        ({"path": "/x/Y"}, 12, b"no method"),
        ({"content_type": "text/plain"}, 3, b"content type"),
        ({"grpc_encoding": "snappy"}, 12, b"snappy"),
        ({"grpc_timeout": "soon"}, 3, b"grpc-timeout"),
    ],
)
async def test_what_is_no_call_gets_a_status_of_grpc(broker: Lab, changes: Any, status: int, text: bytes) -> None:
    client = await broker.client()
    answer = await client.call("SendMessage", message(), **changes)
    assert (answer.grpc_status, answer.messages) == (status, [])
    assert text in answer.fields[b"grpc-message"]
    assert (await client.send_message()).status == Code.OK


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (encode_message(b"\xff\xff"), 3),
        (b"\0\0\0\0\5ab", 13),
        (b"\2\0\0\0\0", 13),
        (b"", 13),
        (encode_message(message().SerializeToString()) * 2, 13),
        (b"\0\x7f\0\0\0", 8),
    ],
)
async def test_what_is_no_message_costs_its_call_alone(broker: Lab, body: bytes, status: int) -> None:
    client = await broker.client()
    assert (await client.call("SendMessage", body)).grpc_status == status
    assert (await client.send_message()).status == Code.OK


async def test_what_is_no_http_2_costs_the_connection_alone(broker: Lab) -> None:
    client = await broker.client()
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    assert b"the first frame is not SETTINGS" in await talk(broker.port, preface + bytes(3) + b"\6" + bytes(5))
    assert (await client.send_message()).status == Code.OK


async def test_clients_that_share_a_connection_are_told_apart(broker: Lab) -> None:
    client = await broker.client("first")
    await client.publishing()
    command = schema.TelemetryCommand()
    command.settings.client_type = schema.ClientType.PRODUCER
    command.settings.publishing.topics.add(name=TOPIC)
    second = client.begin("Telemetry", command, ends=False, x_mq_client_id="second")
    await client.flush()
    await client.answer(second, 1)
    producers = broker.serving.tables.metadata.producers
    assert {channel.client_id for channel in producers.channels(TOPIC) or []} == {"first", "second"}
    await client.call("NotifyClientTermination", schema.NotifyClientTerminationRequest(), x_mq_client_id="second")
    assert [channel.client_id for channel in producers.channels(TOPIC) or []] == ["first"]
    await client.stream.aclose()
    await true_soon(lambda: not producers.channels(TOPIC))


@needs_python
async def test_the_clients_of_a_connection_are_bounded(broker: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_connection, "MAX_CLIENTS", 2)
    client = await broker.client()
    codes = [(await client.call("Heartbeat", BEAT, x_mq_client_id=name)).status for name in "abc"]
    assert codes == [Code.UNRECOGNIZED_CLIENT_TYPE, Code.UNRECOGNIZED_CLIENT_TYPE, Code.TOO_MANY_REQUESTS]


@needs_python
async def test_incomplete_messages_are_bounded(broker: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_connection, "MAX_INCOMPLETE_MESSAGES", 0)
    client = await broker.client()
    stream_id = client.begin("SendMessage", b"\0\0\0\1\0" + b"x" * 100, ends=False)
    await client.flush()
    assert (await client.answer(stream_id)).grpc_status == 8
    assert (await client.send_message()).status == Code.OK


async def test_what_failed_calls_held_is_counted_no_more() -> None:
    async with lab(frameMaxLength="70000") as broker:
        client = await broker.client()
        for _ in range(5):
            assert (await client.call("SendMessage", b"\2" + bytes(60_000))).grpc_status == 13
        begun = b"\0" + (65_000).to_bytes(4, "big") + bytes(60_000)
        streams = [client.begin("SendMessage", begun, ends=False) for _ in range(5)]
        await client.flush()
        await true_soon(lambda: bool(set(client.order) & set(streams)))
        assert (await client.answer(client.order[-1])).grpc_status == 8


@needs_python
async def test_what_a_client_does_not_take_is_given_back(broker: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_connection, "MAX_PENDING_BYTES", 1000)
    client = await broker.client()
    await client.subscribed("g")
    assert await client.receive("g", grpc_timeout="1S") == []
    await client.set_window(0)
    streams = [client.begin("ReceiveMessage", receiving("g", count=1)) for _ in range(2)]
    await client.flush()
    await true_soon(lambda: broker.serving.pop.parts.waiting.count(TOPIC, "g", -1) == 2)  # type: ignore[union-attr]
    producer = await broker.client("producer")
    for body in (b"1" * 2000, b"2" * 2000):
        assert (await producer.send_message(body)).status == Code.OK
    other = await broker.client("other")
    with trio.fail_after(LIMIT_SECONDS):
        while not (got := await other.receive("g", grpc_timeout="1S")):
            pass
    assert len(got) == 1
    await client.set_window(65_535)
    answers = [await client.answer(stream_id) for stream_id in streams]
    assert sorted(answer.status for answer in answers) == [Code.OK, Code.TOO_MANY_REQUESTS]


@needs_python
async def test_answers_that_are_not_taken_are_bounded(broker: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_connection, "MAX_PENDING_BYTES", -1)
    client = await broker.client()
    assert (await client.send_message()).grpc_status == 8


async def test_a_stop_ends_telemetry_first_and_then_the_connection() -> None:
    async with trio.open_nursery() as nursery:
        async with lab() as broker:
            client = await broker.client(nursery=nursery)
            stream_id = await client.publishing()
        answer = await client.answer(stream_id)
        assert answer.messages[-1].WhichOneof("command") == "reconnect_endpoints_command"
        assert answer.grpc_status == 0
        await client.wait_closed()
        assert client.terminated == b"the broker stops"


async def test_what_has_no_command_is_not_asked_of_a_grpc_client(broker: Lab) -> None:
    client = await broker.client()
    await client.subscribed("g")
    group = broker.serving.tables.metadata.consumers.get("g")
    assert group is not None
    (channel,) = group.members()
    with pytest.raises(ConnectionClosed, match="no way to be asked"):
        await channel.connection.invoke(new_request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT), 1)
    assert not channel.connection.send_oneway(new_request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET))
    assert channel.connection.send_oneway(new_request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED))


def signed(access_key: str, secret: str) -> dict[str, str]:
    date = "20261130T101010Z"
    text = hmac.digest(secret.encode(), date.encode(), hashlib.sha1).hex()
    header = f"MQv2-HMAC-SHA1 Credential={access_key}, SignedHeaders=x-mq-date-time, Signature={text}"
    return {"x_mq_date_time": date, "authorization": header}


ACCOUNTS = """
accounts:
- accessKey: producer
  secretKey: 12345678
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms:
  - T=PUB
- accessKey: consumer
  secretKey: 87654321
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms:
  - T=SUB
  groupPerms:
  - g=SUB
"""


async def test_accounts_have_the_rights_that_they_have_over_remoting(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(f"globalWhiteRemoteAddresses:\n{ACCOUNTS}")
    async with lab(rocketmqHome=str(tmp_path), aclEnable="true") as broker:
        producer = await broker.client("p", **signed("producer", "12345678"))
        consumer = await broker.client("c", **signed("consumer", "87654321"))
        assert (await producer.send_message(b"1")).status == Code.OK
        assert (await consumer.send_message(b"2")).status == Code.UNAUTHORIZED
        await consumer.subscribed("g")
        assert (await consumer.call("ReceiveMessage", receiving("g"), grpc_timeout="1S")).status != Code.UNAUTHORIZED
        assert (await producer.call("ReceiveMessage", receiving("g"))).status == Code.UNAUTHORIZED
        for headers in (signed("producer", "wrong"), signed("nobody", "12345678"), {}):
            answer = await (await broker.client("x", **headers)).send_message(b"3")
            assert answer.status == Code.UNAUTHORIZED
            assert "org.apache" in answer.messages[0].entries[0].status.message
        acknowledged = await producer.call("AckMessage", acknowledging("g", _message_with_handle()))
        assert acknowledged.status == Code.UNAUTHORIZED


def _message_with_handle() -> Any:
    one = schema.Message()
    one.system_properties.receipt_handle = "0 1 60000 0 0 broker-a 0 0"
    return one


async def test_a_port_that_is_taken_stops_the_start() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        with pytest.raises(BaseExceptionGroup) as raised:
            async with lab(grpcServerPort=str(sock.getsockname()[1])):
                pass
    assert "grpcServerPort" in "".join(traceback.format_exception(raised.value))
