"""The mark with which the archive job tells a broker how much of a store directory is archived, and the files that the
broker then deletes.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from triomq.protocol.address import HostPort
from triomq.protocol.stored_properties import NONE
from triomq.spark.jobs.coverage import ArchiveMark, archived_until, checksum, is_of
from triomq.spark.store_files import Segment, good_end, segments, used_segments
from triomq.store.config import StoreSettings
from triomq.store.message_store import DefaultMessageStore
from triomq.store.results import MessageToStore

HOST = HostPort("10.0.0.1", 10911).packed
NOW_MS = 1_700_000_000_000


def settings(root: Path) -> StoreSettings:
    return StoreSettings(
        store_path_root_dir=str(root),
        mapped_file_size_commit_log_bytes=4096,
        mapped_file_size_consume_queue_bytes=200,
        max_hash_slot_num=50,
        max_index_num=60,
    )


async def write_store(root: Path, count: int = 100, first: int = 0) -> None:
    """Write a closed store of several segments. A later call continues it."""
    store = DefaultMessageStore(settings(root), now_ms=lambda: NOW_MS)
    await store.load()
    for number in range(first, first + count):
        body = b"%05d" % number * 20
        put = store.append(MessageToStore("T", 0, body, NONE, born_timestamp=NOW_MS, born_host=HOST, store_host=HOST))
        assert put.is_ok
    store.commit()
    await store.close()


def zero(segment: Segment, begin: int, end: int) -> None:
    with Path(segment.path).open("r+b") as file:
        file.seek(begin)
        file.write(bytes(end - begin))


def used(root: Path) -> list[Segment]:
    return used_segments(segments((f"{root}/commitlog",)))


def entry(segment: Segment, begin: int | None = None, until: int | None = None) -> dict[str, Any]:
    """Return the manifest's entry of a slice."""
    begin = segment.start if begin is None else begin
    until = good_end(segment)[0] if until is None else until
    return {"from_physical": begin, "until_physical": until, "crc32": checksum(segment, begin, until)}


def mark_of(root: Path) -> Any:
    path = root / "config" / "archived.json"
    return json.loads(path.read_bytes()) if path.exists() else None


async def test_the_mark_covers_whole_segments_only(tmp_path: Path) -> None:
    await write_store(tmp_path)
    log = used(tmp_path)
    assert len(log) > 4
    assert archived_until([], log) == 0
    slices = [entry(segment) for segment in log]
    assert archived_until(slices, log) == log[-1].start  # the last one may still be truncated
    assert archived_until(slices[:2], log) == log[1].end
    assert archived_until([slices[0], *slices[2:]], log) == log[0].end  # one is not archived
    assert archived_until(slices, [log[0], *log[2:]]) == log[0].end  # one is missing; it may be elsewhere
    assert archived_until(slices, log[2:]) == log[-1].start  # the first ones are already deleted
    halves = [entry(log[0], until=500), entry(log[0], 500)]
    assert archived_until(halves, log) == log[0].end
    assert archived_until(halves[:1], log) == archived_until(halves[1:], log) == 0


async def test_damage_stops_the_mark(tmp_path: Path) -> None:
    await write_store(tmp_path)
    log = used(tmp_path)
    zero(log[1], 1000, 1200)
    slices = [entry(segment) for segment in log]
    assert slices[1]["until_physical"] < log[1].start + 1200
    assert archived_until(slices, log) == log[0].end


async def test_other_bytes_at_the_same_offsets_are_not_archived(tmp_path: Path) -> None:
    """A crash truncated the end after it was archived, and the broker continued writing."""
    await write_store(tmp_path, 5)
    [only] = used(tmp_path)
    tail = entry(only)
    zero(only, 500, 4096)
    (tmp_path / "abort").touch()
    await write_store(tmp_path, 60, first=1000)
    log = used(tmp_path)
    rest = entry(log[0], tail["until_physical"])
    assert good_end(log[0])[0] > tail["until_physical"] and not is_of(log[0], tail)
    assert archived_until([tail, rest, *(entry(segment) for segment in log[1:])], log) == 0


