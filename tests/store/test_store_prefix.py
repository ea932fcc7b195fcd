"""Behind what was synced, what a start finds of the log is a prefix of what was written.

A power failure may keep later sectors and lose earlier ones. A record that survives behind a hole may depend on one
that was lost in it, so the log ends at the hole. Damage to what was synced costs the damaged record only.
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from file_faults import FaultyFiles
from store_faults import RecordingFiles
from store_support import abandon, message, open_store, small_settings, sync_log
from structlog.testing import capture_logs

from triomq.protocol import record
from triomq.store.errors import StoreBroken
from triomq.store.message_store import DefaultMessageStore
from triomq.store.results import PutResult


def put(store: DefaultMessageStore, *bodies: bytes) -> list[PutResult]:
    places = [store.append(message(body=body)) for body in bodies]
    store.commit()
    return places


def bodies_in(store: DefaultMessageStore) -> list[bytes]:
    found, offset = [], store.reading.min_offset("T", 0)
    while offset < store.reading.max_offset("T", 0):
        result = store.reading.get_messages("T", 0, offset, 32)
        found += [record.decode_record(data).body for data in result.records]
        offset = result.next_begin_offset
    return found


def lose(root: Path, place: PutResult) -> None:
    """Leave zeros where a message was, as a power failure does with sectors that were never written."""
    number = place.physical_offset // 4096 * 4096
    with (root / "commitlog" / f"{number:020d}").open("r+b") as file:
        file.seek(place.physical_offset - number)
        file.write(bytes(place.size_bytes))


def tails_in(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / "salvage").glob("*")}


async def test_the_log_ends_at_a_hole_in_what_was_not_synced(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    first = put(store, b"synced")
    await sync_log(store)
    kept, lost, behind = put(store, b"kept", b"lost", b"behind")
    log = (tmp_path / "commitlog" / f"{0:020d}").read_bytes()
    abandon(store)
    lose(tmp_path, lost)
    with capture_logs() as logs:
        store = await open_store(tmp_path)
    report = store.recovery_report
    assert report is not None
    assert (report.log_end, report.damages) == (lost.physical_offset, [])
    assert bodies_in(store) == [b"synced", b"kept"]
    name = f"{lost.physical_offset:020d}-4096.tail"
    saved = tails_in(tmp_path)[name]
    assert (
        saved[lost.size_bytes : lost.size_bytes + behind.size_bytes]
        == (log[behind.physical_offset : behind.physical_offset + behind.size_bytes])
    )
    [line] = [entry for entry in logs if "hole" in entry["event"]]
    assert (line["physical_offset"], line["log_level"]) == (lost.physical_offset, "error")
    assert line["saved_as"] == str(tmp_path / "salvage" / name)
    [after] = put(store, b"after")
    assert (after.physical_offset, after.queue_offset) == (lost.physical_offset, lost.queue_offset)
    abandon(store)
    store = await open_store(tmp_path)
    assert bodies_in(store) == [b"synced", b"kept", b"after"]
    assert (first[0].queue_offset, kept.queue_offset) == (0, 1)
    await store.close()


async def test_damage_to_what_was_synced_costs_the_damaged_record_only(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    _, lost, _ = put(store, b"first", b"lost", b"third")
    await sync_log(store)
    put(store, b"not synced")
    abandon(store)
    lose(tmp_path, lost)
    store = await open_store(tmp_path)
    assert bodies_in(store) == [b"first", b"third", b"not synced"]
    assert list(tails_in(tmp_path)) == [f"{lost.physical_offset:020d}.bin"]
    await store.close()


async def test_a_hole_directly_behind_damage_to_what_was_synced_ends_the_log(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    _, damaged = put(store, b"first", b"damaged")
    await sync_log(store)
    lost, _ = put(store, b"lost", b"behind")
    abandon(store)
    lose(tmp_path, damaged)
    lose(tmp_path, lost)
    store = await open_store(tmp_path)
    report = store.recovery_report
    assert report is not None
    assert [(one.begin, one.end) for one in report.damages] == [(damaged.physical_offset, lost.physical_offset)]
    assert (bodies_in(store), report.log_end) == ([b"first"], lost.physical_offset)
    put(store, b"next")
    abandon(store)
    store = await open_store(tmp_path)
    assert bodies_in(store) == [b"first", b"next"]
    await store.close()


async def test_a_missing_file_that_was_not_synced_ends_the_log(tmp_path: Path) -> None:
    """The names of new files survive a power failure one by one, too."""
    store = await open_store(tmp_path)
    put(store, b"first")
    await sync_log(store)
    put(store, *(b"%d" % number * 1000 for number in range(9)))
    files = sorted((tmp_path / "commitlog").iterdir())
    assert len(files) >= 3
    abandon(store)
    files[1].unlink()
    store = await open_store(tmp_path)
    found = bodies_in(store)
    assert 0 < len(found) < 9 and found == [b"first", *(b"%d" % number * 1000 for number in range(len(found) - 1))]
    assert store.reading.max_physical_offset == 4096
    assert sorted((tmp_path / "commitlog").iterdir()) == files[:1]
    assert list(tails_in(tmp_path)) == [f"{4096:020d}-{4096 * len(files)}.tail"]
    await store.close()


async def test_a_missing_file_of_what_was_synced_costs_its_messages_only(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    put(store, *(b"%d" % number * 1000 for number in range(9)))
    await sync_log(store)
    abandon(store)
    sorted((tmp_path / "commitlog").iterdir())[1].unlink()
    store = await open_store(tmp_path)
    assert bodies_in(store)[-1] == b"8888" * 250
    assert not (tmp_path / "salvage").exists()
    await store.close()


async def test_without_a_checkpoint_damage_is_damage(tmp_path: Path) -> None:
    """Somebody removed the file: a start writes it before there are messages, so no power failure can."""
    store = await open_store(tmp_path)
    _, lost, _ = put(store, b"first", b"lost", b"third")
    abandon(store)
    lose(tmp_path, lost)
    (tmp_path / "checkpoint").unlink()
    store = await open_store(tmp_path)
    assert bodies_in(store) == [b"first", b"third"]
    await store.close()


async def test_the_checkpoint_is_on_disk_before_the_first_message(tmp_path: Path) -> None:
    files = RecordingFiles()
    store = await open_store(tmp_path, files=files)
    done = [(operation.kind, operation.path) for operation in files.journal]
    at = done.index(("sync", str(tmp_path / "checkpoint")))
    assert ("sync_directory", str(tmp_path)) in done[at:]
    abandon(store)


async def test_what_the_last_run_cut_is_cut_again_if_that_did_not_reach_the_disk(tmp_path: Path) -> None:
    """The saved file of the interrupted recovery stays: a part of the log may be gone already."""
    store = await open_store(tmp_path)
    await sync_log(store)
    lost, _ = put(store, b"lost", b"behind")
    abandon(store)
    lose(tmp_path, lost)
    damaged = (tmp_path / "commitlog" / f"{0:020d}").read_bytes()
    abandon(await open_store(tmp_path))
    saved = tails_in(tmp_path)
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(damaged)
    store = await open_store(tmp_path)
    assert (bodies_in(store), tails_in(tmp_path)) == ([], saved)
    await store.close()


async def test_a_store_whose_recovered_log_cannot_be_synced_does_not_open(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    put(store, b"never synced")
    abandon(store)
    files = FaultyFiles()
    files.fail(errno.EIO, "datasync", where="commitlog")
    with pytest.raises(StoreBroken, match="commit log cannot be synced"):
        await open_store(tmp_path, files=files)
    store = await open_store(tmp_path)
    assert bodies_in(store) == [b"never synced"]
    await store.close()


async def test_what_a_tail_cut_takes_does_not_count_as_synced(tmp_path: Path) -> None:
    store = DefaultMessageStore(small_settings(tmp_path), now_ms=lambda: 1)
    checkpoint = store.contents.checkpoint
    checkpoint.synced_offset = 900
    checkpoint.lower(1, 500)
    assert checkpoint.synced_offset == 500
    checkpoint.lower(1, 700)
    assert checkpoint.synced_offset == 500


async def test_what_was_never_synced_is_written_again_before_it_is_synced(tmp_path: Path) -> None:
    """After a sync that failed the kernel may hold pages that are not on disk and count as clean. A sync of a new
    process succeeds without them, unless they are written again."""
    store = await open_store(tmp_path)
    put(store, *(b"%d" % number * 900 for number in range(9)))
    await sync_log(store)
    synced = store.flushed.value
    put(store, *(b"%d" % number * 900 for number in range(9)))
    end = store.committed.value
    abandon(store)
    logs = {path.name: path.read_bytes() for path in (tmp_path / "commitlog").iterdir()}
    files = RecordingFiles()
    await (await open_store(tmp_path, files=files)).close()
    again = [one for one in files.journal if one.kind == "write" and "commitlog" in one.path]
    names = [one.path.rpartition("/")[2] for one in again]
    assert names == [name for name in sorted(logs) if synced < int(name) + 4096 and int(name) < end]
    assert all((one.at, one.data) == (0, logs[name]) for one, name in zip(again, names, strict=True))
    for one in again:
        done = [(other.kind, other.path) for other in files.journal[files.journal.index(one) :]]
        assert ("sync", one.path) in done
    files = RecordingFiles()
    await (await open_store(tmp_path, files=files)).close()
    assert not [one for one in files.journal if one.kind == "write" and "commitlog" in one.path]
