"""Disks that lie: flipped bits, failing calls, missing files. The store never returns a wrong body and never
acknowledges falsely. A flipped bit may cost its message, or an entry that points to one, but never produces another
message. What the store acknowledged while calls failed is there once the system works again.

A flipped bit may cost the message it is in, or an entry that leads to one; it never turns into another message. What
the store acknowledged while the system failed under it is there when the system works again.
"""

from __future__ import annotations

import errno
import random
import shutil
from pathlib import Path

import pytest
import structlog
import trio
from fake_clock import FakeClock
from file_faults import WRITES, FaultyFiles
from store_seeds import seed_of
from store_support import abandon, message, open_store, sync_log

from triomq.protocol import record, sys_flag
from triomq.protocol.errors import RecordError
from triomq.protocol.speedups import load
from triomq.store.errors import StoreError
from triomq.store.message_store import DefaultMessageStore
from triomq.store.results import PutResult, PutStatus

TOPICS_JSON = '{"dataVersion":{"counter":1,"timestamp":1},"topicConfigTable":{"A":{},"B":{}}}'


@pytest.fixture(autouse=True)
def quiet() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))


class Written:
    """What was put: (topic, queue) -> bodies, each of which contains its place."""

    def __init__(self) -> None:
        self.bodies: dict[tuple[str, int], list[bytes]] = {}
        self.places: list[int] = []
        self.count = 0
        self.last = b""

    def put(self, store: DefaultMessageStore, choose: random.Random) -> PutResult:
        where = (choose.choice("AB"), choose.randrange(2))
        body = f"{where} {self.count};".encode() + choose.randbytes(choose.choice([0, 20, 300]))
        result = store.append(message(*where, body, uniq_key=f"u{self.count}", keys=f"k{self.count} all"))
        self.count += 1
        self.last = body
        if result.is_ok:
            self.bodies.setdefault(where, []).append(body)
            self.places.append(result.physical_offset)
        return result


def served(store: DefaultMessageStore) -> dict[tuple[str, int], list[bytes]]:
    """Return every body that a consumer gets; one that falsely claims to be compressed makes the consumer fail."""
    found: dict[tuple[str, int], list[bytes]] = {}
    for topic in "AB":
        for queue_id in range(2):
            bodies = found.setdefault((topic, queue_id), [])
            offset = store.reading.min_offset(topic, queue_id)
            while offset < store.reading.max_offset(topic, queue_id):
                result = store.reading.get_messages(topic, queue_id, offset, 32)
                bodies += [body for data in result.records if (body := body_of(data)) is not None]
                assert result.next_begin_offset > offset
                offset = result.next_begin_offset
    return found


def body_of(data: bytes) -> bytes | None:
    try:
        return record.decode_record(data).body
    except RecordError:
        assert data[record.SYS_FLAG_AT + 3] & sys_flag.COMPRESSED
        return None


def check_only_own(store: DefaultMessageStore, written: Written) -> int:
    """Check that every way of reading returns only bodies that were put there; return the number that consumers get."""
    found = served(store)
    for where, bodies in found.items():
        assert set(bodies) <= set(written.bodies.get(where, [])), where
    everything = {body for bodies in written.bodies.values() for body in bodies}
    for number in range(0, written.count, 7):
        for topic in "AB":
            for data in store.reading.query_by_key(topic, f"u{number}", 64, 0, 1 << 60).records:
                assert body_of(data) in everything | {None}
    for place in written.places:
        data = store.reading.record_at(place)
        assert data is None or body_of(data) in everything | {None}
    return sum(len(set(bodies)) for bodies in found.values())


async def filled(root: Path, choose: random.Random, *, is_closed: bool) -> Written:
    written = Written()
    (root / "config").mkdir(parents=True)
    (root / "config" / "topics.json").write_text(TOPICS_JSON)
    store = await open_store(root)
    for _ in range(25):
        for _ in range(6):
            assert written.put(store, choose).is_ok
        store.commit()
        if choose.random() < 0.2:
            await store.flushing.flush_thoroughly()
    if is_closed:
        await store.close()
    else:
        await sync_log(store)
        store.contents.index.write_out()
        abandon(store)
    return written


def flip(path: Path, choose: random.Random) -> None:
    """Flip one bit of the used part of a file."""
    data = bytearray(path.read_bytes())
    used = len(bytes(data).rstrip(b"\0")) or len(data)
    at = choose.randrange(used)
    data[at] ^= 1 << choose.randrange(8)
    path.write_bytes(data)


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize("directory", ["commitlog", "consumequeue", "index", "checkpoint", "config"])
async def test_flipped_bits_cost_only_what_they_hit(tmp_path: Path, directory: str, is_closed: bool) -> None:
    choose = random.Random(seed_of(f"{directory} {'closed' if is_closed else 'killed'}"))
    original = tmp_path / "original"
    written = await filled(original, choose, is_closed=is_closed)
    for _ in range(20):
        root = tmp_path / "copy"
        shutil.copytree(original, root)
        target = root / directory
        files = sorted(path for path in target.rglob("*") if path.is_file()) if target.is_dir() else [target]
        flips = choose.choice([1, 1, 3])
        # They are not in one file: next to a lost record, a wrong store timestamp makes all later records look like
        # remains of a truncated log, which are never read again.
        for file in choose.sample(files, flips) if len(files) >= flips else choose.choices(files, k=flips):
            flip(file, choose)
        for _ in range(2):
            store = await open_store(root)
            # One flip costs one message; in a queue's size field or the log's structure, also what depends on it.
            assert check_only_own(store, written) >= written.count - 3 * flips
            await store.close()
        shutil.rmtree(root)


