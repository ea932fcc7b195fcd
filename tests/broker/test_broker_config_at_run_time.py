"""Keys that take effect while the broker runs, as they do in RocketMQ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from broker_whole import WholeBroker, pull_fields, whole_broker

from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand

SQL_PULL = {"expressionType": "SQL92", "subscription": "a > 1"}


async def change(broker: WholeBroker, line: str) -> None:
    answer = await broker.ask(RequestCode.UPDATE_BROKER_CONFIG, body=line.encode())
    assert answer.code == 0, answer.remark


def open_broker(folder: Path, **settings: str) -> Any:
    return whole_broker(folder, configUpdateWithoutAcl="true", **settings)


async def test_automatic_creation_ends_at_once(tmp_path: Path) -> None:
    async with open_broker(tmp_path) as broker:
        assert (await broker.send("Before")).code == 0
        await change(broker, "autoCreateTopicEnable=false")
        refused = await broker.send("After")
        assert refused.code == ResponseCode.TOPIC_NOT_EXIST
        assert (await broker.send("Before")).code == 0


async def test_the_region_is_that_of_the_next_answer(tmp_path: Path) -> None:
    async with open_broker(tmp_path) as broker:
        await change(broker, "regionId=north")
        answer = await broker.send("T")
        assert (answer.ext_fields or {})["MSG_REGION"] == "north"


async def test_filters_by_property_are_refused_as_soon_as_they_are_switched_off(tmp_path: Path) -> None:
    async def pull(broker: WholeBroker) -> RemotingCommand:
        return await broker.ask(RequestCode.PULL_MESSAGE, pull_fields("T", **SQL_PULL))

    async with open_broker(tmp_path, enablePropertyFilter="true") as broker:
        await broker.create_topic("T")
        assert (await pull(broker)).code != ResponseCode.SYSTEM_ERROR
        await change(broker, "enablePropertyFilter=false")
        refused = await pull(broker)
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert "does not support consumer to filter message by SQL92" in (refused.remark or "")


async def test_bit_maps_of_filters_are_made_as_long_as_they_are_wanted(tmp_path: Path) -> None:
    async with open_broker(tmp_path, enableConsumeQueueExt="true") as broker:
        serving = broker.controller.serving
        assert serving is not None
        filters = serving.tables.metadata.filters
        asked: list[str] = []
        filters.stored_bit_map = lambda topic, properties: asked.append(topic)  # type: ignore[method-assign]
        assert (await broker.send("T")).code == 0
        await change(broker, "enableCalcFilterBitMap=true")
        assert (await broker.send("T")).code == 0
        await change(broker, "enableCalcFilterBitMap=false")
        assert (await broker.send("T")).code == 0
        assert asked == ["T"]


async def test_dead_filters_are_dropped_after_the_time_that_is_set_now(tmp_path: Path) -> None:
    async with open_broker(tmp_path) as broker:
        serving = broker.controller.serving
        assert serving is not None
        filters = serving.tables.metadata.filters
        await change(broker, "filterDataCleanTimeSpan=12345")
        assert filters._clean_after_ms() == 12345
