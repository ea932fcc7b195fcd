"""A slave and its master over memory streams: after any failure the slave's log becomes the master's, byte for byte."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from file_faults import FULL, FaultyFiles
from msgspec.structs import replace
from replication_fakes import Line, Pair, assert_prefix, assert_same_queues, fill, log_bytes, open_pair, open_slave
from store_support import abandon, message, open_store
from structlog.testing import capture_logs
from trio.testing import MockClock

from triomq.broker.replication import log_follower
from triomq.broker.replication.frames import REPORT, encode_heartbeat, encode_transfers
from triomq.broker.replication.log_follower import LogFollower
from triomq.broker.replication.slave_link import GIVE_WAY_BYTES, GIVE_WAY_SECONDS, TURN_BYTES, CatchUp
from triomq.protocol import sys_flag
from triomq.store.config import BrokerRole, FlushDiskType
from triomq.store.disk.files import Files
from triomq.store.upkeep import tail_cut
from triomq.store.watermark import Watermark


async def test_a_slave_takes_over_the_log_and_what_comes_later(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path
) -> None:
    pair = await open_pair(nursery, tmp_path, mapped_file_size_commit_log_bytes=1 << 16)
    fill(pair.master, 30)
    pair.start()
    await pair.wait_equal()
    fill(pair.master, 400)  # over file ends
    await pair.wait_equal()
    assert pair.master.reading.max_physical_offset > 2 << 16
    assert_same_queues(pair.slave, pair.master)
    assert len(pair.lines) == 1
    await trio.sleep(0.1)
    assert pair.server.replicated.value == pair.master.reading.max_physical_offset
    found = pair.slave.reading.query_by_key("T", "T0", 10, 0, 1 << 62)
    assert found.physical_offsets == [0]


async def test_a_topic_that_is_deleted_and_made_again_begins_anew_on_the_slave(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path
) -> None:
    pair = await open_pair(nursery, tmp_path, mapped_file_size_commit_log_bytes=1 << 16)
    fill(pair.master, 60)
    fill(pair.master, 9, topic="Other")
    pair.start()
    await pair.wait_equal()
    assert pair.slave.reading.max_offset("T", 0) == 15
    pair.master.upkeep.delete_topic("T")
    fill(pair.master, 22)
    await pair.wait_equal()
    assert pair.slave.reading.max_offset("T", 0) == 6
    assert_same_queues(pair.slave, pair.master)


async def test_a_new_slave_of_a_long_log_begins_with_the_newest_file(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path
) -> None:
    pair = await open_pair(nursery, tmp_path)
    fill(pair.master, 60)
    pair.start()
    await pair.wait_equal()
    newest = pair.master.reading.max_physical_offset // 4096 * 4096
    assert pair.slave.reading.min_physical_offset == newest > 0
    assert_prefix(pair.slave, pair.master)


async def test_a_slave_goes_on_where_it_was_after_each_broken_connection(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path
) -> None:
    pair = await open_pair(nursery, tmp_path, mapped_file_size_commit_log_bytes=1 << 16)
    fill(pair.master, 3)

    def breaks(line: Line) -> None:
        line.break_after = 70_000 + 997 * len(pair.lines)  # at any point

    pair.on_line = breaks
    pair.start()
    await pair.wait_equal()
    for _ in range(12):
        fill(pair.master, 100)
        await trio.sleep(1)
    pair.on_line = lambda line: None
    pair.lines[-1].cut()
    await pair.wait_equal()
    assert len(pair.lines) > 3
    assert_same_queues(pair.slave, pair.master)


async def test_a_half_open_connection_is_given_up_on_both_sides(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path
) -> None:
    pair = await open_pair(nursery, tmp_path)
    fill(pair.master, 5)
    pair.start()
    await pair.wait_equal()
    pair.lines[0].blackhole = True
    fill(pair.master, 5)
    await trio.sleep(3)
    assert len(pair.lines) == 1
    assert pair.server.lag_bytes > 0
    await trio.sleep(7)
    assert len(pair.lines) == 2
    await pair.wait_equal()
    assert len(pair.server.links) == 1


async def test_a_master_that_cannot_be_reached_is_tried_until_it_can(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path
) -> None:
    pair = await open_pair(nursery, tmp_path)
    pair.is_reachable = False
    fill(pair.master, 5)
    pair.start()
    await trio.sleep(60)
    assert not pair.lines
    pair.is_reachable = True
    await pair.wait_equal()


async def test_a_master_that_does_not_respond_is_named_with_the_time_it_got(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path
) -> None:
    async def connect(host: str, port: int) -> trio.abc.Stream:
        await trio.sleep_forever()
        raise AssertionError

    pair = await open_pair(nursery, tmp_path)
    follower = LogFollower(pair.settings, pair.slave, connect)
    follower.master_known("10.0.0.1:10912")
    with capture_logs() as logs:
        nursery.start_soon(follower.run)
        await trio.sleep(60)
    reasons = [entry["reason"] for entry in logs if entry["event"].startswith("master not followed")]
    assert reasons == ["cannot be reached: no response within 5 s"]


async def test_a_slow_line_delays_and_loses_nothing(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path
) -> None:
    pair = await open_pair(nursery, tmp_path, mapped_file_size_commit_log_bytes=1 << 16)

    def slow(line: Line) -> None:
        line.delay_seconds = 0.7

    pair.on_line = slow
    fill(pair.master, 100)
    pair.start()
    await pair.wait_equal()
    assert len(pair.lines) == 1


async def test_one_slave_that_does_not_read_holds_nobody_up(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = await open_pair(nursery, tmp_path, mapped_file_size_commit_log_bytes=1 << 20)
    fill(pair.master, 2000)
    mute, end = trio.testing.lockstep_stream_pair()  # send_all waits until the other side reads
    nursery.start_soon(pair.server.serve, end, "mute")
    await mute.send_all(bytes(7) + b"\x01")
    pair.start()
    await pair.wait_equal()
    assert {link.remote for link in pair.server.links} >= {"mute"}
    await trio.sleep(10)
    assert {link.remote for link in pair.server.links} == {"10.0.0.1:10912"}


# -- logs that end differently ---------------------------------------------------------------------------------------


async def two_histories(
    tmp_path: Path, nursery: trio.Nursery, *, common: int, own: int, others: int, file_bytes: int = 1 << 16
) -> Pair:
    """Create a slave that has `common` messages of its master and then `own` messages of another history; the master
    has `others` instead.
    """
    pair = await open_pair(nursery, tmp_path, mapped_file_size_commit_log_bytes=file_bytes)
    fill(pair.master, common)
    stop = pair.start()
    if common:
        await pair.wait_equal()
    stop.cancel()
    await trio.sleep(0.1)
    await pair.slave.close()
    former = await open_store(
        tmp_path / "slave", broker_role=BrokerRole.ASYNC_MASTER, mapped_file_size_commit_log_bytes=file_bytes
    )
    fill(former, own, topic="Own", body=b"y" * 150)
    await former.close()
    pair.slave = await open_slave(
        tmp_path / "slave",
        mapped_file_size_commit_log_bytes=file_bytes,
        ha_send_heartbeat_interval_ms=1000,
        ha_housekeeping_interval_ms=4000,
    )
    fill(pair.master, others)
    again = Pair(nursery, pair.master, pair.slave)
    again.lines = []
    return again


@pytest.mark.parametrize(
    ("common", "own", "others"),
    [(10, 1, 1), (10, 5, 50), (300, 700, 900), (10, 300, 301), (1, 1, 2), (10, 3000, 2000)],
    ids=str,
)
async def test_an_end_that_the_master_does_not_have_is_cut_and_saved(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path, common: int, own: int, others: int
) -> None:
    pair = await two_histories(tmp_path, nursery, common=common, own=own, others=others)
    before = log_bytes(pair.slave)
    pair.start()
    await pair.wait_equal()
    assert pair.follower.refused is None
    saved = list((tmp_path / "slave" / "salvage").iterdir())
    assert len(saved) == 1
    begin = int(saved[0].name[:20])
    first = pair.slave.reading.min_physical_offset
    assert saved[0].read_bytes() == before[begin - first :]
    assert log_bytes(pair.master, first)[: begin - first] == before[: begin - first]
    fill(pair.master, 20)
    await pair.wait_equal()
    await pair.slave.close()
    reopened = await open_slave(tmp_path / "slave", mapped_file_size_commit_log_bytes=1 << 16)
    assert_prefix(reopened, pair.master)
    assert reopened.reading.max_physical_offset == pair.master.reading.max_physical_offset
    assert_same_queues(reopened, pair.master)
    assert not reopened.reading.query_by_key("Own", f"Own{begin}", 10, 0, 1 << 62).records


@pytest.mark.parametrize(("own", "others"), [(5, 0), (2000, 0), (900, 10)], ids=str)
async def test_a_slave_that_is_ahead_of_its_master_comes_back_to_it(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path, own: int, others: int
) -> None:
    pair = await two_histories(tmp_path, nursery, common=10, own=own, others=others)
    assert pair.slave.reading.max_physical_offset > pair.master.reading.max_physical_offset
    pair.start()
    await pair.wait_equal()
    fill(pair.master, 30)
    await pair.wait_equal()
    assert pair.server.replicated.value <= pair.master.reading.max_physical_offset
    assert_same_queues(pair.slave, pair.master)


async def test_a_cut_goes_down_a_chain_of_slaves(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path
) -> None:
    pair = await two_histories(tmp_path, nursery, common=10, own=700, others=900)
    last = await open_slave(tmp_path / "last", mapped_file_size_commit_log_bytes=1 << 16)
    first_file = log_bytes(pair.slave)[: 1 << 16]
    assert last.replica.append(0, first_file)
    last.replica.dispatch()
    chain = Pair(nursery, pair.slave, last)
    chain.settings.store = replace(chain.settings.store, ha_cut_copied=True)
    pair.chained.append(chain.server)
    chain.start()
    await chain.wait_equal()
    pair.start()
    await pair.wait_equal()
    await chain.wait_equal()
    assert_same_queues(last, pair.master)
    assert len(list((tmp_path / "last" / "salvage").iterdir())) == 1


@pytest.mark.parametrize(("max_saved", "max_bytes", "kept"), [(3, 1 << 30, 3), (16, 6500, 2), (16, 100, 1)], ids=str)
async def test_of_saved_ends_the_oldest_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_saved: int, max_bytes: int, kept: int
) -> None:
    monkeypatch.setattr(tail_cut, "MAX_SAVED", max_saved)
    monkeypatch.setattr(tail_cut, "MAX_SAVED_BYTES", max_bytes)
    master = await open_store(tmp_path / "master", mapped_file_size_commit_log_bytes=1 << 16)
    slave = await open_slave(tmp_path / "slave", mapped_file_size_commit_log_bytes=1 << 16)
    fill(master, 20)
    log = log_bytes(master)
    damaged = tmp_path / "slave" / "salvage" / "00000000000000000000.bin"
    damaged.parent.mkdir()
    damaged.write_bytes(bytes(10_000))  # a file of recovery's, not one of them
    names: list[str] = []
    for number in range(6):
        assert slave.replica.append(slave.reading.max_physical_offset, log[slave.reading.max_physical_offset :])
        slave.replica.dispatch()
        border = await slave.replica.border(len(log) - 1500 - 310 * number)
        saved = await slave.replica.cut(border)
        assert saved is not None
        _age(saved, number, log[border:])
        names.append(Path(saved).name)
    assert {path.name for path in damaged.parent.iterdir()} == {damaged.name, *names[-kept:]}


def _age(saved: str, number: int, expected: bytes) -> None:
    assert Path(saved).read_bytes() == expected
    os.utime(saved, (1000 + number, 1000 + number))


async def test_a_log_without_anything_in_common_is_left_alone(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path
) -> None:
    pair = await two_histories(tmp_path, nursery, common=0, own=300, others=40)
    before = log_bytes(pair.slave)
    pair.start()
    await trio.sleep(200)
    assert pair.follower.refused is not None
    assert "no message in common" in pair.follower.refused
    assert log_bytes(pair.slave) == before
    assert not (tmp_path / "slave" / "salvage").exists()


async def test_a_master_that_is_slow_to_send_is_no_reason_to_refuse(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path
) -> None:
    """Silence proves nothing about its log: a stopped or busy host sends a heartbeat, and the log seconds later."""
    pair = await two_histories(tmp_path, nursery, common=5, own=0, others=3)
    theirs: list[trio.abc.Stream] = []

    async def connect(host: str, port: int) -> trio.abc.Stream:
        mine, other = trio.testing.memory_stream_pair()
        theirs.append(other)
        return mine

    follower = LogFollower(pair.settings, pair.slave, connect)
    follower.master_known("10.0.0.1:10912")
    nursery.start_soon(follower.run)
    await trio.testing.wait_all_tasks_blocked()
    [master] = theirs
    begin = REPORT.unpack(await master.receive_some(REPORT.size))[0]
    await master.send_all(encode_heartbeat(begin))
    await trio.sleep(3)
    assert follower.refused is None
    await master.send_all(encode_transfers(begin, log_bytes(pair.master, begin), 1 << 16))
    await trio.sleep(0.1)
    assert follower.refused is None and follower.agrees
    assert log_bytes(pair.slave) == log_bytes(pair.master)
    assert len(theirs) == 1


async def test_an_empty_master_does_not_empty_its_slave(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path
) -> None:
    pair = await two_histories(tmp_path, nursery, common=0, own=300, others=0)
    before = log_bytes(pair.slave)
    pair.start()
    await trio.sleep(200)
    assert log_bytes(pair.slave) == before
    assert pair.follower.refused is not None


async def test_pulls_that_wait_behind_a_cut_are_woken(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path
) -> None:
    pair = await two_histories(tmp_path, nursery, common=8, own=4, others=40)
    woken: list[Exception | None] = []
    end = pair.slave.reading.queue_end("Own", 0)
    end.call_beyond(end.value, woken.append)
    pair.start()
    await pair.wait_equal()
    assert len(woken) == 1
    assert woken[0] is not None


async def test_a_synchronously_flushing_slave_survives_a_cut(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path
) -> None:
    pair = await two_histories(tmp_path, nursery, common=8, own=400, others=300)
    await pair.slave.close()
    pair.slave = await open_slave(
        tmp_path / "slave", mapped_file_size_commit_log_bytes=1 << 16, flush_disk_type=FlushDiskType.SYNC_FLUSH
    )
    pair = Pair(nursery, pair.master, pair.slave)
    await nursery.start(pair.slave.run)
    pair.start()
    await pair.wait_equal()
    fill(pair.master, 10)
    await pair.wait_equal()
    await trio.sleep(6)
    assert pair.slave.flushed.value == pair.master.reading.max_physical_offset == pair.server.replicated.value


# -- a slave with SYNC_FLUSH reports only what is on disk ------------------------------------------------------------


async def test_a_synchronously_flushing_slave_reports_what_is_on_disk(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path
) -> None:
    pair = await open_pair(nursery, tmp_path, slave={"flush_disk_type": FlushDiskType.SYNC_FLUSH})
    fill(pair.master, 5)
    pair.start()
    await pair.wait_equal()
    await trio.sleep(5)
    assert pair.server.replicated.value == 0  # nothing is flushed: `run` was not started
    await nursery.start(pair.slave.run)
    await trio.sleep(5)
    assert pair.server.replicated.value == pair.master.reading.max_physical_offset


# -- the slave's disk ------------------------------------------------------------------------------------------------


async def test_a_full_disk_stops_the_slave_only_while_it_is_full(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path
) -> None:
    files = FaultyFiles()
    pair = await open_pair(nursery, tmp_path, slave_files=files, mapped_file_size_commit_log_bytes=1 << 16)
    fill(pair.master, 10)
    pair.start()
    await pair.wait_equal()
    full = files.fail(FULL, "pwrite", where="commitlog")
    fill(pair.master, 300)
    await trio.sleep(60)
    assert full.raised > 0
    assert_prefix(pair.slave, pair.master)
    assert pair.server.replicated.value < pair.master.reading.max_physical_offset
    files.mend()
    await pair.wait_equal()
    assert_same_queues(pair.slave, pair.master)


async def test_an_end_that_cannot_be_saved_is_not_cut(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path
) -> None:
    pair = await two_histories(tmp_path, nursery, common=8, own=40, others=50)
    await pair.slave.close()
    files = FaultyFiles()
    pair.slave = await open_slave(tmp_path / "slave", files=files, mapped_file_size_commit_log_bytes=1 << 16)
    pair = Pair(nursery, pair.master, pair.slave)
    before = log_bytes(pair.slave)
    files.fail(FULL, "pwrite", where="salvage")
    pair.start()
    await trio.sleep(100)
    assert log_bytes(pair.slave) == before
    files.mend()
    await pair.wait_equal()


async def test_another_file_size_is_found_out(autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path) -> None:
    pair = await open_pair(nursery, tmp_path, slave={"mapped_file_size_commit_log_bytes": 1 << 16})
    fill(pair.master, 5)
    pair.start()
    await pair.wait_equal()
    fill(pair.master, 60)
    await trio.sleep(60)
    assert "mappedFileSizeCommitLog" in (pair.slave.replica.fault or "")


@pytest.mark.parametrize("seed", range(4))
async def test_log_bytes_in_any_pieces_make_the_same_queues_and_index(tmp_path: Path, seed: int) -> None:
    """Records with IPv4 and IPv6 hosts, with keys and tags, half messages, across file ends."""
    choice = random.Random(seed)
    master = await open_store(tmp_path / "master", mapped_file_size_commit_log_bytes=1 << 16)
    slave = await open_slave(tmp_path / "slave", mapped_file_size_commit_log_bytes=1 << 16)
    keys = []
    for number in range(300):
        changes: dict[str, Any] = {}
        if choice.random() < 0.3:
            changes |= {"born_host": bytes(16) + b"\0\0\x1f\x90", "sys_flag": sys_flag.BORN_HOST_V6}
        elif choice.random() < 0.2:
            changes["sys_flag"] = sys_flag.TRANSACTION_PREPARED
        body = choice.randbytes(choice.randint(0, 900))
        keys.append(f"k{number}")
        tags = choice.choice([None, "a", "b"])
        assert master.append(message("T", number % 3, body, keys=keys[-1], tags=tags, **changes)).is_ok
        master.commit()
    at = 0
    while at < master.reading.max_physical_offset:
        data = master.reading.read_log(at, choice.choice([3, 90, 500, 5000, 40_000]))
        assert slave.replica.append(at, data)
        at += len(data)
        if choice.random() < 0.6:
            slave.replica.dispatch()
    slave.replica.dispatch()
    assert slave.committed.value == master.committed.value
    assert log_bytes(slave) == log_bytes(master)
    assert_same_queues(slave, master)
    for key in keys:
        found = [store.reading.query_by_key("T", key, 10, 0, 1 << 62).physical_offsets for store in (slave, master)]
        assert found[0] == found[1] != []


async def test_the_lag_of_the_best_slave_is_logged(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path
) -> None:
    pair = await open_pair(nursery, tmp_path, mapped_file_size_commit_log_bytes=1 << 16)
    fill(pair.master, 10)
    with capture_logs() as lines:
        pair.server.log_lag()  # 0: a master without slaves is never behind
        pair.start()
        await pair.wait_equal()
        await trio.sleep(1)
        pair.server.log_lag()
        fill(pair.master, 1)
        end = pair.master.reading.max_physical_offset
        pair.server.close_links()
        lag = pair.server.lag_bytes
        await trio.testing.wait_all_tasks_blocked()
        pair.server.log_lag()
    told = [(line["bytes"], line["slaves"]) for line in lines if line["event"] == "slave fall behind master"]
    assert lag > 0
    assert told == [(0, 1), (lag, 0)], f"also when the slave is gone, {end}"


# -- crashes of the slave --------------------------------------------------------------------------------------------


async def test_a_slave_that_is_killed_anywhere_goes_on_from_what_it_has(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path
) -> None:
    pair = await open_pair(nursery, tmp_path, mapped_file_size_commit_log_bytes=1 << 16)
    fill(pair.master, 4)
    slave = pair.slave
    for round_number in range(8):
        pair = Pair(nursery, pair.master, slave)

        def breaks(line: Line, limit: int = 66_000 + 5_003 * round_number) -> None:
            line.break_after = limit

        pair.on_line = breaks
        stop = pair.start()
        await trio.sleep(1)
        fill(pair.master, 100)
        await trio.sleep(1)
        stop.cancel()
        await trio.sleep(0.1)
        abandon(slave)
        slave = await open_slave(
            tmp_path / "slave",
            mapped_file_size_commit_log_bytes=1 << 16,
            ha_send_heartbeat_interval_ms=1000,
            ha_housekeeping_interval_ms=4000,
        )
        assert_prefix(slave, pair.master)
    pair = Pair(nursery, pair.master, slave)
    pair.start()
    await pair.wait_equal()
    assert_same_queues(pair.slave, pair.master)


async def test_a_slave_serves_its_copy_to_another_slave(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path
) -> None:
    pair = await open_pair(nursery, tmp_path, mapped_file_size_commit_log_bytes=1 << 16)
    last = await open_slave(tmp_path / "last", mapped_file_size_commit_log_bytes=1 << 16)
    chain = Pair(nursery, pair.slave, last)
    fill(pair.master, 3)
    pair.start()
    chain.start()
    await pair.wait_equal()
    await chain.wait_equal()
    fill(pair.master, 300)
    await pair.wait_equal()
    await chain.wait_equal()
    assert_same_queues(last, pair.master)


class HalfColdFiles(Files):
    """Every second read finds only a part of its bytes in memory."""

    def __init__(self) -> None:
        self.from_memory: list[int] = []
        self.from_disk: list[int] = []

    def pread_into(self, fd: int, places: Sequence[memoryview], at: int, *, wait: bool = True) -> int:
        if wait:
            self.from_disk.append(super().pread_into(fd, places, at))
            return self.from_disk[-1]
        is_there = len(self.from_memory) % 2 == 1
        self.from_memory.append(super().pread_into(fd, [places[0][:700]], at) if is_there else 0)
        return self.from_memory[-1]


async def test_what_a_slave_lacks_may_be_in_memory_in_part(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path
) -> None:
    files = HalfColdFiles()
    pair = await open_pair(nursery, tmp_path, files=files, mapped_file_size_commit_log_bytes=1 << 20)
    fill(pair.master, 1500)
    pair.start()
    await pair.wait_equal()
    assert len(files.from_disk) == files.from_memory.count(0) > 1
    assert 700 in files.from_memory


async def test_a_slave_that_is_behind_leaves_producers_their_time_and_gains_on_them(autojump_clock: MockClock) -> None:
    committed = Watermark()
    committed.advance(50 * GIVE_WAY_BYTES)
    catch_up = CatchUp(32 * 1024, committed)
    began = trio.current_time()
    sent = 0
    while sent < 20 * GIVE_WAY_BYTES:  # nobody sends
        await catch_up.give_way(TURN_BYTES)
        sent += TURN_BYTES
    assert trio.current_time() == began
    lags = [committed.value - sent]
    committed.advance(committed.value + 7 * GIVE_WAY_BYTES)
    while lags[-1] > 0:  # between two of its turns producers add more than a slave would gain without them
        before = trio.current_time()
        await catch_up.give_way(TURN_BYTES)
        sent += TURN_BYTES
        if trio.current_time() > before:
            assert trio.current_time() - before == pytest.approx(GIVE_WAY_SECONDS)
            lags.append(committed.value - sent)
            committed.advance(committed.value + 7 * GIVE_WAY_BYTES)
    gains = [before - after for before, after in pairwise(lags[2:])]
    assert len(gains) > 10
    assert min(gains) >= GIVE_WAY_BYTES


async def test_a_slave_gives_way_between_steps(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_follower, "RECEIVE_BYTES", 1000)
    pair = await open_pair(nursery, tmp_path, mapped_file_size_commit_log_bytes=1 << 20)
    fill(pair.master, 1000)
    turns = 0

    async def somebody_else() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    pair.start()
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as others:
            others.start_soon(somebody_else)
            while pair.slave.reading.max_physical_offset < pair.master.reading.max_physical_offset:
                await trio.lowlevel.checkpoint()
            scope.cancel()
    assert turns > 300


async def test_to_a_slave_that_has_everything_commits_are_sent_in_passing(
    autojump_clock: MockClock, nursery: trio.Nursery, tmp_path: Path
) -> None:
    pair = await open_pair(nursery, tmp_path, mapped_file_size_commit_log_bytes=1 << 16)
    fill(pair.master, 3)
    pair.start()
    await pair.wait_equal()
    for count in (1, 40, 300, 1, 90):  # over file ends
        fill(pair.master, count)
        await pair.wait_equal()
        await trio.sleep(1.5)  # a heartbeat
    for _ in range(60):
        fill(pair.master, 1)
        await trio.sleep(0.01)
        assert pair.slave.reading.max_physical_offset == pair.master.reading.max_physical_offset
    assert pair.written_now > 30
    assert len(pair.lines) == 1
    assert_same_queues(pair.slave, pair.master)
