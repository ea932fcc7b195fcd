"""The page of a group: who reads each queue and how that is known, and what each member subscribes to."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import trio
from broker_fakes import FakeConnection
from broker_shown import Shown, shown
from broker_whole import pull_fields
from fake_clock import FakeClock
from hypothesis import given
from hypothesis import strategies as st

from triomq.broker.tables.consumers import MAX_READERS_PER_GROUP, ConsumerGroup, ConsumerTable, Consumption
from triomq.broker.tables.member_subscriptions import MOST_KEPT, Shared, cost_of, wanted_of
from triomq.broker.views.members import subscriptions_of
from triomq.protocol.bodies.heartbeat import ConsumerData, HeartbeatData
from triomq.protocol.subscription import SubscriptionData
from triomq.remoting.table_memory import TableMemory

HOSTILE = "<img src=x onerror=alert(1)>"


def table_of(clock: FakeClock, members: dict[str, dict[str, str]]) -> tuple[ConsumerTable, ConsumerGroup]:
    """Return a group whose members subscribe to these topics with these expressions."""
    table = ConsumerTable(clock)
    for number, (client, topics) in enumerate(members.items()):
        wanted = [SubscriptionData(topic=topic, sub_string=text, sub_version=5) for topic, text in topics.items()]
        table.register("G", FakeConnection(f"10.0.0.1:{number}"), client, 0, 0, Consumption(), wanted)
    group = table.get("G")
    assert group is not None
    return table, group


def shown_of(group: ConsumerGroup) -> list[tuple[str, str, str | None, bool]]:
    steps = subscriptions_of(group)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return [(row["client"], row["topic"], row["expression"], row["differs"]) for row in end.value]


def test_members_that_agree_are_not_marked() -> None:
    _, group = table_of(FakeClock(), {"m1": {"T": "a"}, "m2": {"T": "a"}})
    assert shown_of(group) == [("m1", "T", "a", False), ("m2", "T", "a", False)]


def test_the_member_that_differs_from_most_is_first_and_marked_alone() -> None:
    _, group = table_of(FakeClock(), {"m1": {"T": "a"}, "m2": {"T": "a"}, "m3": {"T": "b"}})
    assert shown_of(group) == [("m3", "T", "b", True), ("m1", "T", "a", False), ("m2", "T", "a", False)]


def test_of_two_members_that_differ_both_are_marked_and_what_one_lacks_is_named() -> None:
    _, group = table_of(FakeClock(), {"m1": {"T": "a", "U": "*"}, "m2": {"T": "b"}})
    assert shown_of(group) == [
        ("m1", "T", "a", True),
        ("m1", "U", "*", True),
        ("m2", "T", "b", True),
        ("m2", "U", None, True),
    ]


def test_what_is_not_kept_of_a_long_subscription_is_not_called_a_difference() -> None:
    many = {f"T{number:03}": "*" for number in range(MOST_KEPT + 10)}
    fewer = {topic: text for topic, text in many.items() if topic != "T000"}
    _, group = table_of(FakeClock(), {"m1": many, "m2": fewer, "m3": many})
    assert [row for row in shown_of(group) if row[3]] == [("m2", "T000", None, True)]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sets(st.sampled_from(["T", "U", "V"]))), max_size=20))
def test_what_members_share_is_counted_once_and_nothing_is_left(changes: list[tuple[str, set[str]]]) -> None:
    shared = Shared()
    held: dict[str, Any] = {}
    for client, topics in changes:
        wanted = wanted_of([SubscriptionData(topic=topic) for topic in topics])
        if client in held:
            shared.release(held[client])
        held[client] = shared.take(wanted)
        assert shared.held_bytes == sum(map(cost_of, set(held.values())))
    for wanted in held.values():
        shared.release(wanted)
    assert shared.held_bytes == 0


def test_commits_of_strangers_and_beyond_the_bounds_are_not_kept() -> None:
    memory = TableMemory()
    table = ConsumerTable(FakeClock(), account=memory.account("consumers"))
    member = FakeConnection()
    table.register("G", member, "m1", 0, 0, Consumption(), [])
    group = table.get("G")
    assert group is not None
    table.committed("G", FakeConnection(), "T", 0)
    table.committed("other", member, "T", 0)
    assert group.readers == {}
    for queue_id in range(MAX_READERS_PER_GROUP + 5):
        table.committed("G", member, "T", queue_id)
    assert len(group.readers) == MAX_READERS_PER_GROUP
    held = memory.held_bytes
    table.register("G", member, "m1", 0, 0, Consumption(), [])
    assert memory.held_bytes == held, "a heartbeat counts the same"
    table.unregister("G", member)
    assert memory.held_bytes == 0

    table.register("G", member, "m1", 0, 0, Consumption(), [])
    memory.limit_bytes = memory.held_bytes
    table.committed("G", member, "T", 0)
    group = table.get("G")
    assert group is not None
    assert group.readers == {}


async def beat(here: Shown, client: str, expression: str, *, is_binary: bool) -> None:
    """Send a heartbeat over one of the two connections."""
    consumer = ConsumerData(
        group_name="G",
        consume_type="CONSUME_PASSIVELY",
        message_model="CLUSTERING",
        subscription_data_set=[SubscriptionData(topic="T", sub_string=expression, sub_version=1_700_000_000_000)],
    )
    body = HeartbeatData(client_id=client, consumer_data_set=[consumer]).encode()
    assert (await here.broker.ask(34, {}, body, is_binary=is_binary)).code == 0


async def readers(here: Shown) -> list[tuple[list[str], str]]:
    queues = (await here.data("/group", name="G"))["queues"]
    return [(one["reader"]["clients"], one["reader"]["by"]) for one in queues if one["topic"] == "T"]


async def test_the_page_says_who_reads_each_queue_and_how_that_is_known(tmp_path: Path) -> None:
    async with shown(tmp_path) as here, trio.open_nursery() as nursery:
        await here.broker.create_topic("T", queues=4)
        await beat(here, "m1", "*", is_binary=False)
        await beat(here, HOSTILE, "a", is_binary=True)
        for queue_id in range(4):
            await here.broker.send("T", queueId=queue_id)
        for queue_id in range(3):
            fields = {"consumerGroup": "G", "topic": "T", "queueId": queue_id, "commitOffset": 0}
            assert (await here.broker.ask(15, fields)).code == 0
        queue = {"topic": "T", "brokerName": "broker-a", "queueId": 0}
        body = json.dumps({"consumerGroup": "G", "clientId": HOSTILE, "mqSet": [queue]}).encode()
        assert (await here.broker.ask(41, {}, body)).code == 0
        pull = pull_fields("T", queueId=1, queueOffset=1, sysFlag=2 | 4, suspendTimeoutMillis=20_000)
        nursery.start_soon(partial(here.broker.ask, 11, pull, is_binary=True))
        assert here.broker.controller.serving is not None
        while not len(here.broker.controller.serving.pull.long_polling):  # noqa: ASYNC110
            await trio.sleep(0.01)

        assert await readers(here) == [([HOSTILE], "lock"), ([HOSTILE], "waiting pull"), (["m1"], "commit"), ([], "")]
        page = (await here.get("/group?name=G"))[1]
        assert "<img" not in page.partition("<main")[2]
        assert page.count('<tr class="bad">') == 2
        rows = (await here.data("/group", name="G"))["subscriptions"]
        assert [(row["client"], row["expression"], row["since_ms"], row["differs"]) for row in rows] == [
            ("m1", "*", 1_700_000_000_000, True),
            (HOSTILE, "a", 1_700_000_000_000, True),
        ]
        assert (await here.broker.ask(35, {"clientID": "m1", "consumerGroup": "G"})).code == 0
        assert (await readers(here))[2] == ([], ""), "m1 has left"
        nursery.cancel_scope.cancel()
