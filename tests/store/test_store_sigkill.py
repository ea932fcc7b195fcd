"""A process is killed while it writes, repeatedly: everything that it acknowledged is there afterwards."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from store_kills import SHAPES, soak
from store_seeds import seed_of
from store_support import open_store

from triomq.protocol import record
from triomq.store.config import FlushDiskType

CHILD = """
import sys
sys.path[:0] = sys.argv[2:]
import trio
from store_support import message, open_store

async def main():
    store = await open_store(sys.argv[1], flush_interval_consume_queue_ms=20, flush_interval_commit_log_ms=5)
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        print("ready", flush=True)
        number = store.reading.max_offset("T", 0) + store.reading.max_offset("T", 1)
        while True:
            keys = []
            for _ in range(number % 7 + 1):
                key = f"n{number}"
                store.append(message("T", number % 2, b"x" * (number * 37 % 700), uniq_key=key, keys=f"k{number}"))
                keys.append(key)
                number += 1
            store.commit()
            print(" ".join(keys), flush=True)
            await trio.sleep(0)

trio.run(main)
"""


async def test_killed_again_and_again(tmp_path: Path) -> None:
    choose = random.Random(1)
    acknowledged: list[str] = []
    for _ in range(5):
        acknowledged += run_and_kill(tmp_path / "store", choose.randint(20, 300))
        store = await open_store(tmp_path / "store")
        assert store.recovery_report is not None and not store.recovery_report.was_clean
        found = []
        for queue_id in (0, 1):
            offset = 0
            while offset < store.reading.max_offset("T", queue_id):
                result = store.reading.get_messages("T", queue_id, offset, 32)
                found += [record.decode_record(data) for data in result.records]
                offset = result.next_begin_offset
        keys = [stored.uniq_key for stored in found]
        assert set(acknowledged) <= set(keys)
        assert len(keys) == len(set(keys))
        assert sorted(stored.queue_offset * 2 + stored.queue_id for stored in found) == list(range(len(found)))
        for stored in found[:: max(1, len(found) // 50)]:
            offsets = store.reading.query_by_key("T", stored.uniq_key or "", 64, 0, 1 << 60).physical_offsets
            assert offsets == [stored.physical_offset]
        # written messages without an acknowledgement count from now on
        acknowledged = [key for key in keys if key is not None]
        await store.close()
        (tmp_path / "store" / "abort").touch()
    assert len(acknowledged) > 50


@pytest.mark.parametrize("flush", list(FlushDiskType))
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"bodies-{shape[1]}")
def test_a_hundred_kills(tmp_path: Path, shape: tuple[int, int], flush: FlushDiskType) -> None:
    """Twenty for each kind of store; bin/dev/soak-kills runs any number."""
    seed = seed_of(f"kills {shape[1]} {flush.name}")
    assert soak(tmp_path / "store", 20, shape, flush, seed) > 100


def run_and_kill(root: Path, lines: int) -> list[str]:
    """Let a child write, kill it after `count` acknowledgements, and return what it acknowledged."""
    here = Path(__file__).resolve().parent
    paths = [str(here), str(here.parent / "shared"), str(here.parent.parent)]
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(root), *paths], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert child.stdout is not None
    for line in child.stdout:
        if line.startswith("ready"):
            break
    keys: list[str] = []
    for line in child.stdout:
        keys += line.split()
        lines -= 1
        if not lines:
            os.kill(child.pid, signal.SIGKILL)
            break
    for line in child.stdout:
        if line.endswith("\n"):
            keys += line.split()
    child.wait()
    return keys
