"""Mapped files and the bound of their descriptors, and JSON files with a backup."""

from __future__ import annotations

import errno
import json
import os
import resource
from datetime import datetime
from pathlib import Path

import pytest
from file_faults import FULL, FaultyFiles
from store_faults import RecordingFiles
from store_support import message, open_store, small_settings

from triomq.store.disk import layout
from triomq.store.disk.directory_lock import DirectoryLock
from triomq.store.disk.files import Data, Files
from triomq.store.disk.json_config import JsonFile
from triomq.store.disk.layout import Layout
from triomq.store.disk.mapped_file import MappedFile, OpenFiles
from triomq.store.errors import StoreRefused


def opened(files: FaultyFiles) -> set[str]:
    """Return the names of the open files."""
    return {Path(path).name for path in files.paths.values()}


def made(pool: OpenFiles, directory: Path, name: str) -> MappedFile:
    file = MappedFile(pool, str(directory), 0, 100, name)
    file.create()
    return file


# -- descriptors ---------------------------------------------------------------------------------------------------


def test_beyond_the_limit_the_oldest_file_that_was_not_used_is_closed(tmp_path: Path) -> None:
    files = FaultyFiles()
    pool = OpenFiles(files, 2)
    used = made(pool, tmp_path, "used")
    made(pool, tmp_path, "idle")
    used.fd()
    made(pool, tmp_path, "new")
    assert opened(files) == {"used", "new"}
    made(pool, tmp_path, "newer")  # a second chance is one: it was not used since
    assert "newer" in opened(files)
    assert pool.count == 2


def test_a_pinned_file_and_the_one_that_opens_stay_even_beyond_the_limit(tmp_path: Path) -> None:
    files = FaultyFiles()
    pool = OpenFiles(files, 1)
    pinned = made(pool, tmp_path, "pinned")
    pinned.is_pinned = True
    made(pool, tmp_path, "new")
    assert opened(files) == {"pinned", "new"}
    pinned.is_pinned = False
    made(pool, tmp_path, "newer")
    assert opened(files) == {"newer"}


def test_a_closed_file_opens_again_when_it_is_used(tmp_path: Path) -> None:
    files = FaultyFiles()
    pool = OpenFiles(files, 1)
    first = made(pool, tmp_path, "first")
    first.write(b"kept", 10)
    first.was_used = False
    made(pool, tmp_path, "second")
    assert opened(files) == {"second"}
    assert first.read(10, 4) == b"kept"
    pool.close_all()
    assert opened(files) == set() and pool.count == 0


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("00000000000000004096", 4096),
        ("0000000000000000409", None),
        ("000000000000000040960", None),
        ("0000000000000000409x", None),
        ("0000000000000000409²", None),
        ("0000000000000000409٣", None),
    ],
)
def test_a_file_of_the_log_is_named_by_20_digits(name: str, start: int | None) -> None:
    assert layout.is_offset_name(name) is (start is not None)
    assert start is None or layout.file_name(start) == name


def test_an_index_file_is_named_by_17_digits_of_local_time() -> None:
    now_ms = int(datetime(2026, 1, 2, 3, 4, 5).timestamp() * 1000) + 67
    assert layout.index_name(now_ms) == "20260102030405067"
    assert layout.is_index_name("20260102030405067")
    for name in ("2026010203040506", "202601020304050678", *(f"2026010203040506{digit}" for digit in "x²٣")):
        assert not layout.is_index_name(name), name


def test_abort_is_made_and_removed_for_good(tmp_path: Path) -> None:
    """Without the sync of its directory, a power failure could bring the file back, or take it away."""
    files = RecordingFiles()
    lock = DirectoryLock(files, Layout(small_settings(tmp_path)))
    lock.take()
    files.journal.clear()
    lock.mark_unclean()
    assert not lock.was_clean
    lock.mark_clean()
    assert lock.was_clean
    lock.release()
    assert [(operation.kind, operation.path) for operation in files.journal if operation.kind != "write"] == [
        ("create", f"{tmp_path}/abort"),
        ("sync_directory", f"{tmp_path}"),
        ("unlink", f"{tmp_path}/abort"),
        ("sync_directory", f"{tmp_path}"),
    ]


