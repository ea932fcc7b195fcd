"""The plain log of a broker that became a member of a group: it lies below the ledger, and both are one log."""

from __future__ import annotations

import errno
import hashlib
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import structlog
from fake_clock import FakeClock
from file_faults import WRITES, FaultyFiles
from golden_data import golden_group, golden_member
from store_faults import RecordingFiles, crash, replay_onto
from store_lab import MemberStore, open_member
from store_support import abandon, message, open_store, small_settings

from triomq.dledger.convert.conversion import to_plain
from triomq.dledger.rules.log import LogRefused
from triomq.protocol import record
from triomq.store.disk.files import Files
from triomq.store.errors import StoreRefused
from triomq.store.message_store import DefaultMessageStore
from triomq.store.upkeep.progress import Silence

OLD_MESSAGES = 40
FILE_BYTES = 4096
GOLDEN_SIZES = {
    "mapped_file_size_commit_log_bytes": 65536,
    "mapped_file_size_consume_queue_bytes": 20000,
    "max_hash_slot_num": 1000,
    "max_index_num": 4000,
    "max_message_size_bytes": 16384,
}


def old_body(number: int) -> bytes:
    return b"old %d " % number + b"x" * 100


OLD_BODIES = [old_body(number) for number in range(OLD_MESSAGES)]


async def plain_store(root: Path, *, count: int = OLD_MESSAGES, files: Files | None = None) -> DefaultMessageStore:
    """A plain broker's store with messages in one queue, still open."""
    store = await open_store(root, clock=FakeClock(step_ms=1), files=files)
    for number in range(count):
        assert store.append(message(body=old_body(number), keys=f"old{number}")).is_ok
        store.commit()
    return store


async def closed_plain_store(root: Path, *, count: int = OLD_MESSAGES) -> int:
    """Return where its log ended."""
    store = await plain_store(root, count=count)
    end = store.committed.value
    await store.close()
    return end


def plain_names(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "commitlog").iterdir())


def data_names(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "dledger-n0" / "data").iterdir())


def behind(offset: int) -> int:
    """The start of the next file."""
    return offset + FILE_BYTES - offset % FILE_BYTES


async def put_new(member: MemberStore, *bodies: bytes) -> None:
    for body in bodies:
        assert member.put(body=body, keys="new").is_ok
    member.commit_all()
    await member.dispatch()


async def restarted(member: MemberStore, *, is_killed: bool) -> MemberStore:
    if is_killed:
        abandon(member.store)
    else:
        member.save_committed()
        await member.store.close()
    return await open_member(member.root)


def expectation() -> dict[str, Any]:
    value: dict[str, Any] = json.loads((golden_group("dledger") / "old_log" / "expect.json").read_bytes())
    return value


def real_store(member: str, target: Path) -> Path:
    """Unpack the store of a real member, and let its ledger be that of n0."""
    root = golden_member("old_log", member, target)
    if member != "n0":
        (root / f"dledger-{member}").rename(root / "dledger-n0")
    return root


def log_bytes(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for part in ("commitlog", "dledger-n0/data")
        for path in (root / part).iterdir()
    }


def digests(member: MemberStore, topic: str, queue_id: int) -> list[str]:
    return [hashlib.sha256(body).hexdigest()[:16] for body in member.bodies(topic, queue_id)]


@pytest.mark.parametrize("name", ["n0", "n1", "n2"])
@pytest.mark.parametrize("are_queues_there", [True, False])
async def test_every_message_of_a_real_member_with_an_older_log_is_at_its_queue_offset(
    name: str, are_queues_there: bool, tmp_path: Path
) -> None:
    root = real_store(name, tmp_path)
    if not are_queues_there:
        shutil.rmtree(root / "consumequeue")
        (root / "abort").touch()
    before = log_bytes(root)
    member = MemberStore(root, FakeClock(step_ms=1), **GOLDEN_SIZES)
    member.ledger.index.file_size_bytes = 167_772_160
    await member.load()
    wanted: dict[int, list[str]] = {}
    for topic, queue_id, queue_offset, digest in sorted(expectation()["acknowledged"]):
        assert topic == "Ledger" and queue_offset == len(wanted.setdefault(queue_id, []))
        wanted[queue_id].append(digest)
    assert {queue_id: digests(member, "Ledger", queue_id) for queue_id in wanted} == wanted
    assert sum(map(len, wanted.values())) == 180
    assert member.store.reading.min_physical_offset == 0
    await member.store.close()
    assert log_bytes(root) == before, "a start changes nothing in the log"


