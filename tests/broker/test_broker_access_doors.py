"""Requests that name a message by its place in the log: the topic of that message counts, and the place has to be the
beginning of one. A body can hold bytes that look like a record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio
from broker_whole import now_ms, send_fields
from stored_records import encoded
from test_broker_access_matrix import CREDENTIALS, Guarded, guarded_broker, offset_of, send, topic_fields

from triomq.protocol import signature
from triomq.protocol.address import HostPort
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.java import string_hash
from triomq.protocol.message_id import offset_message_id
from triomq.protocol.properties import encode
from triomq.protocol.record import read_fields
from triomq.protocol.system_topics import TRANS_HALF_TOPIC
from triomq.remoting.client import open_client
from triomq.remoting.connection import Connection
from triomq.remoting.processor_table import Processor

CODE = RequestCode
HALF = "TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01U"
BODY_BYTES = 600
HOST = HostPort("127.0.0.1", 10911)


def forged(topic: str, physical_offset: int, queue_offset: int, properties: dict[str, str]) -> bytes:
    """The bytes of a record that nobody stored."""
    record = encoded(
        topic.encode(),
        b"forged",
        encode(properties),
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        born_timestamp=1,
        born_host=HOST.packed,
        store_timestamp=1,
        store_host=HOST.packed,
    )
    return bytes(record)


async def send_forged(guarded: Guarded, who: str, topic: str, queue_offset: int, properties: dict[str, str]) -> int:
    """Send a body to Orders that holds a forged record where the log will have it. Return its physical offset."""
    offsets = []
    for _ in range(2):
        sent = await guarded.ask("main", who, 10, send_fields("Orders"), b"x" * BODY_BYTES)
        offsets.append(offset_of(sent))
    begin = 2 * offsets[1] - offsets[0]
    whole = forged("Orders", 0, 0, {})
    at = begin + read_fields(whole, 0, len(whole)).body_at
    body = forged(topic, at, queue_offset, properties).ljust(BODY_BYTES, b"x")
    sent = await guarded.ask("main", who, 10, send_fields("Orders"), body)
    assert offset_of(sent) == begin
    return at


async def prepared(guarded: Guarded) -> None:
    for topic in ("Orders", "Secret"):
        await guarded.admin(CODE.UPDATE_AND_CREATE_TOPIC, topic_fields(topic))


async def count(guarded: Guarded, topic: str) -> int:
    response = await guarded.admin(CODE.GET_MAX_OFFSET, {"topic": topic, "queueId": 0})
    return int((response.ext_fields or {})["offset"])


def ending(half: tuple[int, int], how: int) -> dict[str, Any]:
    return {
        "producerGroup": "P",
        "commitLogOffset": half[0],
        "tranStateTableOffset": half[1],
        "commitOrRollback": how,
        "msgId": "U",
        "transactionId": "U",
        "fromTransactionCheck": "false",
    }


async def view(guarded: Guarded, who: str, physical_offset: int) -> RemotingCommand:
    return await guarded.ask("main", who, CODE.VIEW_MESSAGE_BY_ID, {"offset": physical_offset})


@pytest.mark.parametrize("properties", ["KEYS\x01k", "DELAY\x0118", HALF], ids=["plain", "delayed", "half"])
async def test_a_message_is_shown_to_those_who_may_read_its_topic(tmp_path: Path, properties: str) -> None:
    async with guarded_broker(tmp_path) as broker:
        guarded = Guarded(broker)
        await prepared(guarded)
        own, _ = await send(guarded, "Orders", properties)
        other, _ = await send(guarded, "Secret", properties)
        assert (await view(guarded, "with permission", own)).code == 0
        refused = await view(guarded, "with permission", other)
        assert "No default permission for topic:Secret" in (refused.remark or "")
        assert not refused.body
        assert (await view(guarded, "administrator", other)).code == 0


async def test_an_administrator_sees_the_messages_of_a_deleted_topic(tmp_path: Path) -> None:
    async with guarded_broker(tmp_path) as broker:
        guarded = Guarded(broker)
        await prepared(guarded)
        offset, _ = await send(guarded, "Orders")
        await guarded.admin(CODE.DELETE_TOPIC_IN_BROKER, {"topic": "Orders"})
        assert (await view(guarded, "administrator", offset)).code == 0


async def test_bytes_inside_of_a_body_are_no_message(tmp_path: Path) -> None:
    async with guarded_broker(tmp_path) as broker:
        guarded = Guarded(broker)
        await prepared(guarded)
        at = await send_forged(guarded, "with permission", "Orders", 0, {})
        refused = await view(guarded, "with permission", at)
        assert "No message begins at the offset" in (refused.remark or "")
        back = {"offset": at, "group": "Buyers", "delayLevel": 0, "originTopic": "Orders"}
        refused = await guarded.ask("main", "with permission", CODE.CONSUMER_SEND_MSG_BACK, back)
        assert "No message begins at the offset" in (refused.remark or "")


async def test_a_message_is_sent_back_by_those_who_may_read_its_topic(tmp_path: Path) -> None:
    async with guarded_broker(tmp_path) as broker:
        guarded = Guarded(broker)
        await prepared(guarded)
        for topic, code in (("Orders", 0), ("Secret", 1)):
            offset, _ = await send(guarded, topic)
            back = {"offset": offset, "group": "Buyers", "delayLevel": 0, "originTopic": "Orders"}
            response = await guarded.ask("main", "with permission", CODE.CONSUMER_SEND_MSG_BACK, back)
            assert response.code == code
            assert code == 0 or "No default permission for topic:Secret" in (response.remark or "")


@pytest.mark.parametrize("how", [8, 12], ids=["commit", "rollback"])
async def test_a_transaction_is_ended_by_those_who_may_write_its_topic(tmp_path: Path, how: int) -> None:
    async with guarded_broker(tmp_path) as broker:
        guarded = Guarded(broker)
        await prepared(guarded)
        half = await send(guarded, "Secret", HALF)
        refused = await guarded.ask("main", "with permission", CODE.END_TRANSACTION, ending(half, how))
        assert "No default permission for topic:Secret" in (refused.remark or "")
        assert await count(guarded, "Secret") == 0
        assert await count(guarded, "RMQ_SYS_TRANS_OP_HALF_TOPIC") == 0
        await guarded.admin(CODE.END_TRANSACTION, ending(half, how))
        assert await count(guarded, "RMQ_SYS_TRANS_OP_HALF_TOPIC") == 1


@pytest.mark.parametrize("acl", ["true", "false"])
async def test_a_forged_half_message_is_not_committed(tmp_path: Path, acl: str) -> None:
    async with guarded_broker(tmp_path, aclEnable=acl) as broker:
        guarded = Guarded(broker)
        await prepared(guarded)
        real = await send(guarded, "Orders", HALF)
        properties = {"REAL_TOPIC": "Orders", "REAL_QID": "0", "PGROUP": "P", "TRAN_MSG": "true"}
        at = await send_forged(guarded, "with permission", TRANS_HALF_TOPIC, real[1], properties)
        stored = await count(guarded, "Orders")
        for how in (8, 12):
            refused = await guarded.ask("main", "with permission", CODE.END_TRANSACTION, ending((at, real[1]), how))
            assert (refused.code, refused.remark) == (1, "Find prepared transaction message failed")
        assert await count(guarded, "Orders") == stored
        assert await count(guarded, "RMQ_SYS_TRANS_OP_HALF_TOPIC") == 0


async def test_a_forged_message_is_not_made_a_half_message(tmp_path: Path) -> None:
    async with guarded_broker(tmp_path) as broker:
        guarded = Guarded(broker)
        await prepared(guarded)
        real = await send(guarded, "Orders", HALF)
        properties = {"REAL_TOPIC": "Secret", "REAL_QID": "0", "PGROUP": "P", "TRAN_MSG": "true"}
        at = await send_forged(guarded, "with permission", TRANS_HALF_TOPIC, real[1], properties)
        fields = {"msgId": offset_message_id(HOST.packed, at)}
        refused = await guarded.ask("main", "administrator", CODE.RESUME_CHECK_HALF_MESSAGE, fields)
        assert refused.code == 1
        assert await count(guarded, TRANS_HALF_TOPIC) == 1
        fields = {"msgId": offset_message_id(HOST.packed, real[0])}
        await guarded.admin(CODE.RESUME_CHECK_HALF_MESSAGE, fields)
        assert await count(guarded, TRANS_HALF_TOPIC) == 2


@pytest.mark.parametrize("who", ["with permission", "administrator"])
async def test_a_half_message_is_shown_to_those_who_may_write_its_topic(tmp_path: Path, who: str) -> None:
    """Anybody may register under any producer group, and the question how a transaction ended holds its message."""
    settings = {"transactionCheckInterval": "20", "transactionTimeOut": "0"}
    heartbeat = json.dumps({"clientID": "c", "producerDataSet": [{"groupName": "P"}], "consumerDataSet": []}).encode()
    seen: list[tuple[str, bytes]] = []
    async with guarded_broker(tmp_path, **settings) as broker, open_client() as eavesdropper:
        guarded = Guarded(broker)
        await prepared(guarded)
        asked = trio.Event()

        def heard(name: str) -> Processor:
            def question(connection: Connection, request: RemotingCommand) -> None:
                seen.append((name, request.body))
                if name == "owner":
                    asked.set()

            return question

        for client, name, account in (
            (eavesdropper, "eavesdropper", "without permission"),
            (broker.client, "owner", who),
        ):
            client.register(CODE.CHECK_TRANSACTION_STATE, heard(name))
            fields = signature.sign_fields({}, heartbeat, *(CREDENTIALS[account] or ("", "")))
            request = new_request(CODE.HEART_BEAT, ext_fields=fields, body=heartbeat)
            assert (await client.invoke(broker.address, request, 10)).code == 0
        half = send_fields("Orders", properties=HALF, bornTimestamp=now_ms())
        for _ in range(4):
            assert (await guarded.ask("main", who, 10, half, b"half")).code == 0
        with trio.fail_after(10):
            await asked.wait()
    assert {name for name, _ in seen} == {"owner"}
    assert b"half" in seen[0][1]


def colliding_key(topic: str, victim_topic: str, victim_key: str) -> str:
    """Return a key of `topic` with the hash of another topic's key: seven characters are seven digits of base 31."""
    missing = (string_hash(f"{victim_topic}#{victim_key}") - string_hash(f"{topic}#0000000")) % 2**32
    digits = [missing // 31**place % 31 for place in reversed(range(7))]
    return "".join(chr(ord("0") + digit) for digit in digits)


async def test_a_key_with_the_hash_of_another_topic_s_key_finds_nothing(tmp_path: Path) -> None:
    async with guarded_broker(tmp_path) as broker:
        guarded = Guarded(broker)
        await prepared(guarded)
        key = colliding_key("Orders", "Secret", "known")
        await send(guarded, "Secret", "KEYS\x01known", b"secret")
        query = {"topic": "Orders", "key": key, "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 2**62}
        for who in ("with permission", "administrator"):
            found = await guarded.ask("main", who, CODE.QUERY_MESSAGE, query)
            assert (found.code, found.body) == (22, b"")
        await send(guarded, "Orders", f"KEYS\x01{key}", b"own")
        found = await guarded.ask("main", "with permission", CODE.QUERY_MESSAGE, query)
        assert found.code == 0
        assert b"own" in found.body
        assert b"secret" not in found.body
