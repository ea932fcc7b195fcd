"""Transactions of a broker that leads a group: what it sends names nothing that a quorum lacks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from broker_store_lab import Lab, WallClock
from broker_transaction_lab import COMMIT, ROLLBACK, Transactions
from store_lab import MemberStore

from triomq.broker import redirection
from triomq.broker.message_writer import MessageWriter, WatchedPut
from triomq.broker.undeliverable import Undeliverable
from triomq.store.results import PutResult, PutStatus

SETTINGS = {"enable_dleger_commit_log": True}


class Group:
    """A leader, the transactions of its broker, and one half message that a quorum has."""

    def __init__(self, member: MemberStore, transactions: Transactions, clock: WallClock) -> None:
        self.member = member
        self.transactions = transactions
        self.clock = clock
        self.committed = -1

    def put_half(self) -> PutResult:
        """Store a half message that is old enough to be checked."""
        lab = self.transactions.lab
        properties = {"TRAN_MSG": "true", "PGROUP": "PID", "UNIQ_KEY": "U"}
        put = WatchedPut(lambda result: None)
        message = lab.message("T", b"half", 0, properties)
        redirection.hold(message)
        lab.writer.put(message, False, put)
        self.member.store.commit()
        self.commit_all()
        self.clock.turn(3_600_000)
        return put.result

    def commit_all(self) -> None:
        self.member.commit_all()
        self.committed = self.member.ledger.end_index

    def answer(self, half: PutResult, how: int) -> int | None:
        """Return the code of the response to an END_TRANSACTION, None if there is none yet."""
        response = self.transactions.end(half, how)
        self.member.store.commit()
        return response.code if response is not None else None

    def depose_and_lose(self) -> None:
        """Let another member lead that lacks what is not committed here."""
        self.member.leads = False
        self.member.store.quorum.follow("n1 leads the group")
        self.member.ledger.cut(self.committed)
        self.member.store.quorum.shortened(self.member.ledger.end_of(self.committed))

    async def lead_again(self) -> None:
        await self.member.lead()
        await self.transactions.log.load()


@asynccontextmanager
async def open_group(root: Path) -> AsyncIterator[Group]:
    clock = WallClock()
    member = await MemberStore(root, clock).load()
    await member.lead()
    lab = Lab(root, clock, {}, SETTINGS)
    lab.store = member.store
    lab.writer = MessageWriter(lab.configuration, member.store, lambda: None)
    lab.undeliverable = Undeliverable(lab.writer, lab.topics)
    yield Group(member, Transactions(lab), clock)


async def test_a_producer_is_asked_about_a_copy_when_a_quorum_has_it(tmp_path: Path) -> None:
    async with open_group(tmp_path) as group:
        group.put_half()
        await group.transactions.checks.check()
        assert group.transactions.asked() == [], "no quorum has the copy that the answer would name"
        group.commit_all()
        (question,) = group.transactions.asked()
        copy = PutResult(PutStatus.PUT_OK, question.commit_log_offset, queue_offset=question.tran_state_table_offset)
        assert group.answer(copy, COMMIT) is None
        group.commit_all()
        assert group.member.bodies() == [b"half"]


async def test_a_deposed_leader_asks_nobody_about_a_copy_that_it_may_lose(tmp_path: Path) -> None:
    async with open_group(tmp_path) as group:
        group.put_half()
        await group.transactions.checks.check()
        group.depose_and_lose()
        assert group.transactions.asked() == []


async def test_a_rollback_is_answered_when_a_quorum_has_it(tmp_path: Path) -> None:
    async with open_group(tmp_path) as group:
        half = group.put_half()
        assert group.answer(half, ROLLBACK) is None
        group.commit_all()
        assert [response.code for _, response in group.transactions.producer.answers] == [0]


async def test_a_leader_that_was_deposed_forgets_the_copies_that_it_lost(tmp_path: Path) -> None:
    async with open_group(tmp_path) as group:
        half = group.put_half()
        await group.transactions.checks.check()
        group.depose_and_lose()
        await group.lead_again()
        assert group.answer(half, COMMIT) is None
        group.commit_all()
        assert group.member.bodies() == [b"half"]
        (op,) = group.transactions.log.pull_ops(0, 0).messages
        assert op.half_offset == half.queue_offset, "not the copy that is lost"
