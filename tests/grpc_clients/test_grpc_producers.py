"""QueryRoute, Telemetry, Heartbeat, SendMessage and EndTransaction, over a socket."""

from __future__ import annotations

import zlib
from typing import Any

import pytest
import trio
from grpc_lab import LIMIT_SECONDS, TOPIC, Client, Code, Lab, lab, message

from triomq import Admin, ConsumeFromWhere, SimpleConsumer
from triomq.broker.grpc.routes import endpoints_of
from triomq.grpc_front import schema
from triomq.grpc_front.messages import encode_message

Resolution = schema.TransactionResolution


async def stored(broker: Lab, count: int, group: str = "reader") -> list[Any]:
    """Return what a client of remoting receives."""
    found: list[Any] = []
    consumer = SimpleConsumer(
        group, name_server=broker.cluster.name_server, consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    )
    async with consumer:
        consumer.subscribe(TOPIC)
        with trio.fail_after(LIMIT_SECONDS):
            while len(found) < count:
                found += await consumer.receive(wait_seconds=1)
    return found


async def test_a_message_has_the_properties_that_clients_of_remoting_know(broker: Lab) -> None:
    client = await broker.client()
    system = {"tag": "blue", "keys": ["k1", "k2"], "message_group": "g", "trace_context": "00-1"}
    answer = await client.send_message(b"hello", message_id="0A1B", properties={"color": "red"}, **system)
    assert (answer.grpc_status, answer.status) == (0, Code.OK)
    (entry,) = answer.messages[0].entries
    assert (entry.message_id, entry.offset, entry.status.code) == ("0A1B", 0, Code.OK)
    (got,) = await stored(broker, 1)
    assert (got.body, got.tags, got.keys, got.msg_id) == (b"hello", "blue", "k1 k2", "0A1B")
    assert got.properties["color"] == "red"
    assert got.properties["__SHARDINGKEY"] == "g"
    assert got.properties["TRACE_CONTEXT"] == "00-1"
    assert got.queue_id == zlib.crc32(b"g") % 2
    assert got.born_host.ip == "127.0.0.1"


