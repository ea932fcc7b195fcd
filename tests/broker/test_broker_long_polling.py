"""Held pulls: each gets one response, as soon as there is a message for it, and leaves nothing behind."""

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

from triomq.broker.processors.pull import MAX_WAIT_MS
from triomq.broker.pulls.long_polling import (
    ANSWERING_SECONDS,
    EVICTED_AT_ONCE,
    EVICTED_SHARE,
    FORGET_AT_ONCE,
    PARKED_BYTES,
    PURGE_AT_ONCE,
    RESPONSES_IN_A_ROW,
    RETURN_SECONDS,
    SCAN_ENTRIES,
    LongPolling,
    ParkedPull,
)
from triomq.broker.pulls.message_filter import TagFilter
from triomq.protocol.codes import ResponseCode
from triomq.protocol.command import HELD_BYTES, new_request
from triomq.protocol.frame import encode_frame
from triomq.protocol.headers.pull import PullMessageRequestHeader
from triomq.protocol.java import string_hash
from triomq.remoting.processor_table import Pool
from triomq.store.results import ExtUnit, MessageFilter

TAG_A = TagFilter(frozenset([string_hash("A") & 0xFFFFFFFF]))


class Held:
    """A store, the pulls held on its queue T/0, and those that got a response, in order."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.pool = Pool("pull", 100)
        self.answered: list[ParkedPull] = []
        self.polling = LongPolling(lab.store, self.pool)

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
        end = trio.current_time() + wait_seconds
        pull = ParkedPull(connection, new_request(11), header, end, self.answered.append)
        self.polling.hold_for_news(pull, message_filter)
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


async def test_a_pull_whose_time_is_over_is_answered_then(
    held: Held, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
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


async def test_a_stop_answers_every_held_pull_as_if_its_time_were_over(
    held: Held, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    nursery.start_soon(held.polling.run)
    for number in range(2 * RESPONSES_IN_A_ROW):
        held.park(0, connection=FakeConnection(f"10.0.0.1:{number % 5}"))
    first = held.polling._deadlines[0][2]
    assert isinstance(first, ParkedPull)
    delayed = ParkedPull(held.park(0), new_request(11), first.header, inf, held.answered.append)
    held.polling.hold(delayed, inf)
    began = trio.current_time()
    await held.polling.end()
    assert len(held.answered) == 2 * RESPONSES_IN_A_ROW + 2 and delayed in held.answered
    assert (len(held.polling), held.pool.in_flight) == (0, 0)
    assert all(parked.patience_end <= trio.current_time() for parked in held.answered), "none may be held again"
    assert trio.current_time() - began <= RETURN_SECONDS, "clients that do not pull again hold up no stop for long"
    await held.lab.store.close()


async def test_a_stop_goes_on_when_as_many_pulls_came_as_were_held(
    held: Held, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    nursery.start_soon(held.polling.run)
    began = trio.current_time()
    await held.polling.end()
    assert trio.current_time() == began, "nothing is held"
    held.park(0)
    held.park(0)
    async with trio.open_nursery() as stop:
        stop.start_soon(held.polling.end)
        await trio.testing.wait_all_tasks_blocked()
        assert len(held.answered) == 2
        for _ in range(2):
            assert held.polling.refusal().code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert trio.current_time() == began
    await held.lab.store.close()


async def test_a_stop_does_not_wait_for_more_pulls_than_can_be_answered_in_time(
    held: Held, autojump_clock: trio.testing.MockClock
) -> None:
    held.park(0)
    began = trio.current_time()
    await held.polling.end()  # nothing runs that would answer
    assert trio.current_time() - began <= ANSWERING_SECONDS + RETURN_SECONDS
    await held.lab.store.close()


async def test_every_pull_leaves_the_pool_however_it_ends(
    held: Held, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
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
    cost = 0
    tag_codes = conditions = b""

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
    held: Held, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    """Removing cancelled pulls keeps the order of the other deadlines."""
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
        ends += [parked.patience_end - began for parked in held.answered[len(ends) :]]
        assert ends[-1] == pytest.approx(seconds, abs=0.1)
    assert len(ends) == 6
    await held.lab.store.close()


async def test_in_a_full_pool_the_oldest_pulls_of_who_holds_the_most_make_room(held: Held) -> None:
    greedy, modest = FakeConnection("10.0.0.1:1"), FakeConnection("10.0.0.2:1")
    for number in range(90):
        held.park(number, connection=greedy)
    for number in range(10):
        held.park(number, connection=modest)
    assert held.pool.is_full
    assert held.polling.make_room(FakeConnection("10.0.0.3:1"))  # type: ignore[arg-type]
    assert [parked.connection for parked in held.answered] == [greedy] * (90 // EVICTED_SHARE + 1)
    assert [parked.header.queue_offset for parked in held.answered] == list(range(90 // EVICTED_SHARE + 1))
    assert not held.pool.is_full
    assert not held.polling.make_room(greedy), "it makes no room for itself"  # type: ignore[arg-type]
    await held.lab.store.close()


async def test_no_more_than_a_few_are_evicted_at_once(held: Held) -> None:
    greedy = FakeConnection("10.0.0.1:1")
    held.pool.capacity = 40 * EVICTED_AT_ONCE
    for number in range(40 * EVICTED_AT_ONCE):
        held.park(number, connection=greedy)
    for times in (1, 2):
        assert held.polling.make_room(FakeConnection("10.0.0.3:1"))  # type: ignore[arg-type]
        assert [parked.header.queue_offset for parked in held.answered] == list(range(times * EVICTED_AT_ONCE))
    await held.lab.store.close()


async def test_deadlines_of_answered_pulls_are_cleared_away_in_steps(
    held: Held, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    nursery.start_soon(held.polling.run)
    await trio.testing.wait_all_tasks_blocked()
    count = 8 * PURGE_AT_ONCE  # four times two passes at least
    held.pool.capacity = count + 100
    mine, other = FakeConnection("10.0.0.1:1"), FakeConnection("10.0.0.2:1")
    for number in range(20):
        held.park(0, connection=other, wait_seconds=1 + number)
    for number in range(count):
        held.park(number + 1, connection=mine, wait_seconds=50 + number / count)
    held.polling.connection_closed(mine)  # type: ignore[arg-type]
    steps = before = 0
    for _ in range(100):
        left = len(held.polling._to_purge)
        assert before - left <= 2 * PURGE_AT_ONCE, "two passes may follow each other"
        if left < before:
            steps += 1
            if steps == 3:  # in the middle
                held.park(0, connection=other, wait_seconds=0.5)
        before = left
        await trio.lowlevel.checkpoint()
    assert steps >= 4
    assert len(held.polling._deadlines) == 21
    began = trio.current_time()
    await trio.sleep(0.75)
    assert len(held.answered) == 1
    await trio.sleep(60)
    ends = [parked.patience_end - began for parked in held.answered]
    assert ends == sorted(ends)
    assert len(ends) == 21
    await held.lab.store.close()


async def test_the_pulls_of_a_closed_connection_are_forgotten_in_steps(
    held: Held, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    nursery.start_soon(held.polling.run)
    await trio.testing.wait_all_tasks_blocked()
    held.pool.capacity = 10 * FORGET_AT_ONCE
    gone, other = FakeConnection("10.0.0.1:1"), FakeConnection("10.0.0.2:1")
    for _ in range(9 * FORGET_AT_ONCE):
        held.park(0, connection=gone, wait_seconds=5)
    held.park(0, connection=other)
    gone.close()
    held.polling.connection_closed(gone)  # type: ignore[arg-type]
    assert len(held.polling) == 1
    assert held.pool.in_flight == 8 * FORGET_AT_ONCE + 1
    held.pool.capacity = held.pool.in_flight
    assert held.polling.make_room(other), "of those that are gone"  # type: ignore[arg-type]
    assert held.pool.in_flight == 7 * FORGET_AT_ONCE + 1
    await held.lab.put("T")
    assert [parked.connection for parked in held.answered] == [other]
    before, steps = held.pool.in_flight, 0
    while held.pool.in_flight:
        await trio.lowlevel.checkpoint()
        assert before - held.pool.in_flight <= 2 * FORGET_AT_ONCE, "two passes may follow each other"
        steps += before != held.pool.in_flight
        before = held.pool.in_flight
    assert steps >= 3
    await trio.sleep(10)
    assert len(held.answered) == 1
    await held.lab.store.close()


async def test_who_holds_the_most_is_looked_for_by_address(held: Held) -> None:
    """Many connections do not make a client modest."""
    alone = FakeConnection("10.0.0.1:1")
    many = [FakeConnection(f"10.0.0.2:{port}") for port in range(3)]
    for number in range(40):
        held.park(number, connection=alone)
    for number in range(20):
        for connection in many:
            held.park(number, connection=connection)
    assert held.polling.make_room(alone)  # type: ignore[arg-type]
    assert {parked.connection.remote.ip for parked in held.answered} == {"10.0.0.2"}
    await held.lab.store.close()


async def test_who_held_the_most_is_forgotten_with_its_connection(held: Held) -> None:
    first, second = FakeConnection("10.0.0.1:1"), FakeConnection("10.0.0.2:1")
    assert not held.polling.make_room(first), "nobody holds anything"  # type: ignore[arg-type]
    for number in range(50):
        held.park(number, connection=first)
    held.park(0, connection=second)
    assert held.polling.make_room(second)  # type: ignore[arg-type]
    held.polling.connection_closed(first)  # type: ignore[arg-type]
    del held.answered[:]
    assert held.polling.make_room(first)  # type: ignore[arg-type]
    assert [parked.connection for parked in held.answered] == [second]
    assert len(held.polling) == 0
    await held.lab.store.close()


async def test_one_connection_cannot_keep_the_pulls_of_others_out(tmp_path: Path) -> None:
    async with whole_broker(tmp_path, pullThreadPoolQueueCapacity="40") as broker:
        await broker.create_topic("T", 1)
        await broker.send("T", b"first")
        polling = broker.controller.serving.pull.long_polling
        greedy = await trio.open_tcp_stream(*split(broker.address))
        waits = {"sysFlag": 6, "queueOffset": 1, "suspendTimeoutMillis": 9000}
        fields = {name: str(value) for name, value in pull_fields("T", **waits).items()}
        await greedy.send_all(b"".join(encode_frame(new_request(11, ext_fields=fields)) for _ in range(60)))
        with trio.fail_after(5):
            while len(polling) < 40:
                await trio.lowlevel.checkpoint()
        async with trio.open_nursery() as nursery:
            codes: list[int] = []

            async def wait_for_a_message() -> None:
                codes.append((await broker.pull("T", **waits)).code)

            nursery.start_soon(wait_for_a_message)
            with trio.fail_after(5):
                while len(polling._by_connection) < 2:
                    await trio.lowlevel.checkpoint()
                    assert codes == [], "it was refused"
            await broker.send("T", b"second")
        assert codes == [ResponseCode.SUCCESS]
        await greedy.aclose()


async def test_what_a_turn_has_no_time_for_is_looked_at_later(held: Held) -> None:
    connection = held.park(0, TAG_A)
    connection.is_full = True
    await held.lab.put("T", TAGS="B")
    await held.lab.put("T", TAGS="A")
    assert held.answered == []
    assert len(held.polling) == 1
    connection.is_full = False
    connection.postponed.pop()()
    assert len(held.answered) == 1
    await held.lab.store.close()


async def test_a_postponed_pull_is_answered_once_whatever_comes_first(
    held: Held, autojump_clock: trio.testing.MockClock
) -> None:
    answered_late, closed = FakeConnection(), FakeConnection("10.0.0.2:1")
    for connection in (answered_late, closed):
        held.park(0, connection=connection, wait_seconds=5)
        connection.is_full = True
    await held.lab.put("T")
    held.polling.connection_closed(closed)  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(held.polling.run)
        await trio.sleep(6)
        nursery.cancel_scope.cancel()
    assert [parked.connection for parked in held.answered] == [answered_late]
    for connection in (answered_late, closed):
        for answer in connection.postponed:
            answer()
    assert len(held.answered) == 1
    await held.lab.store.close()


async def test_other_tasks_run_while_many_pulls_end(held: Held, autojump_clock: trio.testing.MockClock) -> None:
    counts: list[int] = []

    async def watch() -> None:
        while len(held.answered) < 200:
            counts.append(len(held.answered))
            await trio.lowlevel.checkpoint()

    for number in range(200):
        held.park(number, wait_seconds=0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(held.polling.run)
        nursery.start_soon(watch)
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    # In each round of the event loop the one or the other may be first.
    assert max(counts) > 0 and all(count % RESPONSES_IN_A_ROW == 0 for count in counts)
    await held.lab.store.close()


async def test_a_parked_pull_counts_as_held_memory_while_it_waits(held: Held) -> None:
    connections = [held.park(0) for _ in range(3)]
    assert {connection.held_bytes for connection in connections} == {PARKED_BYTES + HELD_BYTES}
    held.polling.connection_closed(connections[0])  # type: ignore[arg-type]
    assert connections[0].held_bytes == 0
    await held.lab.put("T")
    assert [connection.held_bytes for connection in connections] == [0, 0, 0]
    await held.lab.store.close()


async def test_while_memory_is_tight_who_holds_the_most_gets_responses_early(held: Held) -> None:
    greedy, modest = FakeConnection("10.0.0.1:1"), FakeConnection("10.0.0.2:1")
    for number in range(50):
        held.park(number, connection=greedy)
    modest.is_memory_tight = True
    held.park(0, connection=modest)
    assert [parked.connection for parked in held.answered] == [greedy] * (50 // EVICTED_SHARE + 1)
    assert [parked.header.queue_offset for parked in held.answered] == list(range(50 // EVICTED_SHARE + 1))
    await held.lab.store.close()


class CostlyFilter:
    """Wants nothing. The store evaluates it for one record at a time. At the first, the turn of its peer is over."""

    cost = 1_000_000
    tag_codes = conditions = b""

    def __init__(self, connection: FakeConnection) -> None:
        self.connection = connection

    def matches_entry(self, tags_code: int, ext: ExtUnit | None) -> bool:
        return True

    def matches_record(self, record: bytes) -> bool:
        self.connection.is_full = True
        return False


async def test_a_search_among_new_entries_ends_with_the_turn(held: Held) -> None:
    for _ in range(3):
        await held.lab.put("T")
    connection = FakeConnection()
    held.park(0, CostlyFilter(connection), connection=connection)
    assert [parked.scanned_offset for parked in held.answered] == [1]
    await held.lab.store.close()


def split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)
