"""Rebalancing alone: a `Rebalancer` with a recording holder, against a scripted cluster under a mock clock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

import pytest
import trio
from client_fakes import NAME_SERVER, FakeCluster
from trio.testing import MockClock

from triomq.client.consume.assigned import AssignedQueue, QueueState
from triomq.client.consume.offset_store import BrokerOffsets
from triomq.client.consume.rebalance import PULL_EXPIRED_MS, Rebalancer
from triomq.client.core.allocation import Averagely
from triomq.client.core.config import ClientConfig
from triomq.client.core.errors import OperationTimeout
from triomq.client.core.results import MessageModel
from triomq.client.instance.client import Client
from triomq.protocol.bodies.queue_lock import UnlockBatchRequestBody
from triomq.protocol.codes import RequestCode
from triomq.protocol.message_queue import MessageQueue

FIRST, SECOND = MessageQueue("T", "a", 0), MessageQueue("T", "a", 1)


class RecordingHolder:
    """A consumer that pulls nothing and records its calls."""

    def __init__(self) -> None:
        self.opened_queues: list[AssignedQueue] = []
        self.closed_queues: list[MessageQueue] = []
        self.shares: list[list[MessageQueue]] = []
        self.unknown: set[MessageQueue] = set()

    async def first_offset(self, queue: MessageQueue) -> int:
        await trio.lowlevel.checkpoint()
        if queue in self.unknown:
            raise OperationTimeout("the broker is slow")
        return 5

    def opened(self, assigned: AssignedQueue) -> None:
        self.opened_queues.append(assigned)

    async def closed(self, assigned: AssignedQueue) -> None:
        self.closed_queues.append(assigned.queue)

    def queues_changed(self, topic: str, every: Collection[MessageQueue], ours: Collection[MessageQueue]) -> None:
        self.shares.append(list(ours))


class Member:
    """One member of the group G, and what a test examines."""

    def __init__(self, cluster: FakeCluster, client: Client, *, ordered: bool, model: MessageModel) -> None:
        self.cluster = cluster
        self.client = client
        self.holder = RecordingHolder()
        self.offsets = BrokerOffsets(client, "G")
        self.rebalancer = Rebalancer(client, "G", model, Averagely(), self.offsets, self.holder, ordered=ordered)
        self.members = cluster.broker.members.setdefault("G", set())

    def join(self) -> None:
        self.members.add(self.client.client_id)

    async def rebalance(self) -> bool:
        return await self.rebalancer.rebalance(["T"])

    @property
    def queues(self) -> set[MessageQueue]:
        return set(self.rebalancer.assigned)

    def stored(self, queue_id: int) -> int | None:
        return self.cluster.broker.offsets.get(("G", "T", queue_id))

    def unlocked(self) -> list[MessageQueue]:
        requests = self.cluster.broker.of(RequestCode.UNLOCK_BATCH_MQ)
        return [queue for request in requests for queue in UnlockBatchRequestBody.decode(request.body).mq_set]


@asynccontextmanager
async def member(
    cluster: FakeCluster, *, ordered: bool = False, model: MessageModel = MessageModel.CLUSTERING
) -> AsyncIterator[Member]:
    config = ClientConfig(name_server=NAME_SERVER, client_ip="1.1.1.1", instance_name="a")
    async with Client(config) as client:
        yield Member(cluster, client, ordered=ordered, model=model)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    return FakeCluster.installed(monkeypatch, "T", queues=2)


async def test_a_member_that_the_broker_does_not_list_takes_no_queue(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    async with member(cluster) as one:
        one.members.add("9.9.9.9@other")
        assert not await one.rebalance(), "it looks again soon"
        assert one.queues == set()
        one.join()
        assert await one.rebalance()
        assert one.queues == {FIRST}


async def test_a_member_that_is_no_longer_listed_keeps_its_queues(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    async with member(cluster) as one:
        one.join()
        await one.rebalance()
        one.members.clear()
        one.members.add("9.9.9.9@other")
        assert not await one.rebalance()
        assert one.queues == {FIRST, SECOND}
        assert one.holder.shares == [[FIRST, SECOND]]


async def test_every_member_of_a_broadcasting_group_holds_every_queue(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    async with member(cluster, model=MessageModel.BROADCASTING) as one:
        one.members.add("9.9.9.9@other")
        assert await one.rebalance()
        assert one.queues == {FIRST, SECOND}


async def test_a_queue_that_goes_to_another_member_stores_its_offset(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    async with member(cluster) as one:
        one.join()
        await one.rebalance()
        one.offsets.table.update(SECOND, 7)
        gone = one.rebalancer.assigned[SECOND]
        one.members.add("9.9.9.9@other")
        assert await one.rebalance()
        assert one.queues == {FIRST}
        assert one.stored(1) == 7
        assert one.offsets.table.get(SECOND) is None
        assert one.holder.closed_queues == [SECOND]
        assert gone.state is QueueState.DROPPED
        assert gone.scope.cancel_called
        assert one.unlocked() == [], "only ordered consumers hold locks"


async def test_a_queue_whose_lock_was_lost_does_not_store_its_offset(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    async with member(cluster, ordered=True) as one:
        one.join()
        await one.rebalance()
        assert one.queues == {FIRST, SECOND}
        one.offsets.table.update(FIRST, 7)
        one.offsets.table.update(SECOND, 8)
        cluster.broker.lockers["G", "T", 0] = "9.9.9.9@other"
        await trio.sleep(60)
        await one.rebalancer.lock_held()
        cluster.broker.offsets.clear()
        await one.rebalance()
        assert one.queues == {SECOND}
        assert one.stored(0) is None, "whoever holds the lock has consumed on from another offset"
        await one.offsets.persist()
        assert one.stored(0) is None
        assert one.stored(1) == 8


async def test_a_lock_that_is_not_confirmed_for_a_moment_is_not_lost(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    async with member(cluster, ordered=True) as one:
        one.join()
        await one.rebalance()
        held = one.rebalancer.assigned[FIRST]
        cluster.broker.lockers["G", "T", 0] = "9.9.9.9@other"
        await trio.sleep(20)
        await one.rebalancer.lock_held()
        cluster.broker.lockers["G", "T", 0] = one.client.client_id
        await one.rebalance()
        assert one.rebalancer.assigned[FIRST] is held


async def test_a_queue_whose_pull_loop_shows_no_life_is_opened_anew(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    async with member(cluster) as one:
        one.join()
        await one.rebalance()
        dead, alive = one.rebalancer.assigned[FIRST], one.rebalancer.assigned[SECOND]
        await trio.sleep(PULL_EXPIRED_MS / 1000)
        await one.rebalance()
        assert one.rebalancer.assigned[FIRST] is dead, "this is the longest allowed silence"
        await trio.sleep(1)
        alive.window.last_pull_ms = int(trio.current_time() * 1000)
        await one.rebalance()
        assert one.rebalancer.assigned[FIRST] is not dead
        assert dead.scope.cancel_called
        assert one.holder.opened_queues[-1] is one.rebalancer.assigned[FIRST]
        assert one.rebalancer.assigned[SECOND] is alive


async def test_a_queue_that_the_application_paused_is_not_taken_for_dead(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    async with member(cluster) as one:
        one.join()
        await one.rebalance()
        paused = one.rebalancer.assigned[FIRST]
        paused.paused = True
        await trio.sleep(PULL_EXPIRED_MS / 1000 + 60)
        await one.rebalance()
        assert one.rebalancer.assigned[FIRST] is paused


async def test_an_ordered_queue_is_given_up_with_its_lock(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    async with member(cluster, ordered=True) as one:
        one.join()
        await one.rebalance()
        one.members.add("9.9.9.9@other")
        assert await one.rebalance()
        assert one.unlocked() == [SECOND]
        await one.rebalancer.close()
        assert one.unlocked() == [SECOND, FIRST]


async def test_an_ordered_queue_is_given_up_when_its_listener_has_ended(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    async with member(cluster, ordered=True) as one:
        one.join()
        await one.rebalance()
        busy = one.rebalancer.assigned[SECOND]
        busy.busy = 1
        one.members.add("9.9.9.9@other")
        assert not await one.rebalance()
        assert busy.state is QueueState.LEAVING
        assert not busy.may_run
        assert not busy.paused
        assert one.unlocked() == [], "the lock stays until the listener has ended"
        busy.busy = 0
        assert await one.rebalance()
        assert one.queues == {FIRST}
        assert one.unlocked() == [SECOND]


async def test_an_ordered_queue_that_is_being_given_up_is_kept_when_it_comes_back(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    async with member(cluster, ordered=True) as one:
        one.join()
        await one.rebalance()
        busy = one.rebalancer.assigned[SECOND]
        busy.busy = 1
        one.members.add("9.9.9.9@other")
        assert not await one.rebalance()
        one.members.remove("9.9.9.9@other")
        assert await one.rebalance()
        assert one.rebalancer.assigned[SECOND] is busy
        assert busy.state is QueueState.HELD
        assert busy.may_run


async def test_a_queue_that_was_reopened_while_it_was_being_given_up_stays(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    async with member(cluster, ordered=True) as one:
        one.join()
        await one.rebalance()
        busy = one.rebalancer.assigned[SECOND]
        busy.busy = 1

        async def reset() -> None:
            await trio.sleep(0.5)
            one.rebalancer.reopen(SECOND, 99)
            busy.busy = 0

        one.members.add("9.9.9.9@other")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reset)
            assert not await one.rebalance()
        assert one.rebalancer.assigned[SECOND].next_offset == 99
        assert one.rebalancer.assigned[SECOND].state is QueueState.HELD
        assert await one.rebalance()
        assert one.queues == {FIRST}


async def test_a_queue_that_another_member_still_locks_is_asked_for_again(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    async with member(cluster, ordered=True) as one:
        one.join()
        cluster.broker.lockers["G", "T", 0] = "9.9.9.9@other"
        assert not await one.rebalance()
        assert one.queues == {SECOND}
        del cluster.broker.lockers["G", "T", 0]
        assert await one.rebalance()
        assert one.queues == {FIRST, SECOND}


async def test_a_queue_without_a_known_first_offset_is_asked_for_again(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    async with member(cluster) as one:
        one.join()
        one.holder.unknown.add(FIRST)
        assert not await one.rebalance()
        assert one.queues == {SECOND}
        one.holder.unknown.clear()
        assert await one.rebalance()
        assert one.queues == {FIRST, SECOND}


async def test_the_queues_of_a_topic_that_is_no_longer_wanted_go(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    async with member(cluster) as one:
        one.join()
        await one.rebalance()
        one.offsets.table.update(FIRST, 3)
        assert await one.rebalancer.rebalance([])
        assert one.queues == set()
        assert one.stored(0) == 3
        assert one.rebalancer.last_shares == {}


async def test_queues_assigned_by_hand_are_held_whoever_else_reads_them(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    async with member(cluster) as one:
        one.members.add("9.9.9.9@other")
        assert await one.rebalancer.hold_exactly([SECOND])
        assert one.queues == {SECOND}
        assert await one.rebalancer.hold_exactly([FIRST])
        assert one.queues == {FIRST}
        assert one.holder.closed_queues == [SECOND]


async def test_a_busy_ordered_queue_leaves_an_assignment_by_hand_unsettled(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    async with member(cluster, ordered=True) as one:
        assert await one.rebalancer.hold_exactly([FIRST, SECOND])
        one.rebalancer.assigned[SECOND].busy = 1
        assert not await one.rebalancer.hold_exactly([FIRST]), "the caller has to try again"
        one.rebalancer.assigned[SECOND].busy = 0
        assert await one.rebalancer.hold_exactly([FIRST])
        assert one.queues == {FIRST}


@pytest.mark.parametrize(("ordered", "busy"), [(False, 1), (False, 0), (True, 0)])
async def test_only_an_ordered_queue_with_a_busy_listener_is_waited_for(
    cluster: FakeCluster, autojump_clock: MockClock, ordered: bool, busy: int
) -> None:
    async with member(cluster, ordered=ordered) as one:
        one.join()
        await one.rebalance()
        assigned = one.rebalancer.assigned[FIRST]
        assigned.busy = busy
        assert await one.rebalancer.give_up(FIRST)
        assert assigned.state is QueueState.DROPPED
        assert one.holder.closed_queues == [FIRST]


async def test_a_queue_that_is_not_held_counts_as_given_up(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    async with member(cluster) as one:
        assert await one.rebalancer.give_up(FIRST) is True
        assert one.holder.closed_queues == []


async def test_a_member_is_told_its_share_when_it_changes_even_if_it_is_empty_and_not_again(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    async with member(cluster) as one:
        one.members.update({"0.0.0.1@other", "0.0.0.2@other"})
        one.join()
        await one.rebalance()
        await one.rebalance()
        assert one.holder.shares == [[]]
        one.members.discard("0.0.0.1@other")
        await one.rebalance()
        await one.rebalance()
        assert one.holder.shares == [[], [SECOND]]


async def test_a_member_is_told_its_share_again_when_a_queue_of_it_was_opened_anew_or_lost(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    async with member(cluster, ordered=True) as one:
        one.join()
        await one.rebalance()
        assert one.holder.shares == [[FIRST, SECOND]]
        one.rebalancer.assigned[FIRST].window.locked = False
        await one.rebalance()
        assert one.queues == {FIRST, SECOND}
        assert len(one.holder.shares) == 2, "the first queue was opened anew"
        one.rebalancer.assigned[FIRST].window.locked = False
        cluster.broker.lockers["G", "T", 0] = "9.9.9.9@other"
        await one.rebalance()
        assert one.queues == {SECOND}
        assert len(one.holder.shares) == 3, "the first queue is gone, whatever the share says"
