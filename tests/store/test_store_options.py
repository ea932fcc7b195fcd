"""Options that change how the store writes: write buffer, warm-up, several log paths, multi dispatch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from file_faults import FULL, WRITES, FaultyFiles
from store_support import abandon, message, open_store

from triomq.protocol import record
from triomq.store.errors import StoreFailed
from triomq.store.message_store import DefaultMessageStore
from triomq.store.results import PutStatus
from triomq.store.upkeep.warm_up import WarmUp


def bodies(store: DefaultMessageStore, topic: str = "T", queue_id: int = 0) -> list[bytes]:
    found = store.reading.get_messages(topic, queue_id, store.reading.min_offset(topic, queue_id), 32)
    return [record.decode_record(data).body for data in found.records]


def places(root: Path) -> dict[str, list[int]]:
    """Return the log files in the directories a, b and c."""
    return {name: sorted(int(path.name) // 4096 for path in root.glob(f"{name}/*")) for name in "abc"}


async def test_a_write_buffer(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    store = await open_store(tmp_path, transient_store_pool_enable=True)
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        first = store.append(message(body=b"one"))
        store.commit()
        await store.accepted.wait_beyond(first.last_offset)
        assert store.committed.value == 0 and bodies(store) == []
        await store.committed.wait_beyond(first.last_offset)
        assert bodies(store) == [b"one"]
        results = [store.append(message(body=bytes(2000))) for _ in range(9)]  # more than commitCommitLogLeastPages
        store.commit()
        assert store.committed.value == results[-1].end_offset
        last = store.append(message(body=b"last"))
        store.commit()
        nursery.cancel_scope.cancel()
    assert store.committed.value < last.end_offset
    await store.close()
    store = await open_store(tmp_path)
    assert store.reading.max_physical_offset == last.end_offset
    await store.close()


async def test_a_full_disk_behind_a_write_buffer(tmp_path: Path) -> None:
    files = FaultyFiles()
    store = await open_store(tmp_path, files=files, transient_store_pool_enable=True)
    files.fail(FULL, *WRITES, where="commitlog")
    first = store.append(message(body=b"accepted"))
    store.commit()
    assert store.accepted.value == first.end_offset
    store.committing.commit()
    assert first.is_ok and bodies(store) == []
    assert store.append(message()).status is PutStatus.SERVICE_NOT_AVAILABLE
    files.mend()
    store.committing.commit()
    assert bodies(store) == [b"accepted"] and store.refusal is None
    assert store.append(message(body=b"next")).queue_offset == 1
    await store.close()


async def test_a_stop_while_the_disk_is_full_says_what_the_write_buffer_loses(tmp_path: Path) -> None:
    files = FaultyFiles()
    store = await open_store(tmp_path, files=files, transient_store_pool_enable=True)
    files.fail(FULL, *WRITES, where="commitlog")
    for _ in range(2):
        assert store.append(message()).is_ok
    store.commit()
    with pytest.raises(StoreFailed, match=r"2 acknowledged messages .* are lost: .*No space left"):
        await store.close()
    assert (tmp_path / "abort").exists(), "the next start does not take the log for whole"


async def test_a_file_that_is_warmed_up_keeps_what_was_written_meanwhile(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    store.append(message(body=bytes(2900)))
    store.commit()

    async def offload(function: Callable[..., Any], *arguments: Any) -> Any:
        assert store.append(message(body=b"written" * 200)).physical_offset == 4096
        store.commit()
        return function(*arguments)

    await WarmUp(store.contents, offload).prepare()
    assert bodies(store)[-1] == b"written" * 200
    await store.close()


async def test_the_next_log_file_is_made_ahead_when_asked_for(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    store = await open_store(tmp_path, warm_mapped_file_enable=True)
    next_file = tmp_path / "commitlog" / f"{4096:020d}"
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        store.append(message(body=bytes(1000)))
        store.commit()
        await trio.sleep(3)
        assert not next_file.exists()
        store.append(message(body=bytes(1500)))
        store.commit()
        await trio.sleep(3)
        assert next_file.stat().st_size == 4096 and next_file.stat().st_blocks >= 8
        put = store.append(message(body=bytes(1900)))
        store.commit()
        assert put.physical_offset == 4096
        await trio.sleep(3)
        assert not (tmp_path / "commitlog" / f"{8192:020d}").exists()
        store.append(message(body=bytes(500)))
        store.commit()
        await trio.sleep(3)
        assert (tmp_path / "commitlog" / f"{8192:020d}").exists()
        nursery.cancel_scope.cancel()
    abandon(store)
    store = await open_store(tmp_path)
    assert store.reading.max_offset("T", 0) == 4
    assert sorted(path.name for path in (tmp_path / "commitlog").iterdir()) == [f"{0:020d}", f"{4096:020d}"]
    await store.close()


async def test_several_log_paths(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("c", "a", "b")]
    settings = {"store_path_commit_log": ",".join(paths), "read_only_commit_log_store_paths": ""}
    store = await open_store(tmp_path / "store", **settings)
    for number in range(12):
        store.append(message(body=b"%02d" % number + bytes(2000)))
    store.commit()
    await store.close()
    assert places(tmp_path) == {"a": [0, 3, 6, 9], "b": [1, 4, 7, 10], "c": [2, 5, 8, 11]}
    # one becomes read-only, one is full: the third takes new files
    settings["read_only_commit_log_store_paths"] = paths[1]
    store = await open_store(tmp_path / "store", **settings)
    assert [body[:2] for body in bodies(store)] == [b"%02d" % number for number in range(10)]
    store.contents.log.directories.full = frozenset([paths[0]])
    for _ in range(4):
        store.append(message(body=bytes(2000)))
    store.commit()
    await store.close()
    assert len(list((tmp_path / "b").iterdir())) == 8
    store = await open_store(tmp_path / "store", **settings)
    assert store.reading.max_offset("T", 0) == 16
    await store.close()


@pytest.mark.parametrize("lmq", [False, True])
async def test_a_message_for_several_queues_is_in_each_of_them(tmp_path: Path, lmq: bool) -> None:
    options = {"enable_multi_dispatch": True, "enable_lmq": lmq}
    store = await open_store(tmp_path, **options)
    properties = b"INNER_MULTI_DISPATCH\x01%LMQ%x,%LMQ%y,%LMQ%x\x02WAIT\x01true"
    for number in range(3):
        put = message("T", 1, b"%d" % number, properties=properties)
        assert store.append(put).queue_offset == number
    store.commit()
    queue_id = 0 if lmq else 1

    def check() -> None:
        assert bodies(store, "T", 1) == [b"0", b"1", b"2"]
        assert bodies(store, "%LMQ%x", queue_id) == [b"0", b"1", b"2"]
        assert bodies(store, "%LMQ%y", queue_id) == [b"0", b"1", b"2"]
        found = store.reading.get_messages("%LMQ%y", queue_id, 1, 1)
        table = record.decode_record(found.records[0]).properties
        assert table == {"INNER_MULTI_DISPATCH": "%LMQ%x,%LMQ%y,%LMQ%x", "INNER_MULTI_QUEUE_OFFSET": "1,1,1"}

    check()
    abandon(store)
    store = await open_store(tmp_path, **options)
    check()
    await store.close()
    for path in (tmp_path / "consumequeue").rglob("0*"):
        if path.is_file():
            path.unlink()
    store = await open_store(tmp_path, **options)
    check()
    await store.close()


async def test_queues_that_a_record_names_get_entries_only_if_the_option_is_on(tmp_path: Path) -> None:
    """A slave or a recovery reads the numbers from the record. With the option off they are any client's text."""
    store = await open_store(tmp_path)
    for number in range(2):
        named = b"INNER_MULTI_DISPATCH\x01other\x02INNER_MULTI_QUEUE_OFFSET\x01%d" % number
        assert store.append(message("T", 0, b"%d" % number, properties=named)).is_ok
    await store.close()
    for path in (tmp_path / "consumequeue").rglob("0*"):
        if path.is_file():
            path.unlink()
    store = await open_store(tmp_path)
    assert (store.reading.max_offset("T", 0), store.reading.max_offset("other", 0)) == (2, 0)
    await store.close()


async def test_a_refused_message_that_began_a_file_leaves_nothing_to_commit(tmp_path: Path) -> None:
    """The filler of the file before it is in the log by then. Nothing else would write it before the next message."""
    store = await open_store(tmp_path)
    size = store.append(message(body=bytes(2000))).size_bytes
    store.commit()
    refused = store.append(message(body=bytes(2000), born_timestamp=1 << 70))
    assert 2 * size > 4096 - 8 and refused.status is PutStatus.MESSAGE_ILLEGAL
    store.commit()
    assert store.contents.log.pending_bytes == 0
    assert store.reading.max_physical_offset == 4096
    await store.close()
