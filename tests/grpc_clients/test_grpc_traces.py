"""Message traces that the broker writes for gRPC clients."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

import pytest
from grpc_lab import TOPIC, Client, Code, Lab, acknowledging, lab, message, true_soon

from triomq.broker.grpc.client import GrpcClient
from triomq.broker.grpc.traces import MAX_LINES, MAX_WAITING, Traces
from triomq.grpc_front import schema
from triomq.protocol import property_names as names
from triomq.protocol.record import iterate_records
from triomq.protocol.trace_records import LINE_END, PUB, SUB_AFTER, records_of

GROUP = "g"
TRACES = "RMQ_SYS_TRACE_TOPIC"


@pytest.fixture
async def broker() -> AsyncIterator[Lab]:
    async with lab(traceTopicEnable="true") as running:
        yield running


def traced(broker: Lab) -> list[tuple[str, set[str]]]:
    """Return the bodies of the trace messages, and their keys."""
    result = broker.serving.store.reading.get_messages(TRACES, 0, 0, 32)
    found = list(iterate_records(b"".join(result.records), decompress=False))
    return [(each.body.decode(), set(each.properties[names.KEYS].split())) for each in found]


async def lines_of(broker: Lab, count: int) -> list[list[str]]:
    """Return the fields of all lines, when there is at least this number of them."""
    await true_soon(lambda: sum(body.count(LINE_END) for body, _ in traced(broker)) >= count)
    return [line.split("\x01") for body, _ in traced(broker) for line in body.split(LINE_END) if line]


async def receiver(broker: Lab, *, push: bool = False) -> Client:
    client = await broker.client()
    await client.subscribed(GROUP, push=push)
    assert await client.receive(GROUP, grpc_timeout="1S") == []
    return client


async def test_who_sent_and_who_consumed_a_message_is_in_the_trace_topic(broker: Lab) -> None:
    client = await receiver(broker)
    sent = await client.send_message(b"hello", message_id="0A", tag="blue", keys=["k1", "k2"])
    assert sent.status == Code.OK
    [got] = await client.receive(GROUP, grpc_timeout="5S")
    assert (await client.call("AckMessage", acknowledging(GROUP, got))).status == Code.OK
    published, before, after = await lines_of(broker, 3)
    assert published[:1] + published[2:8] == [PUB, "DefaultRegion", TOPIC, TOPIC, "0A", "blue", "k1 k2"]
    assert (published[9], published[11], published[13]) == ("5", "0", "true")
    assert before[:1] + before[3:4] + before[5:] == ["SubBefore", GROUP, "0A", "0", "k1 k2"]
    assert after[:3] + after[4:5] + after[6:7] + after[8:] == [SUB_AFTER, before[4], "0A", "true", "0", GROUP]
    assert set().union(*(keys for _, keys in traced(broker))) == {"0A", "k1", "k2"}
    body = "".join(body for body, _ in traced(broker)).encode()
    assert [(each.kind, each.group, each.is_good) for each in records_of(body, "0A")] == [
        (PUB, TOPIC, True),
        (SUB_AFTER, GROUP, True),
    ]


@pytest.mark.parametrize("method", ["ChangeInvisibleDuration", "ForwardMessageToDeadLetterQueue"])
async def test_a_failure_is_in_the_trace_topic(broker: Lab, method: str) -> None:
    client = await receiver(broker, push=True)
    await client.send_message(b"hello", message_id="0A")
    [got] = await client.receive(GROUP, seconds=0, grpc_timeout="5S")
    request = getattr(schema, f"{method}Request")(message_id="0A", receipt_handle=got.system_properties.receipt_handle)
    request.group.name, request.topic.name = GROUP, TOPIC
    assert (await client.call(method, request)).status == Code.OK
    after = (await lines_of(broker, 3))[2]
    assert (after[0], after[4], after[6]) == (SUB_AFTER, "false", "4")


async def test_the_end_of_a_transaction_is_in_the_trace_topic(broker: Lab) -> None:
    client = await broker.client()
    await client.publishing()
    half = message(b"half", message_id="0A", message_type=schema.MessageType.TRANSACTION)
    transaction = (await client.call("SendMessage", half)).messages[0].entries[0].transaction_id
    request = schema.EndTransactionRequest(message_id="0A", transaction_id=transaction)
    request.topic.name, request.resolution = TOPIC, schema.TransactionResolution.COMMIT
    assert (await client.call("EndTransaction", request)).status == Code.OK
    published, ended = await lines_of(broker, 2)
    assert published[11] == "1"
    assert ended[:1] + ended[5:6] + ended[10:] == ["EndTransaction", "0A", transaction, "COMMIT_MESSAGE", "false"]


async def test_what_is_collected_is_written_when_its_client_ends(broker: Lab) -> None:
    client = await broker.client()
    await client.send_message(b"hello", message_id="0A")
    await client.stream.aclose()
    assert len(await lines_of(broker, 1)) == 1


async def test_without_a_topic_for_traces_nothing_is_traced() -> None:
    async with lab() as broker:
        client = await receiver(broker)
        await client.send_message(b"hello")
        assert len(await client.receive(GROUP, grpc_timeout="5S")) == 1
        assert broker.serving.store.reading.max_offset(TRACES, 0) == 0


async def test_lines_that_wait_are_bounded(broker: Lab) -> None:
    """Those beyond are dropped, and each message of traces has a part of the others."""
    client = await broker.client()
    await client.subscribed(GROUP)
    channel = cast(GrpcClient, broker.serving.tables.metadata.consumers.get(GROUP).members()[0].connection)  # type: ignore[union-attr]
    traces = Traces(broker.serving)
    for number in range(MAX_WAITING + 7):
        traces.ended(channel, TOPIC, f"id{number}", "1-2", "COMMIT_MESSAGE", was_asked=False)
    assert traces.dropped == 7
    assert len(await lines_of(broker, MAX_WAITING)) == MAX_WAITING
    assert [body.count(LINE_END) for body, _ in traced(broker)] == [MAX_LINES] * 20 + [MAX_WAITING - 20 * MAX_LINES]
