"""Thousands of simulated power cuts: bin/dev/soak-power-cuts [IMAGES] [--seed N].

A store with a random workload keeps a journal of everything it asks of the operating system (store_faults). Each image
is what could be on the disk when the power fails at one of these points: everything that an fdatasync followed, and of
the rest any part, in any order, down to single sectors. The store that is opened on it must have

* every message whose flush was waited for (SYNC_FLUSH), at its queue offset, with its bytes, and found by its keys;
* nothing that was not put, nothing twice, and nothing that was put behind something that is lost;
* the same bytes when it is cut off again right after the recovery and recovered once more.

Some images are cut off a second time in the middle of their recovery.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import time
import zlib
from pathlib import Path

import structlog
import trio
from fake_clock import FakeClock
from store_faults import Operation, RecordingFiles, crash, replay_onto
from store_support import abandon, message, open_store, small_settings

from triomq.protocol import record
from triomq.protocol.record import BatchUnit
from triomq.store.message_store import DefaultMessageStore

IMAGES_A_JOURNAL = 50
SURVIVAL = (0.0, 0.2, 0.5, 0.8, 0.95, 1.0)
SLOTS = small_settings("").max_hash_slot_num
Put = tuple[str, int, bytes]


class Journal:
    """One workload: the system calls, the messages put, and the position in the journal from which on each is
    acknowledged. `keys` may be looked up by KEYS too.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.choose = random.Random(seed)
        self.operations: list[Operation] = []
        self.put: dict[str, Put] = {}
        self.acknowledged: list[tuple[int, str]] = []

    async def record(self, root: Path) -> None:
        choose = self.choose
        files = RecordingFiles()
        self.operations = files.journal
        clock = FakeClock(step_ms=choose.choice([1, 40, 1500]))
        store = await open_store(root, files=files, clock=clock)
        unflushed: list[str] = []
        for _ in range(choose.randint(8, 30)):
            for _ in range(choose.randint(1, 5)):
                unflushed += self.append(store)
            store.commit()
            turn = choose.random()
            if turn < 0.35:
                await store.flushing.flush_log()
            elif turn < 0.45:
                await store.flushing.flush_queues(0)
            elif turn < 0.55:
                await store.flushing.write_index()
            elif turn < 0.7:
                await store.flushing.flush_thoroughly()
            if turn < 0.35 or 0.55 <= turn < 0.7:
                self.acknowledged += [(len(files.journal), key) for key in unflushed]
                unflushed.clear()
            elif turn > 0.97:  # a clean restart during the workload
                await store.close()
                self.acknowledged += [(len(files.journal), key) for key in unflushed]
                unflushed.clear()
                store = await open_store(root, files=files, clock=clock)
        if choose.random() < 0.5:
            await store.close()
        else:
            abandon(store)

    def append(self, store: DefaultMessageStore) -> list[str]:
        choose = self.choose
        topic, queue_id = choose.choice("AB"), choose.randrange(2)
        count = choose.randint(2, 4) if choose.random() < 0.1 else 1
        keys = [f"{self.seed}-{len(self.put) + at}" for at in range(count)]
        bodies = [choose.randbytes(choose.randrange(choose.choice([1, 60, 700]))) for _ in keys]
        if count == 1:
            result = store.append(message(topic, queue_id, bodies[0], uniq_key=keys[0]))
        else:
            units = [BatchUnit(0, body, f"UNIQ_KEY\x01{key}".encode()) for key, body in zip(keys, bodies, strict=True)]
            result = store.append_batch(message(topic, queue_id), units)
        assert result.is_ok
        self.put.update({key: (topic, queue_id, body) for key, body in zip(keys, bodies, strict=True)})
        return keys

    def acknowledged_before(self, at: int) -> set[str]:
        return {key for point, key in self.acknowledged if point <= at}