@pytest.mark.parametrize("name", ["n0", "n1", "n2"])
async def test_the_store_of_a_real_member_with_an_older_log_becomes_a_plain_one(name: str, tmp_path: Path) -> None:
    root = real_store(name, tmp_path)
    settings = small_settings(root, **GOLDEN_SIZES)
    report = await to_plain(settings, str(tmp_path / "plain"), "n0", Silence())
    assert report.left_out == []
    store = await open_store(tmp_path / "plain", **GOLDEN_SIZES)
    for topic, queue_id, queue_offset, digest in expectation()["acknowledged"]:
        [data] = store.reading.get_messages(topic, queue_id, queue_offset, 1).records
        fields = record.read_fields(data, 0, len(data))
        body = data[fields.body_at : fields.body_at + fields.body_length]
        assert (fields.queue_offset, hashlib.sha256(body).hexdigest()[:16]) == (queue_offset, digest)


async def test_a_plain_log_ends_as_rocketmq_ends_it(tmp_path: Path) -> None:
    """The filler and the name of the ledger's first file, byte for byte."""
    root = real_store("n0", tmp_path)
    expected = expectation()
    real = log_bytes(root)
    shutil.rmtree(root / "dledger-n0")
    shutil.rmtree(root / "consumequeue")
    filler = expected["plain_end"]
    with (root / "commitlog" / f"{filler['file']:020}").open("r+b") as file:
        file.seek(filler["filler_at"] - filler["file"])
        file.write(bytes(8))
    member = await open_member(root, **GOLDEN_SIZES)
    assert member.store.committed.value == expected["divided_commitlog_offset"] == member.ledger.end_pos
    found = log_bytes(root)
    assert found.keys() == real.keys()
    assert {name: data for name, data in found.items() if "commitlog" in name} == {
        name: data for name, data in real.items() if "commitlog" in name
    }


@pytest.mark.parametrize("was_killed", [False, True])
@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_plain_store_becomes_that_of_a_member(tmp_path: Path, was_killed: bool, is_killed: bool) -> None:
    if was_killed:
        abandon(await plain_store(tmp_path))
    else:
        await closed_plain_store(tmp_path)
    plain = plain_names(tmp_path)
    member = await open_member(tmp_path)
    begin = member.ledger.end_pos
    assert begin == int(plain[-1]) + FILE_BYTES and data_names(tmp_path) == [f"{begin:020}"]
    assert plain_names(tmp_path) == plain and len(plain) > 1
    assert member.bodies() == OLD_BODIES, "all that the plain broker stored is committed"
    assert member.store.committed.value == begin
    member = await restarted(member, is_killed=is_killed)
    assert member.ledger.end_pos == begin and member.bodies() == OLD_BODIES
    await member.lead()
    first = member.put(body=b"new 0")
    assert (first.physical_offset, first.queue_offset) == (begin + 48, OLD_MESSAGES)
    news = [b"new %d " % number + b"y" * 100 for number in range(1, 60)]
    await put_new(member, *news)
    assert member.bodies() == [*OLD_BODIES, b"new 0", *news]
    for _ in range(2):
        member.save_committed()
        member = await restarted(member, is_killed=is_killed)
        assert member.bodies() == [*OLD_BODIES, b"new 0", *news]
        assert member.store.reading.min_physical_offset == 0 == member.first_offset()
        for key, count in (("old7", 1), ("old39", 1), ("new", 59)):
            assert len(member.store.reading.offsets_by_key("T", key, 100, 0, 1 << 62)) == count
    await member.lead()
    assert member.put().queue_offset == OLD_MESSAGES + 60


async def test_queues_are_made_again_from_both_logs(tmp_path: Path) -> None:
    await closed_plain_store(tmp_path)
    member = await open_member(tmp_path)
    await member.lead()
    await put_new(member, b"new")
    member.save_committed()
    await member.store.close()
    shutil.rmtree(tmp_path / "consumequeue")
    shutil.rmtree(tmp_path / "index")
    again = await open_member(tmp_path)
    assert again.bodies() == [*OLD_BODIES, b"new"]
    assert again.store.reading.offsets_by_key("T", "old0", 10, 0, 1 << 62)


