"""Directories of a store: their names survive a power loss, and no two brokers write into one commit log."""

from __future__ import annotations

import errno
import fcntl
from pathlib import Path

import pytest
from file_faults import FaultyFiles
from store_faults import Operation, RecordingFiles
from store_support import message, open_store, small_settings

from triomq.store.disk.directory_lock import DirectoryLock
from triomq.store.disk.files import Files
from triomq.store.disk.json_config import JsonFile
from triomq.store.disk.layout import Layout
from triomq.store.errors import StoreLocked


def synced_after_made(journal: list[Operation], parent: Path, made: Path) -> bool:
    """Whether `parent` was synced after `made` came into being in it."""
    makes = [at for at, step in enumerate(journal) if step.kind == "make_directories" and step.path == str(made)]
    syncs = [at for at, step in enumerate(journal) if step.kind == "sync_directory" and step.path == str(parent)]
    return bool(makes) and bool(syncs) and max(syncs) > makes[0]


def test_the_name_of_a_new_config_directory_survives_a_power_loss(tmp_path: Path) -> None:
    files = RecordingFiles()
    JsonFile(files, f"{tmp_path}/config/topics.json", bytes).save(b"{}")
    assert synced_after_made(files.journal, tmp_path, tmp_path / "config")
    before = len(files.journal)
    JsonFile(files, f"{tmp_path}/config/topics.json", bytes).save(b"{ }")
    later = [step.path for step in files.journal[before:] if step.kind == "sync_directory"]
    assert later == [f"{tmp_path}/config"], "a directory that is there already costs no sync"


def test_all_new_names_on_the_way_to_a_store_are_synced(tmp_path: Path) -> None:
    files = RecordingFiles()
    lock = DirectoryLock(files, Layout(small_settings(tmp_path / "a" / "b")))
    lock.take()
    synced = {step.path for step in files.journal if step.kind == "sync_directory"}
    assert {str(tmp_path), f"{tmp_path}/a", f"{tmp_path}/a/b"} <= synced
    lock.release()


def test_a_parent_that_cannot_be_read_does_not_prevent_a_store(tmp_path: Path) -> None:
    files = FaultyFiles()
    files.fail(errno.EACCES, "sync_directory")
    files.make_lasting_directories(f"{tmp_path}/a/b")
    assert (tmp_path / "a" / "b").is_dir()


async def test_two_stores_do_not_share_a_commit_log(tmp_path: Path) -> None:
    shared = tmp_path / "log"
    store = await open_store(tmp_path / "one", store_path_commit_log=str(shared))
    store.append(message())
    store.commit()
    (tmp_path / "link").symlink_to(shared)
    for path in (shared, tmp_path / "link"):
        with pytest.raises(StoreLocked, match="storePathCommitLog"):
            await open_store(tmp_path / "other", store_path_commit_log=f"{tmp_path}/more,{path}")
    assert [path.name for path in shared.iterdir()] == [f"{0:020d}"], "RocketMQ starts with log files there only"
    await store.close()
    other = await open_store(tmp_path / "other", store_path_commit_log=str(shared))
    assert other.reading.max_physical_offset > 0
    await other.close()
    again = await open_store(tmp_path / "one", store_path_commit_log=str(shared))
    await again.close()


async def test_a_path_that_is_listed_twice_is_locked_once(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "log")
    settings = small_settings(tmp_path, store_path_commit_log=f"{tmp_path}/log,{tmp_path}/link")
    lock = DirectoryLock(Files(), Layout(settings))
    lock.take()
    lock.release()


@pytest.mark.parametrize(
    ("code", "is_open"), [(errno.EBADF, True), (errno.EOPNOTSUPP, True), (errno.EAGAIN, False), (errno.EIO, None)]
)
def test_a_file_system_that_cannot_lock_directories_is_no_reason_not_to_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, is_open: bool | None
) -> None:
    def refuse(fd: int, operation: int) -> None:
        raise OSError(code, "scripted")

    monkeypatch.setattr(fcntl, "flock", refuse)
    files = Files()
    if is_open is None:
        with pytest.raises(OSError, match="scripted"):
            files.lock_directory(str(tmp_path))
        return
    fd = files.lock_directory(str(tmp_path))
    assert (fd >= 0) == is_open
    if fd >= 0:
        files.close(fd)
