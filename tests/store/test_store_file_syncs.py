"""A write that fails later is only reported to descriptors that were open then: what that means for closed files."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from file_faults import FaultyFiles
from store_support import abandon, message, open_store

from triomq.store.disk.files import Files, _does_syncfs_tell
from triomq.store.disk.mapped_file import MappedFile, OpenFiles
from triomq.store.log.checkpoint import Checkpoint
from triomq.store.message_store import DefaultMessageStore


class RootHeld(FaultyFiles):
    """Checks that a descriptor is held open for each sync of the whole file system."""

    def sync_filesystem(self, path: str, held_fd: int = -1) -> None:
        assert self.paths[held_fd] == path
        super().sync_filesystem(path, held_fd)


def put(store: DefaultMessageStore, count: int = 1) -> None:
    for _ in range(count):
        assert store.append(message()).is_ok
    store.commit()


def saved(root: Path) -> Checkpoint:
    checkpoint = Checkpoint(Files(), str(root / "checkpoint"))
    checkpoint.load()
    return checkpoint


def test_a_file_of_the_log_stays_open_while_it_has_unsynced_bytes(tmp_path: Path) -> None:
    pool = OpenFiles(Files(), 1)
    log, queue, other = (
        MappedFile(pool, str(tmp_path), 0, 100, name, holds_log=name == "log") for name in ("log", "queue", "other")
    )
    log.create()
    log.write(b"x", 0)
    for file in (queue, other):
        file.create()
    assert (pool.count, pool.closed_unsynced) == (2, False)  # the log's and the newest
    assert pool.close_one() and not pool.close_one() and pool.count == 1
    log.is_unsynced = False
    queue.write(b"x", 0)
    assert pool.count == 1
    other.fd()
    assert (pool.count, pool.closed_unsynced) == (1, True)
    pool.close_all()


async def test_when_a_queue_file_was_closed_unsynced_the_whole_file_system_is_synced(tmp_path: Path) -> None:
    files = RootHeld()
    store = await open_store(tmp_path, files=files)
    store.flushing._syncs.can_tell = True
    put(store)
    await store.flushing.flush_thoroughly()
    assert files.noted("sync_filesystem") == []
    put(store)
    while store.contents.open_files.close_one():
        pass
    assert store.contents.open_files.closed_unsynced
    await store.flushing.flush_thoroughly()
    assert len(files.noted("sync_filesystem")) == 1
    # Through the descriptor that is open since the store was opened.
    assert [call.path for call in files.noted("open_directory")] == [str(tmp_path)]
    assert saved(tmp_path).safe_offset == store.committed.value
    put(store)
    await store.flushing.flush_thoroughly()
    assert len(files.noted("sync_filesystem")) == 1
    await store.close()


async def test_where_no_sync_can_tell_no_checkpoint_claims_what_a_closed_file_had(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    store.flushing._syncs.can_tell = False
    put(store)
    await store.flushing.flush_thoroughly()
    claimed = store.committed.value
    put(store)
    while store.contents.open_files.close_one():
        pass
    for _ in range(2):
        put(store)
        await store.flushing.flush_thoroughly()
        assert (saved(tmp_path).safe_offset, saved(tmp_path).synced_offset) == (claimed, store.committed.value)
    abandon(store)
    store = await open_store(tmp_path)
    report = store.recovery_report
    assert report is not None and (report.scanned_from, report.records) == (claimed, 3)
    store.flushing._syncs.can_tell = False
    put(store)
    while store.contents.open_files.close_one():
        pass
    await store.close()
    assert saved(tmp_path).note is None, "a clean start would read nothing"
    store = await open_store(tmp_path)
    report = store.recovery_report
    assert report is not None and report.was_clean and report.records > 0
    await store.close()


@pytest.mark.parametrize(
    ("system", "release", "tells"),
    [
        ("linux", "5.8.0-generic", True),
        ("linux", "5.7.19", False),
        ("linux", "4.19.0", False),
        ("linux", "6.1", True),
        ("linux", "10.0.1", True),
        ("linux", "unknown", False),
        ("darwin", "22.1.0", False),
    ],
)
def test_syncfs_tells_since_linux_5_8(system: str, release: str, tells: bool) -> None:
    assert _does_syncfs_tell(system, release) is tells


@pytest.mark.parametrize("times", [1, 2])
async def test_a_directory_whose_sync_could_not_begin_is_synced_with_the_next_one(tmp_path: Path, times: int) -> None:
    """Else a power failure could take the name of a file whose bytes are on disk, also when nothing was put since."""
    files = RootHeld()
    store = await open_store(tmp_path, files=files)
    flush = store.flushing
    flush._syncs.can_tell = False  # so that directories are synced one by one
    put(store)
    files.fail(errno.EMFILE, "duplicate", "sync_filesystem")
    for _ in range(times):
        files.calls.clear()
        assert not await flush.flush_log()
        assert not await flush.flush_queues(0)
    assert files.noted("sync_directory") == []
    files.mend()
    assert await flush.flush_log()
    assert await flush.flush_queues(0)
    of_log, of_queue = tmp_path / "commitlog", tmp_path / "consumequeue" / "T"
    synced = {call.path for call in files.noted("sync_directory")}
    assert {str(of_log), str(of_queue), str(of_queue / "0"), str(of_queue.parent)} <= synced
    files.calls.clear()
    put(store)
    assert await flush.flush_log()
    assert await flush.flush_queues(0)
    assert files.noted("sync_directory") == [], "once is enough"
    await store.close()


async def test_a_file_that_was_closed_before_a_sync_that_could_not_begin_is_in_the_next_one(tmp_path: Path) -> None:
    """The queue that is put to meanwhile has the sync of single files for itself."""
    files = RootHeld()
    store = await open_store(tmp_path, files=files)
    flush = store.flushing
    flush._syncs.can_tell = True
    put(store)
    await flush.flush_queues(0)
    put(store)
    while store.contents.open_files.close_one():
        pass
    assert store.contents.open_files.closed_unsynced
    files.fail(errno.EMFILE, "duplicate", "sync_filesystem")
    assert not await flush.flush_queues(0)
    files.mend()
    files.calls.clear()
    assert store.contents.open_files.closed_unsynced
    put(store)
    assert await flush.flush_queues(0)
    assert len(files.noted("sync_filesystem")) == 1
    await store.close()