async def test_messages_are_found_by_time_and_by_physical_offset_in_both_logs(tmp_path: Path) -> None:
    await closed_plain_store(tmp_path)
    member = await open_member(tmp_path, FakeClock(1_800_000_000_000, step_ms=1))
    await member.lead()
    await put_new(member, b"new")
    reading = member.store.reading
    assert reading.earliest_log_time() < 1_700_000_001_000
    assert reading.queue_offset_by_time("T", 0, 1_750_000_000_000) == OLD_MESSAGES
    for queue_offset in (0, OLD_MESSAGES):
        [data] = reading.get_messages("T", 0, queue_offset, 1).records
        at = record.read_fields(data, 0, len(data)).physical_offset
        assert member.log.record_at(at) == bytes(data)


@pytest.mark.parametrize("was_killed", [False, True])
async def test_a_kill_at_any_step_of_the_first_start_changes_nothing(tmp_path: Path, was_killed: bool) -> None:
    plain = tmp_path / "plain"
    if was_killed:
        abandon(await plain_store(plain))
    else:
        await closed_plain_store(plain)
    begins = set()
    for changes in range(1000):
        root = tmp_path / f"{changes}"
        shutil.copytree(plain, root)
        files = FaultyFiles()
        files.fail(KeyboardInterrupt(), *WRITES, "truncate", "datasync", "sync_directory", after=changes)
        member = MemberStore(root, FakeClock(step_ms=1), files)
        is_whole = False
        try:
            await member.load()
            is_whole = True
        except KeyboardInterrupt:
            pass
        abandon(member.store)
        again = await open_member(root)
        assert again.bodies() == OLD_BODIES
        begins.add(again.ledger.end_pos)
        abandon(again.store)
        shutil.rmtree(root)
        if is_whole:
            break
    assert changes > 10 and begins == {int(plain_names(plain)[-1]) + FILE_BYTES}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("was_killed", [False, True], ids=["stopped", "killed"])
async def test_a_power_failure_at_any_step_of_the_first_start_takes_nothing_that_was_on_disk(
    tmp_path: Path, was_killed: bool, seed: int
) -> None:
    """Also if the power fails again in the start after it. When the first start has ended, the whole older log is on
    disk, also what the killed broker had not synced: the other members have it."""
    choose = random.Random(seed)
    files = RecordingFiles()
    plain = await plain_store(tmp_path / "plain", count=OLD_MESSAGES - 5, files=files)
    synced = OLD_MESSAGES
    if was_killed:
        synced = OLD_MESSAGES - 5
        await plain.flushing.flush_thoroughly()
    for number in range(OLD_MESSAGES - 5, OLD_MESSAGES):
        assert plain.append(message(body=old_body(number), keys=f"old{number}")).is_ok
        plain.commit()
    if was_killed:
        abandon(plain)
    else:
        await plain.close()
    root, begin = tmp_path / "plain", len(files.journal)
    member = await MemberStore(root, FakeClock(step_ms=1), files).load()
    member_begin, end = member.ledger.end_pos, len(files.journal)
    abandon(member.store)
    for at in range(begin, end + 1):
        image, twin = tmp_path / f"image{at}", tmp_path / f"twin{at}"
        image.mkdir()
        crash(files.journal, at, str(root), image, choose, choose.choice((0.0, 0.3, 0.7, 1.0)))
        shutil.copytree(image, twin)
        start = RecordingFiles()
        abandon((await MemberStore(image, FakeClock(step_ms=1), start).load()).store)
        replay_onto(start, str(image), twin, choose)
        for directory in (image, twin):
            again = await open_member(directory)
            kept = len(again.bodies())
            assert again.bodies() == OLD_BODIES[:kept] and kept >= (OLD_MESSAGES if at == end else synced)
            assert again.ledger.end_pos == member_begin or at < end
            await again.lead()
            await put_new(again, b"new")
            again = await restarted(again, is_killed=choose.random() < 0.5)
            again.commit_all()
            await again.dispatch()
            assert again.bodies() == [*OLD_BODIES[:kept], b"new"]
            abandon(again.store)
            shutil.rmtree(directory)
    assert end - begin > 10


async def test_a_full_disk_refuses_the_first_start_and_the_next_one_succeeds(tmp_path: Path) -> None:
    await closed_plain_store(tmp_path)
    files = FaultyFiles()
    files.fail(errno.ENOSPC, *WRITES, where="dledger-n0/data")
    with pytest.raises(OSError, match="No space"):
        await MemberStore(tmp_path, FakeClock(step_ms=1), files).load()
    assert (await open_member(tmp_path)).bodies() == OLD_BODIES


