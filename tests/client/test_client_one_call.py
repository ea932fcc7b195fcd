"""An ordered queue is opened again only when the call in it has ended: after resets, illegal offsets, lost locks and
rebalancing, for coroutines and for threads."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
import trio.testing
from client_fakes import NAME_SERVER, FakeCluster

from triomq.client.api import ConsumeFromWhere, ConsumeRules, MessageExt, MessageModel, PushConsumer
from triomq.client.consume.rebalance import PULL_EXPIRED_MS
from triomq.protocol.message_queue import MessageQueue

QUEUE = MessageQueue("T", "a", 0)
JUMPED_SECONDS = 3600
"""Of a clock that jumps. Each time that the thread which writes the offsets needs longer than the threshold, as on a
disk that stands still, the clock goes to the next deadline: a third of a second was enough to pass 30 s."""

Event = Callable[[PushConsumer[bytes], FakeCluster], Awaitable[None]]


async def reset(consumer: PushConsumer[bytes], servers: FakeCluster) -> None:
    await consumer.reset_offsets("T", {QUEUE: 0})


async def illegal_offset(consumer: PushConsumer[bytes], servers: FakeCluster) -> None:
    await consumer.offset_illegal(consumer._rebalancer.assigned[QUEUE], 0)


async def lost_lock(consumer: PushConsumer[bytes], servers: FakeCluster) -> None:
    consumer._rebalancer.assigned[QUEUE].window.locked = False
    consumer.wake_rebalance()


async def silent_pulls(consumer: PushConsumer[bytes], servers: FakeCluster) -> None:
    consumer._rebalancer.assigned[QUEUE].window.last_pull_ms -= 2 * PULL_EXPIRED_MS
    consumer.wake_rebalance()


async def given_up_and_back(consumer: PushConsumer[bytes], servers: FakeCluster) -> None:
    servers.topic("T", 0)
    await consumer.client.refresh_routes()
    consumer.wake_rebalance()
    servers.topic("T", 1)
    await consumer.client.refresh_routes()
    consumer.wake_rebalance()


class Calls:
    """A listener that notes how many calls run at once; the first one waits until `release`."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.running = self.most = 0
        self.bodies: list[bytes] = []
        self.began = trio.Event()
        self.both_seen = trio.Event()
        self.token = trio.lowlevel.current_trio_token()
        self.thread_may_end = threading.Event()
        self.task_may_end = trio.Event()

    def enter(self, message: MessageExt) -> bool:
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
            self.bodies.append(message.body)
            return len(self.bodies) == 1

    def leave(self) -> None:
        with self.lock:
            self.running -= 1
            self.token.run_sync_soon(self.began.set)
            if len(self.bodies) >= 3 and b"2" in self.bodies:
                self.token.run_sync_soon(self.both_seen.set)

    def in_thread(self, message: MessageExt) -> None:
        if self.enter(message):
            self.token.run_sync_soon(self.began.set)
            self.thread_may_end.wait(30)
        self.leave()

    async def in_task(self, message: MessageExt) -> None:
        if self.enter(message):
            self.began.set()
            await self.task_may_end.wait()
        self.leave()

    def release(self) -> None:
        self.thread_may_end.set()
        self.task_may_end.set()


@pytest.fixture
def clock() -> trio.testing.MockClock:
    """Jumps over waits; what a thread needs for its step is shorter than the threshold, or costs a few jumps."""
    return trio.testing.MockClock(autojump_threshold=0.05)


@pytest.mark.parametrize("model", [MessageModel.CLUSTERING, MessageModel.BROADCASTING])
@pytest.mark.parametrize("in_thread", [True, False])
@pytest.mark.parametrize("event", [reset, illegal_offset, lost_lock, silent_pulls, given_up_and_back])
async def test_an_ordered_queue_is_opened_again_when_its_call_has_ended(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    clock: trio.testing.MockClock,
    event: Event,
    in_thread: bool,
    model: MessageModel,
) -> None:
    servers = FakeCluster.installed(monkeypatch, "T")
    servers.broker.store("T", 0, b"1", b"2")
    calls = Calls()
    with trio.fail_after(JUMPED_SECONDS):
        async with PushConsumer(
            "G",
            name_server=NAME_SERVER,
            ordered=True,
            model=model,
            offset_directory=tmp_path,
            consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            rules=ConsumeRules(rebalance_interval_seconds=0.1),
        ) as consumer:
            consumer.subscribe("T")
            consumer.listen(calls.in_thread if in_thread else calls.in_task)
            await calls.began.wait()
            held = consumer._rebalancer.assigned[QUEUE]
            await event(consumer, servers)
            # Two rounds, so that a queue that does not wait for its call would be open again.
            for _ in range(2):
                await consumer._rebalancer.rebalance(consumer.topics())
            assert consumer._rebalancer.assigned.get(QUEUE) is held
            assert calls.most == 1
            calls.release()
            if event in (reset, illegal_offset):
                await calls.both_seen.wait()
    assert calls.most == 1


async def test_a_queue_that_was_reset_while_it_waited_for_a_call_delivers_nothing_stale(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    servers = FakeCluster.installed(monkeypatch, "T", queues=2)
    servers.broker.store("T", 0, b"0a", b"0b")
    servers.broker.store("T", 1, b"1a", b"1b")
    bodies: list[bytes] = []
    began, may_end, done = trio.Event(), trio.Event(), trio.Event()

    async def handle(message: MessageExt) -> None:
        bodies.append(message.body)
        if len(bodies) == 1:
            began.set()
            await may_end.wait()
        if len(bodies) >= 3:
            done.set()

    with trio.fail_after(JUMPED_SECONDS):
        async with PushConsumer(
            "G",
            name_server=NAME_SERVER,
            ordered=True,
            consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            rules=ConsumeRules(concurrency=1),
        ) as consumer:
            consumer.subscribe("T")
            consumer.listen(handle)
            await began.wait()
            waiting = 1 - int(bodies[0][:1])
            queue = MessageQueue("T", "a", waiting)
            while not consumer._rebalancer.assigned[queue].busy:
                await trio.lowlevel.checkpoint()
            await consumer.reset_offsets("T", {queue: 1})
            may_end.set()
            await done.wait()
    assert b"%da" % waiting not in bodies
    assert b"%db" % waiting in bodies
