"""With archiveBeforeDelete, files that are not archived stay; and the mark that says what is archived."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from fake_clock import FakeClock
from file_faults import FaultyFiles
from store_faults import RecordingFiles
from store_support import message, open_store, small_settings
from structlog.testing import capture_logs
from test_store_retention import HOUR_MS, NOON_MS, check_consistent, filled, log_files

from triomq.store.disk.files import Files
from triomq.store.message_store import DefaultMessageStore
from triomq.store.results import PutStatus
from triomq.store.upkeep.archive_mark import read_mark, write_mark

FILE_BYTES = 4096


def mark(root: Path, until: int) -> None:
    write_mark(Files(), f"{root}/config/archived.json", until, archive="/archive", now_ms=NOON_MS)


def warnings(logs: list[Any]) -> list[Any]:
    return [entry for entry in logs if entry["event"] == "log files kept: the archive is behind"]


async def expired(root: Path, **changes: object) -> DefaultMessageStore:
    """A store whose files have all expired, except that the archive lacks them."""
    clock = FakeClock(NOON_MS)
    store = await filled(root, clock, FaultyFiles(usage=0.5), archive_before_delete=True, **changes)
    clock.now_ms += 80 * HOUR_MS
    store.upkeep.delete_files_now()
    return store


async def test_only_archived_files_go(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    store = await expired(tmp_path)
    before = log_files(tmp_path)
    with capture_logs() as logs:
        assert await store.retention.clean() == 0
    [line] = warnings(logs)
    assert (line["log_level"], line["files"], line["archived_until"]) == ("warning", len(before) - 1, 0)
    assert line["size_bytes"] == before[-1]
    # two files and half of the third one, which must stay
    mark(tmp_path, 2 * FILE_BYTES + 2000)
    with capture_logs() as logs:
        assert await store.retention.clean() == 2
    [line] = warnings(logs)
    assert (line["files"], line["size_bytes"]) == (len(before) - 3, before[-1] - 2 * FILE_BYTES - 2000)
    assert log_files(tmp_path) == before[2:]
    check_consistent(store)
    mark(tmp_path, before[-1])
    with capture_logs() as logs:
        assert await store.retention.clean() == len(before) - 3
    assert not warnings(logs) and log_files(tmp_path) == before[-1:]
    check_consistent(store)
    await store.close()


async def test_nothing_is_said_while_nothing_should_go(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    store = await filled(tmp_path, FakeClock(NOON_MS), FaultyFiles(usage=0.5), archive_before_delete=True)
    store.upkeep.delete_files_now()
    with capture_logs() as logs:
        assert await store.retention.clean() == 0
    assert not warnings(logs)
    await store.close()


async def test_it_can_be_switched_while_running(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    store = await expired(tmp_path)
    assert await store.retention.clean() == 0
    store.change_settings(small_settings(tmp_path, archive_before_delete=False))
    assert await store.retention.clean() > 0
    await store.close()


@pytest.mark.parametrize("changes", [{"max_store_bytes": 3 * FILE_BYTES}, {}], ids=["maxStoreBytes", "full disk"])
async def test_neither_size_nor_a_full_disk_overrule_the_archive(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, changes: dict[str, Any]
) -> None:
    """Above the warning ratio the store refuses writes, as it does without an archive: that is better than losing kept
    files.
    """
    files = FaultyFiles(usage=0.5)
    store = await filled(tmp_path, FakeClock(NOON_MS), files, archive_before_delete=True, **changes)
    before = log_files(tmp_path)
    files.usage = 0.5 if changes else 0.95
    with capture_logs() as logs:
        assert await store.retention.clean() == 0
    assert len(warnings(logs)) == 1 and log_files(tmp_path) == before
    if not changes:
        store.retention.check_disk()
        assert store.append(message()).status is PutStatus.SERVICE_NOT_AVAILABLE
    mark(tmp_path, FILE_BYTES)
    assert await store.retention.clean() == 1
    await store.close()


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"archivedUntil": "7"}', '{"archivedUntil": -1}', '{"archivedUntil": 999999999}']
)
async def test_a_mark_that_cannot_be_used_holds_everything(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, text: str
) -> None:
    store = await expired(tmp_path)
    path = tmp_path / "config" / "archived.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    with capture_logs() as logs:
        assert await store.retention.clean() == 0
    assert [entry["log_level"] for entry in logs] == ["error", "warning"]
    assert "archive" in logs[0]["error"] or "beyond the end of this log" in logs[0]["error"]
    await store.close()


async def test_a_running_store_follows_the_mark(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    store = await expired(tmp_path)
    before = log_files(tmp_path)
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        await trio.sleep(100)
        assert log_files(tmp_path)[0] == 0
        mark(tmp_path, 3 * FILE_BYTES)
        store.upkeep.delete_files_now()
        await trio.sleep(5)
        assert log_files(tmp_path)[0] == before[3]
        nursery.cancel_scope.cancel()
    await store.close()
    store = await open_store(tmp_path)
    check_consistent(store)
    await store.close()


def test_a_mark_is_whole_or_the_old_one(tmp_path: Path) -> None:
    """A writer that dies before the rename leaves the old mark."""
    path = f"{tmp_path}/config/archived.json"
    assert read_mark(Files(), path) is None
    mark(tmp_path, 10_000_000_000)
    files = FaultyFiles()
    files.fail(OSError("gone"), "rename")
    with pytest.raises(OSError, match="gone"):
        write_mark(files, path, 5, archive="/archive", now_ms=1)
    assert read_mark(Files(), path) == 10_000_000_000
    mark(tmp_path, 5)
    assert read_mark(Files(), path) == 5


def test_a_mark_is_on_disk_before_it_has_its_name_and_its_name_before_the_call_returns(tmp_path: Path) -> None:
    """Retention deletes what a mark covers, so no power failure may take back a mark, or leave an empty one."""
    files = RecordingFiles()
    directory = f"{tmp_path}/config"
    write_mark(files, f"{directory}/archived.json", 5, archive="/archive", now_ms=1)
    journal = [(operation.kind, operation.path.removeprefix(directory)) for operation in files.journal]
    assert [each for each in journal if each[1].endswith(".staged") or each == ("sync_directory", "")] == [
        ("create", "/archived.json.staged"),
        ("write", "/archived.json.staged"),
        ("sync", "/archived.json.staged"),
        ("rename", "/archived.json.staged"),
        ("sync_directory", ""),
    ]


def test_a_mark_of_zero_is_a_mark_and_what_is_no_number_is_none(tmp_path: Path) -> None:
    path = tmp_path / "archived.json"
    write_mark(Files(), str(path), 0, archive="/archive", now_ms=1)
    assert read_mark(Files(), str(path)) == 0
    for text in ('{"archivedUntil": -1}', '{"archivedUntil": "5"}', '{"archivedUntil": true}', "[]", "{}", "{"):
        path.write_text(text)
        with pytest.raises(ValueError, match="archivedUntil"):
            read_mark(Files(), str(path))
