"""Queues whose messages have all expired continue where they ended, whatever becomes of their files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import trio
from store_support import abandon, message, open_store, small_settings

from triomq.store.__main__ import main
from triomq.store.config import BrokerRole
from triomq.store.disk.files import Files
from triomq.store.disk.layout import Layout
from triomq.store.message_store import DefaultMessageStore
from triomq.store.upkeep.offline import clear_derived, queue_ends
from triomq.store.upkeep.queue_floors import note_ends, noted_ends

END = 23
CONF = "mappedFileSizeCommitLog=4096\nmappedFileSizeConsumeQueue=200\nmaxHashSlotNum=50\nmaxIndexNum=60\n"


async def with_expired(root: Path) -> None:
    """A store that was closed; of Quiet it had 23 messages, and its log begins behind them."""
    store = await open_store(root)
    for number in range(END):
        store.append(message("Quiet", body=b"%d" % number))
    for _ in range(60):
        store.append(message("Busy", body=bytes(200)))
    store.commit()
    await store.close()
    log_files = sorted((root / "commitlog").iterdir())
    for path in log_files[:2]:
        path.unlink()
    store = await open_store(root)
    assert (store.reading.min_offset("Quiet", 0), store.reading.max_offset("Quiet", 0)) == (END, END)
    await store.close()


def write_tables(root: Path, *, topics: list[str], deleted: Sequence[str] = (), **offsets: object) -> None:
    config = root / "config"
    config.mkdir(exist_ok=True)
    table = {"topicConfigTable": {topic: {"topicName": topic} for topic in topics}, "deletedTopics": list(deleted)}
    (config / "topics.json").write_text(json.dumps(table))
    for name, content in offsets.items():
        (config / f"{name}.json").write_text(json.dumps(content))


def lose_queues(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")


def lose_queues_of_a_kill(root: Path) -> None:
    lose_queues(root)
    (root / "abort").touch()


def lose_one_queue(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / "Quiet")


def lose_queues_and_log(root: Path) -> None:
    lose_queues(root)
    shutil.rmtree(root / "commitlog")


def rebuild(root: Path) -> None:
    clear_derived(small_settings(root))


async def next_offset(store: DefaultMessageStore, topic: str = "Quiet") -> int:
    put = store.append(message(topic, body=b"next"))
    store.commit()
    return put.queue_offset


@pytest.mark.parametrize("lose", [lose_queues, lose_queues_of_a_kill, lose_one_queue, lose_queues_and_log, rebuild])
async def test_a_queue_continues_behind_what_its_groups_have_consumed(
    tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    await with_expired(tmp_path)
    offsets = {"Quiet@A": {"0": END}, "Quiet@B": {"0": 4}}
    write_tables(tmp_path, topics=["Quiet", "Busy"], consumerOffset={"offsetTable": offsets})
    lose(tmp_path)
    store = await open_store(tmp_path)
    assert (store.reading.min_offset("Quiet", 0), store.reading.max_offset("Quiet", 0)) == (END, END)
    abandon(store)
    store = await open_store(tmp_path)
    assert await next_offset(store) == END
    assert len(store.reading.get_messages("Quiet", 0, END, 32).records) == 1
    await store.close()
    store = await open_store(tmp_path)
    assert store.reading.max_offset("Quiet", 0) == END + 1
    await store.close()


async def test_a_rebuild_keeps_the_ends_of_queues_that_nobody_has_consumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await with_expired(tmp_path)
    write_tables(tmp_path, topics=["Quiet", "Busy"])
    (tmp_path / "broker.conf").write_text(CONF)
    assert await trio.to_thread.run_sync(main, ["rebuild", str(tmp_path)]) == 0
    assert not (tmp_path / "queueends").exists()
    store = await open_store(tmp_path)
    assert await next_offset(store) == END
    await store.close()


async def test_a_rebuild_that_was_killed_has_noted_the_ends(tmp_path: Path) -> None:
    await with_expired(tmp_path)
    write_tables(tmp_path, topics=["Quiet", "Busy"])
    clear_derived(small_settings(tmp_path))
    clear_derived(small_settings(tmp_path))  # began again, with no queues to read
    store = await open_store(tmp_path)
    assert await next_offset(store) == END
    assert not (tmp_path / "queueends").exists()
    await store.close()


async def test_a_note_keeps_the_highest_end_of_each_queue(tmp_path: Path) -> None:
    files, paths = Files(), Layout(small_settings(tmp_path))
    note_ends(files, paths, {("A", 0): 5, ("A", 1): 2})
    note_ends(files, paths, {("A", 0): 3, ("B", 7): 1 << 60})
    assert noted_ends(files, paths) == {("A", 0): 5, ("A", 1): 2, ("B", 7): 1 << 60}
    assert queue_ends(small_settings(tmp_path)) == {}


@pytest.mark.parametrize(("topics", "deleted"), [(["Busy"], ["Quiet"]), (["Busy"], []), (["Quiet", "Busy"], ["Quiet"])])
async def test_a_topic_that_was_deleted_begins_at_0(tmp_path: Path, topics: list[str], deleted: list[str]) -> None:
    await with_expired(tmp_path)
    offsets = {"offsetTable": {"Quiet@A": {"0": END}}}
    write_tables(tmp_path, topics=topics, deleted=deleted, consumerOffset=offsets)
    lose_queues(tmp_path)
    store = await open_store(tmp_path)
    assert await next_offset(store) == 0
    await store.close()


async def test_delay_levels_and_light_queues_have_floors_too(tmp_path: Path) -> None:
    await with_expired(tmp_path)
    light = {"lmqOffsetTable": {"%LMQ%a@%LMQ%a": 9}, "offsetTable": {}}
    write_tables(tmp_path, topics=["Busy"], lmqConsumerOffset=light, delayOffset={"offsetTable": {"3": 12}})
    lose_queues(tmp_path)
    store = await open_store(tmp_path)
    assert store.reading.max_offset("%LMQ%a", 0) == 9
    assert store.reading.max_offset("SCHEDULE_TOPIC_XXXX", 2) == 12
    await store.close()


async def test_a_queue_with_messages_in_the_log_is_as_the_log_says(tmp_path: Path) -> None:
    await with_expired(tmp_path)
    offsets = {"offsetTable": {"Busy@A": {"0": 5000}, "..@A": {"0": 3}, "Quiet@A": {"0": 1 << 60}}}
    write_tables(tmp_path, topics=["Quiet", "Busy", ".."], consumerOffset=offsets)
    lose_queues(tmp_path)
    store = await open_store(tmp_path)
    assert await next_offset(store, "Busy") == 60
    assert await next_offset(store) == 0, "no position of an entry is that high"
    await store.close()


async def test_a_slave_asks_its_master_instead(tmp_path: Path) -> None:
    await with_expired(tmp_path)
    write_tables(tmp_path, topics=["Quiet"], consumerOffset={"offsetTable": {"Quiet@A": {"0": END}}})
    lose_queues(tmp_path)
    store = await open_store(tmp_path, broker_role=BrokerRole.SLAVE)
    assert store.reading.max_offset("Quiet", 0) == 0
    await store.close()