@pytest.mark.parametrize("code", [errno.EIO, errno.EAGAIN, errno.EOPNOTSUPP])
def test_a_read_from_memory_only_fails_like_any_other_but_for_what_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def preadv(fd: int, places: object, at: int, flags: int = 0) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "preadv", preadv)
    places = [memoryview(bytearray(10))]
    if code == errno.EIO:
        with pytest.raises(OSError, match="Input/output error"):
            Files().pread_into(0, places, 0, wait=False)
    else:
        assert Files().pread_into(0, places, 0, wait=False) == 0


def test_a_file_is_opened_once_whatever_number_its_descriptor_has(tmp_path: Path) -> None:
    class Numbered(Files):
        def __init__(self) -> None:
            self.calls: list[str] = []

        def open(self, path: str, *, write: bool = True) -> int:
            assert not self.calls, "it is open already"
            self.calls.append("open")
            return 0

        def close(self, fd: int) -> None:
            self.calls.append(f"close {fd}")

    files = Numbered()
    pool = OpenFiles(files, 2)
    file = MappedFile(pool, str(tmp_path), 0, 100)
    assert (file.fd(), file.fd()) == (0, 0)
    file.close()
    file.close()
    assert (files.calls, pool.count) == (["open", "close 0"], 0)


def test_a_file_that_is_made_at_the_second_attempt_is_open_once(tmp_path: Path) -> None:
    """At the first, the process had no free descriptor, so another file gave up its own."""

    files = FaultyFiles()
    pool = OpenFiles(files, 10)
    made(pool, tmp_path, "first")
    files.fail(errno.EMFILE, "create", times=1)
    made(pool, tmp_path, "second")
    assert (opened(files), pool.count) == ({"second"}, 1)
    pool.close_all()
    assert (opened(files), pool.count) == (set(), 0)


@pytest.mark.parametrize(
    ("limits", "limit"), [((123, 456), 123), ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), 1 << 20)]
)
def test_the_number_of_descriptors_is_the_limit_in_force(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], limit: int
) -> None:
    """The hard limit is what a process may ask for, not what it has."""
    monkeypatch.setattr(resource, "getrlimit", lambda which: limits)
    assert Files().descriptor_limit() == limit


@pytest.mark.parametrize("has_room", [True, False])
async def test_a_log_file_that_is_made_ahead_is_closed_again(tmp_path: Path, has_room: bool) -> None:
    files = FaultyFiles()
    if not has_room:
        files.fail(FULL, "allocate")
    store = await open_store(tmp_path, files=files, warm_mapped_file_enable=True)
    assert store.append(message(body=bytes(2900))).is_ok
    store.commit()
    before = opened(files)
    await store._warm_up.prepare()
    assert (tmp_path / "commitlog" / f"{4096:020d}").exists()
    assert opened(files) == before
    await store.close()


@pytest.mark.parametrize("is_reached", [True, False])
async def test_at_a_clean_exit_a_log_file_that_was_made_ahead_goes_unless_the_log_reached_it(
    tmp_path: Path, is_reached: bool
) -> None:
    store = await open_store(tmp_path, warm_mapped_file_enable=True)
    assert store.append(message(body=bytes(2900))).is_ok
    store.commit()
    await store._warm_up.prepare()
    if is_reached:
        assert store.append(message(body=bytes(2900))).physical_offset == 4096
    await store.close()
    assert (tmp_path / "commitlog" / f"{4096:020d}").exists() is is_reached


# -- JSON files ----------------------------------------------------------------------------------------------------


def json_file(tmp_path: Path) -> JsonFile[dict[str, int]]:
    return JsonFile(Files(), str(tmp_path / "table.json"), json.loads)


def test_a_table_comes_from_the_file_or_else_from_its_backup(tmp_path: Path) -> None:
    table = json_file(tmp_path)
    assert table.load() is None and table.peek() is None
    table.save(b'{"a": 1}')
    assert table.load() == {"a": 1}
    table.save(b'{"a": 2}')
    assert (tmp_path / "table.json.bak").read_bytes() == b'{"a": 1}'
    assert table.load() == table.peek() == {"a": 2}
    for broken in (b"", b" \n", b"{"):
        (tmp_path / "table.json").write_bytes(broken)
        assert table.load() == table.peek() == {"a": 1}, broken
    (tmp_path / "table.json").unlink()
    assert table.load() == table.peek() == {"a": 1}


