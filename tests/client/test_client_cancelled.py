"""Calls that are cancelled, at each of their checkpoints in turn, with each of the three clients: they have taken
nothing, and what they use is as it was."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any

import pytest
import trio
from client_cluster import LIMIT_SECONDS, Cluster, fresh, send_all
from client_fakes import NAME_SERVER, FakeCluster
from trio.testing import MockClock, assert_checkpoints, wait_all_tasks_blocked

import triomq
from triomq import aio, blocking
from triomq.client.consume import receiving
from triomq.client.core.errors import OperationTimeout, RequestTimedOut
from triomq.client.core.results import ConsumeFromWhere, LocalTransactionState
from triomq.client.facades import portal as portals
from triomq.client.facades.methods import waiting
from triomq.client.facades.portal import Portal
from triomq.client.facades.portal_call import PortalCall
from triomq.client.facades.tables import (
    LitePullConsumerFacade,
    ProducerFacade,
    PullConsumerFacade,
    PushConsumerFacade,
    TransactionProducerFacade,
)
from triomq.client.produce.in_flight import InFlight
from triomq.protocol.message import Message
from triomq.serializers import Json

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
MESSAGES = [b"%d" % number for number in range(40)]
MOST_CHECKPOINTS = 12
DEADLINES = [0, 1e-12, 1e-6]


class At:
    """Cancels a call at one of its checkpoints: the `nth`, from 0, or its end when it has fewer."""

    def __init__(self, nth: int, cancel: Callable[[], object]) -> None:
        self.nth = nth
        self.cancel = cancel
        self.passed = 0
        self.was_the_end = False

    @types.coroutine
    def run(self, call: Awaitable[Any]) -> Generator[Any, Any, Any]:
        coroutine = call.__await__()
        value: Any = None
        error: BaseException | None = None
        while True:
            try:
                trap = coroutine.send(value) if error is None else coroutine.throw(error)  # type: ignore[attr-defined]
            except StopIteration as end:
                if self.passed <= self.nth:
                    self.was_the_end = True
                    self.cancel()
                return end.value
            if self.passed == self.nth:
                self.cancel()
            self.passed += 1
            value, error = None, None
            try:
                value = yield trap
            except BaseException as caught:
                error = caught


class InterruptingPortal(Portal):
    """Does something at a checkpoint of the next call that it runs."""

    at: At | None = None

    def _spawn(self, call: PortalCall[Any]) -> None:
        at, InterruptingPortal.at = InterruptingPortal.at, None
        if at is not None:
            function = call.function
            call.function = lambda: at.run(function())  # type: ignore[assignment]
        super()._spawn(call)


class Interrupted(BaseException):
    """What a signal raises in the main thread."""


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    made = FakeCluster.installed(monkeypatch, "T")
    made.brokers["a"].store("T", 0, *MESSAGES)
    monkeypatch.setattr(portals, "Portal", InterruptingPortal)
    return made


def consumer(module: Any, kind: str) -> Any:
    rules = triomq.ConsumeRules(pull_batch_size=1 if kind == "poll" else 8)
    options: dict[str, Any] = {"name_server": NAME_SERVER, "consume_from": FIRST, "rules": rules}
    if kind == "poll":
        made = module.LitePullConsumer("G", auto_commit_seconds=0, **options)
    else:
        made = module.PushConsumer(
            "G", ordered=kind == "ordered", serializer=Json(int) if kind == "typed" else None, **options
        )
    made.subscribe("T")
    return made


KINDS = ["poll", "receive", "typed", "ordered", "loop"]


async def take(made: Any, kind: str) -> list[bytes]:
    """Take once, and settle it."""
    if kind == "poll":
        return [message.body for message in await made.poll(0.2)]
    if kind == "loop":
        message = await anext(made)
        made.ack()
        return [message.body]
    taken = await made.receive()
    if isinstance(made, aio.PushConsumer):
        made.ack()
        return [taken.body]
    taken.ack()
    return [taken.message.body]


def take_blocking(made: Any, kind: str) -> list[bytes]:
    if kind == "poll":
        return [message.body for message in made.poll(0.2)]
    message = next(made) if kind == "loop" else made.receive(0.2)
    if message is None:
        return []
    made.ack()
    return [message.body]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_trio_call_that_is_cancelled_has_taken_nothing(
    cluster: FakeCluster, autojump_clock: MockClock, kind: str
) -> None:
    got: list[bytes] = []
    async with consumer(triomq, kind) as made:
        got += await take(made, kind)
        for nth in list(range(MOST_CHECKPOINTS)) * 2:
            with trio.CancelScope() as scope:
                got += await At(nth, scope.cancel).run(take(made, kind))
            await wait_all_tasks_blocked()
        for seconds in DEADLINES:
            with trio.move_on_after(seconds):
                got += await take(made, kind)
        with trio.move_on_after(LIMIT_SECONDS):
            while True:
                got += await take(made, kind)
    assert sorted(got, key=int) == MESSAGES
    assert cluster.brokers["a"].offsets[("G", "T", 0)] == len(MESSAGES)


@pytest.fixture(params=[1, 8, receiving.MOST_AT_ONCE], ids=lambda count: f"{count} at once")
def most_at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many messages cross to another thread together."""
    monkeypatch.setattr(receiving, "MOST_AT_ONCE", request.param)


