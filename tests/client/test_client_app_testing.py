"""A test points an application at its own cluster, and cannot do so in a way that has no effect."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from client_cluster import LIMIT_SECONDS, Cluster, fresh
from client_fakes import NAME_SERVER, FakeCluster
from trio.testing import MockClock

from triomq import ConfigurationError, ConsumeFromWhere, Credentials, Message, MessageExt, Producer, TrioMQ
from triomq.testing import LocalCluster

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
PRODUCTION = "127.0.0.1:1"


@pytest.fixture
def app() -> TrioMQ[Any, Any]:
    return TrioMQ("p", name_server=PRODUCTION)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("name_server", "no attribute 'name_server' to set: name_server is given to TrioMQ(...), and in a test"),
        ("name_servr", "no attribute 'name_servr' to set: did you mean 'name_server'? name_server is given to"),
        ("serializer", "no attribute 'serializer' to set: serializer is given to TrioMQ(...)"),
        ("backnd", "no attribute 'backnd' to set: did you mean 'backend'?"),
        ("zzz", "no attribute 'zzz' to set"),
    ],
)
def test_an_attribute_that_would_have_no_effect_is_refused(app: TrioMQ[Any, Any], name: str, says: str) -> None:
    with pytest.raises(AttributeError) as refused:
        setattr(app, name, "127.0.0.1:2")
    assert str(refused.value).startswith(f"an application has {says}")
    with pytest.raises(AttributeError, match="an application has no attribute"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(app, name, "127.0.0.1:2", raising=False)
    assert app.name_server == PRODUCTION


@pytest.mark.parametrize("in_asyncio", [True, False])
def test_everything_of_an_application_goes_to_the_cluster_of_its_test(triomq: Cluster, in_asyncio: bool) -> None:
    topic, seen = fresh(), []
    app = TrioMQ(fresh("P"), name_server=PRODUCTION, send_timeout_seconds=LIMIT_SECONDS)

    @app.provides
    async def archive(app: TrioMQ[Any, Any]) -> AsyncIterator[str]:
        yield f"archive at {app.name_server}"

    @app.provides
    def reader(archive: str) -> str:
        return f"reader of the {archive}"

    @app.transaction(fresh("P"))
    def pay(message: Message) -> None: ...

    @pay.check
    def was_paid(message: MessageExt) -> None: ...

    @app.consumer(topic, group=fresh("G"), consume_from=FIRST)
    async def handle(value: bytes, reader: str) -> None:
        seen.append((value, reader))

    async def main(sleep: Any) -> None:
        with app.testing(SimpleNamespace(name_server=triomq.name_server)) as the_same:
            assert the_same is app
            async with app:
                await app.producer.send(Message(topic, b"to the test"))
                while not seen:
                    await sleep(0.01)
                with pytest.raises(ConfigurationError, match="runs already"), app.testing("h:1"):
                    pass

    if in_asyncio:
        asyncio.run(asyncio.wait_for(main(asyncio.sleep), LIMIT_SECONDS))
    else:
        trio.run(main, trio.sleep)
    assert seen == [(b"to the test", f"reader of the archive at {triomq.name_server}")]
    assert app.name_server == PRODUCTION


async def test_what_is_provided_can_be_another_thing_in_a_test(fakes: FakeCluster, autojump_clock: MockClock) -> None:
    app = TrioMQ("p", name_server=PRODUCTION)
    fakes.broker.store("T", 0, b"m")
    got = []

    @app.provides
    def database() -> str:
        raise AssertionError("the real one")

    @app.provides
    def stock(database: str) -> str:
        return f"stock in {database}"

    @app.consumer("T", group="G", consume_from=FIRST)
    async def handle(message: MessageExt, stock: str) -> None:
        got.append(stock)

    async def fake() -> AsyncIterator[str]:
        yield "a fake"

    with app.testing(NAME_SERVER, provides={"database": fake}):
        async with app:
            await trio.sleep(5)
    assert got == ["stock in a fake"]
    with pytest.raises(AssertionError, match="the real one"):
        await app.__aenter__()


async def test_the_application_is_as_before_after_each_test(fakes: FakeCluster, autojump_clock: MockClock) -> None:
    app = TrioMQ("p", name_server=PRODUCTION)
    with app.testing("a:1"):
        with app.testing("b:1"):
            assert app.name_server == "b:1"
        assert app.name_server == "a:1"
    with pytest.raises(RuntimeError, match="the test fails"), app.testing("a:1"):
        raise RuntimeError("the test fails")
    assert app.name_server == PRODUCTION


def test_secrets_and_tls_stay_at_home() -> None:
    context = ssl.create_default_context()
    account = Credentials("me", "secret")
    app = TrioMQ("p", name_server=PRODUCTION, credentials=account, tls=context, vip_channel=True, namespace="shop")
    with app.testing("a:1"):
        options = app._client_options()
        assert (options["credentials"], options["tls"], options["vip_channel"]) == (None, False, False)
        assert options["namespace"] == "shop"
    other = Credentials("test", "test")
    with app.testing("a:1", credentials=other, tls=True):
        assert (app._client_options()["credentials"], app._client_options()["tls"]) == (other, True)
    assert app._client_options()["credentials"] is account


def test_a_name_server_of_the_environment_is_left_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "h:1;i:2")
    app = TrioMQ("p")
    assert app.name_server == "h:1;i:2"
    with app.testing("test:1"):
        assert app.name_server == "test:1"


@pytest.mark.parametrize(
    ("cluster", "options", "says"),
    [
        (17, {}, "testing takes a cluster (the fixture rocketmq, a LocalCluster) or the address of a NameServer,"),
        (LocalCluster(), {}, "the LocalCluster does not run yet: enter it before app.testing(...)"),
        ("nowhere", {}, "the name server address 'nowhere' is not host:port"),
        ("h:1", {"credential": None}, "TrioMQ has no option 'credential': did you mean 'credentials'?"),
        ("h:1", {"provides": {"databse": str}}, "the application provides no 'databse' that could be replaced: did"),
        ("h:1", {"provides": {"zzz": str}}, "the application provides no 'zzz' that could be replaced: it prov"),
    ],
)
def test_what_a_test_cannot_point_at_is_refused(app: TrioMQ[Any, Any], cluster: Any, options: Any, says: str) -> None:
    app.provides(database)
    with pytest.raises(ConfigurationError) as refused, app.testing(cluster, **options):
        pass
    assert str(refused.value).startswith(says)
    assert app.name_server == PRODUCTION


def database() -> str:
    return "the real one"


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    return FakeCluster.installed(monkeypatch, "T", "%RETRY%G")


async def test_a_producer_that_a_provider_makes_goes_to_the_test_too(
    fakes: FakeCluster, autojump_clock: MockClock
) -> None:
    app = TrioMQ("p", name_server=PRODUCTION)

    @app.provides
    async def audit(app: TrioMQ[Any, Any]) -> AsyncIterator[Producer]:
        async with Producer("audit", name_server=app.name_server) as producer:
            await producer.send(Message("T", b"opened"))
            yield producer

    with app.testing(NAME_SERVER):
        async with app:
            pass
    assert [len(records) for records in fakes.broker.records.values()] == [1]
