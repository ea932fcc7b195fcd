"""Pulls above a quota: they wait like long polls, within the time that their client gives them, and lose nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any, cast

import pytest
import trio
from broker_fakes import FakeConnection, MemoryFile
from test_broker_pull import COMMIT, SUBSCRIPTION, SUSPEND, Pulls, open_pulls
from trio.testing import MockClock

from triomq.broker.errors import QuotaExceeded
from triomq.broker.pulls.over_quota import DELAYED_A_SECOND
from triomq.broker.quotas.overrides import Overrides
from triomq.broker.quotas.quotas import Excess, Quotas
from triomq.protocol.codes import ResponseCode
from triomq.protocol.command import RemotingCommand
from triomq.protocol.headers.pull import PullMessageResponseHeader

WAITS = SUBSCRIPTION | SUSPEND


class WaitedConnection(FakeConnection):
    """A connection whose responses a test waits for."""

    def __init__(self) -> None:
        super().__init__()
        self._answered = trio.Event()

    def answer(self, request: RemotingCommand, response: RemotingCommand, since: float = inf) -> None:
        super().answer(request, response)
        self._answered.set()

    async def next_answer(self) -> RemotingCommand:
        while not self.answers:
            self._answered = trio.Event()
            await self._answered.wait()
        return self.answers.pop(0)[1]


class LimitedPulls:
    """Pulls of a group that may have one message a second; queue 0 holds three messages."""

    def __init__(self, pulls: Pulls, quota: str) -> None:
        self.pulls = pulls
        self.connection = pulls.connection = WaitedConnection()
        pulls.lab.change(quota_per_group=quota)
        self.quotas = Quotas(
            pulls.lab.configuration,
            Overrides(MemoryFile()),
            knows_group=lambda group: True,
            clock=trio.current_time,
        )
        pulls.processor.use_quotas(self.quotas)
        self.began = trio.current_time()

    @property
    def elapsed(self) -> float:
        return trio.current_time() - self.began

    async def answer(self) -> RemotingCommand:
        """Wait for the response to the pull that is held."""
        return await self.connection.next_answer()


@asynccontextmanager
async def limited_pulls(root: Path, quota: str = "messagesOut=1") -> AsyncIterator[LimitedPulls]:
    async with open_pulls(root) as pulls, trio.open_nursery() as nursery:
        nursery.start_soon(pulls.processor.long_polling.run)
        yield LimitedPulls(pulls, quota)
        nursery.cancel_scope.cancel()


def found(response: RemotingCommand | None) -> tuple[int, int]:
    """Return the code, and the offset where the client continues."""
    assert response is not None
    return response.code, response.header(PullMessageResponseHeader).next_begin_offset


async def test_a_pull_waits_until_its_group_has_paid_for_the_last_one(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with limited_pulls(tmp_path) as limited:
        assert found(limited.pulls.pull(max_msg_nums=2, sys_flag=WAITS)) == (0, 2)
        assert limited.pulls.pull(queue_offset=2, sys_flag=WAITS) is None
        assert found(await limited.answer()) == (0, 3)
        assert 1.99 < limited.elapsed < 2.1  # of two messages, one is the burst
        assert limited.connection.held_bytes == 0


async def test_a_new_message_does_not_end_the_wait_for_a_quota(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with limited_pulls(tmp_path) as limited:
        assert found(limited.pulls.pull(sys_flag=WAITS)) == (0, 3)
        assert limited.pulls.pull(queue_offset=3, sys_flag=WAITS) is None
        await limited.pulls.lab.put("T", b"d")
        await trio.sleep(1)
        assert limited.connection.answers == []
        assert found(await limited.answer()) == (0, 4)
        assert 2.99 < limited.elapsed < 3.1


async def test_a_pull_whose_quota_has_room_again_waits_for_a_message_with_the_rest_of_its_time(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with limited_pulls(tmp_path) as limited:
        assert found(limited.pulls.pull(sys_flag=WAITS)) == (0, 3)
        for suspend_ms, arrives in ((15_000, False), (15_000, True)):
            began = trio.current_time()
            assert limited.pulls.pull(queue_offset=3, sys_flag=WAITS, suspend_timeout_millis=suspend_ms) is None
            if arrives:
                await trio.sleep(5)
                await limited.pulls.lab.put("T", b"d")
                assert found(await limited.answer()) == (0, 4)
                assert trio.current_time() - began < 5.1
            else:
                assert found(await limited.answer()) == (ResponseCode.PULL_NOT_FOUND, 3)
                assert 14.99 < trio.current_time() - began < 15.1


async def test_a_pull_whose_time_is_over_before_its_quota_has_room_continues_where_it_is(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with limited_pulls(tmp_path, "bytesOut=1") as limited:
        assert found(limited.pulls.pull(max_msg_nums=1, sys_flag=WAITS)) == (0, 1)
        assert limited.pulls.pull(queue_offset=1, sys_flag=WAITS, suspend_timeout_millis=2000) is None
        response = await limited.answer()
        assert found(response) == (ResponseCode.PULL_NOT_FOUND, 1)
        assert 1.99 < limited.elapsed < 2.1
        header = response.header(PullMessageResponseHeader)
        assert (header.min_offset, header.max_offset, header.suggest_which_broker_id) == (0, 3, 0)
        assert "[QUOTA] bytesOut: group G" in (response.remark or "")


@pytest.mark.parametrize("changes", [{"sys_flag": SUBSCRIPTION}, {"sys_flag": WAITS, "suspend_timeout_millis": 0}])
async def test_a_pull_that_does_not_wait_is_refused(
    tmp_path: Path, autojump_clock: MockClock, changes: dict[str, Any]
) -> None:
    async with limited_pulls(tmp_path) as limited:
        assert limited.pulls.code() == 0
        with pytest.raises(QuotaExceeded, match="try again in 3000 ms"):
            limited.pulls.pull(**changes)
        await trio.sleep(3.01)
        assert limited.pulls.code() == 0


async def test_a_pull_that_waits_for_its_quota_commits_its_offset_at_once(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with limited_pulls(tmp_path) as limited:
        assert limited.pulls.code() == 0
        assert limited.pulls.pull(queue_offset=3, sys_flag=WAITS | COMMIT, commit_offset=3) is None
        assert limited.pulls.committed() == 3


async def test_a_message_for_a_long_poll_waits_for_its_quota(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with limited_pulls(tmp_path) as limited:
        assert limited.pulls.pull(queue_offset=3, sys_flag=WAITS) is None  # a long poll: the quota has room
        assert found(limited.pulls.pull(sys_flag=WAITS)) == (0, 3)
        await limited.pulls.lab.put("T", b"d")
        assert found(await limited.answer()) == (0, 4)
        assert 2.99 < limited.elapsed < 3.1
        assert limited.quotas.refusals.values() == {"quotaDelayed_group_messagesOut": "1"}


async def test_two_pulls_that_wait_for_one_quota_get_their_messages_one_after_the_other(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with limited_pulls(tmp_path) as limited:
        assert limited.pulls.code() == 0
        for _ in range(2):
            assert limited.pulls.pull(max_msg_nums=2, sys_flag=WAITS) is None
        assert found(await limited.answer()) == (0, 2)
        first = limited.elapsed
        assert found(await limited.answer()) == (0, 2)
        assert 1.99 < limited.elapsed - first < 2.2


async def test_a_quota_that_is_lifted_lets_the_pulls_that_wait_go_on(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with limited_pulls(tmp_path) as limited:
        assert limited.pulls.code() == 0
        assert limited.pulls.pull(sys_flag=WAITS) is None
        limited.pulls.processor.use_quotas(None)
        assert found(await limited.answer()) == (0, 3)


async def test_the_pulls_of_a_closed_connection_do_not_wait_any_more(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with limited_pulls(tmp_path) as limited:
        assert limited.pulls.code() == 0
        assert limited.pulls.pull(sys_flag=WAITS) is None
        polling = limited.pulls.processor.long_polling
        assert len(polling) == 1
        polling.connection_closed(cast(Any, limited.connection))
        assert (len(polling), limited.connection.held_bytes) == (0, 0)
        await trio.sleep(20)
        assert limited.connection.answers == []


async def test_many_pulls_of_one_connection_run_again_at_a_bounded_rate(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with limited_pulls(tmp_path, "bytesOut=100") as limited:
        limited.pulls.pool.capacity = 1000
        assert limited.pulls.code() == 0
        runs = []
        excess_of_pull = limited.quotas.excess_of_pull

        def counted(*arguments: Any) -> Excess | None:
            runs.append(trio.current_time())
            return excess_of_pull(*arguments)

        for _ in range(500):
            assert limited.pulls.pull(queue_offset=3, sys_flag=WAITS) is None
        limited.quotas.excess_of_pull = counted  # type: ignore[method-assign]
        await trio.sleep(14)
        assert len(runs) >= 500
        for begin, end in pairwise([*range(14), 14]):
            assert len([now for now in runs if begin <= now < end]) <= DELAYED_A_SECOND
        assert max(Counter(runs).values()) <= 2, "not all of them as soon as there is room"