@pytest.mark.usefixtures("most_at_once")
@pytest.mark.parametrize("kind", KINDS)
def test_an_asyncio_call_that_is_cancelled_has_taken_nothing(cluster: FakeCluster, kind: str) -> None:
    got: list[bytes] = []

    async def cancelled(made: Any, nth: int) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.create_task(take(made, kind))
        InterruptingPortal.at = At(nth, lambda: loop.call_soon_threadsafe(task.cancel))
        with suppress(asyncio.CancelledError):
            got.extend(await task)

    async def at_the_checkpoint_here(made: Any, before: Callable[[], bool]) -> None:
        async def call() -> list[bytes]:
            task = asyncio.current_task()
            assert task is not None

            def cancel() -> None:
                if not at.was_the_end:  # asyncio drops the result of a task that cancels itself in its last step
                    before()
                    task.cancel()

            at = At(0, cancel)
            found: list[bytes] = await at.run(take(made, kind))
            return found

        with suppress(asyncio.CancelledError):
            got.extend(await asyncio.create_task(call()))

    async def main() -> None:
        async with consumer(aio, kind) as made:
            got.extend(await take(made, kind))
            for nth in range(MOST_CHECKPOINTS):
                await cancelled(made, nth)
            InterruptingPortal.at = None  # the last calls may have found their messages on this side
            settled = threading.Event()
            # A call has one checkpoint here: it waits for the other thread. Cancel before and after its result.
            for before in (lambda: False, lambda: settled.wait(0.02)):
                await at_the_checkpoint_here(made, before)
            for seconds in DEADLINES:
                with suppress(asyncio.TimeoutError):
                    got.extend(await asyncio.wait_for(take(made, kind), seconds))
            while len(got) < len(MESSAGES):
                got.extend(await take(made, kind))

    asyncio.run(asyncio.wait_for(main(), LIMIT_SECONDS))
    assert sorted(got, key=int) == MESSAGES
    assert cluster.brokers["a"].offsets[("G", "T", 0)] == len(MESSAGES)


@pytest.mark.usefixtures("most_at_once")
@pytest.mark.parametrize("kind", KINDS)
def test_a_blocking_call_that_is_interrupted_has_taken_nothing(cluster: FakeCluster, kind: str) -> None:
    got: list[bytes] = []
    came = threading.Event()

    def interrupt(*_: object) -> None:
        came.set()
        raise Interrupted

    def signal_main_thread() -> None:
        came.clear()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
        came.wait(LIMIT_SECONDS)

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with consumer(blocking, kind) as made:
            got += take_blocking(made, kind)
            for nth in range(MOST_CHECKPOINTS):
                InterruptingPortal.at = At(nth, signal_main_thread)
                with suppress(Interrupted):
                    got += take_blocking(made, kind)
            InterruptingPortal.at = None  # the last calls may have found their messages on this side
            deadline = time.monotonic() + LIMIT_SECONDS
            while len(got) < len(MESSAGES) and time.monotonic() < deadline:
                got += take_blocking(made, kind)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert sorted(got, key=int) == MESSAGES
    assert cluster.brokers["a"].offsets[("G", "T", 0)] == len(MESSAGES)


