"""Responses in which this broker once differed from Apache's, one small case each (see tests/interop)."""

import json
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from broker_whole import WholeBroker, whole_broker

from triomq.protocol import record

SYSTEM_ERROR = 1
MESSAGE_ILLEGAL = 13
PULL_OFFSET_MOVED = 21
QUERY_NOT_FOUND = 22
SUBSCRIPTION_PARSE_FAILED = 23
FILTER_DATA_NOT_EXIST = 27


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[WholeBroker]:
    async with whole_broker(tmp_path) as running:
        await running.create_topic("T")
        yield running


def batch_unit(body: bytes) -> bytes:
    inner = struct.pack(">iiii", 0, 0, 0, len(body)) + body + struct.pack(">h", 0)
    return struct.pack(">i", len(inner) + 4) + inner


async def test_a_batch_counts_as_one_body(broker: WholeBroker) -> None:
    """maxMessageSize limits the whole batch, even if each of its messages is small enough."""
    half = batch_unit(b"x" * 32_767)
    answer = await broker.send("T", half + half, batch="true")
    assert (answer.code, (answer.remark or "")[:22]) == (MESSAGE_ILLEGAL, "the message is illegal")
    assert (await broker.send("T", half, batch="true")).code == 0


async def test_events_and_dead_letters_have_the_delay_level_0(broker: WholeBroker) -> None:
    assert (await broker.pull("T", queueOffset=9)).code == PULL_OFFSET_MOVED
    event = record.decode_record((await broker.pull("OFFSET_MOVED_EVENT")).body)
    assert event.properties["DELAY"] == "0"
    sent = await broker.send("T")
    offset = int((sent.ext_fields or {})["msgId"][16:], 16)
    back = {"offset": offset, "group": "G", "delayLevel": -1, "originMsgId": "U1", "originTopic": "T"}
    assert (await broker.ask(36, back)).code == 0
    dead = record.decode_record((await broker.pull("%DLQ%G")).body)
    assert dead.properties["DELAY"] == "0"


async def test_a_query_that_finds_nothing_says_nothing_of_the_index(broker: WholeBroker) -> None:
    await broker.send("T")
    query = {"topic": "T", "key": "k1", "maxNum": 5, "beginTimestamp": 0, "endTimestamp": 2**62}
    found = await broker.ask(12, query)
    assert (found.ext_fields or {})["indexLastUpdateTimestamp"] != "0"
    nothing = await broker.ask(12, {**query, "key": "k2"})
    assert nothing.code == QUERY_NOT_FOUND
    assert nothing.ext_fields == {"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"}


async def test_entries_of_a_queue_that_is_none(broker: WholeBroker) -> None:
    queue = {"topic": "T", "queueId": 1, "index": 0, "count": 5}
    assert (await broker.ask(321, queue)).remark == "Index 0 of 1@T is not exist!"
    for topic, queue_id in (("T", 2), ("None", 0), ("T", -1)):
        answer = await broker.ask(321, {**queue, "topic": topic, "queueId": queue_id})
        assert (answer.code, answer.remark) == (SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")


async def test_expressions_of_a_type_that_is_none(broker: WholeBroker) -> None:
    """They were parsed as SQL92."""
    await broker.send("T", properties="n\x015")
    answer = await broker.pull("T", subscription="n > 3", expressionType="XPATH")
    assert answer.code == SUBSCRIPTION_PARSE_FAILED
    assert "XPATH" in (answer.remark or "")
    subscription = {"topic": "T", "subString": "n > 3", "expressionType": "XPATH", "subVersion": 1}
    check = {"clientId": "c", "group": "G", "subscriptionData": subscription}
    assert (await broker.ask(46, None, json.dumps(check).encode())).code == SUBSCRIPTION_PARSE_FAILED
    consumer = {"groupName": "G", "subscriptionDataSet": [subscription]}
    heartbeat = {"clientID": "c", "consumerDataSet": [consumer], "producerDataSet": []}
    assert (await broker.ask(34, None, json.dumps(heartbeat).encode())).code == 0
    answer = await broker.pull("T", sysFlag=0, subscription=None, expressionType="XPATH")
    assert answer.code == FILTER_DATA_NOT_EXIST


async def test_bodies_that_are_missing(broker: WholeBroker) -> None:
    for code in (34, 41, 42, 46, 200):
        answer = await broker.ask(code)
        assert answer.code == SYSTEM_ERROR
        assert (answer.remark or "").startswith("the body is not a valid ")


async def test_heartbeats_name_their_groups(broker: WholeBroker) -> None:
    for members in ('"consumerDataSet":[{}]', '"consumerDataSet":[],"producerDataSet":[{}]'):
        answer = await broker.ask(34, None, b'{"clientID":"c",' + members.encode() + b"}")
        assert (answer.code, answer.remark) == (SYSTEM_ERROR, "a group of the heartbeat has no groupName")


async def test_a_delay_level_is_a_number(broker: WholeBroker) -> None:
    answer = await broker.send("T", properties="DELAY\x01soon")
    assert answer.code == SYSTEM_ERROR
    assert "DELAY" in (answer.remark or "")
    assert (await broker.send("T", properties="DELAY\x010")).code == 0
    stored = record.decode_record((await broker.pull("T")).body)
    assert stored.properties["DELAY"] == "0"


async def test_whatever_is_stored_counts_as_put(broker: WholeBroker) -> None:
    """The store's totals include messages that no producer sent: here an event and a message sent back."""

    async def table() -> dict[str, str]:
        values: dict[str, str] = json.loads((await broker.ask(28)).body)["table"]
        return values

    sent = await broker.send("T")
    await broker.pull("T", queueOffset=9)
    offset = int((sent.ext_fields or {})["msgId"][16:], 16)
    assert (await broker.ask(36, {"offset": offset, "group": "G", "delayLevel": -1})).code == 0
    assert (await broker.send("T", b"x" * 70_000)).code == MESSAGE_ILLEGAL
    values = await table()
    assert values["putMessageTimesTotal"] == values["msgPutTotalTodayNow"] == "3"
    assert values["putMessageSizeTotal"] == values["commitLogMaxOffset"]
    assert values["putMessageFailedTimes"] == "0", "a message that may not be is no failure of the store"
