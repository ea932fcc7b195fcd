"""Both versions of a send, in both codecs, mean the same: each value of the header reaches the place it is for."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker_whole import WholeBroker, whole_broker

from triomq.protocol import sys_flag
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.headers.base import encode_header
from triomq.protocol.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from triomq.protocol.record import BatchUnit, RecordFields, encode_batch_units, read_fields

BORN = 1_600_000_000_123
in_each_form = pytest.mark.parametrize(("version", "is_binary"), [(1, False), (1, True), (2, False), (2, True)])


async def send(broker: WholeBroker, version: int, is_binary: bool, body: bytes = b"x", **values: object) -> int:
    """Send as this version of the request, and return the response's code."""
    usual = {
        "producer_group": "P",
        "topic": "T",
        "default_topic": "TBW102",
        "default_topic_queue_nums": 3,
        "queue_id": 1,
        "sys_flag": 0,
        "born_timestamp": BORN,
        "flag": 0,
    }
    chosen = {**usual, **values}
    code = RequestCode.SEND_MESSAGE if version == 1 else RequestCode.SEND_MESSAGE_V2
    cls = SendMessageRequestHeader if version == 1 else SendMessageRequestHeaderV2
    fields = encode_header(cls(**chosen))  # type: ignore[arg-type]
    return (await broker.ask(code, dict(fields), body, is_binary=is_binary)).code


def stored(broker: WholeBroker, topic: str, queue_id: int) -> list[RecordFields]:
    reading = broker.controller.serving.store.reading
    records = []
    for physical_offset, size, _ in reading.queue_entries(topic, queue_id, 0, 32):
        data = reading.record_of_entry(physical_offset, size) or b""
        records.append(read_fields(data, 0, size))
    return records


@in_each_form
async def test_each_value_of_the_header_is_stored_where_it_belongs(
    tmp_path: Path, version: int, is_binary: bool
) -> None:
    async with whole_broker(tmp_path) as broker:
        await broker.create_topic("T", queues=2)
        flags = sys_flag.COMPRESSED
        code = await send(
            broker, version, is_binary, sys_flag=flags, flag=77, reconsume_times=5, properties="TAGS\x01a\x02"
        )
        assert code == ResponseCode.SUCCESS
        [record] = stored(broker, "T", 1)
        assert (record.queue_id, record.flag, record.reconsume_times) == (1, 77, 5)
        assert (record.born_timestamp, record.sys_flag) == (BORN, flags)
        assert record.properties.startswith(b"TAGS\x01a\x02")


@in_each_form
async def test_a_batch_a_new_topic_and_the_senders_limit_of_retries(
    tmp_path: Path, version: int, is_binary: bool
) -> None:
    async with whole_broker(tmp_path) as broker:
        await broker.create_topic("T", queues=2)
        units = encode_batch_units([BatchUnit(0, body, b"") for body in (b"one", b"two")])
        assert await send(broker, version, is_binary, units, batch=True) == ResponseCode.SUCCESS
        assert len(stored(broker, "T", 1)) == 2

        assert await send(broker, version, is_binary, topic="New", queue_id=2) == ResponseCode.SUCCESS
        config = broker.controller.serving.tables.metadata.topics.get("New")
        assert config is not None
        assert config.write_queue_nums == 3

        await broker.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, b'{"groupName":"G"}')
        retry = {"topic": "%RETRY%G", "queue_id": 0, "reconsume_times": 4}
        for limit, is_dead in ((5, False), (4, True)):
            before = len(stored(broker, "%DLQ%G", 0))
            assert await send(broker, version, is_binary, max_reconsume_times=limit, **retry) == ResponseCode.SUCCESS
            assert len(stored(broker, "%DLQ%G", 0)) - before == is_dead
