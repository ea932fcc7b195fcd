"""Stored offsets are fresh when others read them: at a hand-over, after a lost connection, when a broker is back."""

from __future__ import annotations

from itertools import pairwise

import pytest
import trio
from client_fakes import NAME_SERVER, FakeCluster
from trio.testing import MockClock

from triomq.client.api import ConsumeFromWhere, LitePullConsumer, MessageExt, PushConsumer
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import RemotingCommand
from triomq.protocol.headers.client import NotifyConsumerIdsChangedRequestHeader
from triomq.protocol.headers.offset import UpdateConsumerOffsetRequestHeader
from triomq.remoting.errors import ConnectFailed

UPDATE, HEARTBEAT = RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.HEART_BEAT
MEMBERS = RequestCode.GET_CONSUMER_LIST_BY_GROUP
ADDRESS = "a:10911"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    return FakeCluster.installed(monkeypatch, "T", "%RETRY%G")


def offset(cluster: FakeCluster) -> int | None:
    return cluster.broker.offsets.get(("G", "T", 0))


def updates(cluster: FakeCluster) -> list[tuple[float, int]]:
    """When the broker received which offset of T."""
    found = []
    for at, request in cluster.broker.requests:
        if request.code == UPDATE:
            header = request.header(UpdateConsumerOffsetRequestHeader)
            if header.topic == "T":
                found.append((at, header.commit_offset))
    return found


def consumer(model_group: str = "G") -> PushConsumer:
    made = PushConsumer(model_group, name_server=NAME_SERVER, consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    made.subscribe("T")
    return made


async def take(message: MessageExt) -> None:
    pass


async def test_a_broker_that_lost_offsets_has_them_again_as_soon_as_it_is_back(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    cluster.broker.store("T", 0, b"1", b"2", b"3")
    async with consumer() as one:
        one.listen(take)
        await trio.sleep(7)
        assert offset(cluster) == 3
        cluster.broker.up = False
        cluster.broker.advertised = ADDRESS
        cluster.broker.offsets.clear()
        cluster.broker.members.clear()
        cluster.lose(ADDRESS)
        cluster.lose(ADDRESS)  # the fast port's
        await trio.sleep(0.5)
        assert offset(cluster) is None
        before = len(cluster.broker.requests)
        cluster.broker.up = True
        await trio.sleep(1)
        assert offset(cluster) == 3
        codes = [request.code for _, request in cluster.broker.requests[before:]]
        assert codes.count(UPDATE) == 2, "of T and of the retry topic, once each"
        assert codes.index(UPDATE) < codes.index(HEARTBEAT), "who joins because of the heartbeat reads the offsets"
        assert cluster.broker.members["G"], "without waiting for the next round of heartbeats"


async def test_attempts_to_reach_a_broker_become_rare(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    cluster.broker.store("T", 0, b"1")
    async with consumer() as one:
        one.listen(take)
        await trio.sleep(7)
        attempts: list[float] = []
        invoke = cluster.invoke

        async def unreachable(address: str, request: RemotingCommand, timeout_seconds: float = 3.0) -> RemotingCommand:
            if request.code == UPDATE:
                attempts.append(trio.current_time())
                raise ConnectFailed("nobody there")
            return await invoke(address, request, timeout_seconds)

        cluster.invoke = unreachable  # type: ignore[method-assign]
        cluster.lose(ADDRESS)
        await trio.sleep(45)
        pauses = [later - earlier for earlier, later in pairwise([7.0, *attempts])]
        assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, *[5.0] * 7])
        cluster.invoke = invoke  # type: ignore[method-assign]
        cluster.broker.offsets.clear()
        await trio.sleep(5)
        assert offset(cluster) == 1
        count = len(updates(cluster))
        await trio.sleep(2.5)
        assert len(updates(cluster)) == count, "then they end"


async def test_another_member_finds_fresh_offsets_when_it_joins(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    async with consumer() as one:
        one.listen(take)
        await trio.sleep(6)
        cluster.broker.store("T", 0, b"1", b"2")
        await trio.sleep(0.5)
        assert offset(cluster) != 2, "not stored yet: that happens every five seconds"
        before = len(cluster.broker.requests)
        cluster.notify(
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, NotifyConsumerIdsChangedRequestHeader(consumer_group="G")
        )
        await trio.sleep(0.1)
        assert offset(cluster) == 2
        codes = [request.code for _, request in cluster.broker.requests[before:]]
        assert codes.index(UPDATE) < codes.index(MEMBERS)


async def test_a_broker_that_does_not_take_offsets_delays_no_hand_over(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    async with consumer() as one:
        one.listen(take)
        await trio.sleep(6)
        cluster.broker.store("T", 0, b"1", b"2")
        await trio.sleep(0.5)
        cluster.broker.slow_seconds = 2.9
        before = len(cluster.broker.requests)
        cluster.notify(
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, NotifyConsumerIdsChangedRequestHeader(consumer_group="G")
        )
        await trio.sleep(1.5)
        assert MEMBERS in [request.code for _, request in cluster.broker.requests[before:]]


async def test_positions_that_the_application_did_not_commit_are_not_stored(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    cluster.broker.store("T", 0, b"1", b"2")
    one = LitePullConsumer(
        "G", name_server=NAME_SERVER, auto_commit=False, consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    )
    one.subscribe("T")
    async with one:
        with trio.fail_after(60):
            assert len(await one.poll(30)) == 2
        cluster.lose(ADDRESS)
        cluster.notify(
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, NotifyConsumerIdsChangedRequestHeader(consumer_group="G")
        )
        await trio.sleep(20)
        assert updates(cluster) == []


async def test_a_connection_that_ends_with_the_client_or_of_somebody_else_starts_nothing(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    cluster.broker.store("T", 0, b"1")
    async with consumer() as one:
        one.listen(take)
        await trio.sleep(7)
        count = len(updates(cluster))
        cluster.lose("b:10911")
        cluster.lose(NAME_SERVER)
        await trio.sleep(4)
        assert len(updates(cluster)) == count
    cluster.lose(ADDRESS)
    await trio.sleep(4)
    assert len(updates(cluster)) == count
