"""What filters and batches may cost: lengths, what one pull looks at, how many compiled filters are kept."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from broker_whole import pull_fields, whole_broker

from triomq.broker.configuration import Configuration
from triomq.broker.errors import TableFull
from triomq.broker.filters.bloom import BloomFilter
from triomq.broker.filters.conditions import MAX_NAMES
from triomq.broker.filters.limits import MAX_EXPRESSION_CHARACTERS
from triomq.broker.pulls.message_filter import COST_IN_PYTHON, SqlFilter
from triomq.broker.pulls.selection import MAX_KEPT_CHARACTERS, FilterChooser
from triomq.broker.tables.filters import ConsumerFilter, FilterTable
from triomq.protocol.codes import ResponseCode
from triomq.protocol.errors import RequestRefused
from triomq.protocol.headers.pull import PullMessageRequestHeader
from triomq.protocol.subscription import SQL92, SubscriptionData, build_subscription
from triomq.remoting.table_memory import TableMemory

IN_REQUEST = 4


def batch(count: int) -> bytes:
    unit = struct.pack(">iiiiih", 22, 0, 0, 0, 0, 0)
    return unit * count


def terms(count: int) -> str:
    return " OR ".join(f"property{number} = {number}" for number in range(count))


def header(expression: str) -> PullMessageRequestHeader:
    return PullMessageRequestHeader(
        consumer_group="G",
        topic="T",
        queue_id=0,
        queue_offset=0,
        max_msg_nums=32,
        sys_flag=IN_REQUEST,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription=expression,
        sub_version=0,
        expression_type=SQL92,
    )


@pytest.fixture
def chooser() -> FilterChooser:
    configuration = Configuration.from_values({"enablePropertyFilter": "true"})
    return FilterChooser(configuration, None, None, None, now_ms=lambda: 0)  # type: ignore[arg-type]


async def test_a_pull_with_a_long_expression_looks_at_fewer_records(tmp_path: Path) -> None:
    async with whole_broker(tmp_path) as broker:
        await broker.create_topic("T", 1)
        assert (await broker.send("T", batch(100), batch="true")).code == 0
        seen = []
        for expression in ("a = 1", terms(900)):
            pulled = await broker.pull("T", subscription=expression, expressionType=SQL92)
            assert pulled.code == ResponseCode.PULL_RETRY_IMMEDIATELY
            seen.append(int((pulled.ext_fields or {})["nextBeginOffset"]))
    assert seen == [100, 500_000 // (COST_IN_PYTHON * len(terms(900))) + 1]


async def test_a_match_counts_against_the_cost_like_a_miss(tmp_path: Path) -> None:
    async with whole_broker(tmp_path) as broker:
        await broker.create_topic("T", 1)
        assert (await broker.send("T", batch(100), batch="true")).code == 0
        expression = "TRUE OR " + terms(1300)
        pulled = await broker.pull("T", subscription=expression, expressionType=SQL92, maxMsgNums=100)
        assert pulled.code == ResponseCode.SUCCESS
        assert (pulled.ext_fields or {})["nextBeginOffset"] == str(500_000 // (COST_IN_PYTHON * len(expression)) + 1)


async def test_a_pull_for_very_many_messages_looks_at_a_limited_number_of_entries(tmp_path: Path) -> None:
    async with whole_broker(tmp_path, mappedFileSizeConsumeQueue="600000") as broker:
        await broker.create_topic("T", 1)
        for _ in range(6):
            assert (await broker.send("T", batch(2900), batch="true")).code == 0
        pulled = await broker.pull("T", subscription="A", maxMsgNums=2**31 - 1)
        assert pulled.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert (pulled.ext_fields or {})["nextBeginOffset"] == "16384"


async def test_a_batch_of_very_many_messages_is_refused(tmp_path: Path) -> None:
    async with whole_broker(tmp_path, maxMessagesPerBatch="3") as broker:
        await broker.create_topic("T", 1)
        assert (await broker.send("T", batch(3), batch="true")).code == 0
        refused = await broker.send("T", batch(4), batch="true")
        assert refused.code == ResponseCode.MESSAGE_ILLEGAL
        assert "more than 3 messages; send several batches" in (refused.remark or "")
        assert (await broker.pull("T")).ext_fields is not None
        assert ((await broker.pull("T")).ext_fields or {})["maxOffset"] == "3"


@pytest.mark.parametrize("expression_type", ["TAG", SQL92])
async def test_an_expression_that_is_too_long_is_refused(tmp_path: Path, expression_type: str) -> None:
    async with whole_broker(tmp_path) as broker:
        await broker.create_topic("T", 1)
        await broker.send("T")
        fields = pull_fields("T", subscription="a" * (MAX_EXPRESSION_CHARACTERS + 1), expressionType=expression_type)
        assert (await broker.ask(11, fields)).code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


def test_compiled_filters_are_kept_up_to_a_number_of_characters(chooser: FilterChooser) -> None:
    long = " " * 20_000
    for number in range(100):
        assert chooser.choose(header(f"a = {number}{long}")) is not None
    kept = [expression for _, _, expression in chooser._kept]
    assert MAX_KEPT_CHARACTERS - 25_000 < sum(map(len, kept)) <= MAX_KEPT_CHARACTERS
    assert kept[-1] == f"a = 99{long}", "the newest stay"
    oldest = chooser._kept[("T", "G", kept[0])]
    chooser.choose(header(kept[0]))
    assert list(chooser._kept.values())[-1] is oldest, "what is used stays, and is not compiled again"


def test_compiled_filters_leave_when_the_tables_have_no_memory() -> None:
    memory = TableMemory(100_000)
    configuration = Configuration.from_values({"enablePropertyFilter": "true"})
    account = memory.account("compiled filters")
    chooser = FilterChooser(configuration, None, None, None, now_ms=lambda: 0, account=account)  # type: ignore[arg-type]
    for number in range(300):
        assert chooser.choose(header(f"a = {number}")) is not None
        assert memory.held_bytes <= memory.limit_bytes
    assert 10 < len(chooser._kept) < 100
    memory.account("others").set(memory.limit_bytes)
    assert chooser.choose(header("a = 999")) is not None
    assert (len(chooser._kept), account.held_bytes) == (0, 0)


def test_an_expression_that_does_not_compile_is_not_kept(chooser: FilterChooser) -> None:
    with pytest.raises(RequestRefused):
        chooser.choose(header("a ="))
    assert not chooser._kept


def test_the_expressions_of_heartbeats_are_bounded_in_all() -> None:
    table = FilterTable(BloomFilter(20, 32), now_ms=lambda: 1, max_characters=30)
    table.register("G", [build_subscription("T", "a = 1111111111", SQL92, sub_version=1)])
    table.register("H", [build_subscription("T", "a = 1111111111", SQL92, sub_version=1)])
    with pytest.raises(RequestRefused, match=r"characters of SQL92 filters is full \(30 "):
        table.register("I", [build_subscription("T", "a = 1", SQL92, sub_version=1)])
    table.register("G", [build_subscription("T", "a = 1", SQL92, sub_version=2)])
    table.register("I", [build_subscription("T", "a = 1", SQL92, sub_version=1)])
    assert len(table.of_topic("T")) == 3


class NoWalk(dict[str, Any]):
    """A table of topics that nobody may walk over."""

    def _walked(self) -> Any:
        raise AssertionError("a heartbeat walks over the filters of others")

    __iter__ = values = items = keys = _walked


def test_a_heartbeat_walks_over_the_filters_of_its_own_group_only() -> None:
    table = FilterTable(BloomFilter(20, 32), now_ms=lambda: 1000, max_filters=30, max_characters=1000)
    table._by_topic = NoWalk()
    for number in range(30):
        table.register(f"G{number}", [sql_subscription(f"T{number}", f"a = {number}")])
    with pytest.raises(TableFull, match="SQL92 filters"):
        table.register("more", [sql_subscription("T", "a = 1")])
    with pytest.raises(TableFull, match="characters"):
        table.register("G0", [sql_subscription("T0", "a = 1 OR " * 120 + "a = 2", version=2)])
    table.group_gone("G3")
    table.register("G4", [])
    dead = [number for number in range(30) if table.get(f"T{number}", f"G{number}").is_dead]  # type: ignore[union-attr]
    assert dead == [3, 4]
    table.register("G5", [sql_subscription("T5", "a =", version=2)])
    assert table.get("T5", "G5") is None
    assert table._filter_count == 29
    assert table._characters == sum(len(f"a = {number}") for number in range(30) if number != 5)


def sql_subscription(topic: str, expression: str, version: int = 1) -> SubscriptionData:
    return SubscriptionData(topic=topic, sub_string=expression, expression_type=SQL92, sub_version=version)


def test_an_expression_that_c_does_not_evaluate_costs_more() -> None:
    def cost(expression: str) -> int:
        made = ConsumerFilter("T", "G", expression, 0, 1, None)
        return SqlFilter(made).cost

    assert cost("a = 1") == 5
    many = " OR ".join(f"a{number} = 1" for number in range(MAX_NAMES + 1))
    assert cost(many) == COST_IN_PYTHON * len(many)
