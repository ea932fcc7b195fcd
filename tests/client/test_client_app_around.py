"""Around the handlers of an application: routers of several modules, middleware, and results that are published."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest
import trio
from client_cluster import LIMIT_SECONDS, Cluster, fresh
from client_fakes import NAME_SERVER, FakeCluster
from trio.testing import MockClock

from triomq import (
    ClientClosed,
    ConfigurationError,
    ConsumeFromWhere,
    ConsumeStatus,
    LocalTransactionState,
    Message,
    MessageExt,
    Router,
    TrioMQ,
)
from triomq.protocol.codes import RequestCode
from triomq.protocol.headers.send import SendMessageRequestHeaderV2
from triomq.serializers import Json, Text

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


@dataclass
class Order:
    number: int


@dataclass
class Bill:
    total: int


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    return FakeCluster.installed(monkeypatch, "T", "U", "Bills", "%RETRY%G", "%RETRY%H")


@pytest.fixture
def app() -> TrioMQ[Any, Any]:
    return TrioMQ("p", name_server=NAME_SERVER, backend="trio")


def bodies(fakes: FakeCluster, topic: str = "Bills") -> list[tuple[bytes | None, str | None]]:
    """Return body and keys of what was sent to a topic."""
    found = []
    for request in fakes.broker.of(RequestCode.SEND_MESSAGE_V2):
        header = request.header(SendMessageRequestHeaderV2)
        if header.topic == topic:
            properties = dict(each.split("\x01") for each in (header.properties or "").split("\x02") if each)
            found.append((request.body, properties.get("KEYS")))
    return found


# Results.


async def test_what_a_handler_returns_is_published_before_its_message_is_consumed(
    fakes: FakeCluster, autojump_clock: MockClock
) -> None:
    app = TrioMQ("p", name_server=NAME_SERVER, serializer=Json(int), backend="trio")
    fakes.broker.store("T", 0, b"17", b"18", b"19", b"20")

    @app.consumer("T", group="G", consume_from=FIRST, publish_to="Bills")
    async def square(value: int) -> int | Message | None:
        return {17: 289, 18: None, 19: Message("Bills", b"by itself", keys="k")}.get(value, 400)

    async with app:
        await trio.sleep(30)
    assert sorted(bodies(fakes), key=str) == [(b"289", None), (b"400", None), (b"by itself", "k")]
    assert fakes.broker.offsets["G", "T", 0] == 4


@pytest.mark.parametrize("result", [ConsumeStatus.RECONSUME_LATER, False])
async def test_what_has_a_message_delivered_again_is_not_published(
    fakes: FakeCluster, autojump_clock: MockClock, app: TrioMQ[Any, Any], result: Any
) -> None:
    fakes.broker.store("T", 0, b"m")

    @app.consumer("T", group="G", consume_from=FIRST, publish_to="Bills")
    async def refuse(message: MessageExt) -> Any:
        return result

    async with app:
        await trio.sleep(30)
    assert bodies(fakes) == []
    assert [back.group for back in fakes.broker.sent_back] == ["G"]


async def test_a_message_whose_result_cannot_be_published_is_delivered_again(
    fakes: FakeCluster, autojump_clock: MockClock, app: TrioMQ[Any, Any]
) -> None:
    fakes.broker.store("T", 0, b"m")

    @app.consumer("T", group="G", consume_from=FIRST, publish_to="Bills")
    async def wrong(message: MessageExt) -> Any:
        return 17  # the application has no serializer

    async with app:
        await trio.sleep(30)
    assert bodies(fakes) == []
    assert [back.group for back in fakes.broker.sent_back] == ["G"]


@pytest.mark.parametrize("kind", ["async def", "def"])
@pytest.mark.parametrize("in_asyncio", [True, False])
def test_results_have_a_serializer_of_their_own_and_the_keys_of_the_message(
    triomq: Cluster, kind: str, in_asyncio: bool
) -> None:
    orders, bills, got = fresh(), fresh(), []
    app = TrioMQ(fresh("P"), name_server=triomq.name_server, serializer=Json(Order), send_timeout_seconds=LIMIT_SECONDS)
    options: Any = {"consume_from": FIRST, "publish_to": bills, "publish_serializer": Json(Bill)}

    if kind == "def":

        @app.consumer(orders, group=fresh("G"), **options)
        def bill(value: Order) -> Bill:
            assert threading.current_thread() is not threading.main_thread()
            return Bill(value.number * 2)

    else:

        @app.consumer(orders, group=fresh("G"), **options)
        async def bill_async(value: Order) -> Bill:
            return Bill(value.number * 2)

    @app.consumer(bills, group=fresh("G"), consume_from=FIRST, serializer=Json(Bill))
    async def note(message: MessageExt[Bill]) -> None:
        got.append((message.value, message.keys))

    async def main(sleep: Callable[[float], Any]) -> None:
        async with app:
            await app.producer.send_value(orders, Order(17), keys="order-17")
            while not got:
                await sleep(0.01)

    if in_asyncio:
        asyncio.run(asyncio.wait_for(main(asyncio.sleep), LIMIT_SECONDS))
    else:
        trio.run(main, trio.sleep)
    assert got == [(Bill(34), "order-17")]


async def test_a_result_that_the_serializer_cannot_write_is_refused_at_the_start(fakes: FakeCluster) -> None:
    async def bill(value: Order) -> Bill | None: ...

    app = TrioMQ("p", name_server=NAME_SERVER, serializer=Json(Order))
    app.consumer("T", group="G", publish_to="Bills")(bill)
    wanted = r"bill returns Bill, which is published, but there is Json, which writes values of type Order: give"
    with pytest.raises(ConfigurationError, match=wanted):
        await app.__aenter__()
    app = TrioMQ("p", name_server=NAME_SERVER)
    app.consumer("T", group="G", serializer=Json(Order), publish_to="Bills")(bill)
    with pytest.raises(ConfigurationError, match=r"bill returns Bill, which is published, but there is no serializer"):
        await app.__aenter__()
    with pytest.raises(ConfigurationError, match="publish_serializer needs publish_to"):
        app.consumer("T", group="H", publish_serializer=Text())


# Middleware.


@pytest.mark.parametrize("kind", ["async def", "def"])
@pytest.mark.parametrize("in_asyncio", [True, False])
def test_each_message_passes_the_middleware_from_the_outermost(triomq: Cluster, kind: str, in_asyncio: bool) -> None:
    topic, events, done = fresh(), [], []
    app, router = TrioMQ(fresh("P"), name_server=triomq.name_server, send_timeout_seconds=LIMIT_SECONDS), Router()

    def noting(name: str) -> Any:
        async def middleware(message: MessageExt, call_next: Any) -> Any:
            events.append(f"{name} before")
            result = await call_next(message)
            events.append(f"{name} after {result}")
            if name == "first":
                done.append(message)
            return result

        return middleware

    if kind == "def":

        @router.consumer(topic, group=fresh("G"), consume_from=FIRST)
        def handle(value: bytes) -> str:
            assert threading.current_thread() is not threading.main_thread()
            return value.decode()

    else:

        @router.consumer(topic, group=fresh("G"), consume_from=FIRST)
        async def handle_async(value: bytes) -> str:
            return value.decode()

    router.middleware(noting("router's"))
    app.include(router)
    app.middleware(noting("first"))
    app.middleware(noting("second"))

    async def main(sleep: Callable[[float], Any]) -> None:
        async with app:
            await app.producer.send(Message(topic, b"m"))
            while not done:
                await sleep(0.01)

    if in_asyncio:
        asyncio.run(asyncio.wait_for(main(asyncio.sleep), LIMIT_SECONDS))
    else:
        trio.run(main, trio.sleep)
    assert events == [
        *("first before", "second before", "router's before"),
        *("router's after m", "second after m", "first after m"),
    ]


async def test_middleware_decides_what_becomes_of_a_message(
    fakes: FakeCluster, autojump_clock: MockClock, app: TrioMQ[Any, Any]
) -> None:
    fakes.broker.store("T", 0, b"skipped", b"failed", b"mended")
    handled = []

    @app.middleware
    async def guard(message: MessageExt, call_next: Any) -> Any:
        if message.body == b"skipped":
            return None
        try:
            return await call_next(message)
        except ValueError:
            return ConsumeStatus.CONSUME_SUCCESS

    @app.consumer("T", group="G", consume_from=FIRST)
    async def handle(message: MessageExt) -> None:
        handled.append(message.body)
        raise {b"failed": RuntimeError, b"mended": ValueError}[message.body]

    async with app:
        await trio.sleep(5)
    assert sorted(handled) == [b"failed", b"mended"]
    assert len(fakes.broker.sent_back) == 1


def test_what_cannot_be_awaited_around_a_handler_is_refused(app: TrioMQ[Any, Any]) -> None:
    def plain(message: MessageExt, call_next: Any) -> None: ...

    async def short(message: MessageExt) -> None: ...

    with pytest.raises(ConfigurationError, match=r"plain must be an async function: it awaits call_next\(message\)"):
        app.middleware(plain)
    with pytest.raises(ConfigurationError, match=r"short cannot be called as .*short\(message, call_next\)"):
        app.middleware(short)


# Routers.


async def test_an_application_opens_what_its_routers_have(fakes: FakeCluster, autojump_clock: MockClock) -> None:
    fakes.broker.store("T", 0, b"17")
    fakes.broker.store("U", 0, b"text")
    outer, inner, got, ended = Router(serializer=Json(int)), Router(serializer=Text()), [], []
    app = TrioMQ("p", name_server=NAME_SERVER, backend="trio")
    app.include(outer)
    outer.include(inner)

    @app.provides
    def currency() -> str:
        return "EUR"

    @inner.provides
    async def stock(currency: str) -> AsyncIterator[str]:
        yield f"stock in {currency}"
        ended.append("stock")

    @outer.consumer("T", group="G", consume_from=FIRST)
    async def number(value: int, stock: str) -> None:
        got.append((value, stock))

    @inner.consumer("U", group="H", consume_from=FIRST)
    async def text(value: str, app: TrioMQ[Any, Any]) -> None:
        got.append((value, app.name))

    @inner.transaction("pay")
    async def pay(message: Message) -> LocalTransactionState:
        return LocalTransactionState.COMMIT_MESSAGE

    @pay.check
    def was_paid(message: MessageExt) -> None: ...

    async with app:
        await trio.sleep(5)
        assert (await pay.send(Message("T", b"x"))).state is LocalTransactionState.COMMIT_MESSAGE
        other = TrioMQ("q", name_server=NAME_SERVER)
        other.include(inner)
        other.provides(currency)
        with pytest.raises(ConfigurationError, match=r"pay runs in another application already"):
            await other.__aenter__()
        assert (await pay.send(Message("T", b"x"))).state is LocalTransactionState.COMMIT_MESSAGE
    with pytest.raises(ClientClosed, match="does not run"):
        await pay.send(Message("T", b"x"))
    assert sorted(got, key=str) == [("text", "p"), (17, "stock in EUR")]
    assert ended


async def test_what_two_routers_have_is_refused(app: TrioMQ[Any, Any], fakes: FakeCluster) -> None:
    one, other = Router(), Router()
    one.consumer("T", group="G")(print)
    app.include(one)
    with pytest.raises(ConfigurationError, match="this router is included already"):
        app.include(one)
    with pytest.raises(ConfigurationError, match="this router is included already"):
        one.include(one)
    wrong: Any = TrioMQ("q", name_server=NAME_SERVER)
    with pytest.raises(ConfigurationError, match="include takes a Router, not <triomq"):
        app.include(wrong)
    with pytest.raises(ConfigurationError, match="the group 'G' has a handler already; give each"):
        app.consumer("U", group="G")
    other.consumer("U", group="G")(print)
    with pytest.raises(ConfigurationError, match="the group 'G' has a handler already, in another router"):
        app.include(other)
    late = Router()
    app.include(late)
    late.consumer("U", group="G")(print)
    with pytest.raises(ConfigurationError, match="the group 'G' has a handler already, in another router"):
        await app.__aenter__()


async def test_a_transaction_of_a_router_has_a_group_of_its_own(app: TrioMQ[Any, Any], fakes: FakeCluster) -> None:
    router = Router()
    router.transaction("p")(print)
    with pytest.raises(ConfigurationError, match="the producer group 'p' is taken"):
        app.include(router)
