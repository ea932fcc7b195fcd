"""Pulls of messages that are on the disk only: they wait for it, and nobody waits for them."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import trio
from broker_store_lab import settle
from broker_whole import SETTINGS, whole_broker
from test_broker_delay import delivering
from test_broker_pull import COMMIT, SUBSCRIPTION, SUSPEND, Pulls, open_pulls
from test_broker_quota_pulls import WAITS, LimitedPulls, WaitedConnection, found
from trio.testing import MockClock

from triomq.broker.pulls.on_disk import FETCH_SECONDS
from triomq.protocol.codes import ResponseCode
from triomq.store.disk.files import Files


class NothingInMemory(Files):
    """A disk whose pages leave the memory as soon as they are in it."""

    def is_in_memory(self, fd: int, at: int) -> bool:
        return False


class ColdPulls:
    """Pulls from a log that is on the disk only. The disk reads when `reads` is set, and fails with `error`."""

    def __init__(self, pulls: Pulls) -> None:
        self.pulls = pulls
        self.connection = pulls.connection = WaitedConnection()
        self.cold = pulls.lab.store.reading.cold
        self.cold._files = NothingInMemory()
        self.cold._offload = self._offload
        self.cold.written_from = 1 << 40  # as if an earlier process had written all of it
        self.reads = trio.Event()
        self.read_count = 0
        self.error: OSError | None = None

    async def _offload(self, function: Callable[..., Any], *arguments: Any) -> Any:
        await self.reads.wait()
        self.read_count += 1
        if self.error is not None:
            raise self.error
        return function(*arguments)

    def run_postponed(self) -> None:
        while self.connection.postponed:
            self.connection.postponed.pop(0)()

    async def run_all(self) -> None:
        """Read what each pull needs: its queue entries, then the log."""
        self.reads.set()
        await settle()
        while self.connection.postponed:
            self.run_postponed()
            await settle()

    def assert_nothing_held(self) -> None:
        assert (len(self.pulls.processor.long_polling), self.pulls.pool.in_flight, self.connection.held_bytes) == (
            0,
            0,
            0,
        )


@asynccontextmanager
async def cold_pulls(root: Path) -> AsyncIterator[ColdPulls]:
    async with open_pulls(root) as pulls, trio.open_nursery() as nursery:
        cold = ColdPulls(pulls)
        nursery.start_soon(pulls.processor.long_polling.run)
        nursery.start_soon(cold.cold.run)
        await settle()
        yield cold
        cold.reads.set()  # nothing ends before a read does
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("flags", [SUBSCRIPTION, SUBSCRIPTION | SUSPEND])
async def test_a_pull_waits_for_the_disk_whether_or_not_it_would_for_a_message(
    tmp_path: Path, autojump_clock: MockClock, flags: int
) -> None:
    async with cold_pulls(tmp_path) as cold:
        assert cold.pulls.pull(sys_flag=flags | COMMIT, queue_offset=1, commit_offset=1) is None
        assert cold.pulls.committed() == 1
        await settle()
        assert not cold.connection.answers and not cold.connection.postponed
        cold.reads.set()
        await settle()
        assert not cold.connection.answers and cold.connection.postponed, "it runs in a turn of its connection"
        await cold.run_all()
        assert found(await cold.connection.next_answer()) == (0, 3)
        assert cold.read_count == 2
        cold.assert_nothing_held()


async def test_a_message_that_comes_does_not_end_the_wait_for_the_disk(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with cold_pulls(tmp_path) as cold:
        assert cold.pulls.pull(sys_flag=SUBSCRIPTION | SUSPEND) is None
        await cold.pulls.lab.put("T", b"d")
        await settle()
        assert not cold.connection.answers
        await cold.run_all()
        assert found(await cold.connection.next_answer()) == (0, 4)


async def test_when_the_disk_takes_long_the_client_pulls_again(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with cold_pulls(tmp_path) as cold:
        began = trio.current_time()
        assert cold.pulls.pull(queue_offset=1) is None
        answer = await cold.connection.next_answer()
        assert trio.current_time() - began == pytest.approx(FETCH_SECONDS, abs=0.01)
        assert found(answer) == (ResponseCode.PULL_NOT_FOUND, 1)
        assert answer.remark == "the messages are still being read from the disk"
        cold.assert_nothing_held()
        cold.reads.set()
        await settle()
        assert not cold.connection.postponed, "it has its response"


async def test_what_left_the_memory_again_is_read_again_within_the_same_time(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with cold_pulls(tmp_path) as cold:
        began = trio.current_time()
        cold.reads.set()
        assert cold.pulls.pull() is None
        for _ in range(3):
            await settle()
            cold.cold._known.clear()
            cold.run_postponed()
            await trio.sleep(1)
        assert cold.read_count == 4 and not cold.connection.answers
        cold.reads = trio.Event()
        cold.cold._known.clear()
        cold.run_postponed()
        assert found(await cold.connection.next_answer())[0] == ResponseCode.PULL_NOT_FOUND
        assert trio.current_time() - began == pytest.approx(FETCH_SECONDS, abs=0.01)


async def test_a_client_learns_that_the_disk_failed(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with cold_pulls(tmp_path) as cold:
        cold.error = OSError(errno.EIO, "Input/output error")
        cold.reads.set()
        assert cold.pulls.pull() is None
        await settle()
        cold.run_postponed()
        answer = await cold.connection.next_answer()
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == "the messages cannot be read from the disk: [Errno 5] Input/output error"
        cold.assert_nothing_held()


async def test_a_connection_that_closes_takes_its_pulls_with_it(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with cold_pulls(tmp_path) as cold:
        assert cold.pulls.pull() is None
        cold.connection.is_open = False
        cold.pulls.processor.long_polling.connection_closed(cold.connection)
        cold.reads.set()
        await settle()
        assert not cold.connection.postponed and not cold.connection.answers
        cold.assert_nothing_held()


async def test_a_stop_answers_a_pull_that_waits_for_the_disk(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with cold_pulls(tmp_path) as cold:
        assert cold.pulls.pull() is None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cold.pulls.processor.long_polling.end)
            assert found(await cold.connection.next_answer())[0] == ResponseCode.PULL_NOT_FOUND


class SlowDisk(Files):
    """A disk that reads nothing of the log before `may_read`."""

    def __init__(self) -> None:
        self.may_read = trio.Event()
        self.token: trio.lowlevel.TrioToken | None = None
        self.was_asked = trio.Event()
        self.is_cold = True

    def is_in_memory(self, fd: int, at: int) -> bool:
        return not self.is_cold or os.fstat(fd).st_size != int(SETTINGS["mappedFileSizeCommitLog"])

    def read_into_memory(self, runs: Sequence[tuple[int, int, int]]) -> None:
        assert self.token is not None
        trio.from_thread.run_sync(self.was_asked.set, trio_token=self.token)
        trio.from_thread.run(self.may_read.wait, trio_token=self.token)
        super().read_into_memory(runs)
        self.is_cold = False


async def test_nobody_waits_for_the_disk_but_the_one_who_wants_what_is_there(tmp_path: Path) -> None:
    async with whole_broker(tmp_path) as broker:
        await broker.create_topic("T", 1)
        for number in range(3):
            assert (await broker.send("T", b"old %d" % number)).code == 0
    disk = SlowDisk()
    disk.token = trio.lowlevel.current_trio_token()
    async with whole_broker(tmp_path, files=disk) as broker, trio.open_nursery() as nursery:
        answers: list[Any] = []

        async def pull() -> None:
            answers.append(await broker.pull("T"))

        nursery.start_soon(pull)
        await disk.was_asked.wait()
        assert (await broker.send("T", b"new")).code == 0
        assert (await broker.pull("T", queueOffset=3)).body.count(b"new") == 1
        assert not answers
        disk.may_read.set()
        while not answers:
            await trio.lowlevel.checkpoint()
        assert answers[0].code == 0
        assert [answers[0].body.count(body) for body in (b"old 0", b"old 1", b"old 2")] == [1, 1, 1]


async def test_delayed_messages_on_the_disk_are_read_by_the_thread_before_they_are_delivered(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_pulls(tmp_path) as pulls, trio.open_nursery() as nursery, delivering(pulls.lab):
        cold = ColdPulls(pulls)
        nursery.start_soon(cold.cold.run)
        for number in range(40):
            await pulls.lab.put("T", b"late %d" % number, DELAY="1")
        await trio.sleep(1.5)
        assert len(pulls.lab.bodies("T")) == 3, "the disk has read nothing yet"
        cold.reads.set()
        await settle()
        assert pulls.lab.bodies("T")[3:] == [b"late %d" % number for number in range(40)]
        assert cold.read_count == 1
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("suspend_ms", [0, 15_000])
async def test_a_cold_pull_that_exceeds_a_quota_meanwhile_and_does_not_wait_is_refused_at_once(
    tmp_path: Path, autojump_clock: MockClock, suspend_ms: int
) -> None:
    async with cold_pulls(tmp_path) as cold:
        quotas = LimitedPulls(cold.pulls, "messagesOut=1").quotas
        cold.connection = cast(WaitedConnection, cold.pulls.connection)
        flags = SUBSCRIPTION if suspend_ms else WAITS
        for _ in range(2):
            assert cold.pulls.pull(sys_flag=flags, suspend_timeout_millis=suspend_ms) is None
        began = trio.current_time()
        await cold.run_all()
        first, second = [answer for _, answer in cold.connection.answers]
        assert (first.code, second.code != 0) == (0, True)
        assert "try again in" in (second.remark or "")
        assert trio.current_time() == began
        assert quotas.refusals.values() == {"quotaRefused_group_messagesOut": "1"}
        cold.assert_nothing_held()


async def test_a_cold_pull_that_exceeds_a_quota_meanwhile_waits_for_it_and_is_counted_once(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with cold_pulls(tmp_path) as cold:
        quotas = LimitedPulls(cold.pulls, "messagesOut=1").quotas
        cold.connection = cast(WaitedConnection, cold.pulls.connection)
        began = trio.current_time()
        for _ in range(2):
            assert cold.pulls.pull(max_msg_nums=2, sys_flag=WAITS, suspend_timeout_millis=15_000) is None
        await cold.run_all()
        assert found(await cold.connection.next_answer()) == (0, 2)
        cold.cold._known.clear()
        while not cold.connection.answers:
            await trio.sleep(0.5)
            await cold.run_all()
        assert found(await cold.connection.next_answer()) == (0, 2)
        assert 2 <= trio.current_time() - began < 4, "longer than the disk may take is no bound of a quota's wait"
        assert quotas.refusals.values() == {"quotaDelayed_group_messagesOut": "1"}
        cold.assert_nothing_held()
