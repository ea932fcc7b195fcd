"""The bytes that recovery removes from the log are saved completely or not at all, and not forever.

While a damaged stretch is saved the power may fail

* before anything of the file is on disk: nothing is there, or a part;
* when its bytes are and its name is not: a part is there, or nothing;
* when both are: the file is whole, whatever happened to the log since.

A part is worth nothing: recovery finds the damage still in the log and saves it again.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
from pathlib import Path

import pytest
from file_faults import WRITES, FaultyFiles
from store_faults import RecordingFiles, replay_onto
from store_support import abandon, message, open_store, small_settings, sync_log
from structlog.testing import capture_logs

from triomq.protocol import record
from triomq.store.disk.files import Files
from triomq.store.disk.layout import Layout
from triomq.store.log.salvage import Salvage


async def damaged_store(root: Path) -> tuple[str, bytes]:
    """Create a store that was killed, with zeros in the middle of its log; return the name of the damaged range and its
    bytes.
    """
    store = await open_store(root)
    places = [store.append(message(body=b"%d" % number * 300, uniq_key=f"u{number}")) for number in range(9)]
    store.commit()
    await sync_log(store)
    abandon(store)
    begin, size = places[2].physical_offset, places[2].size_bytes + places[3].size_bytes
    with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(begin)
        data = bytearray(file.read(size))
        data[40:700] = bytes(660)
        file.seek(begin)
        file.write(data)
    return f"{begin:020d}.bin", bytes(data)


def saved_in(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / "salvage").glob("*")}


async def test_a_part_that_was_left_is_made_anew(tmp_path: Path) -> None:
    name, data = await damaged_store(tmp_path)
    (tmp_path / "salvage").mkdir()
    (tmp_path / "salvage" / f"{name}.part").write_bytes(b"left by a crash" * 500)
    (tmp_path / "salvage" / "00000000000000000009.bin.part").write_bytes(b"of a stretch that is no more")
    abandon(await open_store(tmp_path))
    assert saved_in(tmp_path) == {name: data}


async def test_what_cannot_be_saved_is_not_taken_out(tmp_path: Path) -> None:
    name, data = await damaged_store(tmp_path)
    log = (tmp_path / "commitlog" / f"{0:020d}").read_bytes()
    files = FaultyFiles()
    files.fail(errno.ENOSPC, *WRITES, where="salvage", part=2 / 3)
    with pytest.raises(OSError, match="No space left"):
        await open_store(tmp_path, files=files)
    assert saved_in(tmp_path) == {}
    assert (tmp_path / "commitlog" / f"{0:020d}").read_bytes() == log
    abandon(await open_store(tmp_path))
    assert saved_in(tmp_path) == {name: data}


async def test_what_was_begun_and_cannot_be_finished_takes_no_room_and_no_descriptor(tmp_path: Path) -> None:
    await damaged_store(tmp_path)
    files = FaultyFiles()
    files.fail(errno.ENOSPC, "pwrite", where="salvage")
    with pytest.raises(OSError, match="No space left"):
        await open_store(tmp_path, files=files)
    assert list((tmp_path / "salvage").iterdir()) == []
    assert not any("salvage" in path for path in files.paths.values()), "a descriptor is left"


async def test_at_any_power_failure_the_saved_bytes_are_whole_or_still_in_the_log(tmp_path: Path) -> None:
    name, data = await damaged_store(tmp_path / "original")
    files = RecordingFiles()
    root = tmp_path / "store"
    shutil.copytree(tmp_path / "original", root)
    abandon(await open_store(root, files=files))
    assert saved_in(root) == {name: data}
    choose = random.Random(1)
    states = set()
    for number in range(100):
        image = tmp_path / "image"
        shutil.copytree(tmp_path / "original", image)
        replay_onto(files, str(root), image, choose)
        states.add(tuple(saved_in(image)))
        assert saved_in(image).get(name, data) == data, number
        abandon(await open_store(image))
        assert saved_in(image) == {name: data}, number
        shutil.rmtree(image)
    assert states == {(), (f"{name}.part",), (name,)}


def test_the_oldest_go(tmp_path: Path) -> None:
    salvage = Salvage(Files(), Layout(small_settings(tmp_path)), ".bin", max_files=3, max_bytes=1000)
    with capture_logs() as logs:
        for number, size in enumerate([10, 10, 10, 10, 985, 4000]):
            fd = salvage.begin(str(number), size)
            os.pwrite(fd, b"x", 0)
            saved = salvage.keep(str(number), fd)
            os.utime(saved, (1000 + number, 1000 + number))
            kept = sorted(path.name for path in (tmp_path / "salvage").iterdir())
            assert (
                kept
                == [
                    ["0.bin"],
                    ["0.bin", "1.bin"],
                    ["0.bin", "1.bin", "2.bin"],
                    ["1.bin", "2.bin", "3.bin"],
                    ["3.bin", "4.bin"],
                    ["5.bin"],
                ][number]
            )
    assert [entry["path"].rpartition("/")[2] for entry in logs] == ["0.bin", "2.bin", "1.bin", "4.bin", "3.bin"]


def test_saved_parts_that_have_exactly_the_bytes_allowed_stay(tmp_path: Path) -> None:
    salvage = Salvage(Files(), Layout(small_settings(tmp_path)), ".bin", max_files=9, max_bytes=1000)
    for number, size in enumerate([1, 400, 600]):
        saved = salvage.keep(str(number), salvage.begin(str(number), size))
        os.utime(saved, (1000 + number, 1000 + number))
    assert sorted(path.name for path in (tmp_path / "salvage").iterdir()) == ["1.bin", "2.bin"]


@pytest.mark.parametrize("body_bytes", [18, 19, 20, 21, 25, 60, 300])
async def test_a_repair_touches_nothing_behind_the_damage_however_short_it_is(tmp_path: Path, body_bytes: int) -> None:
    """The reason is written into the damaged place as far as it fits there."""
    store = await open_store(tmp_path)
    _, damaged, _ = (store.append(message(body=body)) for body in (b"before", b"x" * body_bytes, b"behind"))
    store.commit()
    await sync_log(store)
    abandon(store)
    with (tmp_path / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(damaged.physical_offset + 88)
        file.write(b"!")
    for _ in range(2):
        store = await open_store(tmp_path)
        found = store.reading.get_messages("T", 0, store.reading.min_offset("T", 0), 9)
        assert [record.decode_record(data).body for data in found.records] == [b"before", b"behind"]
        abandon(store)


def test_of_each_kind_so_many(tmp_path: Path) -> None:
    paths = Layout(small_settings(tmp_path))
    kinds = [Salvage(Files(), paths, suffix, max_files=1, max_bytes=1) for suffix in (".bin", ".tail")]
    for salvage in kinds:
        salvage.keep("1", salvage.begin("1", 5))
    assert sorted(path.name for path in (tmp_path / "salvage").iterdir()) == ["1.bin", "1.tail"]
