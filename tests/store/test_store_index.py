"""The index: bounds of time, room on a full disk, and what a repair keeps."""

from __future__ import annotations

from pathlib import Path

from store_faults import FULL, FailingFiles
from store_support import WallClock, abandon, message, open_store


async def test_a_query_by_key_includes_both_ends_of_its_time(tmp_path: Path) -> None:
    clock = WallClock()
    store = await open_store(tmp_path, clock=clock)
    at = clock.now_ms
    assert store.append(message(keys="k")).is_ok
    clock.now_ms += 5000
    assert store.append(message(keys="k")).is_ok
    store.commit()

    def count(begin_ms: int, end_ms: int) -> int:
        return len(store.reading.query_by_key("T", "k", 9, begin_ms, end_ms).records)

    assert [count(at, at), count(at + 5000, at + 5000), count(at, at + 5000)] == [1, 1, 2]
    assert [count(at - 9, at - 1), count(at + 1, at + 4999), count(at + 5001, at + 9000)] == [0, 0, 0]
    abandon(store)


async def test_an_index_whose_file_is_full_has_room_only_when_a_new_file_can_be_made(tmp_path: Path) -> None:
    files = FailingFiles()
    store = await open_store(tmp_path, files=files)
    index = store.contents.index
    while not (index.files and index.files[-1].is_full):
        assert store.append(message(keys="k")).is_ok
        store.commit()
    files.where, files.error = "index/", FULL
    assert not index.has_room()
    files.error = 0
    assert index.has_room()
    assert [file.is_full for file in index.files] == [True, False]
    abandon(store)
