"""A topic that was deleted and made again: whatever happens to its queues, they hold the messages of its last life."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import trio
from file_faults import FaultyFiles
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_support import abandon, message, open_store, small_settings, unique_key

from triomq.protocol.record import decode_record
from triomq.store.errors import StoreFull
from triomq.store.message_store import DefaultMessageStore
from triomq.store.queues.consume_queue import FILLER
from triomq.store.upkeep.offline import clear_derived, verify


def fill(store: DefaultMessageStore, name: str, count: int, topic: str = "T") -> list[bytes]:
    """Store messages, and one of another topic between any two. Return their bodies."""
    bodies = [f"{name} {number}".encode() for number in range(count)]
    for body in bodies:
        store.append(message(topic, body=body, uniq_key=unique_key()))
        store.append(message("Other"))
    store.commit()
    return bodies


def bodies(store: DefaultMessageStore, topic: str = "T", queue_id: int = 0) -> list[bytes]:
    found: list[bytes] = []
    offset = store.reading.min_offset(topic, queue_id)
    while offset < store.reading.max_offset(topic, queue_id):
        result = store.reading.get_messages(topic, queue_id, offset, 32)
        found += [decode_record(data).body for data in result.records]
        offset = max(offset + 1, result.next_begin_offset)
    return found


@pytest.mark.parametrize(
    "lives",
    [(50, 10), (50, 1), (50, 50), (50, 60), (1, 1), (1, 2), (3, 2, 1), (1, 1, 1, 1), (120, 1), (120, 5)],
    ids=str,
)
@pytest.mark.parametrize("lost", ["all queues", "its queues, cleanly", "its queues, by a crash"])
async def test_lost_queues_are_rebuilt_with_the_last_life(tmp_path: Path, lives: tuple[int, ...], lost: str) -> None:
    store = await open_store(tmp_path)
    for number, count in enumerate(lives):
        store.upkeep.delete_topic("T")
        wanted = fill(store, f"life {number}", count)
    others = len(bodies(store, "Other"))
    if lost == "its queues, by a crash":
        abandon(store)
    else:
        await store.close()
    if lost == "all queues":
        clear_derived(small_settings(tmp_path))
    else:
        shutil.rmtree(tmp_path / "consumequeue" / "T")
        if lost == "its queues, cleanly":
            (tmp_path / "checkpoint").unlink()
    store = await open_store(tmp_path)
    assert bodies(store) == wanted
    assert store.reading.min_offset("T", 0) == 0
    assert len(bodies(store, "Other")) == others
    more = fill(store, "more", 3)
    assert bodies(store) == wanted + more
    await store.close()
    assert verify(small_settings(tmp_path)).problems == []


@pytest.mark.parametrize("is_end_lost", [False, True])
async def test_files_of_the_first_life_that_a_power_cut_brings_back(tmp_path: Path, is_end_lost: bool) -> None:
    store = await open_store(tmp_path)
    fill(store, "first", 30)
    await store.close()
    shutil.copytree(tmp_path / "consumequeue" / "T", tmp_path / "kept")
    for file in (tmp_path / "kept" / "0").iterdir():
        if is_end_lost and file.name.endswith("400"):
            file.write_bytes(file.read_bytes()[:-20] + FILLER)
        os.utime(file, (1_600_000_000, 1_600_000_000))
    store = await open_store(tmp_path)
    store.upkeep.delete_topic("T")
    wanted = fill(store, "second", 7)
    abandon(store)
    shutil.rmtree(tmp_path / "consumequeue" / "T")
    shutil.move(tmp_path / "kept", tmp_path / "consumequeue" / "T")
    store = await open_store(tmp_path)
    assert bodies(store) == wanted
    assert store.reading.max_offset("T", 0) == 7
    [file] = (tmp_path / "consumequeue" / "T" / "0").iterdir()
    assert file.stat().st_mtime_ns // 1_000_000 == store.reading.store_time_at("T", 0, 6)
    await store.close()


async def test_messages_that_were_given_up_begin_no_life(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    wanted = fill(store, "first", 30)
    await store.close()
    (tmp_path / "checkpoint").unlink()
    file = tmp_path / "consumequeue" / "T" / "0" / f"{400:020d}"
    file.write_bytes(file.read_bytes()[:-40] + FILLER * 2)
    store = await open_store(tmp_path)
    assert bodies(store) == wanted[:28]
    assert store.reading.max_offset("T", 0) == 30
    await store.close()


def set_queue_offset(root: Path, physical_offset: int, queue_offset: int) -> None:
    with (root / "commitlog" / f"{physical_offset - physical_offset % 4096:020d}").open("r+b") as file:
        file.seek(physical_offset % 4096 + 20)
        file.write(queue_offset.to_bytes(8, "big"))


@pytest.mark.parametrize("damaged", [0, 1, 7, 18])
async def test_one_damaged_queue_offset_does_not_look_like_another_life(tmp_path: Path, damaged: int) -> None:
    store = await open_store(tmp_path)
    wanted = fill(store, "first", 30)
    place = store.reading.queue_entries("T", 0, 20 - 20 % 10, 10)[20 % 10][0]
    await store.close()
    set_queue_offset(tmp_path, place, damaged)
    clear_derived(small_settings(tmp_path))
    store = await open_store(tmp_path)
    assert bodies(store) == wanted[:20] + wanted[21:]
    await store.close()


async def test_a_damaged_queue_offset_of_the_last_message_does_not_look_like_another_life(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    wanted = fill(store, "first", 30)
    place = store.reading.queue_entries("T", 0, 29, 1)[0][0]
    await store.close()
    set_queue_offset(tmp_path, place, 7)
    clear_derived(small_settings(tmp_path))
    store = await open_store(tmp_path)
    assert bodies(store) == wanted[:29]
    await store.close()


@pytest.mark.parametrize(("damaged", "count"), [(1 << 40, 8), (5, 8), (5, 2)])
async def test_a_life_whose_first_message_is_damaged_begins_behind_it(tmp_path: Path, damaged: int, count: int) -> None:
    store = await open_store(tmp_path)
    fill(store, "first", 30)
    store.upkeep.delete_topic("T")
    wanted = fill(store, "second", count)
    place = store.reading.queue_entries("T", 0, 0, 1)[0][0]
    await store.close()
    set_queue_offset(tmp_path, place, damaged)
    clear_derived(small_settings(tmp_path))
    store = await open_store(tmp_path)
    assert bodies(store) == wanted[1:]
    await store.close()


async def test_a_record_that_repeats_the_last_queue_offset_costs_nothing_else(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    wanted = fill(store, "first", 30)
    places = [entry[0] for entry in store.reading.queue_entries("T", 0, 10, 2)]
    await store.close()
    set_queue_offset(tmp_path, places[0], 9)
    set_queue_offset(tmp_path, places[1], 10)
    clear_derived(small_settings(tmp_path))
    store = await open_store(tmp_path)
    assert bodies(store) == wanted[:10] + wanted[11:]
    await store.close()


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.sampled_from(["T", "U", "delete T", "delete U"]), max_size=60))
def test_rebuilt_queues_are_those_that_were_there(tmp_path_factory: pytest.TempPathFactory, steps: list[str]) -> None:
    async def run() -> None:
        root = tmp_path_factory.mktemp("lives")
        store = await open_store(root)
        for number, step in enumerate(steps):
            if step.startswith("delete"):
                store.upkeep.delete_topic(step[-1])
            else:
                store.append(message(step, body=b"%d" % number))
                store.commit()
        live = [topic for topic in ("T", "U") if store.reading.max_offset(topic, 0)]
        wanted = {topic: bodies(store, topic) for topic in live}
        await store.close()
        clear_derived(small_settings(root))
        store = await open_store(root)
        assert {topic: bodies(store, topic) for topic in live} == wanted
        await store.close()
        shutil.rmtree(root)

    trio.run(run)


@pytest.mark.parametrize("end", ["a kill", "a clean exit and a kill", "all queues lost", "files came back"])
async def test_a_deleted_topic_stays_empty_before_its_next_message(tmp_path: Path, end: str) -> None:
    store = await open_store(tmp_path)
    fill(store, "first", 30)
    others = len(bodies(store, "Other"))
    shutil.copytree(tmp_path / "consumequeue" / "T", tmp_path / "kept")
    store.upkeep.delete_topic("T")
    if end == "a clean exit and a kill":
        await store.close()
        store = await open_store(tmp_path)
    abandon(store)
    if end == "all queues lost":
        clear_derived(small_settings(tmp_path))
    elif end == "files came back":
        shutil.move(tmp_path / "kept", tmp_path / "consumequeue" / "T")
    for _ in range(2):
        store = await open_store(tmp_path)
        assert bodies(store) == []
        assert store.reading.max_offset("T", 0) == 0
        assert len(bodies(store, "Other")) == others
        abandon(store)
    store = await open_store(tmp_path)
    wanted = fill(store, "second", 3)
    assert bodies(store) == wanted
    abandon(store)
    store = await open_store(tmp_path)
    assert bodies(store) == wanted
    await store.close()
    assert verify(small_settings(tmp_path)).problems == []


async def test_a_deletion_that_is_not_in_the_log_has_not_begun(tmp_path: Path) -> None:
    """Its record is written before anything is removed."""
    store = await open_store(tmp_path)
    wanted = fill(store, "first", 5)
    store.refusals.set("log", "no room")
    with pytest.raises(StoreFull, match="no room"):
        store.upkeep.delete_topic("T")
    with pytest.raises(StoreFull, match="no room"):
        store.upkeep.delete_unused_topics([])
    assert bodies(store) == wanted
    store.refusals.set("log", None)
    store.refusals.set("disk", "the disk is 95% full")
    assert store.upkeep.delete_unused_topics(["Other"]) == 1, "a disk that is nearly full has room for this"
    assert bodies(store) == []
    abandon(store)
    store = await open_store(tmp_path)
    assert bodies(store) == []
    await store.close()


async def test_a_checkpoint_syncs_the_removal_of_queues(tmp_path: Path) -> None:
    """Without other entries to sync, too: the scan of the next start may begin behind the record of the deletion."""
    files = FaultyFiles()
    store = await open_store(tmp_path, files=files)
    fill(store, "first", 30)
    await store.flushing.flush_thoroughly()
    store.upkeep.delete_topic("T")
    files.calls.clear()
    await store.flushing.flush_thoroughly()
    assert f"{tmp_path}/consumequeue" in [call.path for call in files.noted("sync_directory")]
    await store.close()
