"""ReceiveMessage, AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue and QueryAssignment, over a
socket."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from typing import Any

import pytest
import trio
from grpc_lab import LIMIT_SECONDS, TOPIC, Client, Code, Lab, acknowledging, receiving, true_soon

from triomq.broker.grpc.bodies import MAX_PLAIN_BYTES
from triomq.broker.pop.in_flight import HELD_MS
from triomq.grpc_front import schema
from triomq.protocol import sys_flag
from triomq.protocol.bodies.running_info import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from triomq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.headers.send import SendMessageRequestHeader
from triomq.protocol.message import MessageExt
from triomq.protocol.message_id import offset_message_id
from triomq.protocol.record import iterate_records
from triomq.remoting.client import open_client

GROUP = "g"


async def receiver(broker: Lab, *, push: bool = False, client_id: str = "client-1") -> Client:
    """Return a client whose group begins here."""
    client = await broker.client(client_id)
    await client.subscribed(GROUP, push=push)
    assert await client.receive(GROUP, grpc_timeout="1S") == []
    return client


async def until(client: Client, count: int, *, seconds: int = 60) -> list[Any]:
    """Receive until there is this number of messages."""
    found: list[Any] = []
    with trio.fail_after(LIMIT_SECONDS):
        while len(found) < count:
            found += await client.receive(GROUP, seconds=seconds, grpc_timeout="2S")
    return found


async def send(broker: Lab, *bodies: bytes, **system: Any) -> None:
    producer = await broker.client("producer")
    for body in bodies:
        assert (await producer.send_message(body, **system)).status == Code.OK


async def test_a_message_arrives_with_all_its_fields(broker: Lab) -> None:
    client = await receiver(broker)
    system = {"tag": "blue", "keys": ["k1", "k2"], "message_group": "mg", "trace_context": "00-1"}
    await send(broker, b"hello", message_id="0A", properties={"color": "red"}, **system)
    (got,) = await until(client, 1)
    assert (got.body, got.topic.name, dict(got.user_properties)) == (b"hello", TOPIC, {"color": "red"})
    found = got.system_properties
    assert (found.message_id, found.tag, list(found.keys)) == ("0A", "blue", ["k1", "k2"])
    assert (found.message_group, found.trace_context, found.delivery_attempt) == ("mg", "00-1", 1)
    assert found.message_type == schema.MessageType.FIFO
    assert found.body_digest.checksum == hashlib.md5(b"hello").hexdigest().upper()
    assert (found.queue_offset, found.body_encoding) == (0, schema.Encoding.IDENTITY)
    assert found.born_host.startswith("127.0.0.1:")
    assert found.store_timestamp.seconds >= found.born_timestamp.seconds > 1_700_000_000


async def test_an_answer_has_a_status_first_and_a_time_last(broker: Lab) -> None:
    client = await receiver(broker)
    await send(broker, b"1")
    answer = await client.call("ReceiveMessage", receiving(GROUP))
    assert [each.WhichOneof("content") for each in answer.messages] == ["status", "message", "delivery_timestamp"]
    empty = await client.call("ReceiveMessage", receiving(GROUP), grpc_timeout="1S")
    assert [each.status.code for each in empty.messages] == [Code.MESSAGE_NOT_FOUND]


async def test_a_receive_waits_for_a_message(broker: Lab) -> None:
    client = await receiver(broker)
    stream_id = client.begin("ReceiveMessage", receiving(GROUP))
    await client.flush()
    await send(broker, b"1")
    assert len((await client.answer(stream_id)).messages) == 3


async def test_a_receive_from_one_queue_means_its_broker(broker: Lab) -> None:
    client = await receiver(broker)
    for number in range(8):
        await send(broker, b"%d" % number, message_group=f"g{number}")
    request = receiving(GROUP)
    request.message_queue.id = 1
    found: set[int] = set()
    with trio.fail_after(LIMIT_SECONDS):
        while found != {0, 1}:
            answer = await client.call("ReceiveMessage", request)
            got = [each.message for each in answer.messages if each.WhichOneof("content") == "message"]
            found |= {one.system_properties.queue_id for one in got}


async def test_acknowledgements_have_a_status_each(broker: Lab) -> None:
    client = await receiver(broker)
    await send(broker, b"1", b"2")
    got = await until(client, 2)
    for _ in range(2):  # a repetition does no harm
        answer = await client.call("AckMessage", acknowledging(GROUP, *got))
        assert answer.status == Code.OK
        assert [entry.status.code for entry in answer.messages[0].entries] == [Code.OK, Code.OK]
    wrong = acknowledging(GROUP, got[0])
    wrong.entries[0].receipt_handle = "no handle"
    assert (await client.call("AckMessage", wrong)).status == Code.INVALID_RECEIPT_HANDLE
    assert (await client.call("AckMessage", acknowledging(GROUP))).status == Code.BAD_REQUEST


async def test_a_change_makes_a_new_handle(broker: Lab) -> None:
    client = await receiver(broker)
    await send(broker, b"1")
    (got,) = await until(client, 1)
    request = schema.ChangeInvisibleDurationRequest(receipt_handle=got.system_properties.receipt_handle)
    request.group.name, request.topic.name, request.invisible_duration.seconds = GROUP, TOPIC, 1
    changed = await client.call("ChangeInvisibleDuration", request)
    assert changed.status == Code.OK
    assert (await client.call("AckMessage", acknowledging(GROUP, got))).status == Code.INVALID_RECEIPT_HANDLE
    (again,) = await until(client, 1)
    assert again.system_properties.delivery_attempt == 2
    request.invisible_duration.seconds = 13 * 3600
    assert (await client.call("ChangeInvisibleDuration", request)).status == Code.ILLEGAL_INVISIBLE_TIME


@pytest.mark.parametrize("seconds", [-1, 13 * 3600])
async def test_an_invisible_time_has_its_limits(broker: Lab, seconds: int) -> None:
    client = await broker.client()
    answer = await client.call("ReceiveMessage", receiving(GROUP, seconds=seconds))
    assert answer.status == Code.ILLEGAL_INVISIBLE_TIME


@pytest.mark.parametrize(
    ("group", "attempt", "code"), [("g" * 256, "", Code.ILLEGAL_CONSUMER_GROUP), (GROUP, "a" * 1025, Code.BAD_REQUEST)]
)
async def test_names_in_a_receive_have_a_longest_length(broker: Lab, group: str, attempt: str, code: int) -> None:
    in_order(broker)
    client = await broker.client()
    request = receiving(group)
    request.attempt_id = attempt
    assert (await client.call("ReceiveMessage", request)).status == code


async def test_the_group_of_an_acknowledgement_has_a_longest_length(broker: Lab) -> None:
    client = await receiver(broker)
    await send(broker, b"1")
    (got,) = await until(client, 1)
    assert (await client.call("AckMessage", acknowledging("g" * 256, got))).status == Code.ILLEGAL_CONSUMER_GROUP


async def test_a_message_is_forwarded_to_the_dead_letters(broker: Lab) -> None:
    client = await receiver(broker)
    await send(broker, b"1")
    (got,) = await until(client, 1)
    system = got.system_properties
    request = schema.ForwardMessageToDeadLetterQueueRequest(
        receipt_handle=system.receipt_handle, message_id=system.message_id
    )
    request.group.name, request.topic.name = GROUP, TOPIC
    assert (await client.call("ForwardMessageToDeadLetterQueue", request)).status == Code.OK
    store = broker.serving.store
    assert store.reading.max_offset(f"%DLQ%{GROUP}", 0) == 1
    assert await client.receive(GROUP, grpc_timeout="2S") == []


async def test_a_push_consumer_is_assigned_all_queues_of_the_broker(broker: Lab) -> None:
    client = await broker.client()
    request = schema.QueryAssignmentRequest()
    request.topic.name, request.group.name = TOPIC, GROUP
    (assignment,) = (await client.call("QueryAssignment", request)).messages[0].assignments
    queue = assignment.message_queue
    assert (queue.id, queue.topic.name, queue.permission) == (-1, TOPIC, schema.Permission.READ_WRITE)
    assert queue.broker.endpoints.addresses[0].port == 18081
    request.topic.name = "Unknown"
    assert (await client.call("QueryAssignment", request)).status == Code.TOPIC_NOT_FOUND


def in_order(broker: Lab) -> None:
    """Let the group consume in order."""
    groups = broker.serving.tables.metadata.groups
    groups.update(SubscriptionGroupConfig(group_name=GROUP, consume_message_orderly=True))


async def take(client: Client, queue_id: int, attempt_id: str, *, waits: bool = False) -> list[Any]:
    """Receive two messages of a queue as a push consumer."""
    request = receiving(GROUP, count=2, seconds=0)
    request.message_queue.id, request.attempt_id = queue_id, attempt_id
    answer = await client.call("ReceiveMessage", request, grpc_timeout="20S" if waits else "1S")
    return [each.message for each in answer.messages if each.WhichOneof("content") == "message"]


async def test_a_group_in_order_is_assigned_each_queue(broker: Lab) -> None:
    in_order(broker)
    client = await broker.client()
    answer = await client.answer(await client.subscribed(GROUP, push=True), 1)
    assert answer.messages[0].settings.subscription.fifo
    request = schema.QueryAssignmentRequest()
    request.topic.name, request.group.name = TOPIC, GROUP
    assignments = (await client.call("QueryAssignment", request)).messages[0].assignments
    assert [each.message_queue.id for each in assignments] == [0, 1]


async def test_a_group_in_order_gets_the_messages_of_a_queue_one_batch_after_the_other(broker: Lab) -> None:
    in_order(broker)
    queue_id = zlib.crc32(b"mg") % 2
    first, second = await broker.client("client-1"), await broker.client("client-2")
    for client in (first, second):
        await client.subscribed(GROUP, push=True)
        assert await take(client, queue_id, "") == []
    await send(broker, b"1", b"2", b"3", message_group="mg")
    assert await take(first, 1 - queue_id, "") == []
    got = await take(first, queue_id, "a")
    again = await take(first, queue_id, "a")  # the first answer was lost
    for each in (got, again):
        assert [(one.body, one.system_properties.delivery_attempt) for one in each] == [(b"1", 1), (b"2", 1)]
    assert await take(second, queue_id, "b") == []
    assert (await first.call("AckMessage", acknowledging(GROUP, again[1]))).status == Code.OK
    assert await take(second, queue_id, "b") == [], "the first of the batch is not done"
    taken: list[Any] = []

    async def take_next() -> None:
        taken.extend(await take(second, queue_id, "b", waits=True))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take_next)
        assert (await first.call("AckMessage", acknowledging(GROUP, again[0]))).status == Code.OK
    assert [one.body for one in taken] == [b"3"]


async def test_a_batch_in_order_comes_again_in_order_when_its_client_is_lost(broker: Lab) -> None:
    in_order(broker)
    queue_id = zlib.crc32(b"mg") % 2
    first, second = await broker.client("client-1"), await broker.client("client-2")
    for client in (first, second):
        await client.subscribed(GROUP, push=True)
        assert await take(client, queue_id, "") == []
    await send(broker, b"1", b"2", message_group="mg")
    assert len(await take(first, queue_id, "a")) == 2
    await first.stream.aclose()
    again = await take(second, queue_id, "b", waits=True)
    assert [(one.body, one.system_properties.delivery_attempt) for one in again] == [(b"1", 2), (b"2", 2)]


async def test_what_a_push_consumer_held_is_ready_again_when_it_is_lost(broker: Lab) -> None:
    client = await receiver(broker, push=True)
    await send(broker, b"kept", b"done")
    got = await until(client, 2, seconds=0)
    handles = [one.system_properties.receipt_handle.split()[2] for one in got]
    assert handles == [str(HELD_MS)] * 2
    done = [one for one in got if one.body == b"done"]
    assert (await client.call("AckMessage", acknowledging(GROUP, *done))).status == Code.OK
    await client.stream.aclose()
    (again,) = await until(await receiver_of(broker), 1)
    assert (again.body, again.system_properties.delivery_attempt) == (b"kept", 2)


async def test_what_a_push_consumer_held_is_ready_again_when_it_ends(broker: Lab) -> None:
    client = await receiver(broker, push=True)
    await send(broker, b"kept")
    await until(client, 1, seconds=0)
    await client.call("NotifyClientTermination", schema.NotifyClientTerminationRequest())
    (again,) = await until(await receiver_of(broker), 1)
    assert again.body == b"kept"


async def receiver_of(broker: Lab) -> Client:
    return await broker.client("another")


async def test_what_a_receive_got_that_was_given_up_is_ready_again_at_once(broker: Lab) -> None:
    client = await receiver(broker)
    stream_id = client.begin("ReceiveMessage", receiving(GROUP, seconds=3600))
    await client.flush()
    pop = broker.serving.pop
    await true_soon(lambda: pop.parts is not None and pop.parts.waiting.count(TOPIC, GROUP, -1) == 1)
    await client.give_up(stream_id)
    await send(broker, b"1")
    (got,) = await until(client, 1)
    assert got.body == b"1"


async def test_a_filter_that_cannot_be_read_is_refused(broker: Lab) -> None:
    client = await broker.client()
    request = receiving(GROUP, expression="||")
    assert (await client.call("ReceiveMessage", request)).status == Code.ILLEGAL_FILTER_EXPRESSION
    request = receiving(GROUP, topic="Unknown")
    assert (await client.call("ReceiveMessage", request)).status == Code.TOPIC_NOT_FOUND
    await client.subscribed(GROUP)
    await client.receive(GROUP, grpc_timeout="1S")
    await send(broker, b"1", tag="red")
    await send(broker, b"2", tag="blue")
    answer = await client.call("ReceiveMessage", receiving(GROUP, expression="blue || green"))
    assert [each.message.body for each in answer.messages if each.WhichOneof("content") == "message"] == [b"2"]


async def asked_of(broker: Lab, code: RequestCode, client: Client, **fields: str) -> RemotingCommand:
    """Ask the broker for something that it has to ask a consumer for."""
    address = broker.cluster.brokers["broker-a"]
    ext_fields = {"consumerGroup": GROUP, "clientId": "client-1", **fields}
    async with open_client() as admin:
        return await admin.invoke(address, new_request(code, ext_fields=ext_fields), LIMIT_SECONDS)


@pytest.mark.parametrize(
    ("code", "result"),
    [(Code.OK, "CR_SUCCESS"), (Code.FAILED_TO_CONSUME_MESSAGE, "CR_LATER"), (Code.NOT_IMPLEMENTED, "CR_RETURN_NULL")],
)
async def test_a_message_is_handed_to_one_consumer(broker: Lab, code: int, result: str) -> None:
    client = await receiver(broker, push=True)
    stream_id = await client.subscribed(GROUP, push=True)
    await send(broker, b"hello", tag="blue", message_group="mg")
    [entry] = broker.serving.store.reading.queue_entries(TOPIC, zlib.crc32(b"mg") % 2, 0, 1)
    offset_id = offset_message_id(broker.serving.host.packed, entry[0])
    answers: list[RemotingCommand] = []

    async def ask() -> None:
        request = RequestCode.CONSUME_MESSAGE_DIRECTLY
        answers.append(await asked_of(broker, request, client, msgId=offset_id))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        command = (await client.answer(stream_id, 2)).messages[1].verify_message_command
        assert (command.message.body, command.message.system_properties.tag) == (b"hello", "blue")
        told = schema.TelemetryCommand()
        told.status.code, told.status.message = code, "as it says"
        told.verify_message_result.nonce = command.nonce
        await client.send(stream_id, told)
    found = ConsumeMessageDirectlyResult.decode(answers[0].body)
    assert (found.consume_result, found.remark) == (result, None if code == Code.OK else "as it says")


async def test_a_consumer_says_what_it_does_and_its_stacks(broker: Lab) -> None:
    client = await receiver(broker)
    stream_id = await client.subscribed(GROUP)
    request = RequestCode.GET_CONSUMER_RUNNING_INFO
    info = ConsumerRunningInfo.decode((await asked_of(broker, request, client)).body)
    assert ([each.topic for each in info.subscription_set], info.jstack) == ([TOPIC], None)
    assert info.properties == {"PROP_CONSUME_TYPE": "CONSUME_ACTIVELY"}
    answers: list[RemotingCommand] = []

    async def ask() -> None:
        answers.append(await asked_of(broker, request, client, jstackEnable="true"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        command = (await client.answer(stream_id, 2)).messages[1].print_thread_stack_trace_command
        told = schema.TelemetryCommand()
        told.thread_stack_trace.nonce = "no number"
        await client.send(stream_id, told)
        told.thread_stack_trace.nonce = command.nonce
        told.thread_stack_trace.thread_stack_trace = "main: in sleep"
        await client.send(stream_id, told)
    assert ConsumerRunningInfo.decode(answers[0].body).jstack == "main: in sleep"


async def test_who_asks_a_consumer_that_goes_learns_it_at_once(broker: Lab) -> None:
    client = await receiver(broker)
    stream_id = await client.subscribed(GROUP)

    async def end() -> None:
        await client.answer(stream_id, 2)
        await client.give_up(stream_id)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(end)
        with trio.fail_after(5):
            request = RequestCode.GET_CONSUMER_RUNNING_INFO
            answer = await asked_of(broker, request, client, jstackEnable="true")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "the telemetry stream of the gRPC client client-1 ended" in (answer.remark or "")


async def store(broker: Lab, body: bytes, flags: int) -> None:
    """Send a message as a client of remoting does."""
    header = SendMessageRequestHeader(
        producer_group="P",
        topic=TOPIC,
        default_topic="TBW102",
        default_topic_queue_nums=1,
        queue_id=0,
        sys_flag=flags,
        born_timestamp=1,
        flag=0,
    )
    async with open_client() as client:
        request = new_request(RequestCode.SEND_MESSAGE, header, body)
        assert (await client.invoke(broker.cluster.brokers["broker-a"], request)).code == 0


def stored_messages(broker: Lab) -> list[MessageExt]:
    """Return the messages of the topic as clients of remoting read them."""
    reading = broker.serving.store.reading
    records = [record for queue_id in range(2) for record in reading.get_messages(TOPIC, queue_id, 0, 32).records]
    return list(iterate_records(b"".join(records)))


async def test_what_clients_of_remoting_compress_arrives_plain(broker: Lab) -> None:
    """Clients of gRPC know gzip only. What would be too long, and what cannot be inflated, stays as it is."""
    client = await receiver(broker)
    plain = b"hello " * 1000
    bodies = {zlib.compress(plain): plain, b"no zlib": b"no zlib", gzip.compress(plain): gzip.compress(plain)}
    bodies[zlib.compress(bytes(MAX_PLAIN_BYTES + 1))] = zlib.compress(bytes(MAX_PLAIN_BYTES + 1))
    for body in bodies:
        await store(broker, body, sys_flag.COMPRESSED)
    got = await until(client, len(bodies))
    assert sorted(one.body for one in got) == sorted(bodies.values())
    kinds = schema.Encoding
    for one in got:
        is_plain = one.body == plain
        assert one.system_properties.body_encoding == (kinds.IDENTITY if is_plain else kinds.GZIP)
        assert one.system_properties.body_digest.checksum == hashlib.md5(one.body).hexdigest().upper()


async def test_bodies_that_unfold_come_in_several_answers(broker: Lab) -> None:
    client = await receiver(broker)
    long = bytes(MAX_PLAIN_BYTES)
    for _ in range(5):
        await store(broker, zlib.compress(long), sys_flag.COMPRESSED)
    first = await client.receive(GROUP, grpc_timeout="2S")
    assert [one.body for one in first] == [long] * 3
    assert len(await until(client, 2)) == 2


async def test_what_a_client_compresses_is_stored_as_clients_of_remoting_read_it(broker: Lab) -> None:
    plain = b"hello " * 1000
    client = await receiver(broker)
    kind = schema.Encoding.GZIP
    assert (await client.send_message(gzip.compress(plain), message_id="1", body_encoding=kind)).status == Code.OK
    assert [stored.body for stored in stored_messages(broker)] == [plain]
    assert [one.body for one in await until(client, 1)] == [plain]
    too_long = gzip.compress(bytes(MAX_PLAIN_BYTES + 1))
    answer = await client.send_message(too_long, message_id="2", body_encoding=kind)
    assert answer.status == Code.MESSAGE_BODY_TOO_LARGE


async def test_what_is_not_in_gzip_although_its_producer_says_so_arrives_as_it_was_sent(broker: Lab) -> None:
    """As at RocketMQ; but clients of remoting can read it, too."""
    client = await receiver(broker)
    bodies = [b"no gzip", gzip.compress(b"hello " * 1000)[:-9]]
    for body in bodies:
        answer = await client.send_message(body, message_id="1", body_encoding=schema.Encoding.GZIP)
        assert answer.status == Code.OK
    for stored in stored_messages(broker):
        assert (stored.body in bodies, stored.sys_flag & sys_flag.COMPRESSED) == (True, 0)
    got = await until(client, 2)
    assert sorted(one.body for one in got) == sorted(bodies)
    for one in got:
        assert (one.system_properties.body_encoding, dict(one.user_properties)) == (schema.Encoding.GZIP, {})
