"""Calls and messages on their way between the client's thread and the application's: many cross together, and none is
lost, late or begun before the application has it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from client_cluster import LIMIT_SECONDS
from client_fakes import NAME_SERVER, FakeCluster

import triomq
from triomq import aio, blocking
from triomq.client.core.hooks import ConsumeContext
from triomq.client.core.results import ConsumeFromWhere, ConsumeStatus
from triomq.client.facades.inbox import Inbox
from triomq.protocol.message import MessageExt

COUNT = 20
OPTIONS: dict[str, Any] = {"name_server": NAME_SERVER, "consume_from": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET}
BODIES = [b"%d" % number for number in range(COUNT)]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    made = FakeCluster.installed(monkeypatch, "T")
    made.brokers["a"].store("T", 0, *BODIES)
    return made


def offset(cluster: FakeCluster) -> int | None:
    return cluster.brokers["a"].offsets.get(("G", "T", 0))


# The inbox of an event loop.


class Loop:
    """An event loop that runs what it was woken for when `run` is called."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []
        self.has_ended = False

    def wake(self, call: Callable[[], None]) -> None:
        if self.has_ended:
            raise RuntimeError("ended")
        self.soon.append(call)

    def run(self) -> None:
        soon, self.soon = self.soon, []
        for call in soon:
            call()


def test_calls_share_one_wake_up_and_keep_their_order() -> None:
    loop, seen = Loop(), list[int]()
    inbox = Inbox(loop.wake)
    for number in range(3):
        inbox.put(lambda number=number: seen.append(number))  # type: ignore[misc]
    assert len(loop.soon) == 1
    loop.run()
    assert seen == [0, 1, 2]
    inbox.put(lambda: seen.append(3))
    assert len(loop.soon) == 1, "what comes after a run wakes the loop again"
    loop.run()
    assert seen == [0, 1, 2, 3]


def test_a_call_that_is_put_while_the_others_run_is_run_by_the_next_wake_up() -> None:
    loop, seen = Loop(), list[str]()
    inbox = Inbox(loop.wake)
    inbox.put(lambda: inbox.put(lambda: seen.append("inner")))
    loop.run()
    assert seen == [] and len(loop.soon) == 1
    loop.run()
    assert seen == ["inner"]


def test_a_call_that_fails_keeps_no_other_from_running() -> None:
    loop, seen = Loop(), list[str]()
    inbox = Inbox(loop.wake)
    inbox.put(lambda: [][0])
    inbox.put(lambda: seen.append("next"))
    loop.run()
    assert seen == ["next"]


def test_each_call_to_a_loop_that_has_ended_says_so() -> None:
    loop = Loop()
    inbox = Inbox(loop.wake)
    loop.has_ended = True
    for _ in range(2):
        with pytest.raises(RuntimeError, match="ended"):
            inbox.put(lambda: None)


# Messages that crossed together.


def test_a_message_that_the_application_does_not_have_yet_has_not_begun(cluster: FakeCluster) -> None:
    """Else it would count as consumed for too long, and be sent back."""
    with blocking.PushConsumer("G", **OPTIONS) as consumer:
        consumer.subscribe("T")
        received = consumer.receive(LIMIT_SECONDS)
        assert received is not None and consumer._ahead._waiting
        (assigned,) = consumer._core._rebalancer.assigned.values()
        assert consumer._call(lambda: list(assigned.window.started_ms)) == [0]
        assert assigned.busy == 1
        second = consumer.receive(LIMIT_SECONDS)
        assert second is not None
        assert consumer._call(lambda: list(assigned.window.started_ms)) == [0, 1]
        received.ack()
        second.ack()
        assert consumer._call(lambda: (list(assigned.window.started_ms), assigned.busy)) == ([], 0)
    assert offset(cluster) == 2


def test_a_consumer_that_is_suspended_hands_nothing_out_and_loses_nothing(cluster: FakeCluster) -> None:
    with blocking.PushConsumer("G", **OPTIONS) as consumer:
        consumer.subscribe("T")
        first = consumer.receive(LIMIT_SECONDS)
        assert first is not None
        consumer.suspend()
        assert consumer.receive(0.05) is None
        consumer.resume()
        bodies = [message.body for message in (consumer.receive(LIMIT_SECONDS) for _ in BODIES[1:]) if message]
    assert [first.body, *bodies] == BODIES


def test_a_queue_that_was_given_up_is_not_handed_out(cluster: FakeCluster) -> None:
    with blocking.PushConsumer("G", **OPTIONS) as consumer:
        consumer.subscribe("T")
        assert consumer.receive(LIMIT_SECONDS) is not None
        assert consumer._ahead._waiting
        (assigned,) = consumer._core._rebalancer.assigned.values()
        consumer._call(assigned.window.drop)
        message = consumer.receive(LIMIT_SECONDS)
        assert message is not None and message.body == BODIES[0], "the queue is read again from its offset"


