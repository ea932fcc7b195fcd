"""Nothing that speaks of the log is on disk ahead of it, and a store that has failed writes nothing of that kind."""

from __future__ import annotations

import errno
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio
from broker_fakes import MemoryFile
from broker_store_lab import inline
from broker_whole import whole_broker
from file_faults import WRITES, FaultyFiles
from store_faults import RecordingFiles
from store_support import abandon, message, open_store

from triomq.broker.tables.delay_offsets import DelayOffsets
from triomq.broker.tables.offsets import OffsetTable
from triomq.broker.tables.stored_file import StoredFile
from triomq.remoting.errors import RemotingError
from triomq.store.errors import StoreFailed
from triomq.store.message_store import DefaultMessageStore


class Cover:
    """Waits until a test says how it ends."""

    def __init__(self) -> None:
        self.asked = trio.Event()
        self.done = trio.Event()
        self.is_covered = True

    async def __call__(self) -> bool:
        self.asked.set()
        await self.done.wait()
        return self.is_covered


async def test_offsets_are_written_as_they_were_when_the_sync_began() -> None:
    file, cover = MemoryFile(), Cover()
    table = OffsetTable(file, covered=cover, offload=inline)
    table.commit("G", "T", 0, 5)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(table.persist)
        await cover.asked.wait()
        table.commit("G", "T", 0, 6)
        assert file.texts == []
        cover.done.set()
    assert "{0:5" in file.text
    assert await table.persist()
    assert "{0:6" in file.text


@pytest.mark.parametrize("kind", [OffsetTable, DelayOffsets])
async def test_what_cannot_be_covered_is_not_written(kind: Any) -> None:
    file, cover = MemoryFile(), Cover()
    table = kind(file, covered=cover, offload=inline)
    if isinstance(table, OffsetTable):
        table.commit("G", "T", 0, 5)
    else:
        table.set(3, 5)
    cover.is_covered = False
    cover.done.set()
    assert not await table.persist() and file.texts == []
    cover.is_covered = True
    assert await table.persist(), "it is still to be written"


def put(store: DefaultMessageStore) -> None:
    assert store.append(message()).is_ok


async def test_a_store_covers_what_is_appended(tmp_path: Path) -> None:
    files = RecordingFiles()
    store = await open_store(tmp_path, files=files)
    config = StoredFile(files, str(tmp_path / "config" / "consumerOffset.json"))
    table = OffsetTable(config, covered=store.cover, offload=inline)
    for number in range(3):
        put(store)  # not even committed
        table.commit("G", "T", 0, number + 1)
        begin = len(files.journal)
        assert await table.persist()
        done = [(one.kind, one.path.rpartition("/")[2]) for one in files.journal[begin:]]
        assert done.index(("write", f"{0:020d}")) < done.index(("sync", f"{0:020d}"))
        assert done.index(("sync", f"{0:020d}")) < done.index(("write", "consumerOffset.json.tmp"))
        assert store.flushed.value == store.committed.value == store.appended_offset
    await store.close()
    assert not await store.cover()


async def test_a_disk_that_cannot_sync_keeps_the_offsets_back(tmp_path: Path) -> None:
    files = FaultyFiles()
    store = await open_store(tmp_path, files=files)
    file = StoredFile(files, str(tmp_path / "config" / "consumerOffset.json"))
    table = OffsetTable(file, covered=store.cover, offload=inline)
    put(store)
    table.commit("G", "T", 0, 1)
    files.fail(errno.EIO, "datasync", where="commitlog")
    assert not await table.persist()
    assert store.is_broken and not (tmp_path / "config").exists()
    files.mend()
    assert not await table.persist(), "the pages that failed may be gone"
    assert not (tmp_path / "config").exists()
    abandon(store)


async def test_a_buffer_that_a_full_disk_holds_back_is_not_covered(tmp_path: Path) -> None:
    files = FaultyFiles()
    store = await open_store(tmp_path, files=files, transient_store_pool_enable=True)
    put(store)
    files.fail(errno.ENOSPC, *WRITES, where="commitlog")
    assert not await store.cover() and not store.is_broken
    files.mend()
    assert await store.cover()
    assert store.flushed.value == store.appended_offset > 0
    await store.close()


async def test_a_broker_writes_no_offsets_of_groups_and_delays_that_its_store_does_not_cover(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def not_covered(_: DefaultMessageStore) -> bool:
        return False

    names = ["consumerOffset.json", "delayOffset.json"]
    for number, is_covered in enumerate([False, True]):
        with monkeypatch.context() as patch:
            if not is_covered:
                patch.setattr(DefaultMessageStore, "cover", not_covered)
            async with whole_broker(tmp_path / str(number)) as broker:
                serving = broker.controller.serving
                assert serving is not None
                serving.tables.metadata.offsets.commit("G", "T", 0, 5)
                serving.tables.delay_offsets.set(3, 5)
        config = tmp_path / str(number) / "store" / "config"
        assert [name for name in names if (config / name).exists()] == (names if is_covered else [])


def tables_in(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / "store" / "config").glob("*")}


async def test_a_broker_whose_store_has_failed_writes_topics_and_no_offsets(tmp_path: Path) -> None:
    """A topic came before its first message, which may be acknowledged. Offsets may speak of what a start does not
    find."""
    with pytest.raises(BaseExceptionGroup) as caught:
        async with whole_broker(tmp_path) as broker:
            serving = broker.controller.serving
            assert serving is not None
            serving.store.fail("a test", RuntimeError("boom"))
            serving.tables.metadata.offsets.commit("G", "T", 0, 5)
            serving.tables.delay_offsets.set(3, 5)
            serving.tables.metadata.topics.create_on_send_back("New", 1, 6, 0)
            with trio.fail_after(10):
                await trio.sleep_forever()
    assert caught.value.subgroup(StoreFailed) is not None
    found = tables_in(tmp_path)
    assert b'"New"' in found["topics.json"]
    assert found.keys().isdisjoint({"consumerOffset.json", "delayOffset.json"})
    assert (tmp_path / "store" / "abort").exists()


async def test_a_broker_whose_turn_failed_writes_no_offsets(tmp_path: Path) -> None:
    """Work for messages of that turn is unfinished: its store has failed, too."""

    def raises() -> None:
        raise RuntimeError("boom")

    with pytest.raises(BaseExceptionGroup):
        async with whole_broker(tmp_path) as broker:
            serving = broker.controller.serving
            assert serving is not None
            serving.tables.metadata.offsets.commit("G", "T", 0, 5)
            serving.tables.surroundings.turn.before_flush(raises)
            with suppress(RemotingError):
                await broker.send("T")
            with trio.fail_after(10):
                await trio.sleep_forever()
    assert "consumerOffset.json" not in tables_in(tmp_path)
    assert (tmp_path / "store" / "abort").exists()
