"""Power failures at random points of random workloads, and what must hold after the next start.

The states that a crash may leave, and the argument for each guard, are in docs/internals/crash-safety.md.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from fake_clock import FakeClock
from store_faults import RecordingFiles, crash, replay_onto
from store_support import abandon, message, open_store, unique_key

from triomq.protocol import record
from triomq.store.message_store import DefaultMessageStore


class Ledger:
    """What was put, and at which position of the journal each message was acknowledged."""

    def __init__(self) -> None:
        self.put: dict[str, tuple[str, int, bytes]] = {}
        self.acknowledged: list[tuple[int, str]] = []

    def acknowledged_before(self, at: int) -> set[str]:
        return {key for point, key in self.acknowledged if point <= at}


async def workload(store: DefaultMessageStore, files: RecordingFiles, ledger: Ledger, choose: random.Random) -> None:
    unflushed: list[str] = []
    for _ in range(choose.randint(20, 60)):
        for _ in range(choose.randint(1, 6)):
            key = unique_key()
            topic, queue_id, body = choose.choice("AB"), choose.randrange(2), choose.randbytes(choose.randrange(400))
            result = store.append(message(topic, queue_id, body, uniq_key=key))
            assert result.is_ok
            ledger.put[key] = (topic, queue_id, body)
            unflushed.append(key)
        store.commit()
        turn = choose.random()
        if turn < 0.3:
            await store.flushing.flush_log()
        elif turn < 0.4:
            await store.flushing.flush_queues(0)
        elif turn < 0.5:
            await store.flushing.write_index()
        elif turn < 0.6:
            await store.flushing.flush_thoroughly()
        if turn < 0.3 or 0.5 <= turn < 0.6:
            ledger.acknowledged += [(len(files.journal), key) for key in unflushed]
            unflushed.clear()


def check(store: DefaultMessageStore, ledger: Ledger, must_have: set[str]) -> int:
    found: set[str] = set()
    for topic, queue_ids in store.reading.queues().items():
        for queue_id in queue_ids:
            offset = store.reading.min_offset(topic, queue_id)
            while offset < store.reading.max_offset(topic, queue_id):
                result = store.reading.get_messages(topic, queue_id, offset, 32)
                assert result.next_begin_offset > offset
                for data in result.records:
                    stored = record.decode_record(data)
                    key = stored.uniq_key
                    assert key is not None and key not in found
                    assert ledger.put[key] == (topic, queue_id, stored.body)
                    assert (stored.topic, stored.queue_id) == (topic, queue_id)
                    assert offset <= stored.queue_offset < result.next_begin_offset
                    found.add(key)
                    by_key = store.reading.query_by_key(topic, key, 64, 0, 1 << 60).physical_offsets
                    assert by_key == [stored.physical_offset], key
                offset = result.next_begin_offset
    assert must_have <= found, f"{len(must_have - found)} acknowledged messages lost"
    assert found == set(list(ledger.put)[: len(found)]), "what is there is no prefix of what was put"
    return len(found)


@pytest.mark.parametrize("seed", range(15))
async def test_whatever_a_power_failure_leaves_is_recovered(seed: int, tmp_path: Path) -> None:
    choose = random.Random(seed)
    files = RecordingFiles()
    ledger = Ledger()
    root = tmp_path / "store"
    store = await open_store(root, files=files, clock=FakeClock(step_ms=choose.choice([1, 100, 1500])))
    await workload(store, files, ledger, choose)
    if choose.random() < 0.5:
        await store.close()
    else:
        abandon(store)
    for number in range(8):
        at = choose.randint(0, len(files.journal))
        survive = choose.choice([0.0, 0.3, 0.7, 0.95, 1.0])
        copy = tmp_path / f"crash{number}"
        copy.mkdir()
        crash(files.journal, at, str(root), copy, choose, survive)
        await recover_twice(copy, ledger, ledger.acknowledged_before(at), choose)
        shutil.rmtree(copy)


async def recover_twice(root: Path, ledger: Ledger, must_have: set[str], choose: random.Random) -> None:
    files = RecordingFiles()
    again = root.parent / "again"
    shutil.copytree(root, again)
    # a crash during the recovery itself, then the recovery again
    abandon(await open_store(again, files=files))
    half = root.parent / "half"
    shutil.copytree(root, half)
    replay_onto(files, str(again), half, choose)
    for path in (again, half):
        store = await open_store(path)
        count = check(store, ledger, must_have)
        end = store.reading.max_physical_offset
        await store.close()
        store = await open_store(path)
        assert store.recovery_report is not None and store.recovery_report.records == 0
        assert check(store, ledger, must_have) == count
        assert store.reading.max_physical_offset == end
        key = unique_key()
        put = store.append(message("A", 0, b"after", uniq_key=key))
        store.commit()
        assert put.is_ok and put.physical_offset >= end
        copy = Ledger()
        copy.put = {**dict(list(ledger.put.items())[:count]), key: ("A", 0, b"after")}
        assert check(store, copy, must_have | {key}) == count + 1
        abandon(store)
        store = await open_store(path)
        assert check(store, copy, must_have | {key}) == count + 1
        await store.close()
        shutil.rmtree(path)
