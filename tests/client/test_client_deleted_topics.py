"""A topic that is deleted under a consumer: nothing of its earlier life is stored for a topic of the same name."""

from __future__ import annotations

import pytest
import trio
from client_fakes import NAME_SERVER, FakeCluster, refuse
from trio.testing import MockClock

from triomq.client.api import ConsumeFromWhere, LitePullConsumer, MessageExt, PushConsumer
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand
from triomq.protocol.headers.offset import UpdateConsumerOffsetRequestHeader
from triomq.protocol.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from triomq.protocol.message_queue import MessageQueue

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
STORED_EVERY_SECONDS = 60
"""All offsets are stored again after twelve rounds of five seconds, changed or not."""


class Deletion:
    """A broker whose topic T is deleted some time after the pull behind its three messages came."""

    def __init__(self, cluster: FakeCluster, after_seconds: float) -> None:
        self.broker = cluster.broker
        self.broker.store("T", 0, b"0", b"1", b"2")
        self.deleted_at: float | None = None
        self._after_seconds = after_seconds
        self._pull = self.broker.pull_message
        self.broker.pull_message = self._answer  # type: ignore[method-assign]

    async def _answer(self, request: RemotingCommand) -> RemotingCommand:
        header = request.header(PullMessageRequestHeader)
        if header.topic != "T" or (self.deleted_at is None and header.queue_offset < 3):
            return await self._pull(request)
        if self.deleted_at is None:
            await trio.sleep(self._after_seconds)
            self.broker.offsets.clear()
            self.deleted_at = trio.current_time()
        answer = refuse(ResponseCode.TOPIC_NOT_EXIST)
        assert callable(answer)
        return answer(request)

    def stored(self) -> list[int]:
        """Return the offsets of T that were stored after the deletion."""
        assert self.deleted_at is not None
        headers = [
            request.header(UpdateConsumerOffsetRequestHeader)
            for at, request in self.broker.requests
            if request.code == RequestCode.UPDATE_CONSUMER_OFFSET and at >= self.deleted_at
        ]
        return [header.commit_offset for header in headers if header.topic == "T"]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    return FakeCluster.installed(monkeypatch, "T", "%RETRY%G")


@pytest.mark.parametrize("after_seconds", [0, 14])
@pytest.mark.parametrize("ordered", [False, True])
async def test_a_push_consumer_stores_no_offset_of_a_deleted_topic(
    cluster: FakeCluster, autojump_clock: MockClock, ordered: bool, after_seconds: float
) -> None:
    deletion = Deletion(cluster, after_seconds)
    done: list[bytes] = []

    async def take(message: MessageExt) -> None:
        done.append(message.body)

    async with PushConsumer("G", name_server=NAME_SERVER, ordered=ordered, consume_from=FIRST) as consumer:
        consumer.subscribe("T")
        consumer.listen(take)
        await trio.sleep(4 * STORED_EVERY_SECONDS)
    assert (done, deletion.stored()) == ([b"0", b"1", b"2"], [])


@pytest.mark.parametrize("after_seconds", [0, 14])
async def test_a_polling_consumer_stores_no_position_in_a_deleted_topic(
    cluster: FakeCluster, autojump_clock: MockClock, after_seconds: float
) -> None:
    deletion = Deletion(cluster, after_seconds)
    done: list[bytes] = []
    async with LitePullConsumer("G", name_server=NAME_SERVER, consume_from=FIRST) as consumer:
        consumer.subscribe("T")
        with trio.move_on_after(4 * STORED_EVERY_SECONDS):
            while True:
                done += [message.body for message in await consumer.poll()]
    assert (done, deletion.stored()) == ([b"0", b"1", b"2"], [])


async def test_what_a_poll_returned_before_its_topic_was_deleted_does_not_count_at_the_next_poll(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    deletion = Deletion(cluster, 0)
    async with LitePullConsumer("G", name_server=NAME_SERVER, consume_from=FIRST) as consumer:
        consumer.subscribe("T")
        assert [message.body for message in await consumer.poll()] == [b"0", b"1", b"2"]
        await trio.sleep(STORED_EVERY_SECONDS)
        with trio.move_on_after(2 * STORED_EVERY_SECONDS):
            await consumer.poll()
        assert await consumer.position(MessageQueue("T", "a", 0)) is None
    assert deletion.stored() == []


async def test_a_slave_that_does_not_know_the_topic_yet_does_not_end_the_position_in_it(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    master, slave = cluster.broker, cluster.replica("a")
    master.store("T", 0, b"0", b"1", b"2")
    slave.will(RequestCode.PULL_MESSAGE, *[refuse(ResponseCode.TOPIC_NOT_EXIST)] * 1000)
    done: list[bytes] = []

    def suggest_slave(next_offset: int, first: int, end: int) -> PullMessageResponseHeader:
        return PullMessageResponseHeader(
            suggest_which_broker_id=1, next_begin_offset=next_offset, min_offset=first, max_offset=end
        )

    async def take(message: MessageExt) -> None:
        done.append(message.body)

    master._bounds = suggest_slave  # type: ignore[method-assign]
    async with PushConsumer("G", name_server=NAME_SERVER, consume_from=FIRST) as consumer:
        consumer.subscribe("T")
        consumer.listen(take)
        await trio.sleep(STORED_EVERY_SECONDS)
    assert slave.of(RequestCode.PULL_MESSAGE)
    assert (done, master.offsets["G", "T", 0]) == ([b"0", b"1", b"2"], 3)
