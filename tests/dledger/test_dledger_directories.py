"""A member whose data files are in several directories: where they go, and what a start, retention and a replacement
by the leader's ledger make of them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from fake_clock import FakeClock
from store_lab import MemberStore, open_member
from store_support import abandon, message, open_store, small_settings
from structlog.testing import capture_logs

from triomq.dledger.convert.conversion import to_plain
from triomq.dledger.convert.moving import set_offset
from triomq.dledger.wire.bodies import ENTRY_HEADER_BYTES, Entry
from triomq.store.disk.files import Files
from triomq.store.errors import StoreLocked, StoreRefused
from triomq.store.upkeep.progress import Silence

FILE_BYTES = 4096


def spread(root: Path, names: str = "cab", **changes: Any) -> dict[str, Any]:
    """The settings for data directories of these names."""
    return {"store_path_dledger_commit_log": ",".join(f"{root}/{name}" for name in names), **changes}


def places(root: Path) -> dict[str, list[int]]:
    """Return the numbers of the files in the directories a, b and c."""
    return {name: sorted(int(path.name) // FILE_BYTES for path in root.glob(f"{name}/*")) for name in "abc"}


def body(number: int) -> bytes:
    return b"%02d" % number + bytes(2000)


async def filled(root: Path, count: int = 12, clock: FakeClock | None = None, **settings: Any) -> MemberStore:
    """Return a leader with one message in each file."""
    member = await open_member(root, clock, **settings)
    await member.lead()
    await add(member, *map(body, range(count)))
    return member


async def add(member: MemberStore, *bodies: bytes) -> None:
    for one in bodies:
        assert member.put(body=one).is_ok
    member.commit_all()
    await member.dispatch()


async def stopped(member: MemberStore) -> None:
    member.save_committed()
    await member.store.close()


@pytest.mark.parametrize("is_killed", [False, True])
async def test_files_take_turns_in_the_order_of_the_names(tmp_path: Path, is_killed: bool) -> None:
    root = tmp_path / "store"
    member = await filled(root, **spread(tmp_path))
    assert places(tmp_path) == {"a": [0, 3, 6, 9], "b": [1, 4, 7, 10], "c": [2, 5, 8, 11]}
    assert not (root / "dledger-n0" / "data").exists() and (root / "dledger-n0" / "index").is_dir()
    if is_killed:
        member.save_committed()
        abandon(member.store)
    else:
        await stopped(member)
    member = await open_member(root, **spread(tmp_path, "bca"))
    assert member.bodies() == list(map(body, range(12)))
    await member.lead()
    await add(member, body(12))
    assert places(tmp_path)["a"] == [0, 3, 6, 9, 12]


async def test_full_and_read_only_directories_get_no_new_files(tmp_path: Path) -> None:
    class Filled(Files):
        full = ""

        def disk_usage_ratio(self, path: str) -> float:
            return 0.9 if path == self.full else 0.1

    files = Filled()
    root = tmp_path / "store"
    await stopped(await filled(root, **spread(tmp_path)))
    read_only = {"read_only_commit_log_store_paths": f"{tmp_path}/a"}
    member = await MemberStore(root, FakeClock(step_ms=1), files, **spread(tmp_path, **read_only)).load()
    files.full = f"{tmp_path}/c"
    member.store.retention.check_disk()
    assert not member.store.retention.usage_ratio() > 0.5, "the emptiest directory counts"
    await member.lead()
    await add(member, *map(body, range(12, 16)))
    assert places(tmp_path) == {"a": [0, 3, 6, 9], "b": [1, 4, 7, 10, 12, 13, 14, 15], "c": [2, 5, 8, 11]}
    await stopped(member)
    member = await open_member(root, **spread(tmp_path))
    assert member.bodies() == list(map(body, range(16)))


@pytest.mark.parametrize("is_member", [False, True])
async def test_a_log_needs_a_directory_for_new_files(tmp_path: Path, is_member: bool) -> None:
    paths = f"{tmp_path}/a,{tmp_path}/b"
    with pytest.raises(StoreRefused, match="leave one of them for new files"):
        if is_member:
            await open_member(tmp_path, **spread(tmp_path, "ab", read_only_commit_log_store_paths=paths))
        else:
            await open_store(tmp_path, store_path_commit_log=paths, read_only_commit_log_store_paths=paths)


async def test_a_file_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "store"
    await stopped(await filled(root, **spread(tmp_path)))
    shutil.copy(tmp_path / "b" / f"{FILE_BYTES:020}", tmp_path / "c")
    with pytest.raises(StoreRefused, match=r"c/0+4096 and .*b/0+4096 begin at the same offset; remove one of them"):
        await open_member(root, **spread(tmp_path))
    (tmp_path / "c" / f"{FILE_BYTES:020}").unlink()
    member = await open_member(root, **spread(tmp_path))
    assert member.bodies() == list(map(body, range(12)))


async def test_a_directory_that_is_absent_is_made_and_one_that_lost_its_files_is_noticed(tmp_path: Path) -> None:
    root = tmp_path / "store"
    gone = {"read_only_commit_log_store_paths": f"{tmp_path}/nothing"}
    await stopped(await filled(root, 2, **spread(tmp_path, "ab", **gone)))
    assert not (tmp_path / "nothing").exists()
    await stopped(await filled(root, 4, **spread(tmp_path)))
    assert places(tmp_path) == {"a": [0, 3], "b": [1, 4], "c": [2, 5]}
    with pytest.raises(StoreRefused, match=r"is not followed by a file for 8192"):
        await open_member(root, **spread(tmp_path, "ab"))


async def test_each_directory_is_locked(tmp_path: Path) -> None:
    member = await filled(tmp_path / "store", 2, **spread(tmp_path))
    for name in "abc":
        with pytest.raises(StoreLocked, match=f"{tmp_path}/{name} is the commit log of another broker"):
            await open_member(tmp_path / "other", **spread(tmp_path, name))
    await stopped(member)


async def test_retention_deletes_the_oldest_file_wherever_it_is(tmp_path: Path) -> None:
    root = tmp_path / "store"
    clock = FakeClock(step_ms=1)
    settings = spread(tmp_path, file_reserved_time_hours=1, delete_commit_log_files_interval_ms=0)
    member = await filled(root, clock=clock, **settings)
    now_ms = int((tmp_path / "c" / f"{11 * FILE_BYTES:020}").stat().st_mtime * 1000)
    clock.now_ms = now_ms
    for file in member.log.sequence.files[:5]:
        member.store.files.set_modified(file.path, now_ms - 2 * 3_600_000)
    for file in member.log.sequence.files[5:]:
        member.store.files.set_modified(file.path, now_ms)
    member.store.retention._manual_runs = 1
    assert await member.store.retention.clean() == 5
    assert places(tmp_path) == {"a": [6, 9], "b": [7, 10], "c": [5, 8, 11]}
    await stopped(member)
    member = await open_member(root, **settings)
    assert member.ledger.begin_index == 5 and member.first_offset() == 5
    assert member.bodies_from(5) == list(map(body, range(5, 12)))


@pytest.mark.parametrize(("full", "home"), [("", "b"), ("ab", "c")])
async def test_a_leaders_ledger_replaces_the_files_of_all_directories(tmp_path: Path, full: str, home: str) -> None:
    """Its first file waits where it will be: the others may be other file systems."""
    member = await filled(tmp_path / "store", **spread(tmp_path))
    member.ledger.directories.full = frozenset(f"{tmp_path}/{name}" for name in full)
    number = 40
    data = bytearray(member.ledger.entry(3).body)
    set_offset(data, number * FILE_BYTES + ENTRY_HEADER_BYTES)
    size = ENTRY_HEADER_BYTES + len(data)
    renamed: list[tuple[str, str]] = []

    class Watching(Files):
        def rename(self, source: str, target: str) -> None:
            renamed.append((str(Path(source).parent), str(Path(target).parent)))
            super().rename(source, target)

    member.ledger._disk.files = Watching()
    member.ledger.reset(Entry(body=bytes(data), index=70, pos=number * FILE_BYTES, size=size, term=2))
    assert places(tmp_path) == {"a": [], "b": [], "c": [], home: [number]}
    assert renamed == [(f"{tmp_path}/{home}", f"{tmp_path}/{home}")] * 2
    abandon(member.store)
    member = await open_member(tmp_path / "store", **spread(tmp_path))
    assert (member.ledger.begin_index, member.ledger.end_index) == (70, 70)


async def test_a_replacement_that_waits_is_completed_when_directories_were_added(tmp_path: Path) -> None:
    root = tmp_path / "store"
    await stopped(await filled(root, 3))
    directory = root / "dledger-n0"
    (directory / "data" / f"{FILE_BYTES:020}").rename(directory / f"reset-{FILE_BYTES:020}")
    both = {"store_path_dledger_commit_log": f"{tmp_path}/a,{directory}/data"}
    member = await open_member(root, **both)
    assert (member.ledger.begin_index, member.ledger.end_index) == (1, 1)
    assert [path.name for path in (directory / "data").iterdir()] == [f"{FILE_BYTES:020}"]


async def test_what_is_not_the_ledgers_is_left_alone_by_a_start_and_a_replacement(tmp_path: Path) -> None:
    root = tmp_path / "store"
    await stopped(await filled(root, 3))
    directory = root / "dledger-n0"
    kept = [directory / "reset-notes.txt", *(directory / part / "lost+found/1" for part in ("data", "index"))]
    kept += [directory / part / f"{FILE_BYTES * 9:020}/1" for part in ("data", "index")]
    kept += [directory / part / f"{0:020}.bak" for part in ("data", "index")]
    for path in kept:
        path.parent.mkdir(exist_ok=True)
        path.write_text("not yours")
    with capture_logs() as logs:
        member = await open_member(root)
    assert (member.ledger.begin_index, member.ledger.end_index) == (0, 2)
    lines = [line["directory"] for line in logs if line["event"] == "files not of the store left alone"]
    assert sorted(lines) == [f"{directory}/data", f"{directory}/index"]
    await stopped(member)
    (directory / "data" / f"{FILE_BYTES:020}").rename(directory / f"reset-{FILE_BYTES:020}")
    member = await open_member(root)
    assert (member.ledger.begin_index, member.ledger.end_index) == (1, 1)
    await stopped(member)
    assert [path.read_text() for path in kept] == ["not yours"] * len(kept)


async def test_read_only_directories_belong_to_the_log_whose_files_they_have(tmp_path: Path) -> None:
    """The content decides about one of neither list: entries do not get into the plain log, nor records into the
    ledger."""
    root = tmp_path / "store"
    plain = {"store_path_commit_log": f"{tmp_path}/p,{tmp_path}/q"}
    store = await open_store(root, **plain)
    for number in range(4):
        assert store.append(message(body=body(number))).is_ok
        store.commit()
    await store.close()
    settings = spread(tmp_path, **plain)
    member = await open_member(root, **settings)
    await member.lead()
    await add(member, *map(body, range(4, 10)))
    await stopped(member)
    settings = spread(tmp_path, "ca", store_path_commit_log=f"{tmp_path}/p")
    settings["read_only_commit_log_store_paths"] = f"{tmp_path}/b,{tmp_path}/q"
    member = await open_member(root, **settings)
    assert member.bodies() == list(map(body, range(10)))
    before = places(tmp_path)
    await member.lead()
    await add(member, *map(body, range(10, 14)))
    assert places(tmp_path)["b"] == before["b"] and sum(map(len, places(tmp_path).values())) == 10
    await stopped(member)
    member = await open_member(root, **settings)
    assert member.bodies() == list(map(body, range(14)))


async def test_the_ledger_of_several_directories_becomes_that_of_a_plain_broker(tmp_path: Path) -> None:
    root = tmp_path / "store"
    await stopped(await filled(root, **spread(tmp_path)))
    settings = small_settings(root, **spread(tmp_path, "ac", read_only_commit_log_store_paths=f"{tmp_path}/b"))
    waiting = tmp_path / "c" / f"reset-{0:020}"
    waiting.touch()
    with pytest.raises(StoreRefused, match="its leader was replacing this ledger"):
        await to_plain(settings, str(tmp_path / "refused"), "n0", Silence())
    waiting.unlink()
    report = await to_plain(settings, str(tmp_path / "plain"), "n0", Silence())
    assert (report.records, report.left_out) == (12, [])
    store = await open_store(tmp_path / "plain")
    assert store.reading.max_offset("T", 0) == 12
    await store.close()
