"""Calls of a listener in the application's threads: as many at once as the rules say, each with a context of its own,
and none is left when the consumer is closed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest
from client_cluster import LIMIT_SECONDS
from client_fakes import NAME_SERVER, FakeCluster

import triomq
from triomq import aio, blocking
from triomq.client.consume.consuming import Verdict
from triomq.client.consume.delivery import Delivery
from triomq.client.core.results import ConsumeFromWhere
from triomq.client.facades.elsewhere import ListenerCalls
from triomq.protocol.message import MessageExt

COUNT = 20
CONCURRENCY = 3
OPTIONS: dict[str, Any] = {
    "name_server": NAME_SERVER,
    "consume_from": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    "rules": triomq.ConsumeRules(concurrency=CONCURRENCY),
}
CALLER: ContextVar[str] = ContextVar("CALLER", default="nobody")


def with_messages(monkeypatch: pytest.MonkeyPatch, count: int) -> FakeCluster:
    made = FakeCluster.installed(monkeypatch, "T")
    made.brokers["a"].store("T", 0, *[b"%d" % number for number in range(count)])
    return made


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    return with_messages(monkeypatch, COUNT)


def consume_in_asyncio(handle: Callable[[MessageExt], Any], done: asyncio.Event) -> None:
    async def main() -> None:
        CALLER.set("opener")
        async with aio.PushConsumer("G", **OPTIONS) as consumer:
            consumer.subscribe("T")
            consumer.listen(handle)
            await done.wait()

    asyncio.run(asyncio.wait_for(main(), LIMIT_SECONDS))


def test_no_more_calls_run_at_once_than_the_rules_say(cluster: FakeCluster) -> None:
    done, full, running, most = asyncio.Event(), asyncio.Event(), 0, 0
    calls: list[bytes] = []

    async def handle(message: MessageExt) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == CONCURRENCY:
            full.set()
        await full.wait()
        for _ in range(20):
            await asyncio.sleep(0)
        running -= 1
        calls.append(message.body)
        if len(calls) == COUNT:
            done.set()

    consume_in_asyncio(handle, done)
    assert most == CONCURRENCY
    assert len(set(calls)) == COUNT


class Core:
    """Stands for the consumer."""

    group = "G"

    def start_soon(self, function: Any, *args: Any) -> None:
        raise AssertionError("nothing is awaited here")

    def begin(self, delivery: Delivery) -> None:
        raise AssertionError("they have begun")

    def settled(self, delivery: Delivery, error: Any) -> None:
        raise AssertionError("`finish` settles them")

    returned = begin


def test_calls_that_begin_together_cross_together_and_so_do_their_ends() -> None:
    away: list[Callable[[], object]] = []
    home: list[Callable[[], object]] = []
    finished: list[tuple[bytes, bool]] = []

    async def handle(message: MessageExt) -> None:
        if message.body == b"1":
            raise ValueError("not this one")

    async def awaiting(result: Any) -> Any:
        return await result

    def finish(delivery: Delivery, verdict: Verdict) -> None:
        finished.append((delivery.message.body, verdict.ok))
        if delivery.message.body == b"0":
            raise ValueError("the others finish")

    crossed = asyncio.Event()

    def put_home(call: Callable[[], object]) -> None:
        home.append(call)
        crossed.set()

    core: Any = Core()
    calls = ListenerCalls(core, handle, home=put_home, away=away.append, awaiting=awaiting)
    for number in range(3):
        calls.start(Delivery(MessageExt("T", b"%d" % number), core), finish)
    assert away == []
    calls.flush()
    calls.flush()

    async def main() -> None:
        for run in away:
            run()
        await crossed.wait()

    asyncio.run(main())
    assert (len(away), len(home)) == (1, 1)
    home[0]()
    assert finished == [(b"0", True), (b"1", False), (b"2", True)]


def test_a_call_sees_the_context_of_the_consumer_and_changes_that_of_no_other(cluster: FakeCluster) -> None:
    done = asyncio.Event()
    seen: list[str] = []

    async def handle(message: MessageExt) -> None:
        seen.append(CALLER.get())
        CALLER.set("another call")
        if len(seen) == COUNT:
            done.set()

    consume_in_asyncio(handle, done)
    assert seen == ["opener"] * COUNT


def test_a_consumer_that_is_left_by_an_error_cancels_the_calls_that_run(cluster: FakeCluster) -> None:
    ended: list[type[BaseException]] = []

    async def main() -> None:
        began, count = asyncio.Event(), 0

        async def handle(message: MessageExt) -> None:
            nonlocal count
            count += 1
            if count == CONCURRENCY:
                began.set()
            try:
                await asyncio.Event().wait()
            except BaseException as error:
                ended.append(type(error))
                raise

        with pytest.raises(ValueError, match="left"):
            async with aio.PushConsumer("G", **OPTIONS) as consumer:
                consumer.subscribe("T")
                consumer.listen(handle)
                await began.wait()
                raise ValueError("left")
        await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(main(), LIMIT_SECONDS))
    assert ended == [asyncio.CancelledError] * CONCURRENCY
    assert cluster.brokers["a"].offsets.get(("G", "T", 0)) == 0


def test_a_consumer_that_is_left_by_an_error_waits_for_the_threads_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = with_messages(monkeypatch, CONCURRENCY)  # a further one would wait for others at the barrier
    meeting, leaving = threading.Barrier(CONCURRENCY + 1), threading.Event()
    ended: list[bytes] = []

    def handle(message: MessageExt) -> None:
        meeting.wait(LIMIT_SECONDS)
        leaving.wait(LIMIT_SECONDS)
        ended.append(message.body)

    class Leaving(blocking.PushConsumer[Any]):
        def _closing(self) -> None:
            super()._closing()
            leaving.set()

    with pytest.raises(ValueError, match="left"), Leaving("G", **OPTIONS) as consumer:
        consumer.subscribe("T")
        consumer.listen(handle)
        meeting.wait(LIMIT_SECONDS)
        raise ValueError("left")
    assert sorted(ended) == [b"0", b"1", b"2"]
    assert cluster.brokers["a"].offsets.get(("G", "T", 0)) == CONCURRENCY, "what they return counts"
