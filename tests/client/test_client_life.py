"""What opening, closing and failing functions of the application do to a client, in all three facades."""

from __future__ import annotations

import asyncio
import inspect
import linecache
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing
from client_cluster import LIMIT_SECONDS
from client_fakes import NAME_SERVER, FakeCluster
from client_three import THREE, Asyncio, Blocking, Facade, Trio

import triomq
from triomq import ClientClosed, ConfigurationError, ConsumeFromWhere, ConsumeRules, Message, aio, blocking
from triomq.client.facades import portal as portals
from triomq.client.payloads.serializer import Serializer
from triomq.protocol.codes import RequestCode

FIRST = {"name_server": NAME_SERVER, "consume_from": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET}
SOON = ConsumeRules(close_seconds=0.2)


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    return FakeCluster.installed(monkeypatch, "T", "Empty", "%RETRY%G")


@pytest.fixture(params=THREE)
def facade(request: pytest.FixtureRequest) -> Facade:
    made: Facade = request.param()
    return made


def consumer_of(facade: Facade, topic: str = "T", **options: Any) -> Any:
    made = facade.kinds.PushConsumer("G", **FIRST, **options)
    made.subscribe(topic)
    return made


# Closing ends what waits.


@pytest.mark.parametrize("ordered", [False, True])
def test_a_loop_ends_when_its_consumer_is_closed(fakes: FakeCluster, facade: Facade, ordered: bool) -> None:
    fakes.broker.store("T", 0, b"m")

    async def scenario() -> None:
        async with facade.open(facade.kinds.Producer("P", name_server=NAME_SERVER)):  # keeps the client's thread
            consumer = consumer_of(facade, ordered=ordered)
            await facade.call(consumer.start)
            settled = threading.Event()

            async def body(message: Any) -> None:
                message.ack()
                settled.set()

            loop = facade.begin(lambda: facade.each(consumer, body))
            await facade.wait(settled)
            await facade.call(consumer.close)
            await facade.wait(loop.ended)
            assert loop.error is None

    facade.run(scenario)


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("timeout_seconds", [None, LIMIT_SECONDS])
def test_a_call_that_waits_for_a_message_raises_when_its_consumer_is_closed(
    fakes: FakeCluster, facade: Facade, ordered: bool, timeout_seconds: float | None
) -> None:
    async def scenario() -> None:
        async with facade.open(facade.kinds.Producer("P", name_server=NAME_SERVER)):
            consumer = consumer_of(facade, "Empty", ordered=ordered)
            await facade.call(consumer.start)
            await facade.call(consumer.wait_assigned, "Empty")
            waiting = facade.begin(lambda: facade.call(consumer.receive, timeout_seconds))
            assigning = facade.begin(lambda: facade.call(consumer.wait_assigned, "Elsewhere"))
            while not fakes.broker.of(RequestCode.PULL_MESSAGE):
                await facade.call(consumer.wait_assigned, "Empty")
            await facade.call(consumer.close)
            for began in (waiting, assigning):
                await facade.wait(began.ended)
                assert isinstance(began.error, ClientClosed)

    facade.run(scenario)


def test_a_poll_raises_when_its_consumer_is_closed(fakes: FakeCluster, facade: Facade) -> None:
    async def scenario() -> None:
        async with facade.open(facade.kinds.Producer("P", name_server=NAME_SERVER)):
            consumer = facade.kinds.LitePullConsumer("G", **FIRST)
            consumer.subscribe("Empty")
            await facade.call(consumer.start)
            waiting = facade.begin(lambda: facade.call(consumer.poll, LIMIT_SECONDS))
            assert await facade.call(consumer.queues, "Empty")
            await facade.call(consumer.close)
            await facade.wait(waiting.ended)
            assert isinstance(waiting.error, ClientClosed)

    facade.run(scenario)