async def test_an_empty_last_file_is_filled_since_rocketmq_begins_behind_it(tmp_path: Path) -> None:
    """A broker that is killed may leave the file that it has made ahead."""
    store = await plain_store(tmp_path)
    last = store.contents.log.sequence.files[-1]
    abandon(store)
    (tmp_path / "commitlog" / f"{last.end:020}").write_bytes(bytes(FILE_BYTES))
    with (tmp_path / "commitlog" / last.name).open("r+b") as file:
        at = store.committed.value - last.start
        file.seek(at)
        file.write(record.encode_blank(FILE_BYTES - at))
    member = await open_member(tmp_path)
    assert member.ledger.end_pos == last.end + FILE_BYTES
    assert (tmp_path / "commitlog" / f"{last.end:020}").read_bytes()[:8] == record.encode_blank(FILE_BYTES)
    member = await restarted(member, is_killed=True)
    assert member.bodies() == OLD_BODIES


async def test_retention_deletes_the_older_log_first_and_then_the_ledger(tmp_path: Path) -> None:
    clock = FakeClock(step_ms=1)
    await closed_plain_store(tmp_path)
    member = await open_member(tmp_path, clock, file_reserved_time_hours=1, delete_commit_log_files_interval_ms=0)
    await member.lead()
    await put_new(member, *[b"z" * 100] * 60)
    begin, plain = int(data_names(tmp_path)[0]), plain_names(tmp_path)
    clock.now_ms = int((tmp_path / "dledger-n0" / "data" / data_names(tmp_path)[-1]).stat().st_mtime * 1000)
    retention = member.store.retention
    clock.now_ms += 10 * 3_600_000
    for name in plain:
        member.store.files.set_modified(str(tmp_path / "commitlog" / name), clock.now_ms - 2 * 3_600_000)
    for name in data_names(tmp_path):
        member.store.files.set_modified(str(tmp_path / "dledger-n0" / "data" / name), clock.now_ms)
    retention._manual_runs = 5
    assert await retention.clean() == len(plain)
    assert plain_names(tmp_path) == [] and member.ledger.begin_index == 0
    assert member.store.reading.min_physical_offset == begin
    assert member.first_offset() == OLD_MESSAGES
    assert member.store.reading.earliest_log_time() > 0
    member.store.files.set_modified(str(tmp_path / "dledger-n0" / "data" / f"{begin:020}"), 1000)
    assert await retention.clean() == 1
    assert member.ledger.begin_index > 0 and member.store.reading.min_physical_offset == begin + FILE_BYTES
    await put_new(member, b"end")
    member = await restarted(member, is_killed=False)
    assert member.bodies_from(member.first_offset())[-1] == b"end"


async def test_a_start_between_deletions_of_the_older_log_finds_the_rest(tmp_path: Path) -> None:
    await closed_plain_store(tmp_path)
    member = await open_member(tmp_path)
    file = member.log.detach_first()
    member.store.files.unlink(file.path)
    member = await restarted(member, is_killed=True)
    assert member.store.reading.min_physical_offset == FILE_BYTES
    first = member.first_offset()
    assert 0 < first < OLD_MESSAGES and member.bodies_from(first) == OLD_BODIES[first:]


async def three_of(tmp_path: Path) -> list[MemberStore]:
    clock = FakeClock(1_750_000_000_000, step_ms=1)
    await closed_plain_store(tmp_path / "n0")
    for name in ("n1", "n2"):
        shutil.copytree(tmp_path / "n0", tmp_path / name)
    return [await open_member(tmp_path / name, clock) for name in ("n0", "n1", "n2")]


async def test_members_with_copies_of_one_plain_log_have_the_same_log(tmp_path: Path) -> None:
    leader, *followers = await three_of(tmp_path)
    await leader.lead()
    await put_new(leader, *[b"new %d" % number for number in range(70)])
    for follower in followers:
        follower.ledger.reset(leader.ledger.entry(0))  # what a leader does with a member that has no entry
        follower.store.quorum.replaced(follower.ledger.begin_pos)
        follower.copy_from(leader)
        follower.commit_all()
        await follower.dispatch()
        assert follower.bodies() == leader.bodies() != []
    for member in (leader, *followers):
        await member.store.flushing.flush_thoroughly()
    assert log_bytes(leader.root) == log_bytes(followers[0].root) == log_bytes(followers[1].root)
    followers[0].term = 2
    await followers[0].lead()
    assert followers[0].put().queue_offset == OLD_MESSAGES + 70