def test_only_when_no_table_is_left_broken_files_are_put_aside(tmp_path: Path) -> None:
    table = json_file(tmp_path)
    (tmp_path / "table.json").write_bytes(b"{")
    (tmp_path / "table.json.bak").write_bytes(b"[")
    assert table.peek() is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["table.json", "table.json.bak"]
    with pytest.raises(StoreRefused, match=r"neither .*table\.json nor .*table\.json\.bak can be read"):
        table.load(takes_loss=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["table.json", "table.json.bak"]
    assert table.load(takes_loss=True) is None
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "table.json.broken": b"{",
        "table.json.bak.broken": b"[",
    }
    table.save(b'{"a": 3}')
    assert table.load() == {"a": 3}


def test_a_broken_file_never_replaces_the_backup(tmp_path: Path) -> None:
    table = json_file(tmp_path)
    table.save(b'{"a": 1}')
    table.save(b'{"a": 2}')
    (tmp_path / "table.json").write_bytes(b"{")
    table.save(b'{"a": 3}')
    assert (tmp_path / "table.json.bak").read_bytes() == b'{"a": 1}'
    assert table.load() == {"a": 3}


# -- ends of data --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 1, 4095, 4096, 9000])
def test_data_behind_a_position_is_found_wherever_it_lies(tmp_path: Path, at: int) -> None:
    pool = OpenFiles(Files(), 10)
    file = MappedFile(pool, str(tmp_path), 0, 200_000)
    file.create()
    assert not file.has_data_from(at, unsure=True)
    assert not file.has_data_from(200_000, unsure=True)
    for place in (at, at + 1, 4096 * 4, 199_999):
        file.write(b"x", place)
        assert file.has_data_from(at, unsure=False), place
        assert not file.has_data_from(place + 1, unsure=False), place
        file.clear_from(at)
        assert not file.has_data_from(at, unsure=True), place
    pool.close_all()


def test_what_is_cleared_reads_as_zeros_and_what_is_before_it_stays(tmp_path: Path) -> None:
    pool = OpenFiles(Files(), 10)
    file = MappedFile(pool, str(tmp_path), 0, 10_000)
    file.create()
    file.write(b"x" * 10_000, 0)
    file.clear_from(5000)
    assert (tmp_path / file.name).read_bytes() == b"x" * 5000 + bytes(5000)
    pool.close_all()


def test_long_zeros_that_were_written_leave_it_unsure_what_is_behind_them(tmp_path: Path) -> None:
    pool = OpenFiles(Files(), 10)
    file = MappedFile(pool, str(tmp_path), 0, 400_000)
    file.create()
    file.write(bytes(300_000), 0)
    file.write(b"x", 300_000)
    assert file.has_data_from(0, unsure=True) and not file.has_data_from(0, unsure=False)
    file.clear_from(0)
    assert (tmp_path / file.name).read_bytes() == bytes(400_000)
    pool.close_all()


def test_a_lock_is_released_whatever_number_its_descriptor_has(tmp_path: Path) -> None:
    """Without a standard input, the first file that a process opens has descriptor 0."""

    class Numbered(Files):
        def __init__(self) -> None:
            self.closed: list[int] = []

        def create(self, path: str, size_bytes: int) -> int:
            return 0

        def lock(self, fd: int) -> bool:
            return True

        def lock_directory(self, path: str) -> int:
            return 0

        def pwrite(self, fd: int, data: Data, at: int) -> None:
            return

        def close(self, fd: int) -> None:
            self.closed.append(fd)

    files = Numbered()
    lock = DirectoryLock(files, Layout(small_settings(tmp_path)))
    lock.take()
    lock.take()
    lock.release()
    lock.release()
    assert files.closed == [0, 0]  # the commit log's and the store's


def test_an_error_of_a_write_or_a_sync_names_the_file() -> None:
    """The system does not: it knows a descriptor only. Operators need the path."""
    files = Files()
    fd = files.open("/dev/full")
    try:
        with pytest.raises(OSError, match=r"No space left on device: '/dev/full'"):
            files.pwrite(fd, b"x", 0)
        with pytest.raises(OSError, match=r": '/dev/full'"):
            files.datasync(fd)  # a device cannot be synced
    finally:
        files.close(fd)
