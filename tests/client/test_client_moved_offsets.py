"""A broker without messages at the offset of a pull names another one; messages that wait here are not skipped."""

from __future__ import annotations

import pytest
import trio
from client_fakes import NAME_SERVER, FakeCluster
from trio.testing import MockClock

from triomq.client.api import ConsumeFromWhere, MessageExt, PushConsumer
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand
from triomq.protocol.headers.pull import PullMessageRequestHeader
from triomq.protocol.message_queue import MessageQueue


class Lab:
    """A group whose listener takes 5 s for each message. At the first pull behind its three messages the broker has
    lost those from `offset` on, or has expired all before `offset`."""

    def __init__(self, cluster: FakeCluster, offset: int, *, ordered: bool) -> None:
        self.done: list[bytes] = []
        self.broker = cluster.broker
        self.broker.store("T", 0, b"0", b"1", b"2")
        self.consumer = PushConsumer(
            "G",
            name_server=NAME_SERVER,
            ordered=ordered,
            consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )
        self.consumer.subscribe("T")
        self.moved = False
        self._offset = offset
        self._invoke = cluster.invoke
        cluster.invoke = self._answer  # type: ignore[method-assign]

    async def take(self, message: MessageExt) -> None:
        await trio.sleep(5)
        self.done.append(message.body)

    async def _answer(self, address: str, request: RemotingCommand, timeout_seconds: float = 3.0) -> RemotingCommand:
        if request.code == RequestCode.PULL_MESSAGE and not self.moved:
            header = request.header(PullMessageRequestHeader)
            if (header.topic, header.queue_offset) == ("T", 3):
                self.moved = True
                del self.broker.records["T", 0][self._offset if self._offset < 3 else 0 :]
                self.broker.first_offset["T", 0] = 0 if self._offset < 3 else self._offset
                response = await self._invoke(address, request, timeout_seconds)
                assert response.code == ResponseCode.PULL_OFFSET_MOVED
                self.broker.store("T", 0, b"later", b"last")
                return response
        return await self._invoke(address, request, timeout_seconds)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    return FakeCluster.installed(monkeypatch, "T", "%RETRY%G")


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("offset", [2, 1, 10])
async def test_messages_that_wait_are_consumed_when_the_offset_moves(
    cluster: FakeCluster, autojump_clock: MockClock, ordered: bool, offset: int
) -> None:
    lab = Lab(cluster, offset, ordered=ordered)
    async with lab.consumer:
        lab.consumer.listen(lab.take)
        await trio.sleep(120)
        assert lab.moved
        kept = [b"0", b"1", b"2"][:offset]
        assert set(lab.done) >= {*kept, b"later", b"last"}
        assert cluster.broker.offsets["G", "T", 0] == offset + 2


@pytest.mark.parametrize("offset", [2, 10])
async def test_without_waiting_messages_the_broker_s_offset_counts(
    cluster: FakeCluster, autojump_clock: MockClock, offset: int
) -> None:
    lab = Lab(cluster, offset, ordered=False)
    cluster.broker.offsets["G", "T", 0] = 3
    async with lab.consumer:
        lab.consumer.listen(lab.take)
        await trio.sleep(60)
        assert lab.moved
        assert sorted(lab.done) == [b"last", b"later"]


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_second_reset_counts_while_the_first_one_opens_the_queue_again(
    cluster: FakeCluster, autojump_clock: MockClock, ordered: bool
) -> None:
    cluster.brokers["a"].store("T", 0, *[b"%d" % number for number in range(5)])
    queue = MessageQueue("T", "a", 0)
    send, receive = trio.open_memory_channel[bytes](50)

    async def handle(message: MessageExt) -> None:
        send.send_nowait(message.body)

    async with PushConsumer(
        "G", name_server=NAME_SERVER, ordered=ordered, consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    ) as consumer:
        consumer.subscribe("T")
        consumer.listen(handle)
        with trio.fail_after(30):
            for _ in range(5):
                await receive.receive()
            await consumer.reset_offsets("T", {queue: 4})
            assert queue not in consumer._rebalancer.assigned
            await consumer.reset_offsets("T", {queue: 1})
            assert [await receive.receive() for _ in range(4)] == [b"1", b"2", b"3", b"4"]
    assert cluster.brokers["a"].offsets["G", "T", 0] == 5


async def test_the_offset_of_a_reset_goes_with_the_queue_to_another_member(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    """Else the periodic update of this member would move the other one back, hours later."""
    cluster.brokers["a"].store("T", 0, *[b"%d" % number for number in range(5)])
    queue = MessageQueue("T", "a", 0)
    async with PushConsumer(
        "G", name_server=NAME_SERVER, consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    ) as consumer:
        consumer.subscribe("T")
        with trio.fail_after(30):
            for _ in range(5):
                await consumer.receive()
            await consumer.reset_offsets("T", {queue: 1})
            cluster.brokers["a"].members["G"].add("0 is before every other id")
        await trio.sleep(60)
        assert not consumer.assigned_queues
        cluster.brokers["a"].offsets["G", "T", 0] = 5  # of the other member
        await trio.sleep(600)
    assert cluster.brokers["a"].offsets["G", "T", 0] == 5