def check(store: DefaultMessageStore, put: dict[str, Put], must_have: set[str]) -> set[str]:
    found: set[str] = set()
    for topic, queue_ids in store.reading.queues().items():
        for queue_id in queue_ids:
            offset = store.reading.min_offset(topic, queue_id)
            while offset < store.reading.max_offset(topic, queue_id):
                result = store.reading.get_messages(topic, queue_id, offset, 32)
                assert result.next_begin_offset > offset
                for data in result.records:
                    stored = record.decode_record(data)
                    key = stored.uniq_key or ""
                    assert key not in found, f"{key} is there twice"
                    assert put[key] == (topic, queue_id, stored.body) == (stored.topic, stored.queue_id, stored.body)
                    assert offset <= stored.queue_offset < result.next_begin_offset
                    by_key = store.reading.query_by_key(topic, key, 64, 0, 1 << 60).physical_offsets
                    assert by_key == [stored.physical_offset], f"{key} by key: {by_key}"
                    found.add(key)
                offset = result.next_begin_offset
    assert must_have <= found, f"{len(must_have - found)} acknowledged messages lost"
    written_first = list(put)[: len(found)]
    assert found == set(written_first), f"no prefix of what was written: {sorted(found - set(written_first))[:3]}"
    return found


def picture(root: Path) -> dict[str, int]:
    """Return a checksum of every file of log, queues and index (the index without the bytes after its last entry)."""
    return {
        str(path.relative_to(root)): zlib.crc32(used_part(path))
        for directory in ("commitlog", "consumequeue", "index", "salvage")
        for path in sorted((root / directory).rglob("*"))
        if path.is_file()
    }


def used_part(path: Path) -> bytes:
    data = path.read_bytes()
    if path.parent.name != "index":
        return data
    return data[: 40 + 4 * SLOTS + 20 * int.from_bytes(data[36:40], "big")]


async def check_image(image: Path, put: dict[str, Put], must_have: set[str]) -> None:
    found: set[str] = set()
    pictures = []
    for _ in range(2):
        store = await open_store(image)
        found = check(store, put, must_have | found)
        store.contents.index.write_out()
        abandon(store)
        pictures.append(picture(image))
    names = pictures[0].keys() | pictures[1].keys()
    changed = {name for name in names if pictures[0].get(name) != pictures[1].get(name)}
    assert not changed, f"a second recovery changed {sorted(changed)}"


async def cut_recovery(image: Path, choose: random.Random) -> None:
    """Return what remains when the power fails again while the image is recovered."""
    copy = image.with_name("copy")
    shutil.copytree(image, copy)
    files = RecordingFiles()
    abandon(await open_store(copy, files=files))
    replay_onto(files, str(copy), image, choose)
    shutil.rmtree(copy)


async def cut_many(directory: Path, images: int, seed: int) -> int:
    """Cut `count` images from journals with the seeds seed, seed + 1...; return the number checked."""
    done = 0
    while done < images:
        journal = Journal(seed)
        root = directory / "store"
        await journal.record(root)
        shutil.rmtree(root)
        for _ in range(min(IMAGES_A_JOURNAL, images - done)):
            at = journal.choose.randint(0, len(journal.operations))
            survive = journal.choose.choice(SURVIVAL)
            image = directory / "image"
            image.mkdir()
            crash(journal.operations, at, str(root), image, journal.choose, survive)
            if journal.choose.random() < 0.2:
                await cut_recovery(image, journal.choose)
            try:
                await check_image(image, journal.put, journal.acknowledged_before(at))
            except Exception as error:
                error.add_note(f"journal seed {seed}, cut at {at} of {len(journal.operations)}, survival {survive}")
                raise
            shutil.rmtree(image)
            done += 1
        seed += 1
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", nargs="?", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=None)
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else random.randrange(1 << 30)
    print(f"seed {seed}", flush=True)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="power-") as name:
        done = trio.run(cut_many, Path(name), given.images, seed)
    seconds = time.monotonic() - began
    print(f"{done} power cuts in {seconds:.0f} s: nothing lost, altered, doubled or missing in the index")


if __name__ == "__main__":
    main()