async def test_the_mark_is_written_when_it_moves(tmp_path: Path) -> None:
    root, folder = tmp_path / "store", tmp_path / "archive"
    folder.mkdir()
    await write_store(root)
    log = used(root)
    slices = [entry(segment) for segment in log]
    ArchiveMark(str(root), log, str(folder)).move([])
    assert mark_of(root)["archivedUntil"] == 0
    mark = ArchiveMark(str(root), log, f"file://{folder}")
    mark.move(slices[:1])
    assert (mark_of(root)["archivedUntil"], mark_of(root)["archive"]) == (log[0].end, f"file://{folder}")
    mark.move(slices)
    before = mark_of(root)
    assert before["archivedUntil"] == log[-1].start
    # another folder, which lacks the first segments, does not move the mark back
    ArchiveMark(str(root), log, str(tmp_path)).move([])
    assert mark_of(root) == before
    # a mark of another, longer log does not count
    shutil.rmtree(root / "commitlog")
    await write_store(root, 20)
    ArchiveMark(str(root), used(root), str(folder)).move([])
    assert mark_of(root)["archivedUntil"] == 0


def days_of(folder: Path) -> list[Any]:
    return [json.loads(path.read_text()) for path in sorted((folder / "_manifest").glob("*.json"))]


@pytest.mark.spark
def test_the_job_writes_the_mark(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import trio

    from triomq.spark.jobs import main

    root, folder = tmp_path / "store", tmp_path / "archive"
    trio.run(write_store, root, 15)
    assert len(used(root)) == 1
    job = ["archive", "--store", str(root), "--quiet", "--to", str(folder)]
    aside = ["archive", "--store", str(root), "--quiet", "--to"]
    assert main.run([*aside, str(tmp_path / "some"), "--topics", "T"]) == 0
    assert main.run([*aside, str(tmp_path / "silent"), "--no-mark"]) == 0
    assert mark_of(root) is None
    trio.run(write_store, root, 30)
    log = used(root)
    assert len(log) == 3
    assert main.run(job) == 0
    assert (mark_of(root)["archivedUntil"], mark_of(root)["archive"]) == (log[-1].start, str(folder))
    assert [part["until_physical"] for part in days_of(folder)] == [good_end(segment)[0] for segment in log]
    # the broker continues, and so does the archive; it has every message that the mark covers
    trio.run(write_store, root, 20)
    assert main.run(job) == 0
    assert mark_of(root)["archivedUntil"] == used(root)[-1].start > log[-1].start
    offsets = [row["queueOffset"] for row in spark.read.parquet(str(folder)).select("queueOffset").collect()]
    assert sorted(offsets) == list(range(65))
    # a folder that mixes topics or logs is refused
    capsys.readouterr()
    assert main.run([*job, "--topics", "T"]) == 2
    shutil.rmtree(root)
    trio.run(write_store, root, 10)
    assert main.run(job) == 2
    errors = capsys.readouterr().err.splitlines()
    assert "--topics: must be the same" in errors[0] and "the log ends before physical offset" in errors[1]


@pytest.mark.spark
def test_a_damaged_segment_is_told_and_holds_the_mark(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import trio

    from triomq.spark.jobs import main

    root = tmp_path / "store"
    trio.run(write_store, root, 45)
    log = used(root)
    zero(log[1], 2000, 2200)
    assert main.run(["archive", "--store", str(root), "--quiet", "--to", str(tmp_path / "archive")]) == 1
    assert "no valid record at physical offset" in capsys.readouterr().err
    assert mark_of(root)["archivedUntil"] == log[0].end


@pytest.mark.spark
def test_a_log_that_lies_in_several_directories(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """storePathCommitLog names two directories elsewhere, and the job first knows only one of them."""
    import trio

    from triomq.spark.jobs import main

    root, folder, here, there = (tmp_path / name for name in ("store", "archive", "here", "there"))
    trio.run(write_store, root, 45)
    log = used(root)
    assert len(log) >= 3
    (root / "commitlog").rename(here)
    there.mkdir()
    Path(log[1].path.replace(str(root / "commitlog"), str(here))).rename(there / Path(log[1].path).name)
    job = ["archive", "--store", str(root), "--quiet", "--to", str(folder)]
    assert main.run(job) == 2
    assert not (root / "config" / "archived.json").exists()
    assert main.run([*job, "--commit-log", str(here)]) == 1
    assert mark_of(root)["archivedUntil"] == log[0].end
    assert main.run([*job, "--commit-log", f"{here},{there}"]) == 0
    assert mark_of(root)["archivedUntil"] == log[-1].start
    errors = capsys.readouterr().err.splitlines()
    assert errors[0].endswith(f"{root}/commitlog is not a directory; --commit-log says where the log is")
    assert f"there is no log file from physical offset {log[0].end} to {log[2].start}" in errors[1]
    offsets = [row["queueOffset"] for row in spark.read.parquet(str(folder)).select("queueOffset").collect()]
    assert sorted(offsets) == list(range(45))