async def test_a_member_with_another_plain_log_takes_nothing_and_says_so(tmp_path: Path) -> None:
    leader = (await three_of(tmp_path))[0]
    await leader.lead()
    await put_new(leader, b"new")
    for count in (5, 90):
        root = tmp_path / f"other{count}"
        await closed_plain_store(root, count=count)
        other = await open_member(root)
        before = log_bytes(root)
        with structlog.testing.capture_logs() as logs:
            for _ in range(3):
                with pytest.raises(LogRefused, match="the older log of this member ends at"):
                    other.ledger.reset(leader.ledger.entry(0))
        assert [each["log_level"] for each in logs] == ["error"], "once"
        assert "replace commitlog, consumequeue and index by the leader's" in logs[0]["reason"]
        assert log_bytes(root) == before and len(other.bodies()) == count
        abandon(other.store)
        assert len((await open_member(root)).bodies()) == count


async def test_an_empty_member_begins_where_its_leaders_ledger_does_with_a_warning(tmp_path: Path) -> None:
    leader = (await three_of(tmp_path))[0]
    await leader.lead()
    await put_new(leader, b"new")
    empty = await open_member(tmp_path / "empty")
    with structlog.testing.capture_logs() as logs:
        empty.ledger.reset(leader.ledger.entry(0))
    assert [each["log_level"] for each in logs] == ["warning"]
    empty.store.quorum.replaced(empty.ledger.begin_pos)
    empty.commit_all()
    await empty.dispatch()
    assert empty.bodies_from(empty.first_offset()) == [b"new"]


async def test_a_ledger_does_not_start_on_another_plain_log_than_its_own(tmp_path: Path) -> None:
    await closed_plain_store(tmp_path)
    abandon((await open_member(tmp_path)).store)
    last = tmp_path / "commitlog" / plain_names(tmp_path)[-1]
    kept = last.read_bytes()
    last.unlink()
    with pytest.raises(StoreRefused, match="move the plain files out of"):
        await open_member(tmp_path)
    last.write_bytes(kept)
    further = last.with_name(f"{int(last.name) + FILE_BYTES:020}")
    further.write_bytes(bytes(FILE_BYTES))
    with pytest.raises(StoreRefused, match="the older log is not the one that this member began with"):
        await open_member(tmp_path)
    further.unlink()
    assert (await open_member(tmp_path)).bodies() == OLD_BODIES


async def test_a_damaged_record_of_the_older_log_costs_only_itself(tmp_path: Path) -> None:
    """The leader cannot send it again, so it is taken out as a plain broker does."""
    await closed_plain_store(tmp_path)
    member = await open_member(tmp_path)
    await member.lead()
    await put_new(member, b"new")
    member.save_committed()
    await member.store.flushing.flush_thoroughly()
    abandon(member.store)
    with (tmp_path / "commitlog" / f"{0:020}").open("r+b") as file:
        data = file.read()
        at = data.index(old_body(3))
        file.seek(at)
        file.write(b"damaged")
    shutil.rmtree(tmp_path / "consumequeue")
    again = await open_member(tmp_path)
    bodies = [*OLD_BODIES[:3], *OLD_BODIES[4:], b"new"]
    assert again.bodies_from(4) == bodies[3:] and set(again.bodies()) == set(bodies)


async def test_an_older_log_whose_end_is_damaged_is_not_cut(tmp_path: Path) -> None:
    await closed_plain_store(tmp_path)
    abandon((await open_member(tmp_path)).store)
    last = tmp_path / "commitlog" / plain_names(tmp_path)[-1]
    whole = last.read_bytes()
    last.write_bytes(whole[: whole.rindex(old_body(OLD_MESSAGES - 1))].ljust(FILE_BYTES, b"\1"))
    damaged = log_bytes(tmp_path)
    with pytest.raises(StoreRefused, match="copy its files from another member"):
        await open_member(tmp_path)
    assert log_bytes(tmp_path) == damaged
    last.write_bytes(whole)
    assert (await open_member(tmp_path)).bodies() == OLD_BODIES


async def test_a_store_without_messages_grows_too(tmp_path: Path) -> None:
    store = DefaultMessageStore(small_settings(tmp_path), now_ms=FakeClock(step_ms=1))
    await store.load()
    await store.close()
    member = await open_member(tmp_path)
    await member.lead()
    assert member.put().physical_offset == 48
