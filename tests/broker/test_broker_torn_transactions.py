"""A record that replaces a half message, and the op message behind it, may take two writes. If only the first survives,
the next start completes what it began: nothing is delivered twice, and nobody is asked twice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio.testing
from broker_store_lab import WallClock
from broker_transaction_lab import COMMIT, Transactions, open_transactions
from structlog.testing import capture_logs

from triomq.protocol.system_topics import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from triomq.store.results import PutResult, PutStatus

Act = Callable[[Transactions, PutResult], Awaitable[None]]


async def commit(transactions: Transactions, half: PutResult) -> None:
    transactions.end(half, COMMIT)


async def put_back(transactions: Transactions, half: PutResult) -> None:
    await trio.sleep(100)
    await transactions.checks.check()


async def give_up(transactions: Transactions, half: PutResult) -> None:
    await trio.sleep(100)
    transactions.lab.change(transaction_check_max=0)
    await transactions.checks.check()


async def leave_without_op(root: Path, clock: WallClock, act: Act) -> PutResult:
    """Act on a half message, and lose the op message that came last."""
    async with open_transactions(root, now_ms=clock) as transactions:
        half = await transactions.lab.put_half("T", b"pay", UNIQ_KEY="U")
        await act(transactions, half)
        [op] = transactions.lab.messages(TRANS_OP_HALF_TOPIC)
        end = transactions.lab.store.committed.value
    with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(op.physical_offset)
        file.write(bytes(end - op.physical_offset))
    return half


@pytest.mark.parametrize(
    ("act", "topics"),
    [
        (commit, {"T": 1, TRANS_HALF_TOPIC: 1}),
        (put_back, {TRANS_HALF_TOPIC: 2}),
        (give_up, {TRANS_CHECK_MAX_TIME_TOPIC: 1, TRANS_HALF_TOPIC: 1}),
    ],
    ids=["commit", "put_back", "give_up"],
)
async def test_an_op_message_that_is_lost_is_stored_by_the_next_start(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, act: Act, topics: dict[str, int]
) -> None:
    clock = WallClock()
    half = await leave_without_op(tmp_path, clock, act)
    async with open_transactions(tmp_path, now_ms=clock) as transactions:
        lab = transactions.lab
        assert lab.messages(TRANS_OP_HALF_TOPIC) == []
        with capture_logs() as logs:
            await transactions.log.load()
        assert [line["event"] for line in logs] == ["op message of the last record found missing; it is stored now"]
        [op] = lab.messages(TRANS_OP_HALF_TOPIC)
        assert op.body == str(half.queue_offset).encode()
        assert {topic: len(lab.messages(topic)) for topic in topics} == topics
        with capture_logs() as logs:
            await transactions.log.load()
        assert logs == []
    async with open_transactions(tmp_path, now_ms=clock) as transactions:
        await transactions.log.load()
        assert len(transactions.lab.messages(TRANS_OP_HALF_TOPIC)) == 1
        await trio.sleep(100)
        await transactions.checks.check()
        assert len(transactions.asked()) == (1 if act is put_back else 0), "only a copy is still undecided"
        assert len(transactions.lab.messages("T")) == topics.get("T", 0)


async def test_an_end_that_names_the_replaced_one_is_stored_once(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """The producer was asked about the original, and answers after the restart."""
    clock = WallClock()
    half = await leave_without_op(tmp_path, clock, put_back)
    async with open_transactions(tmp_path, now_ms=clock) as transactions:
        await transactions.log.load()
        transactions.end(half, COMMIT)
        copy = transactions.lab.messages(TRANS_HALF_TOPIC)[1]
        put = PutResult(PutStatus.PUT_OK, physical_offset=copy.physical_offset, queue_offset=copy.queue_offset)
        transactions.end(put, COMMIT)
        assert transactions.lab.bodies("T") == [b"pay"]


async def test_what_only_looks_like_the_end_of_a_transaction_ends_none(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """A delayed commit keeps its flag when it is delivered, and names offset 0: the half message of another."""
    async with open_transactions(tmp_path) as transactions:
        lab = transactions.lab
        await lab.put_half("T", b"open", UNIQ_KEY="other")
        message = lab.message("T", b"delivered", 0, {"UNIQ_KEY": "U"})
        message.sys_flag = 8
        assert lab.store.append(message).is_ok
        lab.store.commit()
        await transactions.log.load()
        assert lab.messages(TRANS_OP_HALF_TOPIC) == []
