"""Long SQL92 expressions are compiled in steps, so that no client waits for another one's expression."""

from __future__ import annotations

import gc
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
import trio
from broker_fakes import FakeConnection, request
from broker_metadata import metadata
from broker_whole import whole_broker
from fake_clock import FakeClock
from hypothesis import given
from hypothesis import strategies as st

from triomq.broker.config import BrokerSettings
from triomq.broker.configuration import Configuration
from triomq.broker.errors import FilterError
from triomq.broker.filters import sql92
from triomq.broker.filters.bloom import BloomFilter
from triomq.broker.filters.expression import BooleanExpression
from triomq.broker.filters.limits import MAX_EXPRESSION_CHARACTERS, REMEMBERED_CHARACTERS
from triomq.broker.filters.sql92 import TOKENS_IN_A_STEP, Compiled, compile_expression, compile_steps
from triomq.broker.processors.client import ClientProcessor
from triomq.broker.tables.consumers import ConsumerTable
from triomq.broker.tables.filters import FilterTable
from triomq.protocol.codes import ResponseCode
from triomq.protocol.command import RemotingCommand
from triomq.protocol.errors import RequestRefused
from triomq.protocol.subscription import SQL92


def terms(count: int) -> str:
    return " OR ".join(f"property{number} = {number}" for number in range(count))


