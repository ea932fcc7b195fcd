"""QUERY_CONSUME_QUEUE with ext units, how long reads took, groups that are too far behind: on a whole broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from broker_whole import WholeBroker, whole_broker

import triomq.broker.controller
from triomq.broker.assembly.serving import Serving, build_serving
from triomq.broker.processors.consume_admin import _bits_text

EXT = {"enableConsumeQueueExt": "true", "enableCalcFilterBitMap": "true", "mappedFileSizeConsumeQueueExt": "100000"}
ADDRESS_BEGIN = -(2**63)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Serving]:
    """Return the parts of every broker that the test starts."""
    seen: list[Serving] = []

    def build(*arguments: Any) -> Serving:
        seen.append(build_serving(*arguments))
        return seen[-1]

    monkeypatch.setattr(triomq.broker.controller, "build_serving", build)
    return seen


async def heartbeat(running: WholeBroker, group: str, topic: str, expression: str, kind: str = "SQL92") -> None:
    subscription = {"topic": topic, "subString": expression, "subVersion": 1, "expressionType": kind}
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": [{"classFilterMode": False, "tagsSet": [], "codeSet": [], **subscription}],
        "unitMode": False,
    }
    data = {"clientID": "c@1", "consumerDataSet": [consumer], "producerDataSet": []}
    assert (await running.ask(34, {}, json.dumps(data).encode())).code == 0


async def entries(running: WholeBroker, group: str | None) -> list[dict[str, Any]]:
    fields = {"topic": "T", "queueId": 0, "index": 0, "count": 10, "consumerGroup": group}
    answer = await running.ask(321, fields)
    assert answer.code == 0
    data: list[dict[str, Any]] = json.loads(answer.body)["queueData"]
    return data


def test_bits_are_shown_as_the_real_broker_shows_them() -> None:
    assert _bits_text(b"\x01\x02\x80") == "100000000000001000000001\n"
    assert _bits_text(bytes(14)) == "0" * 48 + "\n" + "0" * 64 + "\n"
    assert _bits_text(bytes(8)) == "0" * 64 + "\n"


async def test_entries_show_their_ext_units(tmp_path: Path) -> None:
    async with whole_broker(tmp_path, **EXT) as running:
        await running.create_topic("T")
        await heartbeat(running, "G", "T", "a = 1")
        await running.send("T", properties="a\x011\x02TAGS\x01TagA")
        await running.send("T", properties="a\x012\x02TAGS\x01TagA")
        found = await entries(running, "G")
        nobody = await entries(running, None)
    units = [json.loads(entry["extendDataJson"]) for entry in found]
    assert [entry["eval"] for entry in found] == [True, False]
    assert [entry["eval"] for entry in nobody] == [False, False]
    assert [entry["tagsCode"] for entry in found] == [ADDRESS_BEGIN, ADDRESS_BEGIN + 34]
    assert [list(unit) for unit in units] == [["filterBitMap", "msgStoreTime", "size", "tagsCode"]] * 2
    assert {unit["size"] for unit in units} == {20 + 14}
    assert {unit["tagsCode"] for unit in units} == {2598919}
    assert found[0]["bitMap"].count("1") == 3
    assert found[1]["bitMap"] == "0" * 48 + "\n" + "0" * 64 + "\n"


async def test_entries_without_ext_file_are_plain(tmp_path: Path) -> None:
    async with whole_broker(tmp_path) as running:
        await running.create_topic("T")
        await running.send("T")
        [entry] = await entries(running, "G")
    assert set(entry) == {"eval", "physicOffset", "physicSize", "tagsCode"}


async def test_filters_are_there_when_a_crashed_store_is_dispatched_again(tmp_path: Path) -> None:
    """The queue and its ext file were lost. Recovery rebuilds them with the bit maps of the filters."""
    async with whole_broker(tmp_path, **EXT) as running:
        await running.create_topic("T")
        await heartbeat(running, "G", "T", "a = 1")
        await running.send("T", properties="a\x011")
        before = await entries(running, "G")
    store = tmp_path / "store"
    for directory in ("consumequeue", "consumequeue_ext"):
        for file in (store / directory).rglob("*"):
            if file.is_file():
                file.unlink()
    (store / "abort").write_text("")
    async with whole_broker(tmp_path, **EXT) as running:
        after = await entries(running, None)
    assert after[0]["bitMap"] == before[0]["bitMap"]
    assert "1" in after[0]["bitMap"]


async def test_slow_reads_show_in_runtime_info_and_statistics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: list[Serving]
) -> None:
    times = iter([1.0, 1.0, 2.0, 2.0375, 3.0, 3.0005])
    monkeypatch.setattr("triomq.broker.processors.pull.perf_counter", lambda: next(times))
    async with whole_broker(tmp_path) as running:
        await running.create_topic("T")
        await running.send("T")
        for _ in range(3):
            assert (await running.pull("T")).code == 0
        info = json.loads((await running.ask(28)).body)["table"]
        [serving] = made
        serving.tables.stats.sample_minute()
        snapshot = serving.tables.stats.snapshot("GROUP_GET_LATENCY", "0@T@G")
    assert info["getMessageEntireTimeMax"] == "37"
    assert snapshot is not None
    assert snapshot.stats_minute is not None
    assert snapshot.stats_minute.sum == 37
    assert snapshot.stats_minute.avgpt == pytest.approx(37 / 2), "from the slow one on; quick ones count as 0 ms"


async def test_a_group_too_far_behind_may_not_pull_any_more(tmp_path: Path, made: list[Serving]) -> None:
    limit = {"disableConsumeIfConsumerReadSlowly": "true", "consumerFallbehindThreshold": "3000"}
    async with whole_broker(tmp_path, **limit) as running:
        await running.create_topic("T")
        for _ in range(10):
            await running.send("T", b"x" * 1000)
        assert (await running.pull("T", sysFlag=4 | 1, maxMsgNums=1)).code == 0
        assert (await running.pull("T", consumerGroup="Fast", sysFlag=4 | 1, commitOffset=9)).code == 0
        [serving] = made
        await serving.protection.protect()
        slow = await running.pull("T")
        fast = await running.pull("T", consumerGroup="Fast")
    assert (slow.code, slow.remark) == (16, "subscription group no permission, G")
    assert fast.code == 0