async def test_a_poll_that_was_about_to_wait_when_its_consumer_closed_raises(
    fakes: FakeCluster, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks for messages behind a wait of its own, and so replaces the event that closing has set."""
    consumer = triomq.LitePullConsumer("G", auto_commit_seconds=0.1, **FIRST)
    consumer.subscribe("Empty")
    await consumer.start()
    await trio.sleep(1)  # the poll stores offsets first
    polls, closes = trio.Event(), trio.Event()

    async def persist() -> None:
        polls.set()
        await closes.wait()

    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def poll() -> None:
            with pytest.raises(ClientClosed, match="closed while a call waited"):
                await consumer.poll(LIMIT_SECONDS)

        with monkeypatch.context() as slow:
            slow.setattr(consumer._offsets, "persist", persist)
            await polls.wait()
        end_waits = consumer._end_waits

        def end() -> None:
            end_waits()
            closes.set()

        monkeypatch.setattr(consumer, "_end_waits", end)
        began = trio.current_time()
        await consumer.close()
    assert trio.current_time() - began < LIMIT_SECONDS


def test_a_loop_with_a_message_that_it_can_settle_no_more_says_so(fakes: FakeCluster, facade: Facade) -> None:
    fakes.broker.store("T", 0, b"m")

    async def scenario() -> None:
        consumer = consumer_of(facade)
        await facade.call(consumer.start)

        async def close(_: Any) -> None:
            await facade.call(consumer.close)

        loop = facade.begin(lambda: facade.each(consumer, close))
        await facade.wait(loop.ended)
        assert isinstance(loop.error, ClientClosed)
        assert "delivered again" in str(loop.error)
        with pytest.raises(ClientClosed, match="closed"):
            await facade.each(consumer, close)

    facade.run(scenario)


# Opened again.


def test_a_consumer_that_is_opened_again_goes_on_where_its_group_is(fakes: FakeCluster, facade: Facade) -> None:
    fakes.broker.store("T", 0, b"1", b"2", b"3")

    async def scenario() -> None:
        consumer = consumer_of(facade, trace=True)
        for expected in (b"1", b"2"):
            async with facade.open(consumer):
                received = await facade.call(consumer.receive)
                message = getattr(received, "message", received)
                assert message.body == expected
                message.ack()
        got: list[bytes] = []
        three = threading.Event()

        def handle(message: Any) -> None:
            got.append(message.body)
            three.set()

        fakes.broker.offsets["G", "T", 0] = 0  # the group was set back meanwhile
        consumer.listen(facade.handler(handle))
        async with facade.open(consumer):
            await facade.wait(three)
        assert got[0] == b"1"
        assert getattr(consumer, "_core", consumer).consume_hooks == []

    facade.run(scenario)


def test_a_listener_is_called_each_time_its_consumer_is_open(fakes: FakeCluster, facade: Facade) -> None:
    fakes.broker.store("T", 0, b"1", b"2")

    async def scenario() -> None:
        called = threading.Event()
        consumer = consumer_of(facade)
        consumer.listen(facade.handler(lambda message: called.set()))
        for _ in range(2):
            fakes.broker.offsets["G", "T", 0] = 0
            async with facade.open(consumer):
                await facade.wait(called)
            called.clear()

    facade.run(scenario)


def test_a_lite_consumer_that_is_opened_again_tells_the_broker(fakes: FakeCluster, facade: Facade) -> None:
    fakes.broker.store("T", 0, b"1")

    async def scenario() -> None:
        consumer = facade.kinds.LitePullConsumer("G", **FIRST)
        consumer.subscribe("T")
        for _ in range(2):
            fakes.broker.members.clear()  # as a broker does when its members leave
            fakes.broker.offsets["G", "T", 0] = 0
            async with facade.open(consumer):
                assert [message.body for message in await facade.call(consumer.poll, LIMIT_SECONDS)] == [b"1"]

    facade.run(scenario)


# Closing from anywhere, in time.


def test_a_handler_closes_the_consumer_that_called_it(fakes: FakeCluster, facade: Facade) -> None:
    fakes.broker.store("T", 0, b"1", b"2", b"3")

    async def scenario() -> None:
        consumer = consumer_of(facade, rules=ConsumeRules(concurrency=1))
        got: list[bytes] = []
        closed = threading.Event()

        if isinstance(facade, Blocking):

            def handle(message: Any) -> Any:
                got.append(message.body)
                consumer.close()
                closed.set()
        else:

            async def handle(message: Any) -> Any:
                got.append(message.body)
                await consumer.close()
                closed.set()

        consumer.listen(handle)
        await facade.call(consumer.start)
        await facade.wait(closed)
        await facade.call(consumer.close)
        assert got == [b"1"]
        assert fakes.broker.offsets["G", "T", 0] == 1, "the message of the handler is consumed"
        async with facade.open(consumer):
            assert len(got) >= 1

    facade.run(scenario)


@pytest.mark.parametrize("ordered", [False, True])
def test_closing_leaves_a_stuck_thread_behind(
    fakes: FakeCluster, facade: Facade, ordered: bool, caplog: pytest.LogCaptureFixture
) -> None:
    fakes.broker.store("T", 0, b"m")
    stuck, released = threading.Event(), threading.Event()

    def handle(_: Any) -> None:
        stuck.set()
        released.wait(2 * LIMIT_SECONDS)

    async def scenario() -> None:
        consumer = consumer_of(facade, ordered=ordered, rules=SOON)
        consumer.listen(handle)
        await facade.call(consumer.start)
        await facade.wait(stuck)
        await facade.call(consumer.close)

    try:
        facade.run(scenario)
    finally:
        released.set()
    assert "left behind" in caplog.text


def test_a_block_of_another_task_is_not_closed(fakes: FakeCluster) -> None:
    async def main() -> None:
        async with triomq.PushConsumer("G", **FIRST) as consumer, trio.open_nursery() as nursery:  # type: ignore[arg-type]

            async def close() -> None:
                with pytest.raises(ConfigurationError, match=r"leave the block, or open it with start\(\)"):
                    await consumer.close()

            nursery.start_soon(close)
        await consumer.close()
        async with consumer:
            await consumer.close()
        await consumer.start()
        with pytest.raises(ClientClosed, match="already open"):
            await consumer.start()
        await consumer.close(failed=True)
        await consumer.close()

    trio.run(main)


def test_a_start_that_fails_leaves_nothing_open(fakes: FakeCluster) -> None:
    async def main() -> None:
        consumer = triomq.PushConsumer("G", name_server=NAME_SERVER, client=None)
        shared = triomq.PushConsumer("H", client=consumer.client)
        with pytest.raises(ClientClosed, match="shared client is not open"):
            await shared.start()
        with trio.CancelScope() as scope:
            scope.cancel()
            await consumer.start()
        async with consumer:
            pass

    trio.run(main)


# Errors of the application's functions.


class Outcome(BaseException):
    """As pytest's: no Exception."""


@pytest.mark.parametrize("error", [SystemExit("usage"), GeneratorExit(), Outcome("failed")], ids=repr)
def test_what_a_listener_raises_concerns_its_message_alone(
    fakes: FakeCluster, facade: Facade, error: BaseException
) -> None:
    fakes.broker.store("T", 0, b"bad", b"good")

    async def scenario() -> None:
        good = threading.Event()

        def handle(message: Any) -> None:
            if message.body == b"bad":
                raise error
            good.set()

        consumer = consumer_of(facade)
        consumer.listen(facade.handler(handle))
        async with facade.open(consumer):
            await facade.wait(good)
            while not fakes.broker.sent_back:
                await facade.call(consumer.wait_assigned, "T")
            async with facade.open(facade.kinds.Producer("P", name_server=NAME_SERVER)) as producer:
                await facade.call(producer.send, Message("T", b"x"))

    facade.run(scenario)


def test_what_a_selector_raises_is_the_callers(fakes: FakeCluster, facade: Facade) -> None:
    def stop(*_: Any) -> Any:
        raise SystemExit(3)

    async def scenario() -> None:
        producer = facade.kinds.Producer("P", name_server=NAME_SERVER)
        async with facade.open(producer):
            with pytest.raises(SystemExit):
                await facade.call(producer.send, Message("T", b"x"), selector=stop)
            await facade.call(producer.send, Message("T", b"x"))

    facade.run(scenario)


@pytest.mark.parametrize("factory", ["old", "failing"])
def test_a_task_factory_gets_what_it_takes(fakes: FakeCluster, factory: str) -> None:
    fakes.broker.store("T", 0, b"m")

    def old(loop: asyncio.AbstractEventLoop, coroutine: Any) -> asyncio.Task[Any]:
        return asyncio.Task(coroutine, loop=loop)

    def failing(loop: asyncio.AbstractEventLoop, coroutine: Any) -> asyncio.Task[Any]:
        if "_run" in coroutine.__qualname__:
            raise RuntimeError("no task")
        return old(loop, coroutine)

    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(old if factory == "old" else failing)
        called = asyncio.Event()
        consumer = consumer_of(Asyncio())

        async def handle(_: Any) -> None:
            called.set()

        consumer.listen(handle)
        async with asyncio.timeout(LIMIT_SECONDS), consumer:
            if factory == "old":
                await called.wait()
            while factory == "failing" and not fakes.broker.sent_back:  # noqa: ASYNC110 (of another thread)
                await asyncio.sleep(0.005)

    asyncio.run(main())


def test_a_signal_handler_that_raises_leaves_a_loop_usable(fakes: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever in `next` it raises: at each line in turn."""
    fakes.broker.store("T", 0, *[b"m"] * 10_000)
    consumer = consumer_of(Blocking())
    with consumer:
        loop = iter(consumer)
        next(loop)
        for line in range(1, 200):
            left = line

            def raising(frame: Any, event: str, _: Any) -> Callable[..., Any] | None:
                nonlocal left
                if not frame.f_code.co_filename.endswith(("facades/blocking.py", "facades/ahead.py")):
                    return None
                # Between a block and the end of its lock Python runs no signal handler, only a tracer.
                if event == "line" and "with self._lock" not in linecache.getline(
                    frame.f_code.co_filename, frame.f_lineno
                ):
                    left -= 1
                    if left == 0:
                        raise TimeoutError
                return raising

            sys.settrace(raising)
            try:
                next(loop)
            except TimeoutError:
                continue
            finally:
                sys.settrace(None)
            break
        assert line > 5
        assert next(loop).body == b"m"
        assert not consumer._ahead._lock.locked()


def test_a_loop_is_asked_by_one_thread_at_a_time(fakes: FakeCluster) -> None:
    consumer = consumer_of(Blocking(), "Empty")
    with consumer:
        loop = iter(consumer)
        ends = threading.Thread(target=lambda: list(loop))
        ends.start()
        while not loop._asking:
            consumer.wait_assigned("Empty")
        with pytest.raises(ConfigurationError, match="one loop for each thread"):
            next(loop)
        consumer.close()
        ends.join(LIMIT_SECONDS)
        assert not ends.is_alive()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_has_ended_is_replaced(fakes: FakeCluster) -> None:
    producer = blocking.Producer("P", name_server=NAME_SERVER).start()
    first = portals.acquire()

    def end() -> None:
        raise KeyboardInterrupt  # ends the client's thread, which no function of an application can

    first._token.run_sync_soon(end) if first._token is not None else None
    first._thread.join(LIMIT_SECONDS)
    with pytest.raises(ClientClosed, match="thread has ended"):
        producer.send(Message("T", b"x"))
    with blocking.Producer("Q", name_server=NAME_SERVER) as second:
        second.send(Message("T", b"x"))
    with pytest.raises(ClientClosed):
        producer.close()
    portals.release(first)
    assert portals._shared is None


def test_the_facades_have_the_same_life(fakes: FakeCluster) -> None:
    for kinds in (triomq, aio, blocking):
        for name in ("Producer", "TransactionProducer", "PushConsumer", "LitePullConsumer", "PullConsumer", "Admin"):
            kind = getattr(kinds, name)
            assert callable(kind.start) and callable(kind.close), (kinds, name)
    assert Trio.kinds is triomq


# Functions of the application run where it calls.


def test_what_a_caller_gives_runs_in_its_thread(fakes: FakeCluster, facade: Facade) -> None:
    threads: list[int] = []

    def here(value: Any) -> Any:
        threads.append(threading.get_ident())
        return value

    class Noting(Serializer[str]):
        def encode(self, value: str) -> bytes:
            return here(value).encode()

        def decode(self, message: Any) -> str:
            return str(message.body.decode())

        def value_type(self) -> Any:
            return str

    def messages() -> Any:
        for number in range(600):
            yield here(Message("T", b"%d" % number))

    async def scenario() -> None:
        producer = facade.kinds.Producer("P", name_server=NAME_SERVER, serializer=Noting())
        async with facade.open(producer):
            callers = [threading.get_ident()]

            def whole() -> Any:
                return callers.append(threading.get_ident())

            call = facade.call if not isinstance(facade, Blocking) else beside(callers)
            whole()
            assert len(await call(producer.send_many, messages())) == 600
            assert len(await call(producer.send_many, messages(), sharding_key=lambda m: here("k"))) == 600
            assert await call(producer.send_batch, messages())
            chosen: dict[str, Any] = {"selector": lambda queues, message, at: here(queues[at]), "selector_argument": 0}
            assert (await call(producer.send, Message("T", b"x"), **chosen)).queue.queue_id == 0
            await call(producer.send_oneway, Message("T", b"x"), **chosen)
            await call(producer.send_value, "T", "text", sharding_key="k", tags="t")
            assert len(threads) == 600 * 4 + 3
            assert set(threads) <= set(callers)

    facade.run(scenario)


def beside(callers: list[int]) -> Callable[..., Any]:
    """Return what calls in a thread and notes which."""

    async def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        def noted() -> Any:
            callers.append(threading.get_ident())
            return function(*args, **kwargs)

        return await trio.to_thread.run_sync(noted, abandon_on_cancel=True)

    return call


def test_what_an_iterable_raises_comes_behind_what_it_gave(fakes: FakeCluster, facade: Facade) -> None:
    def two() -> Any:
        yield Message("T", b"1")
        yield Message("T", b"2")
        raise KeyError("third")

    async def scenario() -> None:
        producer = facade.kinds.Producer("P", name_server=NAME_SERVER)
        async with facade.open(producer):
            with pytest.raises(KeyError):
                await facade.call(producer.send_many, two())
            assert len(fakes.broker.of(RequestCode.SEND_MESSAGE_V2)) == 2
            with pytest.raises(ConfigurationError, match="in_flight"):
                await facade.call(producer.send_many, [], in_flight=0)
            with pytest.raises(ConfigurationError, match="only one of queue"):
                await facade.call(producer.send, Message("T", b"x"), selector=lambda *_: None, sharding_key="k")

    facade.run(scenario)


def test_frameworks_see_which_methods_are_awaited() -> None:
    for kinds in (triomq, aio):
        producer = kinds.Producer("P", name_server=NAME_SERVER)
        for method in (producer.send, producer.send_oneway, producer.send_many, producer.send_value, producer.close):
            assert inspect.iscoroutinefunction(method), method
    assert not inspect.iscoroutinefunction(blocking.Producer("P", name_server=NAME_SERVER).send)