def in_steps(text: str) -> tuple[int, Compiled | None]:
    """Compile; return the number of pauses, and the result."""
    steps = compile_steps(text)
    for pauses in range(MAX_EXPRESSION_CHARACTERS):
        try:
            next(steps)
        except StopIteration as end:
            return pauses, end.value
    raise AssertionError("no end")


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that were parsed."""
    texts: list[str] = []

    class Watched(sql92._Parser):
        def __init__(self, text: str) -> None:
            texts.append(text)
            super().__init__(text)

    monkeypatch.setattr(sql92, "_Parser", Watched)
    return texts


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        (terms(900), 3600),
        (" AND ".join(["a"] * 2000), 4000),
        ("(" * 40 + terms(900) + ")" * 40, 3680),
        ("a IN (" + ",".join(["'x'"] * 2000) + ")", 4000),
        ("a > " + "- - - - - - - - - - 1 OR a > " * 300 + "1", 4203),
    ],
)
def test_whatever_makes_an_expression_long_has_pauses(text: str, tokens: int) -> None:
    pauses, compiled = in_steps(text)
    assert compiled is not None
    assert tokens // TOKENS_IN_A_STEP * 0.9 <= pauses <= tokens // TOKENS_IN_A_STEP
    assert str(compiled.tree()) == str(sql92._all_of(sql92._Parser(text).parse()))


def test_what_is_short_or_too_long_needs_no_steps(parsed: list[str]) -> None:
    short, too_long = "a = 1".ljust(REMEMBERED_CHARACTERS), "a = 1".ljust(MAX_EXPRESSION_CHARACTERS + 1)
    assert in_steps(short) == in_steps(too_long) == (0, None)
    assert parsed == []
    assert in_steps("a = 1".ljust(REMEMBERED_CHARACTERS + 1))[1] is not None
    assert in_steps("a = 1".ljust(MAX_EXPRESSION_CHARACTERS))[1] is not None


def test_what_was_compiled_in_steps_is_there_as_long_as_it_is_held(parsed: list[str]) -> None:
    text = terms(100)
    _, compiled = in_steps(text)
    assert compiled is not None
    assert compile_expression(text) is compiled.tree()
    assert in_steps(text) == (0, compiled)
    assert parsed == [text]
    del compiled
    gc.collect()
    assert compile_expression(text).evaluate({"property7": "7"}) is True
    assert parsed == [text, text]


def test_a_failure_is_there_as_well_and_is_told_each_time(parsed: list[str]) -> None:
    text = terms(100) + " AND"
    _, compiled = in_steps(text)
    reasons = []
    for _ in range(2):
        with pytest.raises(FilterError, match="line 1, column") as caught:
            compile_expression(text)
        reasons.append(caught.value)
    assert str(reasons[0]) == str(reasons[1])
    assert reasons[0] is not reasons[1], "one exception would collect the traces of all who met it"
    assert parsed == [text]
    assert compiled is not None


@given(st.lists(st.sampled_from(["a", "= 1", "AND", "OR", "(", ")", "NOT", "IN ('x')", "> 5", "'x'"]), max_size=12))
def test_in_steps_an_expression_means_what_it_means_at_once(words: list[str]) -> None:
    text = " ".join(words).ljust(REMEMBERED_CHARACTERS + 1)

    def meaning(compiled: Compiled | None) -> str:
        try:
            return str(compile_expression(text) if compiled is None else compiled.tree())
        except FilterError as error:
            return f"refused: {error}"

    at_once = meaning(None)
    assert meaning(in_steps(text)[1]) == at_once


async def test_a_pull_with_a_long_expression_lets_others_run_and_compiles_once(
    tmp_path: Path, parsed: list[str]
) -> None:
    async with whole_broker(tmp_path) as broker:
        await broker.create_topic("T", 1)
        assert (await broker.send("T", b"body")).code == 0
        compiling = {"subscription": terms(900), "expressionType": SQL92}
        answers: list[int] = []

        async def pull(**fields: Any) -> None:
            answers.append((await broker.pull("T", **fields)).code)

        async with trio.open_nursery() as nursery:  # the second comes before the first has compiled
            nursery.start_soon(lambda: pull(**compiling))
            nursery.start_soon(lambda: pull(**compiling))
        assert answers == [ResponseCode.PULL_RETRY_IMMEDIATELY] * 2
        first = len(parsed)
        assert first in (1, 2)
        await pull(**compiling)
        assert len(parsed) == first, "the compiled filter is kept"
        await pull(**{**compiling, "subscription": terms(900) + " AND"})
        assert answers[-1] == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert len(parsed) == first + 1


async def test_a_pull_that_is_refused_compiles_nothing(tmp_path: Path, parsed: list[str]) -> None:
    async with whole_broker(tmp_path) as broker:
        pulled = await broker.pull("Missing", subscription=terms(900), expressionType=SQL92)
        assert pulled.code == ResponseCode.TOPIC_NOT_EXIST
    async with whole_broker(tmp_path, enablePropertyFilter="false") as broker:
        await broker.create_topic("T", 1)
        pulled = await broker.pull("T", subscription=terms(900), expressionType=SQL92)
        assert "does not support" in (pulled.remark or "")
    assert parsed == []


class Around:
    """A client processor over tables of its own, and how many passes of the loop its work takes."""

    def __init__(self) -> None:
        clock = FakeClock()
        filters = FilterTable(BloomFilter(20, 32), now_ms=clock)
        self.tables = metadata(clock, filters=filters, consumers=ConsumerTable(clock, on_register=filters.register))
        settings = BrokerSettings(broker_name="b-a", enable_property_filter=True)
        self.client = ClientProcessor(Configuration(broker=settings), self.tables)

    def beat(self, *expressions: str, version: int = 1) -> RemotingCommand | Coroutine[Any, Any, RemotingCommand]:
        subscriptions = [
            {"topic": f"T{number}", "subString": expression, "expressionType": SQL92, "subVersion": version}
            for number, expression in enumerate(expressions)
        ]
        body = {
            "clientID": "c1",
            "consumerDataSet": [{"groupName": "G", "subscriptionDataSet": subscriptions}],
            "producerDataSet": [],
        }
        return self.client.heartbeat(FakeConnection(), request(34, body=json.dumps(body).encode()))

    def check(self, expression: str) -> RemotingCommand | Coroutine[Any, Any, RemotingCommand]:
        body = {"subscriptionData": {"topic": "T", "subString": expression, "expressionType": SQL92}}
        return self.client.check_config(FakeConnection(), request(46, body=json.dumps(body).encode()))


async def passes(work: RemotingCommand | Coroutine[Any, Any, RemotingCommand]) -> int:
    """Finish the work of a request; return the passes of the event loop that it took."""
    if isinstance(work, RemotingCommand):
        return 0
    count = 0

    async def look() -> None:
        nonlocal count
        while True:
            await trio.lowlevel.checkpoint()
            count += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        assert (await work).code == 0
        nursery.cancel_scope.cancel()
    return count


async def test_a_heartbeat_compiles_its_new_long_expressions_in_steps(parsed: list[str]) -> None:
    around = Around()
    texts = [terms(150) + f" OR number = {number}" for number in range(4)]
    assert await passes(around.beat(*texts)) >= 4 * (600 // TOKENS_IN_A_STEP) - 2
    assert parsed == texts
    kept: list[BooleanExpression] = []
    for number, text in enumerate(texts):
        found = around.tables.filters.get(f"T{number}", "G")
        assert found is not None
        assert found.expression == text
        kept.append(found.compiled)
    assert await passes(around.beat(*texts, version=2)) < 4, "what is known is not compiled again"
    assert parsed == texts
    assert await passes(around.beat("a = 1")) == 0


async def test_a_check_of_a_long_expression_has_steps(parsed: list[str]) -> None:
    around = Around()
    assert await passes(around.check(terms(900))) >= 3600 // TOKENS_IN_A_STEP - 4
    assert await passes(around.check("a = 1")) == 0
    refused = around.check(terms(900) + " AND")
    assert not isinstance(refused, RemotingCommand)
    with pytest.raises(RequestRefused, match="line 1, column"):
        await refused
    assert len([text for text in parsed if len(text) > REMEMBERED_CHARACTERS]) == 2
