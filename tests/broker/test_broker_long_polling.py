"""Pulls that wait: each is answered once, as soon as there is something for it, and leaves nothing behind."""

from __future__ import annotations

import gc
import weakref
from math import inf
from pathlib import Path

import pytest
import trio
import trio.testing
from broker_fakes import FakeConnection
from broker_store_lab import Lab, WallClock
from broker_whole import pull_fields, whole_broker

from triomq.broker.filters.message_filter import TagFilter
from triomq.broker.long_polling import SCAN_ENTRIES, LongPolling, ParkedPull
from triomq.broker.processors.pull import MAX_WAIT_MS
from triomq.protocol.codes import ResponseCode
from triomq.protocol.command import new_request
from triomq.protocol.headers.pull import PullMessageRequestHeader
from triomq.protocol.java import string_hash
from triomq.remoting.processor_table import Pool
from triomq.store.results import ExtUnit, MessageFilter

TAG_A = TagFilter(frozenset([string_hash("A") & 0xFFFFFFFF]))


class Held:
    """A store, the pulls held on its queue T/0, and which of them were answered, in order."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.pool = Pool("pull", 100)
        self.answered: list[ParkedPull] = []
        self.polling = LongPolling(lab.store, self.pool, self.answered.append)

    def park(
        self,
        queue_offset: int,
        message_filter: MessageFilter | None = None,
        wait_seconds: float = 15,
        connection: FakeConnection | None = None,
    ) -> FakeConnection:
        header = PullMessageRequestHeader(
            consumer_group="G",
            topic="T",
            queue_id=0,
            queue_offset=queue_offset,
            max_msg_nums=32,
            sys_flag=2,
            commit_offset=0,
            suspend_timeout_millis=15_000,
            sub_version=0,
        )
        connection = connection or FakeConnection()
        self.polling.park(connection, new_request(11), header, message_filter, wait_seconds)  # type: ignore[arg-type]
        return connection


@pytest.fixture
async def held(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> Held:
    return await make(tmp_path)


async def make(tmp_path: Path, **store: object) -> Held:
    lab = Lab(tmp_path, WallClock(), {}, store)
    await lab.store.load()
    return Held(lab)


async def test_a_pull_is_answered_by_the_first_message_behind_its_offset(held: Held) -> None:
    held.park(0)
    held.park(1)
    await held.lab.put("T")
    assert [parked.header.queue_offset for parked in held.answered] == [0]
    await held.lab.put("T")
    assert [parked.header.queue_offset for parked in held.answered] == [0, 1]
    await held.lab.store.close()


async def test_a_pull_waits_on_behind_what_its_filter_does_not_want(held: Held) -> None:
    held.park(0, TAG_A)
    for tag in ("B", "C", "B"):
        await held.lab.put("T", TAGS=tag)
        assert held.answered == []
    await held.lab.put("T", TAGS="A")
    assert [parked.scanned_offset for parked in held.answered] == [3]
    await held.lab.store.close()


@pytest.mark.parametrize("with_ext", [False, True])
async def test_a_match_is_found_whatever_the_entries_hold(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, with_ext: bool
) -> None:
    """With enableConsumeQueueExt an entry holds the address of an ext unit in place of its tags code."""
    held = await make(tmp_path, enable_consume_queue_ext=with_ext)
    held.park(0, TAG_A)
    await held.lab.put("T", TAGS="B")
    assert held.answered == []
    await held.lab.put("T", TAGS="A")
    assert len(held.answered) == 1
    await held.lab.store.close()


@pytest.mark.parametrize("with_ext", ["false", "true"])
async def test_a_held_pull_with_a_tag_filter_is_answered_at_once(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, with_ext: str
) -> None:
    autojump_clock.autojump_threshold = 0.2
    async with whole_broker(tmp_path, enableConsumeQueueExt=with_ext) as broker:
        await broker.create_topic("T", 1)
        async with trio.open_nursery() as nursery:
            took: list[float] = []

            async def pull() -> None:
                began = trio.current_time()
                answer = await broker.pull("T", sysFlag=6, suspendTimeoutMillis=9000, subscription="TagA")
                took.append(trio.current_time() - began)
                assert answer.code == ResponseCode.SUCCESS

            assert broker.controller.serving is not None
            polling = broker.controller.serving.pull.long_polling
            nursery.start_soon(pull)
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert len(polling) == 1
            await broker.send("T", properties="TAGS\x01TagB\x02")
            assert took == []
            await broker.send("T", properties="TAGS\x01TagA\x02")
        assert took[0] < 5


async def test_a_pull_whose_time_is_over_is_answered_then(held: Held, nursery: trio.Nursery) -> None:
    nursery.start_soon(held.polling.run)
    await trio.testing.wait_all_tasks_blocked()
    held.park(0, wait_seconds=15)
    held.park(0, wait_seconds=5)
    await trio.sleep(4.9)
    assert held.answered == []
    await trio.sleep(0.2)
    assert len(held.answered) == 1
    await trio.sleep(10)
    assert len(held.answered) == 2
    await held.lab.put("T")
    assert len(held.answered) == 2, "each is answered once"
    await held.lab.store.close()


async def test_every_pull_leaves_the_pool_however_it_ends(held: Held, nursery: trio.Nursery) -> None:
    nursery.start_soon(held.polling.run)
    held.park(0)
    held.park(1, wait_seconds=1)
    gone = held.park(1)
    assert (held.pool.in_flight, len(held.polling)) == (3, 3)
    await held.lab.put("T")
    assert (held.pool.in_flight, len(held.polling)) == (2, 2)
    await trio.sleep(2)
    assert (held.pool.in_flight, len(held.polling)) == (1, 1)
    held.polling.connection_closed(gone)  # type: ignore[arg-type]
    assert (held.pool.in_flight, len(held.polling)) == (0, 0)
    await held.lab.store.close()


async def test_nobody_is_answered_on_a_closed_connection(held: Held) -> None:
    mine, other = held.park(0), held.park(0)
    held.park(0, connection=mine)
    mark = held.lab.store.reading.queue_end("T", 0)
    assert mark.waiter_count == 3
    held.polling.connection_closed(mine)  # type: ignore[arg-type]
    assert mark.waiter_count == 1, "nothing waits for them any more"
    await held.lab.put("T")
    assert [parked.connection for parked in held.answered] == [other]
    await held.lab.store.close()


async def test_pulls_on_a_queue_that_goes_are_answered(held: Held) -> None:
    await held.lab.put("T")
    held.park(1)
    held.park(1, TAG_A)
    held.lab.store.upkeep.delete_topic("T")
    assert len(held.answered) == 2
    assert held.pool.in_flight == 0
    await held.lab.store.close()


async def test_a_window_without_a_match_is_answered_so_that_no_commit_scans_without_bound(held: Held) -> None:
    held.lab.is_committing = False
    held.park(0, TAG_A)
    for _ in range(SCAN_ENTRIES - 1):
        held.lab.store.append(held.lab.message("T", b"", 0, {"TAGS": "B"}))
    held.lab.store.commit()
    assert held.answered == [], "one entry less than a window is scanned"
    for _ in range(SCAN_ENTRIES + 2000):
        held.lab.store.append(held.lab.message("T", b"", 0, {"TAGS": "B"}))
    held.lab.store.commit()
    assert len(held.answered) == 1
    assert held.answered[0].scanned_offset < 2 * SCAN_ENTRIES + 1000
    await held.lab.store.close()


async def test_no_pull_is_held_longer_than_the_longest_hold(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    autojump_clock.autojump_threshold = inf
    async with whole_broker(tmp_path) as broker:
        await broker.create_topic("T", 1)
        assert broker.controller.serving is not None
        fields = pull_fields("T", sysFlag=6, suspendTimeoutMillis=3_600_000)
        connection = FakeConnection()
        request = new_request(11, ext_fields={name: str(value) for name, value in fields.items()})
        assert broker.controller.serving.pull(connection, request) is None  # type: ignore[arg-type]
        autojump_clock.jump(MAX_WAIT_MS / 1000 - 1)
        await trio.testing.wait_all_tasks_blocked()
        assert connection.answers == []
        autojump_clock.jump(2)
        await trio.testing.wait_all_tasks_blocked()
        assert [answer.code for _, answer in connection.answers] == [ResponseCode.PULL_NOT_FOUND]


class RaisingFilter:
    def matches_entry(self, tags_code: int, ext: ExtUnit | None) -> bool:
        raise KeyError("our fault")

    def matches_record(self, record: bytes) -> bool:
        raise KeyError("our fault")


async def test_a_filter_that_raises_costs_its_own_pull_only(held: Held) -> None:
    held.park(0, RaisingFilter())
    held.park(0, TAG_A)
    result = await held.lab.put("T", TAGS="A")
    assert result.is_ok
    assert len(held.answered) == 2
    assert not held.lab.store.is_broken
    await held.lab.store.close()


async def test_a_jump_of_the_clock_ends_no_wait(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    held = await make(tmp_path)
    nursery.start_soon(held.polling.run)
    held.park(0, wait_seconds=15)
    held.polling.time_jumped(3600)
    await trio.sleep(3600)
    assert held.answered == []
    await trio.sleep(16)
    assert len(held.answered) == 1
    await held.lab.store.close()


async def test_answered_pulls_are_not_kept_until_their_time_would_have_come(held: Held) -> None:
    held.park(0, wait_seconds=1e9)
    first = weakref.ref(held.park(0))
    for _ in range(3000):
        held.polling.connection_closed(held.park(0))  # type: ignore[arg-type]
    gc.collect()
    assert first() is not None
    kept = sum(type(each) is ParkedPull for each in gc.get_objects())
    assert kept < 1100
    await held.lab.store.close()


async def test_no_more_than_four_times_as_many_pulls_are_kept_as_are_held(held: Held) -> None:
    waiting = [held.park(0) for _ in range(300)]
    for _ in range(1150):
        held.polling.connection_closed(held.park(0))  # type: ignore[arg-type]
    gc.collect()
    kept = sum(type(each) is ParkedPull for each in gc.get_objects())
    assert len(waiting) <= kept <= 1201
    await held.lab.store.close()


async def test_what_ends_first_is_answered_first_when_the_forgotten_were_cleared_away(
    held: Held, nursery: trio.Nursery
) -> None:
    """Clearing keeps the order in which the others end."""
    nursery.start_soon(held.polling.run)
    await trio.testing.wait_all_tasks_blocked()
    began = trio.current_time()
    gone = FakeConnection()
    for number in range(1100):
        held.park(0, wait_seconds=1 + number / 2000, connection=gone)
    for seconds in (9, 4, 7, 2, 8, 3):
        held.park(0, wait_seconds=seconds)
    held.polling.connection_closed(gone)  # type: ignore[arg-type]
    ends: list[float] = []
    for seconds in (2, 3, 4, 7, 8, 9):
        await trio.sleep_until(began + seconds + 0.5)
        ends += [parked.deadline - began for parked in held.answered[len(ends) :]]
        assert ends[-1] == pytest.approx(seconds, abs=0.1)
    assert len(ends) == 6
    await held.lab.store.close()
