"""What administrators see of messages in flight (POP), and release."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio
from broker_pop_lab import Response, open_pop
from broker_whole import WholeBroker, pop_fields, whole_broker
from trio.testing import MockClock

from triomq.broker.pop.group_queues import Key
from triomq.broker.processors import in_flight
from triomq.protocol.codes import INVALID_PARAMETER, RequestCode
from triomq.protocol.errors import RequestRefused
from triomq.protocol.record import decode_records
from triomq.protocol.speedups import running_build

CODE = RequestCode
LONG_MS = 600_000


async def shown(broker: WholeBroker, **fields: Any) -> list[dict[str, Any]]:
    response = await broker.ask(CODE.QUERY_IN_FLIGHT, fields)
    assert response.code == 0, response.remark
    body = json.loads(response.body)
    assert body["leftOut"] == 0
    queues: list[dict[str, Any]] = body["queues"]
    return queues


async def received(broker: WholeBroker, **changes: Any) -> list[bytes]:
    response = await broker.ask(CODE.POP_MESSAGE, pop_fields(**{"invisibleTime": LONG_MS, **changes}))
    return [message.body for message in decode_records(response.body)] if response.body else []


async def released(broker: WholeBroker, **fields: Any) -> int:
    response = await broker.ask(CODE.RELEASE_IN_FLIGHT, {"consumerGroup": "G", **fields})
    assert response.code == 0, response.remark
    return int((response.ext_fields or {})["released"])


async def test_a_broker_shows_what_is_in_flight_and_releases_a_group_or_a_queue_also_across_a_restart(
    tmp_path: Path,
) -> None:
    async with whole_broker(tmp_path) as broker:
        assert await shown(broker) == []
        assert await released(broker) == 0
        assert not (tmp_path / "store" / "pop").exists(), "a question alone makes no log"
        await broker.create_topic("T", 2)
        for number in range(6):
            await broker.send("T", str(number).encode(), queueId=number % 2)
        for queue_id in (0, 1):
            await received(broker, queueId=queue_id, maxMsgNums=2)
        first, second = await shown(broker, consumerGroup="G", topic="T")
        assert 0 <= first.pop("oldestAgeMs") < 60_000
        expected = {"consumerGroup": "G", "topic": "T", "queueId": 0, "inFlight": 2, "ready": 1}
        assert first == {**expected, "oldestOffset": 0, "nextOffset": 2, "mostAttempts": 1}
        assert (second["queueId"], second["inFlight"]) == (1, 2)
        assert await shown(broker, consumerGroup="other") == await shown(broker, topic="other") == []

        assert await released(broker, topic="T", queueId=1) == 2
        assert [(each["inFlight"], each["ready"]) for each in await shown(broker)] == [(2, 1), (0, 3)]
        assert await received(broker, queueId=1) == [b"1", b"3", b"5"]
        assert (await shown(broker))[1]["mostAttempts"] == 2
        assert await released(broker) == 5
    async with whole_broker(tmp_path) as broker:
        assert [(each["inFlight"], each["ready"]) for each in await shown(broker)] == [(0, 3), (0, 3)]
        assert sorted(await received(broker)) == [b"0", b"1", b"2", b"3", b"4", b"5"]


async def test_a_queue_is_released_only_of_a_topic_that_is_named(tmp_path: Path) -> None:
    async with whole_broker(tmp_path) as broker:
        for fields in ({"consumerGroup": "G", "queueId": 0}, {"consumerGroup": ""}):
            response = await broker.ask(CODE.RELEASE_IN_FLIGHT, fields)
            assert response.code == INVALID_PARAMETER


@pytest.mark.parametrize("order", [False, True])
async def test_a_release_wakes_who_waits_and_handles_stay_valid_until_the_next_receive(
    tmp_path: Path, autojump_clock: MockClock, order: bool
) -> None:
    async with open_pop(tmp_path) as lab:
        await lab.send(2)
        first = await lab.receive(order=order, invisibleTime=LONG_MS)
        found: list[Response] = []

        async def wait() -> None:
            found.append(await lab.receive(order=order, pollTime=60_000))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.sleep(1)
            assert found == []
            key = Key("T", "G", 0)
            assert await lab.ack(first, first.messages[0]) == 0
            assert lab.deliveries.release(key, 0, 10) == [1]
            assert lab.deliveries.release(key, 0, 10) == [], "it is ready already"
            released_at = trio.current_time()
        assert found[0].bodies == [b"1"]
        assert found[0].at_seconds - released_at < 0.1
        with pytest.raises(RequestRefused, match="received again"):
            await lab.ack(first, first.messages[1])


async def test_the_handle_of_what_was_released_is_valid_until_it_is_received_again(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_pop(tmp_path) as lab:
        await lab.send(1)
        first = await lab.receive(invisibleTime=LONG_MS)
        assert lab.deliveries.release(Key("T", "G", 0), 0, 10) == [0]
        assert await lab.ack(first, first.messages[0]) == 0
        assert (await lab.receive()).bodies == []


async def test_a_release_of_a_group_that_was_moved_finds_nothing(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_pop(tmp_path) as lab:
        await lab.send(3)
        await lab.receive(invisibleTime=LONG_MS)
        lab.offsets.commit("G", "T", 0, 2)
        assert lab.deliveries.figures(Key("T", "G", 0)) is None, "what it had received is not what it has now"
        assert lab.deliveries.release(Key("T", "G", 0), 0, 10) == [2]
        assert lab.deliveries.release(Key("T", "nobody", 0), 0, 10) == []


async def test_a_response_has_so_many_queues_and_counts_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_flight, "MAX_QUEUES", 2)
    async with whole_broker(tmp_path) as broker:
        await broker.create_topic("T", 3)
        for queue_id in range(3):
            await broker.send("T", queueId=queue_id)
        await received(broker)
        body = json.loads((await broker.ask(CODE.QUERY_IN_FLIGHT, {})).body)
        assert ([each["queueId"] for each in body["queues"]], body["leftOut"]) == ([0, 1], 1)


@pytest.mark.skipif(running_build() == "compiled", reason="replaces a method of Deliveries")
async def test_a_long_release_has_steps_and_passes_over_what_is_done_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_flight, "MESSAGES_IN_A_STEP", 2)
    async with whole_broker(tmp_path) as broker:
        await broker.create_topic("T", 1)
        for number in range(7):
            await broker.send("T", str(number).encode(), queueId=0)
        await received(broker)
        serving = broker.controller.serving
        assert serving is not None and serving.pop.parts is not None
        deliveries, offsets_table = serving.pop.parts.deliveries, serving.tables.metadata.offsets
        release = deliveries.release
        steps: list[list[int]] = []

        def released_then_moved(key: Key, begin: int, most: int) -> list[int]:
            offsets = release(key, begin, most)
            steps.append(offsets)
            if begin == 2:
                offsets_table.commit("G", "T", 0, 6)
            return offsets

        monkeypatch.setattr(deliveries, "release", released_then_moved)
        assert await released(broker) == 5
        assert steps == [[0, 1], [2, 3], [6], []]
