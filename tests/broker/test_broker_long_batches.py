"""Batches of thousands of messages: stored whole, in steps, or not at all."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import trio
from broker_whole import whole_broker

from triomq.broker.processors.long_batch import LONG_BATCHES_AT_A_TIME
from triomq.protocol.codes import ResponseCode
from triomq.protocol.message_id import parse_offset_message_id
from triomq.protocol.record import BatchUnit, decode_record, encode_batch_units


def batch(count: int) -> bytes:
    return encode_batch_units([BatchUnit(0, b"", b"")] * count)


@pytest.mark.parametrize("count", [1024, 1025, 4097, 20_000])
async def test_a_batch_of_any_number_of_messages_is_stored_whole(tmp_path: Path, count: int) -> None:
    async with whole_broker(tmp_path, maxMessageSize="4194304") as broker:
        await broker.create_topic("T", 1)
        units = [BatchUnit(7, b"%d" % number, b"TAGS\x01A") for number in range(count)]
        sent = await broker.send("T", encode_batch_units(units), batch="true", properties="own\x01shared")
        assert sent.code == 0
        ids = (sent.ext_fields or {})["msgId"].split(",")
        assert len(set(ids)) == count
        assert (sent.ext_fields or {})["queueOffset"] == "0"
        reading = broker.controller.serving.store.reading
        assert reading.max_offset("T", 0) == count
        for at in (0, 127, 128, count - 1):
            found = decode_record(reading.get_messages("T", 0, at, 1).records[0])
            assert (found.body, found.flag, found.queue_offset) == (b"%d" % at, 7, at)
            assert found.properties["own"] == "shared"
            assert parse_offset_message_id(ids[at])[1] == found.physical_offset
        assert broker.controller.serving.tables.stats.total("TOPIC_PUT_NUMS", "T") == count


@pytest.mark.parametrize("rest", [b"x", encode_batch_units([BatchUnit(0, b"", b"p" * 32_767)])])
async def test_a_long_batch_that_cannot_be_stored_whole_stores_nothing(tmp_path: Path, rest: bytes) -> None:
    async with whole_broker(tmp_path, maxMessageSize="4194304") as broker:
        await broker.create_topic("T", 1)
        refused = await broker.send("T", batch(5000) + rest, batch="true", properties="own\x01shared")
        assert refused.code == ResponseCode.MESSAGE_ILLEGAL
        assert "MSG_REGION" in (refused.ext_fields or {})
        assert broker.controller.serving.store.reading.max_offset("T", 0) == 0


async def test_others_are_served_while_a_long_batch_is_stored(tmp_path: Path) -> None:
    async with whole_broker(tmp_path, maxMessageSize="4194304") as broker:
        await broker.create_topic("T", 1)
        await broker.create_topic("U", 1)
        ends: list[str] = []

        async def send(topic: str, body: bytes, **fields: str) -> None:
            assert (await broker.send(topic, body, **fields)).code == 0
            ends.append(topic)

        async with trio.open_nursery() as clients:
            clients.start_soon(partial(send, "T", batch(20_000), batch="true"))
            while broker.controller.serving.store.reading.max_offset("T", 0) == 0:
                await trio.lowlevel.checkpoint()
            for _ in range(3):
                await send("U", b"calm")
        assert ends == ["U", "U", "U", "T"]


async def test_few_long_batches_are_stored_at_a_time(tmp_path: Path) -> None:
    """What one takes beyond its request until it is answered is not counted, so the number must be bounded."""
    async with whole_broker(tmp_path, maxMessageSize="4194304") as broker:
        topics = [f"T{number}" for number in range(3 * LONG_BATCHES_AT_A_TIME)]
        for topic in topics:
            await broker.create_topic(topic, 1)
        reading = broker.controller.serving.store.reading
        answered: set[str] = set()
        most = 0

        async def send(topic: str) -> None:
            assert (await broker.send(topic, batch(2000), batch="true")).code == 0
            answered.add(topic)

        async with trio.open_nursery() as clients:
            for topic in topics:
                clients.start_soon(send, topic)
            while len(answered) < len(topics):
                await trio.lowlevel.checkpoint()
                begun = [topic for topic in topics if reading.max_offset(topic, 0) > 0]
                most = max(most, len([topic for topic in begun if reading.max_offset(topic, 0) < 2000]))
        assert 1 < most <= LONG_BATCHES_AT_A_TIME
