"""A transaction ends once: whatever asks again, whatever crashes, whichever copy of the half message is named."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from broker_store_lab import STORE_HOST, WallClock
from broker_transaction_lab import COMMIT, ROLLBACK, Transactions, open_transactions
from broker_whole import send_fields, whole_broker
from hypothesis import given
from hypothesis import strategies as st

from triomq.broker.errors import TransactionEnded
from triomq.broker.message_writer import PendingPut
from triomq.broker.transactions.ends import (
    COMMITTED,
    DISCARDED,
    ENDED,
    ENDS,
    OPEN,
    ROLLED_BACK,
    UNKNOWN,
    HalfStates,
)
from triomq.broker.transactions.records import op_to_store
from triomq.broker.transactions.transactions import TransactionLog
from triomq.protocol.speedups import running_build
from triomq.protocol.system_topics import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from triomq.store.config import FlushDiskType
from triomq.store.disk.files import Data
from triomq.store.results import GetResult, GetStatus, MessageToStore, PutResult, PutStatus

CHECKED = "long ago"


def copy_of_last(transactions: Transactions) -> PutResult:
    """The last half message, as the result of its put."""
    last = transactions.lab.messages(TRANS_HALF_TOPIC)[-1]
    return PutResult(
        PutStatus.PUT_OK,
        physical_offset=last.physical_offset,
        size_bytes=last.store_size_bytes,
        queue_offset=last.queue_offset,
    )


def ended_as(transactions: Transactions, half: PutResult, how: int) -> int:
    """The code of the response to END_TRANSACTION."""
    response = transactions.end(half, how)
    assert response is not None
    return response.code


# -- in memory ------------------------------------------------------------------------------------------------------


def test_whatever_ends_one_of_a_chain_ends_all_of_it() -> None:
    states = HalfStates(10)
    states.note_copy(10, 12)
    states.note_copy(12, 15)
    states.note_end(10, COMMITTED)
    assert [states.state(offset) for offset in (9, 10, 11, 12, 15, 16)] == [
        *(UNKNOWN, COMMITTED, OPEN, COMMITTED, COMMITTED, OPEN)
    ]
    states.note_end(15, ROLLED_BACK)
    assert states.state(15) == COMMITTED, "the first end counts"


def test_a_discarded_one_may_still_be_decided() -> None:
    states = HalfStates(0)
    states.note_copy(0, 1)
    states.note_discarded(1)
    assert states.is_passed(0)
    assert states.is_passed(1)
    assert not states.has_ended(0)
    states.note_end(0, ROLLED_BACK)
    assert states.state(1) == ROLLED_BACK


def test_what_was_not_stored_is_open_again() -> None:
    states = HalfStates(0)
    states.note_end(3, COMMITTED)
    states.reopen(3, OPEN)
    assert states.state(3) == OPEN
    assert not states.is_passed(3)


def test_no_more_than_a_window_is_remembered() -> None:
    states = HalfStates(0, window=100)
    for offset in range(1000):
        states.note_end(offset, COMMITTED)
        assert len(states) <= 100
        assert states.state(offset) == COMMITTED
    assert states.state(1000 - 51) == COMMITTED
    assert states.state(800) == UNKNOWN
    states.note_end(800, ROLLED_BACK)
    states.note_end(10**12, COMMITTED)
    assert len(states) <= 100
    assert states.state(10**12) == COMMITTED


@given(st.lists(st.tuples(st.integers(0, 30), st.sampled_from(["end", "copy", "discard"]), st.integers(0, 40))))
def test_states_are_those_of_a_plain_model(steps: list[tuple[int, str, int]]) -> None:
    states = HalfStates(5)
    copies: dict[int, int] = {}
    ends: dict[int, int] = {}

    def last(offset: int) -> int:
        while offset in copies:
            offset = copies[offset]
        return offset

    for offset, what, more in steps:
        is_free = offset >= 5 and offset not in copies and offset not in ends
        if what == "end":
            state = ENDS[more % 3]
            states.note_end(offset, state)
            if offset >= 5 and ends.get(last(offset), DISCARDED) == DISCARDED:
                ends[last(offset)] = state
        elif what == "copy":
            states.note_copy(offset, more)
            if is_free and more > offset:
                copies[offset] = more
        else:
            states.note_discarded(offset)
            if is_free:
                ends[offset] = DISCARDED
    for offset in range(5, 45):
        assert states.state(offset) == ends.get(last(offset), OPEN)
        assert states.is_passed(offset) == (offset in copies or offset in ends)


# -- a second end ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "code", "delivered"),
    [
        (COMMIT, COMMIT, 0, [b"pay"]),
        (ROLLBACK, ROLLBACK, 0, []),
        (ROLLBACK, COMMIT, "The transaction is rolled back already.", []),
        (COMMIT, ROLLBACK, "The transaction is committed already.", [b"pay"]),
    ],
)
@pytest.mark.parametrize("is_restarted", [False, True])
async def test_the_first_end_counts(
    tmp_path: Path,
    autojump_clock: trio.testing.MockClock,
    first: int,
    second: int,
    code: int | str,
    delivered: list[bytes],
    is_restarted: bool,
) -> None:
    clock = WallClock()
    async with open_transactions(tmp_path, now_ms=clock) as transactions:
        await transactions.lab.put_half("Other")
        half = await transactions.lab.put_half("T", b"pay")
        assert ended_as(transactions, half, first) == 0
        if not is_restarted:
            await again(transactions, half, second, code, delivered)
    if is_restarted:
        async with open_transactions(tmp_path, now_ms=clock) as transactions:
            await transactions.log.load()
            await again(transactions, half, second, code, delivered)


async def again(transactions: Transactions, half: PutResult, how: int, code: int | str, delivered: list[bytes]) -> None:
    if isinstance(code, str):
        with pytest.raises(TransactionEnded, match=code):
            transactions.end(half, how)
    else:
        assert ended_as(transactions, half, how) == code
    assert transactions.lab.bodies("T") == delivered
    assert transactions.lab.bodies(TRANS_OP_HALF_TOPIC) == [b"1"]
    assert transactions.pool.in_flight == 0


@pytest.mark.parametrize("flush", FlushDiskType)
async def test_of_two_commits_at_once_both_wait_for_the_one_message(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, flush: FlushDiskType
) -> None:
    async with open_transactions(tmp_path, store={"flush_disk_type": flush}) as transactions:
        lab = transactions.lab
        half = await lab.put_half("T", b"pay", WAIT="true")
        lab.is_committing = False
        assert transactions.end(half, COMMIT) is None
        assert transactions.end(half, COMMIT) is None, "nothing is answered before it is written"
        lab.store.commit()
        if flush is FlushDiskType.SYNC_FLUSH:
            assert transactions.producer.answers == [], "nothing is answered before it is on disk"
            async with trio.open_nursery() as nursery:
                await nursery.start(lab.store.run)
                await lab.store.flushed.wait_beyond(lab.store.appended_offset - 1)
                nursery.cancel_scope.cancel()
        assert [response.code for _, response in transactions.producer.answers] == [0, 0]
        assert lab.bodies("T") == [b"pay"]
        assert transactions.pool.in_flight == 0


async def test_a_half_message_in_the_buffer_can_be_ended(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """With transientStorePoolEnable the store holds messages back; a producer does not wait for that."""
    async with open_transactions(tmp_path, store={"transient_store_pool_enable": True}) as transactions:
        lab = transactions.lab
        half = await lab.put_half("T", b"pay", WAIT="true")
        assert lab.store.committed.value <= half.physical_offset < lab.store.accepted.value, "it is in the buffer"
        assert ended_as_soon_as_possible(transactions, half) == 0
        lab.store.commit_buffer()
        assert lab.bodies("T") == [b"pay"]


def ended_as_soon_as_possible(transactions: Transactions, half: PutResult) -> int:
    """The code of the response to a commit, whether it is returned or sent later."""
    response = transactions.end(half, COMMIT)
    transactions.lab.store.commit()
    return response.code if response is not None else transactions.producer.answers[-1][1].code


async def test_a_put_behind_a_repeated_commit_waits_for_its_own_bytes(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_transactions(tmp_path, store={"flush_disk_type": FlushDiskType.SYNC_FLUSH}) as transactions:
        lab = transactions.lab
        half = await lab.put_half("T", b"pay", WAIT="true")
        transactions.end(half, COMMIT)
        transactions.end(half, COMMIT)
        written = lab.store.appended_offset
        lab.is_committing = False
        pending = PendingPut()
        lab.writer.put(lab.message("T", b"more", 0, {}), True, pending)
        async with trio.open_nursery() as nursery:
            await nursery.start(lab.store.run)
            await lab.store.flushed.wait_beyond(written - 1)
            assert [response.code for _, response in transactions.producer.answers] == [0, 0]
            assert not pending.is_finished
            lab.store.commit()
            await lab.store.flushed.wait_beyond(lab.store.appended_offset - 1)
            assert pending.is_finished
            nursery.cancel_scope.cancel()


async def test_a_commit_that_the_disk_had_no_space_for_can_be_repeated(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_transactions(tmp_path) as transactions:
        lab = transactions.lab
        half, other = await lab.put_half("T", b"pay"), await lab.put_half("T", b"other")
        pwrite = lab.store.files.pwrite
        failures = [errno.ENOSPC]

        def full(fd: int, data: Data, at: int) -> None:
            if failures:
                raise OSError(failures.pop(), "as asked")
            pwrite(fd, data, at)

        monkeypatch.setattr(lab.store.files, "pwrite", full)
        lab.is_committing = False
        transactions.end(half, COMMIT)
        transactions.end(half, COMMIT)
        transactions.end(other, COMMIT)
        lab.store.commit()
        assert [response.code for _, response in transactions.producer.answers] == [14, 14, 14]
        lab.is_committing = True
        assert ended_as(transactions, half, COMMIT) == 0
        assert ended_as(transactions, half, COMMIT) == 0
        assert lab.bodies(TRANS_OP_HALF_TOPIC) == [b"0"]
        lab.store.append(op_to_store(0, 1, COMMITTED, now_ms=lab.now_ms(), host=STORE_HOST.packed))
        lab.store.commit()
        assert ended_as(transactions, other, COMMIT) == 0
        assert lab.bodies("T") == [b"pay"], "an op message of somebody else is read, too"


async def test_rocketmqs_op_messages_end_in_either_way(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with open_transactions(tmp_path) as transactions:
        lab = transactions.lab
        half = await lab.put_half("T", b"pay")
        op = op_to_store(0, 0, ENDED, now_ms=lab.now_ms(), host=STORE_HOST.packed)
        op.flag = 0
        lab.store.append(op)
        lab.store.commit()
        assert ended_as(transactions, half, COMMIT) == 0
        assert ended_as(transactions, half, ROLLBACK) == 0
        assert lab.bodies("T") == []


async def test_op_messages_that_name_no_half_message_end_nothing(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_transactions(tmp_path) as transactions:
        lab = transactions.lab
        half = await lab.put_half("T", b"pay")
        for offset, state in ((1, COMMITTED), (10**18, COMMITTED), (0, 10**18), (0, 99)):
            lab.store.append(op_to_store(0, offset, state, now_ms=lab.now_ms(), host=STORE_HOST.packed))
        lab.store.commit()
        assert ended_as(transactions, half, COMMIT) == 0
        assert ended_as(transactions, await lab.put_half("T", b"more"), COMMIT) == 0
        assert lab.bodies("T") == [b"pay", b"more"]


@pytest.mark.parametrize(("named", "state"), [(0, COMMITTED), (0, ENDED), (1, ROLLED_BACK), (0, 1), (1, DISCARDED)])
async def test_an_op_message_in_front_of_its_half_message_ends_nothing(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, named: int, state: int
) -> None:
    """The hole that a power failure left in the log took the half message, or its copy, and not the op message; the
    next half message has the queue offset of the lost one."""
    clock = WallClock()
    async with open_transactions(tmp_path, now_ms=clock) as transactions:
        lab = transactions.lab
        if state > 0:
            await lab.put_half("T", b"0")
        lab.store.append(op_to_store(0, named, state, now_ms=lab.now_ms(), host=STORE_HOST.packed))
        lab.store.commit()
        while len(lab.bodies(TRANS_HALF_TOPIC)) < 2:
            await lab.put_half("T", b"%d" % len(lab.bodies(TRANS_HALF_TOPIC)))
    async with open_transactions(tmp_path, now_ms=clock) as transactions:
        await trio.sleep(100)
        await transactions.checks.check()
        assert [header.tran_state_table_offset for header in transactions.asked()] == [2, 3]
        assert transactions.consumed()[1] >= 1, "the op message is needed no more"


# A function of a compiled object cannot be replaced.
needs_plain_python = pytest.mark.skipif(running_build() == "compiled", reason="replaces a function of TransactionLog")


@needs_plain_python
async def test_what_the_broker_ended_itself_is_not_read_again(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_transactions(tmp_path) as transactions:
        halves = [await transactions.lab.put_half("T", b"%d" % n) for n in range(3)]
        reads = read_from(transactions.log)
        for half in halves:
            assert ended_as(transactions, half, COMMIT) == 0
            assert ended_as(transactions, half, COMMIT) == 0
        assert reads == []


@needs_plain_python
async def test_an_op_queue_that_cannot_be_read_is_stepped_over(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_transactions(tmp_path) as transactions:
        half = await transactions.lab.put_half("T", b"pay")
        for _ in range(3):
            await transactions.lab.put(TRANS_OP_HALF_TOPIC, b"unreadable", TAGS="d")
        reads = read_from(transactions.log, GetResult(GetStatus.OFFSET_FOUND_NULL, 0, 0, 0))
        assert ended_as(transactions, half, COMMIT) == 0
        assert reads == [0, 1, 2]


def read_from(log: TransactionLog, result: GetResult | None = None) -> list[int]:
    """Record from which offsets op messages are read, and answer with `result`."""
    reads: list[int] = []
    get = log._get

    def noted(topic: str, queue_id: int, queue_offset: int, max_count: int) -> GetResult:
        reads.append(queue_offset)
        return result or get(topic, queue_id, queue_offset, max_count)

    log._get = noted  # type: ignore[method-assign]
    return reads


# -- with checks ----------------------------------------------------------------------------------------------------


async def test_the_end_of_a_half_message_that_was_put_back_ends_its_copy(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_transactions(tmp_path) as transactions:
        half = await transactions.lab.put_half("T", b"pay")
        for _ in range(3):
            await trio.sleep(100)
            await transactions.checks.check()
        assert len(transactions.asked()) == 3
        assert ended_as(transactions, half, COMMIT) == 0
        assert ended_as(transactions, copy_of_last(transactions), COMMIT) == 0
        assert transactions.lab.bodies("T") == [b"pay"]
        await trio.sleep(100)
        await transactions.checks.check()
        assert len(transactions.asked()) == 3, "nobody is asked about what has ended"
        with pytest.raises(TransactionEnded):
            transactions.end(half, ROLLBACK)


async def test_an_end_in_the_middle_of_a_run_counts_in_that_run(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_transactions(tmp_path) as transactions:
        for _ in range(9):
            await transactions.lab.put_half("T", b"asked")
        ended = await transactions.lab.put_half("T", b"ended")
        await trio.sleep(100)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(transactions.checks.check)
            while not transactions.asked():
                await trio.lowlevel.checkpoint()
            assert ended_as(transactions, ended, COMMIT) == 0
        assert len(transactions.asked()) == 9
        assert transactions.lab.bodies(TRANS_HALF_TOPIC) == [*[b"asked"] * 9, b"ended", *[b"asked"] * 9]


async def test_what_a_check_passed_before_the_start_is_left_to_the_next_check(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    clock = WallClock()
    async with open_transactions(tmp_path, now_ms=clock) as transactions:
        half = await transactions.lab.put_half("T", b"pay")
        await trio.sleep(100)
        await transactions.checks.check()
        offsets = transactions.lab.offsets
    async with open_transactions(tmp_path, now_ms=clock) as transactions:
        transactions.lab.offsets = offsets
        transactions = Transactions(transactions.lab)
        with pytest.raises(TransactionEnded, match=CHECKED):
            transactions.end(half, COMMIT)
        assert transactions.lab.bodies("T") == []
        assert ended_as(transactions, copy_of_last(transactions), COMMIT) == 0
        assert transactions.lab.bodies("T") == [b"pay"]


async def test_offsets_of_a_store_that_lost_its_end_hide_no_half_message(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_transactions(tmp_path) as transactions:
        lab = transactions.lab
        lab.offsets.commit("CID_RMQ_SYS_TRANS", TRANS_HALF_TOPIC, 0, 1000)
        lab.offsets.commit("CID_RMQ_SYS_TRANS", TRANS_OP_HALF_TOPIC, 0, 1000)
        lab.topics.half_topic()
        await transactions.log.load()
        half = await lab.put_half("T", b"pay")
        assert ended_as(transactions, half, COMMIT) == 0
        assert ended_as(transactions, half, COMMIT) == 0
        assert lab.bodies("T") == [b"pay"]


# -- with crashes ---------------------------------------------------------------------------------------------------


async def live(root: Path, clock: WallClock, checks: int = 1, **options: Any) -> tuple[int, int]:
    """A life of the broker that ends before the offsets of its checks are stored. Returns the number of half messages,
    and of questions in this life."""
    async with open_transactions(root, now_ms=clock, **options) as transactions:
        await transactions.log.load()
        for _ in range(checks):
            await trio.sleep(100)
            await transactions.checks.check()
        return len(transactions.lab.messages(TRANS_HALF_TOPIC)), len(transactions.asked())


async def test_crashes_do_not_multiply_copies(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    clock = WallClock()
    async with open_transactions(tmp_path, now_ms=clock) as transactions:
        await transactions.lab.put_half("T", b"open")
    lives = [await live(tmp_path, clock, checks=3) for _ in range(4)]
    assert lives == [(4, 3), (7, 3), (10, 3), (13, 3)], "one more for each check, asked once for each"
    async with open_transactions(tmp_path, now_ms=clock) as transactions:
        assert ended_as(transactions, copy_of_last(transactions), COMMIT) == 0
        assert transactions.lab.bodies("T") == [b"open"]
    assert await live(tmp_path, clock) == (13, 0)


async def test_crashes_do_not_multiply_immune_copies(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """And the op message of the first one, which was put back only, does not end its copy."""
    clock = WallClock()
    async with open_transactions(tmp_path, now_ms=clock) as transactions:
        first = await transactions.lab.put_half("T", b"immune", CHECK_IMMUNITY_TIME_IN_SECONDS="550")
    assert [await live(tmp_path, clock) for _ in range(5)] == [(2, 0), (3, 0), (4, 0), (5, 0), (6, 0)]
    assert await live(tmp_path, clock) == (7, 1), "then it is asked about, once"
    async with open_transactions(tmp_path, now_ms=clock) as transactions:
        assert ended_as(transactions, first, COMMIT) == 0
        assert ended_as(transactions, copy_of_last(transactions), COMMIT) == 0
        assert transactions.lab.bodies("T") == [b"immune"]


async def test_crashes_do_not_discard_twice(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    clock = WallClock()
    rules = {"broker": {"transaction_check_max": 1}}
    async with open_transactions(tmp_path, now_ms=clock, **rules) as transactions:
        half = await transactions.lab.put_half("T", b"never")
    assert [await live(tmp_path, clock, checks=2, **rules) for _ in range(3)] == [(2, 1), (2, 0), (2, 0)]
    async with open_transactions(tmp_path, now_ms=clock, **rules) as transactions:
        topic = transactions.lab.topics.check_max_time_topic()
        queues = range(topic.write_queue_nums)
        given_up = [body for queue in queues for body in transactions.lab.bodies(TRANS_CHECK_MAX_TIME_TOPIC, queue)]
        assert given_up == [b"never"]
        assert ended_as(transactions, half, COMMIT) == 0, "its producer may still decide"
        assert ended_as(transactions, half, COMMIT) == 0
        assert transactions.lab.bodies("T") == [b"never"]


async def test_copy_and_op_leave_in_one_commit_the_op_last(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_transactions(tmp_path) as transactions:
        lab = transactions.lab
        await lab.put_half("T", b"open")
        await trio.sleep(100)
        lab.is_committing = False
        writes: list[int] = []
        pwrite = lab.store.files.pwrite

        def noted(fd: int, data: Data, at: int) -> None:
            writes.append(len(data))
            pwrite(fd, data, at)

        monkeypatch.setattr(lab.store.files, "pwrite", noted)
        half = transactions.log.read_half(0, 0).message
        assert half is not None
        assert transactions.log.put_back(half, PendingPut())
        copy, op = lab.messages(TRANS_HALF_TOPIC)[1], lab.messages(TRANS_OP_HALF_TOPIC)[0]
        assert writes[0] == copy.store_size_bytes + op.store_size_bytes
        assert op.physical_offset == copy.physical_offset + copy.store_size_bytes
        assert (op.body, op.flag, op.properties) == (
            b"0",
            4,
            {"WAIT": "true", "TAGS": "d", "TRAN_COPY_QUEUE_OFFSET": "1"},
        )


async def test_a_copy_whose_op_message_is_refused_is_not_lost(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    clock = WallClock()
    async with open_transactions(tmp_path, now_ms=clock) as transactions:
        lab = transactions.lab
        half = await lab.put_half("T", b"open")
        append = lab.store.append

        def refuse(message: MessageToStore) -> PutResult:
            if message.topic == TRANS_OP_HALF_TOPIC:
                return PutResult(PutStatus.CREATE_MAPEDFILE_FAILED)
            return append(message)

        lab.store.append = refuse  # type: ignore[method-assign]
        await trio.sleep(100)
        await transactions.checks.check()
        assert lab.bodies(TRANS_HALF_TOPIC) == [b"open", b"open"]
        lab.store.append = append  # type: ignore[method-assign]
        assert ended_as(transactions, half, COMMIT) == 0
        assert ended_as(transactions, copy_of_last(transactions), COMMIT) == 0
        assert lab.bodies("T") == [b"open"]


@needs_plain_python
async def test_a_broker_knows_how_transactions_ended_before_requests_arrive(tmp_path: Path) -> None:
    async with whole_broker(tmp_path) as broker:
        await broker.create_topic("T")
        properties = "TRAN_MSG\x01true\x02PGROUP\x01PID"
        sent = await broker.ask(10, {**send_fields("T"), "sysFlag": 4, "properties": properties}, b"pay")
        assert sent.code == 0, sent.remark
        fields = sent.ext_fields or {}
        end = {
            "producerGroup": "PID",
            "tranStateTableOffset": fields["queueOffset"],
            "commitLogOffset": int(fields["msgId"][-16:], 16),
            "commitOrRollback": COMMIT,
            "msgId": "U",
        }
        assert (await broker.ask(37, end)).code == 0
    async with whole_broker(tmp_path) as broker:
        assert broker.controller.serving is not None
        log = broker.controller.serving.transactions.log
        assert isinstance(log, TransactionLog)
        reads = read_from(log)
        assert (await broker.ask(37, {**end, "commitOrRollback": ROLLBACK})).code == 1
        assert reads == []
