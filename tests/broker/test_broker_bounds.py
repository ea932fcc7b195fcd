"""What peers choose, beyond its bounds: each request is refused by the name of the field, and other clients are served.

The bounds of fields are those that the records declare; the other tests are about bounds that processors know."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from broker_whole import pull_fields, whole_broker
from declared_values import body_text, bounded, header_fields, name_of

from docs.generators.body_registry import REQUEST_BODIES
from docs.generators.declared_bounds import Declared
from triomq.protocol import properties as property_text
from triomq.protocol.codes import ResponseCode
from triomq.protocol.headers.registry import REQUEST_HEADERS
from triomq.protocol.record import iterate_records

ERROR = int(ResponseCode.SYSTEM_ERROR)


def of_requests(is_header: bool, is_binary: bool) -> list[tuple[int, Declared]]:
    """Return (code, value) of what requests carry, without what is in responses to a broker. The binary codec has 16
    bits for a code, which those of POP exceed."""
    table: dict[int, Any] = REQUEST_HEADERS if is_header else REQUEST_BODIES
    return [
        (code, one)
        for code, one in bounded(is_header)
        if one.record is table.get(code) or (not is_header and one.record in table.get(code, ()))
        if not is_binary or code < 2**15
    ]


@pytest.mark.parametrize("is_binary", [False, True])
async def test_a_broker_refuses_what_is_beyond_a_bound_and_serves_others(tmp_path: Path, is_binary: bool) -> None:
    async with whole_broker(tmp_path) as broker:
        await broker.create_topic("Beside")
        refused = 0
        for code, one in of_requests(True, is_binary):
            answer = await broker.ask(code, header_fields(one, 1), is_binary=is_binary)
            if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                continue
            assert answer.code == ERROR, name_of(one)
            assert f"<{one.path}> of {one.record.__name__}" in (answer.remark or ""), (name_of(one), answer.remark)
            refused += 1
        assert refused > 100
        for code, one in of_requests(False, is_binary):
            answer = await broker.ask(code, None, body_text(one, 1, {"clientID": "c"}), is_binary=is_binary)
            if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                continue
            assert answer.code == ERROR, name_of(one)
            assert one.record.__name__ in (answer.remark or ""), (name_of(one), answer.remark)
        assert (await broker.send("Beside")).code == 0
        assert len(list(iterate_records((await broker.pull("Beside")).body))) == 1


async def test_properties_beyond_the_longest_are_refused(tmp_path: Path) -> None:
    async with whole_broker(tmp_path) as broker:
        await broker.create_topic("T")
        room = property_text.MAX_PROPERTIES_BYTES - len("p\x01\x02CLUSTER\x01DefaultCluster")
        assert (await broker.send("T", properties="p\x01" + "v" * room)).code == 0
        answer = await broker.send("T", properties="p\x01" + "v" * (room + 1))
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL


async def test_a_send_makes_no_more_queues_than_the_template_has(tmp_path: Path) -> None:
    async with whole_broker(tmp_path, defaultTopicQueueNums="3") as broker:
        for number, wanted in enumerate((2**31 - 1, 3, 2, 0, -(2**31))):
            await broker.send(f"T{number}", defaultTopicQueueNums=wanted)
        table = json.loads((await broker.ask(21)).body)["topicConfigTable"]
        made = [table.get(f"T{number}", {}).get("writeQueueNums") for number in range(5)]
        assert made == [3, 3, 2, 0, 0]


async def test_a_query_returns_no_more_messages_than_the_setting_says(tmp_path: Path) -> None:
    async with whole_broker(tmp_path, maxMsgsNumBatch="2") as broker:
        await broker.create_topic("T")
        for _ in range(3):
            await broker.send("T")
        for wanted, found in ((1, 1), (2, 2), (2**31 - 1, 2)):
            fields = {"topic": "T", "key": "k1", "maxNum": wanted, "beginTimestamp": 0, "endTimestamp": 2**63 - 1}
            assert len(list(iterate_records((await broker.ask(12, fields)).body))) == found
        fields = {"topic": "T", "key": "k1", "maxNum": -1, "beginTimestamp": 0, "endTimestamp": 2**63 - 1}
        assert (await broker.ask(12, fields)).code == ResponseCode.QUERY_NOT_FOUND


async def test_a_query_for_queue_entries_is_clamped(tmp_path: Path) -> None:
    async with whole_broker(tmp_path) as broker:
        await broker.create_topic("T")
        await broker.send("T")
        for wanted, found in ((2**31 - 1, 1), (-1, 0)):
            answer = await broker.ask(321, {"topic": "T", "queueId": 0, "index": 0, "count": wanted})
            assert answer.code == 0
            assert len(json.loads(answer.body).get("queueData", [])) == found


async def test_a_delay_level_beyond_the_last_is_the_last(tmp_path: Path) -> None:
    async with whole_broker(tmp_path, messageDelayLevel="1h 2h") as broker:
        await broker.create_topic("T")
        for level in (1, 2, 3, 10**18):
            assert (await broker.send("T", properties=f"DELAY\x01{level}")).code == 0
        assert broker.controller.serving is not None
        store = broker.controller.serving.tables.store
        waiting = [store.reading.max_offset("SCHEDULE_TOPIC_XXXX", queue) for queue in range(4)]
        assert waiting[:2] == [1, 3]


async def test_a_group_with_too_many_retry_queues_is_refused(tmp_path: Path) -> None:
    """Every walk over the queues of its retry topic would never end."""
    async with whole_broker(tmp_path) as broker:
        for count, code in ((65_536, 0), (0, 0), (-1, 0), (65_537, ERROR), (2**31 - 1, ERROR)):
            answer = await broker.ask(200, None, json.dumps({"groupName": "G", "retryQueueNums": count}).encode())
            assert answer.code == code, count
            assert code == 0 or "retryQueueNums" in (answer.remark or "")
        assert (await broker.ask(11, pull_fields("T"))).code == ResponseCode.TOPIC_NOT_EXIST
