"""A master that went back behind what its slave has: the slave keeps its copy until somebody decides."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest
import trio
from msgspec.structs import replace
from replication_fakes import Pair, assert_same_queues, fill, log_bytes, open_slave
from store_support import open_store
from trio.testing import MockClock

from triomq.broker.replication.copied import CopiedPart
from triomq.store.config import BrokerRole

FILE_BYTES = 1 << 20
T = TypeVar("T")


class MemoryFile:
    """A table's file in memory."""

    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)

    def load(self, decode: Callable[[str], T]) -> T | None:
        try:
            return decode(self.texts[-1]) if self.texts else None
        except ValueError:
            return None

    def save(self, text: str) -> None:
        self.texts.append(text)

    def save_pieces(self, pieces: Sequence[bytes]) -> None:
        self.save(b"".join(pieces).decode())


async def restored(
    tmp_path: Path, nursery: trio.Nursery, file: MemoryFile, *, lost: int, others: int, file_bytes: int = FILE_BYTES
) -> Pair:
    """A pair whose master was restored from a copy that lacks the last `lost` messages, and has `others` instead."""
    master = await open_store(tmp_path / "master", mapped_file_size_commit_log_bytes=file_bytes)
    fill(master, 20)
    await master.close()
    shutil.copytree(tmp_path / "master", tmp_path / "copy")
    master = await open_store(tmp_path / "master", mapped_file_size_commit_log_bytes=file_bytes)
    slave = await open_slave(tmp_path / "slave", mapped_file_size_commit_log_bytes=file_bytes)
    pair = Pair(nursery, master, slave, file)
    fill(master, lost, topic="Lost")
    scope = pair.start()
    await pair.wait_equal()
    scope.cancel()
    await trio.sleep(0.1)
    await master.close()
    master = await open_store(tmp_path / "copy", mapped_file_size_commit_log_bytes=file_bytes)
    fill(master, others, topic="Others")
    return Pair(nursery, master, slave, file)


@pytest.mark.parametrize(("lost", "others"), [(1, 0), (435, 0), (435, 20), (3, 900)])
async def test_what_came_from_a_master_is_not_cut_until_somebody_decides(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path, lost: int, others: int
) -> None:
    pair = await restored(tmp_path, nursery, MemoryFile(), lost=lost, others=others)
    before = log_bytes(pair.slave)
    pair.start()
    await trio.sleep(200)
    assert log_bytes(pair.slave) == before
    assert not (tmp_path / "slave" / "salvage").exists()
    assert pair.follower.refused is not None
    assert f"lacks {len(before) - len(log_bytes(pair.master)) if not others else ''}" in pair.follower.refused
    assert "haCutCopied=true" in pair.follower.refused
    assert not pair.follower.agrees, "tables are not taken either"
    pair.settings.store = replace(pair.settings.store, ha_cut_copied=True)
    await pair.wait_equal()
    assert_same_queues(pair.slave, pair.master)
    (saved,) = (tmp_path / "slave" / "salvage").iterdir()
    assert before.endswith(saved.read_bytes())
    fill(pair.master, 3)
    await pair.wait_equal()
    assert pair.follower.refused is None


async def test_a_master_that_gets_its_messages_back_is_followed_again(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path
) -> None:
    file = MemoryFile()
    pair = await restored(tmp_path, nursery, file, lost=50, others=0)
    scope = pair.start()
    await trio.sleep(100)
    assert pair.follower.refused is not None
    scope.cancel()
    master = await open_store(tmp_path / "master", mapped_file_size_commit_log_bytes=FILE_BYTES)
    again = Pair(nursery, master, pair.slave, file)
    again.start()
    fill(master, 5)
    await again.wait_equal()
    assert again.follower.refused is None


async def test_a_restarted_slave_still_knows_what_it_copied(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path
) -> None:
    file = MemoryFile()
    pair = await restored(tmp_path, nursery, file, lost=50, others=60)
    await pair.slave.close()
    slave = await open_slave(tmp_path / "slave", mapped_file_size_commit_log_bytes=FILE_BYTES)
    before = log_bytes(slave)
    again = Pair(nursery, pair.master, slave, file)
    again.start()
    await trio.sleep(200)
    assert again.follower.refused is not None
    assert log_bytes(slave) == before


async def test_what_a_former_slave_wrote_as_a_master_is_cut(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path
) -> None:
    file = MemoryFile()
    pair = await restored(tmp_path, nursery, file, lost=0, others=30)
    await pair.slave.close()
    CopiedPart(file).leads()
    former = await open_store(
        tmp_path / "slave", broker_role=BrokerRole.ASYNC_MASTER, mapped_file_size_commit_log_bytes=FILE_BYTES
    )
    fill(former, 10, topic="Own")
    await former.close()
    slave = await open_slave(tmp_path / "slave", mapped_file_size_commit_log_bytes=FILE_BYTES)
    again = Pair(nursery, pair.master, slave, file)
    again.start()
    await again.wait_equal()
    fill(pair.master, 40, topic="Others")
    await again.wait_equal()
    assert again.follower.refused is None
    assert_same_queues(slave, pair.master)


def test_the_copied_part_begins_where_a_slave_began() -> None:
    file = MemoryFile()
    part = CopiedPart(file)
    assert part.follows(500) == 500, "unknown, so nothing of it counts as copied"
    assert part.follows(900) == 500
    assert CopiedPart(file).follows(900) == 500
    assert part.follows(300) == 300, "the log was cut, or lost its end"
    assert CopiedPart(file).follows(900) == 300
    CopiedPart(file).leads()
    assert CopiedPart(file).follows(1000) == 1000


def test_a_master_that_never_was_a_slave_writes_nothing() -> None:
    file = MemoryFile()
    CopiedPart(file).leads()
    assert file.texts == []
    CopiedPart(file).follows(0)
    assert CopiedPart(file).follows(100) == 0, "a slave that began empty has copied everything"


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"copiedFrom":"x"}', '{"copiedFrom":true}', '{"copiedFrom":1.5}'])
def test_a_file_that_says_nothing_is_none(text: str) -> None:
    assert CopiedPart(MemoryFile(text)).follows(70) == 70


class Full(MemoryFile):
    def save(self, text: str) -> None:
        raise OSError("No space left on device")


def test_a_full_disk_leaves_the_offset_in_memory() -> None:
    part = CopiedPart(Full())
    assert part.follows(70) == 70
    assert part.follows(100) == 70