@pytest.mark.parametrize("kind", ["poll", "receive", "typed", "ordered"])
@pytest.mark.parametrize("seconds", DEADLINES)
def test_a_time_limit_of_nothing_returns_what_is_there(cluster: FakeCluster, kind: str, seconds: float) -> None:
    got: list[bytes] = []
    deadline = time.monotonic() + LIMIT_SECONDS
    with consumer(blocking, kind) as made:
        while len(got) < len(MESSAGES) and time.monotonic() < deadline:
            if kind == "poll":
                got += [message.body for message in made.poll(seconds)]
            elif (message := made.receive(seconds)) is not None:
                got.append(message.body)
                made.ack()
    assert got == MESSAGES


@pytest.mark.parametrize("module", [triomq, aio])
def test_an_entering_that_is_cancelled_leaves_no_member(cluster: FakeCluster, module: Any) -> None:
    """A member that nobody reads would keep its share of the queues."""

    async def in_asyncio() -> None:
        async with aio.PullConsumer("other", name_server=NAME_SERVER):  # keeps the thread
            for nth in range(MOST_CHECKPOINTS):
                made = consumer(aio, "receive")
                task = asyncio.create_task(made.__aenter__())
                InterruptingPortal.at = At(nth, partial(asyncio.get_running_loop().call_soon_threadsafe, task.cancel))
                try:
                    await task
                except asyncio.CancelledError:
                    core = made._core
                    while core._client.is_open:  # noqa: ASYNC110
                        await asyncio.sleep(0.001)
                else:
                    await made.__aexit__(None, None, None)

    async def in_trio() -> None:
        for nth in range(MOST_CHECKPOINTS):
            made = consumer(triomq, "receive")
            with trio.CancelScope() as scope:
                await At(nth, scope.cancel).run(made.__aenter__())
                await made.__aexit__(None, None, None)
            assert not made._client.is_open

    if module is aio:
        asyncio.run(asyncio.wait_for(in_asyncio(), LIMIT_SECONDS))
    else:
        trio.run(in_trio)


async def test_a_place_that_comes_to_a_cancelled_send_goes_to_the_next(autojump_clock: MockClock) -> None:
    places = InFlight(1)
    await places.enter(5)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(places.enter, 5)
            await wait_all_tasks_blocked()
            scope.cancel()
            places.leave()
    await places.enter(5)
    with pytest.raises(OperationTimeout):
        await places.enter(5)


