"""A topic that is deleted and made again has no offsets of its earlier life."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import trio
from broker_whole import WholeBroker, whole_broker

from triomq.broker.tables.offsets import OffsetTable
from triomq.broker.tables.topics import TopicTable
from triomq.store.message_store import DefaultMessageStore
from triomq.store.upkeep.administration import Upkeep

PULL_OFFSET_MOVED = 21
QUERY_NOT_FOUND = 22


async def offset_of(broker: WholeBroker, group: str) -> int | None:
    response = await broker.ask(14, {"consumerGroup": group, "topic": "T", "queueId": 0})
    if response.code == QUERY_NOT_FOUND:
        return None
    assert response.code == 0, response.remark
    return int((response.ext_fields or {})["offset"])


async def commit(broker: WholeBroker, group: str, offset: int) -> None:
    fields = {"consumerGroup": group, "topic": "T", "queueId": 0, "commitOffset": offset}
    assert (await broker.ask(15, fields)).code == 0


@pytest.mark.parametrize("made_by", ["an administrator", "use"])
async def test_offsets_end_with_their_topic(tmp_path: Path, made_by: str) -> None:
    async with whole_broker(tmp_path) as broker:
        await broker.create_topic("T")
        for _ in range(3):
            assert (await broker.send("T")).code == 0
        for group in ("G", "H"):
            await commit(broker, group, 3)
        assert (await broker.ask(215, {"topic": "T"})).code == 0
        offsets = broker.controller.serving.tables.metadata.offsets  # type: ignore[union-attr]
        assert offsets.groups_of_topic("T") == []
        await commit(broker, "G", 3)  # by a consumer that does not know yet
        if made_by == "use":
            assert (await broker.send("T", b"new")).code == 0
        else:
            await broker.create_topic("T")
            assert (await broker.send("T", b"new")).code == 0
        assert offsets.groups_of_topic("T") == []
        assert await offset_of(broker, "G") in (None, 0)
        await commit(broker, "G", 1)
        await broker.create_topic("T", queues=4)
        assert await offset_of(broker, "G") == 1, "a change of its settings does not make it anew"


async def made_again(broker: WholeBroker, old: int, new: int) -> None:
    """Delete a topic of `old` messages and make it again, with `new` ones."""
    await broker.create_topic("T")
    for _ in range(old):
        assert (await broker.send("T")).code == 0
    assert (await broker.ask(215, {"topic": "T"})).code == 0
    await broker.create_topic("T")
    for _ in range(new):
        assert (await broker.send("T", b"new")).code == 0


async def test_a_consumer_of_an_earlier_life_goes_on_at_the_first_message(tmp_path: Path) -> None:
    """It did not pull meanwhile: its position is all that it says. RocketMQ redirects it to the end."""
    async with whole_broker(tmp_path) as broker:
        await made_again(broker, old=10, new=3)
        found = await broker.pull("T", queueOffset=10)
        assert (found.code, (found.ext_fields or {})["nextBeginOffset"]) == (PULL_OFFSET_MOVED, "0")
    async with whole_broker(tmp_path) as broker:  # the consumer outlives the broker
        found = await broker.pull("T", queueOffset=10)
        assert (found.code, (found.ext_fields or {})["nextBeginOffset"]) == (PULL_OFFSET_MOVED, "0")
        await broker.create_topic("Once")
        assert (await broker.send("Once")).code == 0
        found = await broker.pull("Once", queueOffset=10)
        assert (found.code, (found.ext_fields or {})["nextBeginOffset"]) == (PULL_OFFSET_MOVED, "1"), "as in RocketMQ"


@pytest.mark.parametrize("way", ["an update", "a pull"])
async def test_an_offset_of_an_earlier_life_is_not_stored(tmp_path: Path, way: str) -> None:
    async with whole_broker(tmp_path) as broker:
        await made_again(broker, old=10, new=3)

        async def commit_by(offset: int) -> None:
            if way == "an update":
                await commit(broker, "G", offset)
            else:
                await broker.pull("T", queueOffset=offset, commitOffset=offset, sysFlag=1 | 4)

        await commit_by(10)
        assert await offset_of(broker, "G") in (None, 0)
        for offset in (2, 3, 1):
            await commit_by(offset)
            assert await offset_of(broker, "G") == offset
        await commit_by(10)
        assert await offset_of(broker, "G") == 1


async def test_of_two_that_make_a_topic_at_once_the_second_removes_nothing(tmp_path: Path) -> None:
    async with whole_broker(tmp_path) as broker:
        made = trio.Event()

        async def make() -> None:
            await broker.create_topic("T")
            if not made.is_set():
                made.set()
                await commit(broker, "G", 5)

        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(make)
        assert await offset_of(broker, "G") == 5


async def test_offsets_that_are_there_before_the_first_life_of_a_topic_stay(tmp_path: Path) -> None:
    """Groups commit for a retry topic before it exists; the sink for Spark keeps positions for topics to come."""
    async with whole_broker(tmp_path) as broker:
        await commit(broker, "G", 1)
        await broker.create_topic("T")
        assert await offset_of(broker, "G") == 1
        assert (await broker.ask(215, {"topic": "T"})).code == 0
        await commit(broker, "G", 2)
        await broker.create_topic("T")
        assert await offset_of(broker, "G") in (None, 0), "its second life begins empty"
        for _ in range(3):
            assert (await broker.send("T")).code == 0
        await commit(broker, "G", 3)
        await broker.create_topic("T", queues=4)
        assert await offset_of(broker, "G") == 3


def test_offsets_for_queues_with_messages_stay() -> None:
    offsets = OffsetTable()
    offsets.commit("G", "T", 0, 50)
    offsets.commit("G", "T", 1, 50)
    offsets.commit("H", "T", 3, 7)
    offsets.commit("G", "Other", 0, 9)
    offsets.remove_outlived("T", lambda topic, queue_id: 60 if queue_id == 1 else 0)
    assert offsets.groups_of_topic("T") == ["G"]
    assert offsets.queues("G", "T") == {0: 50, 1: 50}
    assert offsets.query("G", "Other", 0) == 9


@pytest.mark.parametrize(
    "step", ["before the record", "before the table", "before the log", "before the offsets", "after"]
)
async def test_a_group_begins_anew_wherever_a_deletion_is_interrupted(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, left = tmp_path / "home", tmp_path / "left"
    async with whole_broker(home) as broker:
        await broker.create_topic("T")
        for _ in range(10):
            assert (await broker.send("T")).code == 0
        await commit(broker, "G", 10)
        tables = broker.controller.serving.tables  # type: ignore[union-attr]
        metadata = tables.metadata
        await metadata.offsets.persist()
        places: dict[str, tuple[Any, str]] = {
            "before the record": (Upkeep, "delete_topic"),
            "before the table": (TopicTable, "delete"),
            "before the log": (DefaultMessageStore, "cover"),
            "before the offsets": (OffsetTable, "save"),
        }
        if step in places:
            owner, name = places[step]
            act = getattr(owner, name)

            def copy_first(*arguments: Any) -> Any:
                is_begun = name != "cover" or metadata.topics.get("T") is None  # topics.json waits for the log, too
                if is_begun and not left.exists():
                    shutil.copytree(home, left)
                return act(*arguments)

            monkeypatch.setattr(owner, name, copy_first)
        assert (await broker.ask(215, {"topic": "T"})).code == 0
        if not left.exists():
            shutil.copytree(home, left)
    for lock in left.rglob("lock"):
        lock.unlink()
    async with whole_broker(left) as broker:
        await commit(broker, "G", 10)  # by a consumer that does not know yet
        await broker.create_topic("T")
        for _ in range(3):
            assert (await broker.send("T", b"new")).code == 0
        assert broker.controller.serving.store.reading.ends("T").get(0) == 3  # type: ignore[union-attr]
        assert await offset_of(broker, "G") in (None, 0)