async def test_several_messages_of_one_request_have_a_status_each(broker: Lab) -> None:
    request = message(b"1")
    request.messages.add().CopyFrom(message(b"2").messages[0])
    answer = await (await broker.client()).call("SendMessage", request)
    assert [entry.message_id for entry in answer.messages[0].entries] == ["id-1", "id-2"]
    assert sorted(got.body for got in await stored(broker, 2)) == [b"1", b"2"]


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (schema.SendMessageRequest(), Code.MESSAGE_CORRUPTED),
        (message(b""), Code.MESSAGE_BODY_EMPTY),
        (message(b"x" * (4 * 1024 * 1024 + 1)), Code.MESSAGE_BODY_TOO_LARGE),
        (message(message_id=""), Code.ILLEGAL_MESSAGE_ID),
        (message(topic="a b"), Code.ILLEGAL_TOPIC),
        (message(topic="SCHEDULE_TOPIC_XXXX"), Code.ILLEGAL_TOPIC),
        (message(tag="a|b"), Code.ILLEGAL_MESSAGE_TAG),
        (message(tag=" "), Code.ILLEGAL_MESSAGE_TAG),
        (message(keys=["a\n"]), Code.ILLEGAL_MESSAGE_KEY),
        (message(message_group="g" * 64), Code.ILLEGAL_MESSAGE_GROUP),
        (message(properties={"TAGS": "x"}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (message(properties={"a": "b\x01"}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (message(properties={f"k{n}": "v" for n in range(129)}), Code.MESSAGE_PROPERTIES_TOO_LARGE),
        (message(properties={"k": "v" * 17_000}), Code.MESSAGE_PROPERTIES_TOO_LARGE),
        (message(delivery_timestamp=4_000_000_000), Code.ILLEGAL_DELIVERY_TIME),
        (
            message(message_type=schema.MessageType.TRANSACTION, orphaned_transaction_recovery_duration=3601),
            Code.BAD_REQUEST,
        ),
    ],
)
async def test_what_must_not_be_sent_is_refused_with_its_status(broker: Lab, request_: Any, code: int) -> None:
    client = await broker.client()
    answer = await client.call("SendMessage", request_)
    assert (answer.grpc_status, answer.status) == (0, code)
    assert answer.messages[0].status.message
    assert (await client.send_message(b"next")).status == Code.OK


async def test_a_message_with_a_time_waits_for_the_next_level_of_delay() -> None:
    async with lab(messageDelayLevel="1s 2s 1h") as broker:
        now = broker.serving.tables.now_ms() // 1000
        client = await broker.client()
        assert (await client.send_message(b"late", delivery_timestamp=now + 2)).status == Code.OK
        (got,) = await stored(broker, 1)
        assert got.body == b"late"
        assert got.store_timestamp >= (now + 1) * 1000


async def test_a_route_leads_where_the_client_came_from(broker: Lab) -> None:
    client = await broker.client()
    request = schema.QueryRouteRequest()
    request.topic.name = TOPIC
    (first, second) = (await client.call("QueryRoute", request)).messages[0].message_queues
    assert (first.id, second.id, first.permission) == (0, 1, schema.Permission.READ_WRITE)
    assert len(first.accept_message_types) == 4
    where = [(each.host, each.port) for each in first.broker.endpoints.addresses]
    assert (where, first.broker.endpoints.scheme) == ([("broker.example", 18081)], schema.AddressScheme.DOMAIN_NAME)
    request.endpoints.scheme = schema.AddressScheme.IPv4
    request.endpoints.addresses.add(host="10.9.8.7", port=30_081)
    (queue, _) = (await client.call("QueryRoute", request)).messages[0].message_queues
    assert [(each.host, each.port) for each in queue.broker.endpoints.addresses] == [("10.9.8.7", 30_081)]
    request.topic.name = "Unknown"
    assert (await client.call("QueryRoute", request)).status == Code.TOPIC_NOT_FOUND


@pytest.mark.parametrize(
    ("authority", "host", "port"),
    [
        ("broker.example:8082", "broker.example", 8082),
        ("broker.example", "broker.example", 8081),
        ("[::1]:1", "::1", 1),
        ("h:99999", "h:99999", 8081),
        ("h:\N{SUPERSCRIPT TWO}", "h:\N{SUPERSCRIPT TWO}", 8081),
        ("", "", 8081),
    ],
)
def test_any_authority_is_an_endpoint(authority: str, host: str, port: int) -> None:
    [where] = endpoints_of(authority).addresses
    assert (where.host, where.port) == (host, port)


async def test_an_advertised_endpoint_goes_before_all_others() -> None:
    async with lab(grpcAdvertisedEndpoint="[2001:db8::1]:8081") as broker:
        request = schema.QueryRouteRequest()
        request.topic.name = TOPIC
        request.endpoints.addresses.add(host="10.9.8.7", port=1)
        (queue, _) = (await (await broker.client()).call("QueryRoute", request)).messages[0].message_queues
        endpoints = queue.broker.endpoints
        assert [(each.host, each.port) for each in endpoints.addresses] == [("2001:db8::1", 8081)]
        assert endpoints.scheme == schema.AddressScheme.IPv6


async def test_settings_are_answered_and_heartbeats_are_known(broker: Lab) -> None:
    client = await broker.client()
    beat = schema.HeartbeatRequest(client_type=schema.ClientType.PRODUCER)
    assert (await client.call("Heartbeat", beat)).status == Code.UNRECOGNIZED_CLIENT_TYPE
    stream_id = await client.publishing()
    (told,) = (await client.answer(stream_id, 1)).messages
    assert told.status.code == Code.OK
    assert told.settings.publishing.max_body_size == 4 * 1024 * 1024
    assert told.settings.backoff_policy.max_attempts == 3
    assert not told.settings.metric.on
    assert (await client.call("Heartbeat", beat)).status == Code.OK
    producers = broker.serving.tables.metadata.producers
    assert [channel.client_id for channel in producers.channels(TOPIC) or []] == ["client-1"]
    end = schema.NotifyClientTerminationRequest()
    assert (await client.call("NotifyClientTermination", end)).status == Code.OK
    assert not producers.channels(TOPIC)


async def test_a_telemetry_stream_without_a_purpose_ends(broker: Lab) -> None:
    client = await broker.client()
    command = schema.TelemetryCommand()
    command.settings.client_type = schema.ClientType.PRODUCER
    stream_id = client.begin("Telemetry", command, ends=False)
    await client.flush()
    assert (await client.answer(stream_id)).grpc_status == 3


async def test_a_client_has_to_name_itself(broker: Lab) -> None:
    answer = await (await broker.client("")).send_message()
    assert (answer.grpc_status, answer.status) == (0, Code.CLIENT_ID_REQUIRED)


async def begun(client: Client, body: bytes, **system: Any) -> str:
    """Send a half message. Return the id of its transaction."""
    kind = schema.MessageType.TRANSACTION
    answer = await client.send_message(body, message_type=kind, **system)
    assert answer.status == Code.OK
    return str(answer.messages[0].entries[0].transaction_id)


def ending(transaction_id: str, resolution: int, message_id: str = "id") -> Any:
    request = schema.EndTransactionRequest(message_id=message_id, transaction_id=transaction_id, resolution=resolution)
    request.topic.name = TOPIC
    return request


async def test_transactions_are_committed_and_rolled_back(broker: Lab) -> None:
    client = await broker.client()
    committed, rolled_back = [await begun(client, body) for body in (b"commit", b"rollback")]
    assert (await client.call("EndTransaction", ending(rolled_back, Resolution.ROLLBACK))).status == Code.OK
    assert (await client.call("EndTransaction", ending(committed, Resolution.COMMIT))).status == Code.OK
    assert [got.body for got in await stored(broker, 1)] == [b"commit"]
    for wrong, code in (("", Code.INVALID_TRANSACTION_ID), ("7-8", Code.INTERNAL_SERVER_ERROR)):
        assert (await client.call("EndTransaction", ending(wrong, Resolution.COMMIT))).status == code
    assert (await client.call("EndTransaction", ending(committed, 0))).status == Code.BAD_REQUEST


async def test_a_producer_is_asked_for_the_end_of_a_transaction() -> None:
    async with lab(transactionCheckInterval="500", transactionTimeOut="500") as broker:
        client = await broker.client()
        stream_id = await client.publishing()
        await begun(client, b"orphan", message_id="0A", keys=["k"])
        told = (await client.answer(stream_id, 2)).messages[1]
        asked = told.recover_orphaned_transaction_command
        assert (asked.message.body, asked.message.system_properties.message_id) == (b"orphan", "0A")
        assert asked.message.topic.name == TOPIC
        assert asked.message.system_properties.message_type == schema.MessageType.TRANSACTION
        request = ending(asked.transaction_id, Resolution.COMMIT, "0A")
        request.source = schema.TransactionSource.SOURCE_SERVER_CHECK
        assert (await client.call("EndTransaction", request)).status == Code.OK
        assert [got.body for got in await stored(broker, 1)] == [b"orphan"]


async def test_a_compressed_request_is_read(broker: Lab) -> None:
    packer = zlib.compressobj(wbits=31)
    data = packer.compress(message(b"zipped").SerializeToString()) + packer.flush()
    client = await broker.client()
    answer = await client.call("SendMessage", b"\1" + encode_message(data)[1:], grpc_encoding="gzip")
    assert answer.status == Code.OK
    assert [got.body for got in await stored(broker, 1)] == [b"zipped"]


async def test_an_administrator_sees_the_connection(broker: Lab) -> None:
    client = await broker.client("grpc-client")
    await client.subscribed("g")
    async with Admin(name_server=broker.cluster.name_server) as admin:
        assert [member.client_id for member in await admin.members("g")] == ["grpc-client"]