def test_a_thread_that_waits_gets_what_another_took_along(cluster: FakeCluster) -> None:
    got: list[bytes] = []
    with blocking.PushConsumer("G", **OPTIONS) as consumer:
        consumer.subscribe("T")

        def one() -> None:
            message = consumer.receive(LIMIT_SECONDS)
            assert message is not None
            got.append(message.body)

        threads = [threading.Thread(target=one) for _ in BODIES]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(got) == sorted(BODIES)


def test_a_hook_sees_each_message_when_the_application_gets_it(cluster: FakeCluster) -> None:
    seen: list[bytes] = []

    class Hook:
        def before_consume(self, context: ConsumeContext) -> None:
            seen.append(context.messages[0].body)

        def after_consume(self, context: ConsumeContext) -> None:
            seen.append(b"after " + context.messages[0].body)

    with blocking.PushConsumer("G", consume_hooks=[Hook()], **OPTIONS) as consumer:
        consumer.subscribe("T")
        for body in BODIES[:2]:
            message = consumer.receive(LIMIT_SECONDS)
            assert message is not None and message.body == body
            message.ack()
    assert seen == [b"0", b"after 0", b"1", b"after 1"]


def test_a_loop_gives_other_tasks_their_turn(cluster: FakeCluster) -> None:
    cluster.brokers["a"].store("T", 0, *[b"more"] * 300)
    turns = 0

    async def main() -> None:
        nonlocal turns

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.create_task(other())
        left = COUNT + 300
        async with aio.PushConsumer("G", **OPTIONS) as consumer:
            consumer.subscribe("T")
            async for _ in consumer:
                left -= 1
                if not left:
                    consumer.ack()
                    break
        beside.cancel()

    asyncio.run(asyncio.wait_for(main(), LIMIT_SECONDS))
    assert turns >= 4
    assert offset(cluster) == COUNT + 300


# Functions of the application.


@pytest.mark.parametrize("module", [aio, blocking])
def test_plain_functions_run_in_threads_at_once_and_the_threads_end(cluster: FakeCluster, module: Any) -> None:
    meeting = threading.Barrier(4)
    names: set[str] = set()
    done = threading.Event()

    def handle(message: MessageExt) -> ConsumeStatus:
        names.add(threading.current_thread().name)
        meeting.wait(LIMIT_SECONDS)
        if len(names) == 4 and message.body == BODIES[-1]:
            done.set()
        return ConsumeStatus.CONSUME_SUCCESS

    rules = triomq.ConsumeRules(concurrency=4)

    async def in_asyncio() -> None:
        async with aio.PushConsumer("G", rules=rules, **OPTIONS) as consumer:
            consumer.subscribe("T")
            consumer.listen(handle)
            await asyncio.to_thread(done.wait, LIMIT_SECONDS)

    if module is aio:
        asyncio.run(in_asyncio())
    else:
        with blocking.PushConsumer("G", rules=rules, **OPTIONS) as consumer:
            consumer.subscribe("T")
            consumer.listen(handle)
            assert done.wait(LIMIT_SECONDS)
    assert len(names) == 4
    for thread in threading.enumerate():
        if thread.name in names:
            thread.join(LIMIT_SECONDS)
            assert not thread.is_alive()


def test_a_plain_function_may_return_what_the_asyncio_loop_has_to_await(cluster: FakeCluster) -> None:
    async def main() -> None:
        here, seen = asyncio.get_running_loop(), list[bool]()
        done = asyncio.Event()

        async def work() -> None:
            seen.append(asyncio.get_running_loop() is here)
            if len(seen) == COUNT:
                done.set()

        async with aio.PushConsumer("G", **OPTIONS) as consumer:
            consumer.subscribe("T")
            consumer.listen(lambda message: work())
            await done.wait()
        assert all(seen)

    asyncio.run(asyncio.wait_for(main(), LIMIT_SECONDS))
    assert offset(cluster) == COUNT


def test_a_handler_that_raises_or_is_cancelled_has_its_message_delivered_again(cluster: FakeCluster) -> None:
    calls: list[bytes] = []

    async def main() -> None:
        done = asyncio.Event()

        async def handle(message: MessageExt) -> None:
            calls.append(message.body)
            if len(calls) == COUNT:
                done.set()
            if message.body == b"1":
                raise ValueError("wrong")
            if message.body == b"2":
                raise asyncio.CancelledError

        async with aio.PushConsumer("G", **OPTIONS) as consumer:
            consumer.subscribe("T")
            consumer.listen(handle)
            await done.wait()

    asyncio.run(asyncio.wait_for(main(), LIMIT_SECONDS))
    assert sorted(calls, key=int) == BODIES
    assert len(cluster.brokers["a"].sent_back) == 2
