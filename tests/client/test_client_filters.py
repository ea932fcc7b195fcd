"""Filters that cannot work raise, in all three facades, instead of a consumer that waits forever."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from client_cluster import LIMIT_SECONDS
from client_fakes import NAME_SERVER, FakeCluster, refuse
from trio.testing import MockClock

import triomq
from triomq import ConfigurationError, ConsumeFromWhere, LitePullConsumer, PushConsumer, aio, blocking
from triomq.protocol.codes import RequestCode, ResponseCode

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
WRONG = refuse(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "line 1, column 8: expected a property, found '>'")
OFF = refuse(ResponseCode.SYSTEM_ERROR, "The broker does not support consumer to filter message by SQL92")


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    made = FakeCluster.installed(monkeypatch, "T", "%RETRY%G")
    made.brokers["a"].store("T", 0, b"m")
    return made


def refused(fakes: FakeCluster, answer: Any = WRONG, times: int = 10) -> None:
    fakes.broker.will(RequestCode.CHECK_CLIENT_CONFIG, *[answer] * times)


def in_trio(subscribe_first: bool) -> None:
    async def main() -> None:
        with trio.fail_after(LIMIT_SECONDS):
            consumer = triomq.PushConsumer("G", name_server=NAME_SERVER, consume_from=FIRST)
            if subscribe_first:
                consumer.subscribe("T", "price >> 10", sql=True)
            async with consumer:
                if not subscribe_first:
                    consumer.subscribe("T", "price >> 10", sql=True)
                async for message in consumer:
                    raise AssertionError(message)

    trio.run(main)


def in_asyncio(subscribe_first: bool) -> None:
    async def main() -> None:
        consumer = aio.PushConsumer("G", name_server=NAME_SERVER, consume_from=FIRST)
        if subscribe_first:
            consumer.subscribe("T", "price >> 10", sql=True)
        async with consumer:
            if not subscribe_first:
                consumer.subscribe("T", "price >> 10", sql=True)
            async for message in consumer:
                raise AssertionError(message)

    asyncio.run(asyncio.wait_for(main(), LIMIT_SECONDS))


def in_threads(subscribe_first: bool) -> None:
    consumer = blocking.PushConsumer("G", name_server=NAME_SERVER, consume_from=FIRST)
    if subscribe_first:
        consumer.subscribe("T", "price >> 10", sql=True)
    with consumer:
        if not subscribe_first:
            consumer.subscribe("T", "price >> 10", sql=True)
        assert consumer.receive(LIMIT_SECONDS) is None


@pytest.mark.parametrize("facade", [in_trio, in_asyncio, in_threads])
@pytest.mark.parametrize("subscribe_first", [True, False], ids=["before it opens", "while it is open"])
@pytest.mark.parametrize(
    ("answer", "text"), [(WRONG, "expected a property, found '>'"), (OFF, "set enablePropertyFilter=true there")]
)
def test_a_filter_that_the_broker_refuses_raises_with_its_words(
    facade: Callable[[bool], None], subscribe_first: bool, answer: Any, text: str, fakes: FakeCluster
) -> None:
    refused(fakes, answer)
    with pytest.raises(ConfigurationError, match=f"the filter of topic 'T' cannot work at a: .*{text}"):
        facade(subscribe_first)


async def receive_within(consumer: PushConsumer[Any]) -> None:
    await consumer.receive_within(50)


async def receive(consumer: PushConsumer[Any]) -> None:
    await consumer.receive()


async def wait_assigned(consumer: PushConsumer[Any]) -> None:
    await consumer.wait_assigned("T")


@pytest.mark.parametrize("wait", [receive, receive_within, wait_assigned])
async def test_what_waits_already_raises(
    wait: Callable[[PushConsumer[Any]], Awaitable[None]], fakes: FakeCluster, autojump_clock: MockClock
) -> None:
    fakes.name_server_up = False
    refused(fakes)
    async with PushConsumer("G", name_server=NAME_SERVER) as consumer, trio.open_nursery() as nursery:
        consumer.subscribe("T", "price >> 10", sql=True)
        nursery.start_soon(servers_return, fakes)
        with pytest.raises(ConfigurationError, match="expected a property"):
            await wait(consumer)


async def servers_return(fakes: FakeCluster) -> None:
    await trio.sleep(5)
    fakes.name_server_up = True


async def test_a_poll_raises(fakes: FakeCluster, autojump_clock: MockClock) -> None:
    refused(fakes)
    async with LitePullConsumer("G", name_server=NAME_SERVER) as consumer:
        consumer.subscribe("T", "price >> 10", sql=True)
        with pytest.raises(ConfigurationError, match="expected a property"):
            await consumer.poll(50)


async def test_a_filter_that_is_replaced_works(fakes: FakeCluster, autojump_clock: MockClock) -> None:
    refused(fakes, times=1)
    async with PushConsumer("G", name_server=NAME_SERVER, consume_from=FIRST) as consumer:
        consumer.subscribe("T", "price >> 10", sql=True)
        with pytest.raises(ConfigurationError, match="expected a property"):
            await consumer.receive()
        consumer.subscribe("T", "price > 10", sql=True)
        assert (await consumer.receive()).message.body == b"m"
        asked = len(fakes.broker.of(RequestCode.CHECK_CLIENT_CONFIG))
        await trio.sleep(60)
        assert len(fakes.broker.of(RequestCode.CHECK_CLIENT_CONFIG)) == asked == 2


async def test_a_broker_that_does_not_answer_is_asked_again(fakes: FakeCluster, autojump_clock: MockClock) -> None:
    fakes.broker.will(RequestCode.CHECK_CLIENT_CONFIG, refuse(ResponseCode.SYSTEM_BUSY, "later"))
    async with PushConsumer("G", name_server=NAME_SERVER, consume_from=FIRST) as consumer:
        consumer.subscribe("T", "price > 10", sql=True)
        assert (await consumer.receive()).message.body == b"m"


async def test_a_listener_that_was_set_later_learns_it_from_the_log(
    fakes: FakeCluster, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    refused(fakes)

    async def handle(message: object) -> None:
        raise AssertionError(message)

    async with PushConsumer("G", name_server=NAME_SERVER) as consumer:
        consumer.listen(handle)
        consumer.subscribe("T", "price >> 10", sql=True)
        await trio.sleep(60)
    [error] = [record for record in caplog.records if "filter refused" in record.getMessage()]
    assert error.levelname == "ERROR"
    assert "expected a property" in error.getMessage()


@pytest.mark.parametrize(
    "expression", ["price > 10", "a || region = 'eu'", "a<3", "a BETWEEN 1 AND 2", "b is  not null", "c in (1)"]
)
def test_a_tag_that_looks_like_a_condition_is_refused(expression: str) -> None:
    consumer = PushConsumer("G", name_server=NAME_SERVER)
    with pytest.raises(ConfigurationError, match=r"is not a tag; did you mean subscribe\(topic, .*, sql=True\)"):
        consumer.subscribe("T", expression)


@pytest.mark.parametrize("expression", ["*", "a", " a||b ", "a || b-c_d.e", "one two", "salt and pepper || in", ""])
def test_tags_are_tags(expression: str) -> None:
    PushConsumer("G", name_server=NAME_SERVER).subscribe("T", expression)