async def test_an_assignment_that_is_cancelled_assigns_nothing(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    async with triomq.LitePullConsumer("G", name_server=NAME_SERVER) as made:
        for nth in range(3):
            with trio.CancelScope() as scope:
                await At(nth, scope.cancel).run(made.assign([triomq.MessageQueue("T", "a", 0)]))
        await made.assign([triomq.MessageQueue("T", "a", 0)])
        assert made.assignment == [triomq.MessageQueue("T", "a", 0)]


# Every other call: what is stored is what was returned, or more; and the next call works.

Call = Callable[[Any, str], Coroutine[Any, Any, Any]]


def queue_of(topic: str) -> triomq.MessageQueue:
    return triomq.MessageQueue(topic, "broker-a", 0)


async def _reply_value(producer: Any, topic: str) -> None:
    asked = triomq.MessageExt(topic, b"?")
    asked.properties.update(CLUSTER="DefaultCluster", CORRELATION_ID="1", REPLY_TO_CLIENT=producer.client.client_id)
    with suppress(triomq.BrokerRefused):
        await producer.reply_value(asked, b"!")


async def _request(call: Coroutine[Any, Any, Any]) -> None:
    with suppress(RequestTimedOut):
        await call


PRODUCING: dict[str, Call] = {
    "send": lambda made, topic: made.send(Message(topic, b"m")),
    "send_oneway": lambda made, topic: made.send_oneway(Message(topic, b"m")),
    "send_batch": lambda made, topic: made.send_batch([Message(topic, b"m")] * 3),
    "send_many": lambda made, topic: made.send_many([Message(topic, b"m")] * 3, sharding_key=lambda _: "k"),
    "request": lambda made, topic: _request(made.request(Message(topic, b"m"), timeout_seconds=0.2)),
    "queues": lambda made, topic: made.queues(topic),
    "send_value": lambda made, topic: made.send_value(topic, b"m"),
    "request_value": lambda made, topic: _request(
        made.request_value(topic, b"m", reply=Json(int), timeout_seconds=0.2)
    ),
    "reply_value": _reply_value,
    "send_in_transaction": lambda made, topic: made.send_in_transaction(Message(topic, b"m")),
}
PULLING: dict[str, Call] = {
    "queues": lambda made, topic: made.queues(topic),
    "pull": lambda made, topic: made.pull(queue_of(topic), "*", 0),
    "min_offset": lambda made, topic: made.min_offset(queue_of(topic)),
    "max_offset": lambda made, topic: made.max_offset(queue_of(topic)),
    "search_offset": lambda made, topic: made.search_offset(queue_of(topic), 0),
    "earliest_store_time_ms": lambda made, topic: made.earliest_store_time_ms(queue_of(topic)),
    "committed_offset": lambda made, topic: made.committed_offset(queue_of(topic), from_store=True),
    "commit": lambda made, topic: made.commit(queue_of(topic), 1),
    "send_back": lambda made, topic: _send_back(made, topic),
}
POLLING: dict[str, Call] = {
    "assign": lambda made, topic: made.assign([queue_of(topic)]),
    "queues": lambda made, topic: made.queues(topic),
    "seek": lambda made, topic: made.seek(queue_of(topic), 0),
    "seek_to_begin": lambda made, topic: made.seek_to_begin(queue_of(topic)),
    "seek_to_end": lambda made, topic: made.seek_to_end(queue_of(topic)),
    "offset_for_time": lambda made, topic: made.offset_for_time(queue_of(topic), 0),
    "position": lambda made, topic: made.position(queue_of(topic)),
    "committed": lambda made, topic: made.committed(queue_of(topic)),
    "commit": lambda made, topic: made.commit({queue_of(topic): 1}),
}
AT_ONCE: dict[tuple[str, str], Call] = {  # calls that with other arguments have nothing to wait for
    ("puller", "committed_offset"): lambda made, topic: made.committed_offset(queue_of(topic)),
    ("poller", "commit"): lambda made, topic: made.commit({}),
}
PUSHING: dict[str, Call] = {"wait_assigned": lambda made, topic: made.wait_assigned(topic)}


async def _send_back(made: Any, topic: str) -> None:
    found = await made.pull(queue_of(topic), "*", 0)
    await made.send_back(found.messages[0])


def _execute(*_: object) -> LocalTransactionState:
    return LocalTransactionState.COMMIT_MESSAGE


MEMBERS: dict[str, tuple[Callable[[str], Any], dict[str, Call], list[type]]] = {
    "producer": (
        lambda server: triomq.TransactionProducer(fresh("P"), _execute, _execute, name_server=server),
        PRODUCING,
        [ProducerFacade, TransactionProducerFacade],
    ),
    "puller": (lambda server: triomq.PullConsumer(fresh("G"), name_server=server), PULLING, [PullConsumerFacade]),
    "poller": (
        lambda server: triomq.LitePullConsumer(fresh("G"), name_server=server),
        POLLING,
        [LitePullConsumerFacade],
    ),
    "pusher": (lambda server: triomq.PushConsumer(fresh("G"), name_server=server), PUSHING, [PushConsumerFacade]),
}


@pytest.mark.parametrize("member", MEMBERS)
async def test_a_call_that_is_cancelled_breaks_nothing_for_the_next(triomq: Cluster, member: str) -> None:
    make, calls, facades = MEMBERS[member]
    assert set(calls) == {
        name for facade in facades for name, value in vars(facade).items() if isinstance(value, waiting)
    }
    topic = fresh()
    await send_all(triomq, topic, [b"m"] * 4)  # one in each queue
    async with make(triomq.name_server) as made:
        if member == "pusher":
            made.subscribe(topic)
        for name, call in calls.items():
            for nth in count():
                with trio.CancelScope() as scope:
                    at = At(nth, scope.cancel)
                    await at.run(call(made, topic))
                if at.was_the_end:
                    break
            with trio.fail_after(LIMIT_SECONDS):
                await call(made, topic)
                with assert_checkpoints():  # a call that always returns at once would let no other task run
                    await AT_ONCE.get((member, name), call)(made, topic)