async def test_bits_that_flip_under_a_running_store(tmp_path: Path) -> None:
    """Old messages are checked when they are read, not only when the store is opened."""
    choose = random.Random(3)
    written = await filled(tmp_path, choose, is_closed=True)
    store = await open_store(tmp_path)
    assert check_only_own(store, written) == written.count
    for path in sorted((tmp_path / "commitlog").iterdir()):
        with path.open("r+b") as file:  # in place: the store has it open
            for _ in range(3):
                at = choose.randrange(3000)
                file.seek(at)
                byte = file.read(1)[0]
                file.seek(at)
                file.write(bytes([byte ^ 1 << choose.randrange(8)]))
    left = check_only_own(store, written)
    assert 0 < left < written.count
    await store.close()


async def test_a_size_that_leaves_no_room_for_the_fields(tmp_path: Path) -> None:
    """A flip in the first bytes of a record that recovery does not check."""
    written = await filled(tmp_path, random.Random(6), is_closed=True)
    place = written.places[3]
    with (tmp_path / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(place)
        file.write((20).to_bytes(4, "big"))
    store = await open_store(tmp_path)
    assert store.reading.record_at(place) is None
    assert store.reading.record_at(written.places[4] + 1) is None
    assert store.reading.damaged_count == 0, "an offset that a client asks for shows no damage"
    assert check_only_own(store, written) == written.count - 1
    assert store.reading.damaged_count == 1
    await store.close()


@pytest.mark.parametrize("at", [0, 4, 8, 12, 28, 84, 88, 90, 91], ids=str)
async def test_sound_records_around_a_damaged_one_are_taken_together(tmp_path: Path, at: int) -> None:
    """Size, magic, CRC, queue id, offset, length of the body, body, length of the topic, topic."""
    store = await open_store(tmp_path)
    puts = [store.append(message(body=b"%02d" % number)) for number in range(5)]
    await store.close()
    store = await open_store(tmp_path)
    with (tmp_path / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(puts[2].physical_offset + at)
        damaged = file.read(1)[0] ^ 0x10
        file.seek(puts[2].physical_offset + at)
        file.write(bytes([damaged]))
    puts.append(store.append(message(body=b"05")))
    store.commit()
    found = store.reading.get_messages("T", 0, 0, 32)
    assert [body_of(data) for data in found.records] == [b"00", b"01", b"03", b"04", b"05"]
    assert (found.next_begin_offset, found.message_count, store.reading.damaged_count) == (6, 5, 1)
    assert found.size_bytes == sum(put.size_bytes for put in puts) - puts[2].size_bytes == sum(map(len, found.runs))
    if load("triomq.store") is not None:
        assert len(found.runs) == 2
    await store.close()


@pytest.mark.parametrize("change", [-4, -1, 1, 2, 5, 100, 1 << 17, 1 << 40], ids=str)
async def test_a_damaged_queue_offset_costs_its_own_message(tmp_path: Path, change: int) -> None:
    """No checksum covers the number; neighbouring records show which values are impossible."""
    written = await filled(tmp_path, random.Random(7), is_closed=False)
    (tmp_path / "checkpoint").unlink()
    place = written.places[70]
    with (tmp_path / "commitlog" / f"{place - place % 4096:020d}").open("r+b") as file:
        file.seek(place % 4096 + 20)
        queue_offset = int.from_bytes(file.read(8), "big") + change
        file.seek(place % 4096 + 20)
        file.write(queue_offset.to_bytes(8, "big"))
    store = await open_store(tmp_path)
    assert check_only_own(store, written) == written.count - 1
    await store.close()


@pytest.mark.parametrize("at", [0, 5, 9, 15])
@pytest.mark.parametrize("is_negative", [True, False])
async def test_a_damaged_queue_entry_costs_its_own_message(tmp_path: Path, at: int, is_negative: bool) -> None:
    """The queue's first message is searched by the offsets of its entries; a wrong one must hide no others."""
    written = await filled(tmp_path, random.Random(8), is_closed=True)
    entry = (1 << 63 if is_negative else 1 << 40).to_bytes(8, "big")
    with (tmp_path / "consumequeue" / "A" / "0" / f"{at * 20 // 200 * 200:020d}").open("r+b") as file:
        file.seek(at * 20 % 200)
        file.write(entry)
    store = await open_store(tmp_path)
    assert check_only_own(store, written) == written.count - 1
    await store.close()


CHANGES = (*WRITES, "datasync", "sync_directory", "truncate", "rename", "make_directories")


class Acknowledgements:
    """Bodies whose commit or flush was confirmed, as for a producer."""

    def __init__(self) -> None:
        self.committed: set[bytes] = set()
        self.flushed: set[bytes] = set()
        self.errors: list[Exception] = []

    def listen(self, store: DefaultMessageStore, result: PutResult, body: bytes) -> None:
        store.committed.call_beyond(result.last_offset, lambda error: self.told(self.committed, body, error))
        store.flushed.call_beyond(result.last_offset, lambda error: self.told(self.flushed, body, error))

    def told(self, target: set[bytes], body: bytes, error: Exception | None) -> None:
        if error is None:
            target.add(body)
        else:
            self.errors.append(error)


async def run_with(files: FaultyFiles, root: Path, seed: int) -> tuple[Written, Acknowledgements]:
    choose = random.Random(seed)
    written, told = Written(), Acknowledgements()
    try:
        store = await open_store(root, files=files, clock=FakeClock(step_ms=20))
    except (OSError, StoreError) as error:
        told.errors.append(error)
        return written, told
    for _ in range(20):
        for _ in range(choose.randrange(1, 5)):
            result = written.put(store, choose)
            if not result.is_ok:
                assert result.status is PutStatus.SERVICE_NOT_AVAILABLE and result.reason
                continue
            told.listen(store, result, written.last)
        store.commit()
        if choose.random() < 0.4:
            await store.flushing.flush_thoroughly()
    if choose.random() < 0.5:
        try:
            await store.close()
        except OSError as error:
            told.errors.append(error)
            abandon(store)
    else:
        abandon(store)
    return written, told


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO], ids=["full", "broken"])
@pytest.mark.parametrize("count", [1, 1000], ids=["once", "for good"])
async def test_any_call_may_fail(tmp_path: Path, code: int, count: int) -> None:
    """Each changing call fails in turn."""
    probe = FaultyFiles(does_sync=False)
    await run_with(probe, tmp_path / "probe", 1)
    calls = len(probe.noted(*CHANGES))
    assert calls > 100
    for passed in range(0, calls, 3):
        root = tmp_path / f"store{passed}"
        files = FaultyFiles(does_sync=False)
        files.fail(code, *CHANGES, after=passed, times=count, part=0 if passed % 2 else 0.5)
        written, told = await run_with(files, root, 1)
        store = await open_store(root)
        found = {body for bodies in served(store).values() for body in bodies}
        put = {body for bodies in written.bodies.values() for body in bodies}
        assert told.committed | told.flushed <= found <= put, f"call {passed}"
        result = store.append(message("A", 0, b"after"))
        store.commit()
        assert result.is_ok
        await store.close()
        shutil.rmtree(root)


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "killed"])
async def test_a_vanished_file_costs_only_what_was_in_it(tmp_path: Path, is_closed: bool) -> None:
    """Everything that depends on a missing log file is missing; everything else is rebuilt from the log."""
    original = tmp_path / "original"
    written = await filled(original, random.Random(4), is_closed=is_closed)
    victims = [path.relative_to(original) for path in sorted(original.rglob("*")) if path.name != "abort"]
    for victim in victims:
        root = tmp_path / "copy"
        shutil.copytree(original, root)
        target = root / victim
        shutil.rmtree(target) if target.is_dir() else target.unlink()
        store = await open_store(root)
        count = check_only_own(store, written)
        if victim.parts[0] == "commitlog":
            assert len(victim.parts) == 1 or count > written.count - 60
        else:
            assert count == written.count, victim
        put = store.append(message("A", 0, b"after"))
        store.commit()
        assert put.is_ok
        await store.close()
        shutil.rmtree(root)


async def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    written = await filled(tmp_path, random.Random(5), is_closed=True)
    files = FaultyFiles()
    files.fail(errno.EROFS, *WRITES)
    with pytest.raises(OSError, match=r"Read-only file system: .*/lock"):
        await open_store(tmp_path, files=files)
    store = await open_store(tmp_path)
    assert check_only_own(store, written) == written.count
    await store.close()


async def test_a_vanished_file_does_not_stop_retention(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    clock = FakeClock(step_ms=1)
    store = await open_store(tmp_path, clock=clock, file_reserved_time_hours=0)
    for _ in range(100):
        store.append(message("A", 0, bytes(200)))
    store.commit()
    names = sorted(path.name for path in (tmp_path / "commitlog").iterdir())
    (tmp_path / "commitlog" / names[0]).unlink()
    clock.now_ms = 1 << 60
    store.upkeep.delete_files_now()
    assert await store.retention.clean() > 1
    assert store.reading.min_physical_offset > int(names[0])
    await store.close()
