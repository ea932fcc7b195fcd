"""Heartbeats of many groups: in steps, between which other tasks run."""

import json
from collections.abc import Coroutine
from itertools import count
from typing import Any

import trio
import trio.testing
from broker_fakes import FakeConnection, request
from broker_metadata import metadata
from fake_clock import FakeClock

from triomq.broker.config import BrokerSettings
from triomq.broker.configuration import Configuration
from triomq.broker.errors import TableFull
from triomq.broker.processors.client import SUBSCRIPTIONS_LIKE_A_GROUP, WORK_IN_A_STEP, ClientProcessor
from triomq.broker.tables.consumers import ConsumerTable
from triomq.broker.tables.producers import ProducerTable
from triomq.protocol.command import RemotingCommand
from triomq.remoting.scheduling.scheduler import Scheduler
from triomq.remoting.scheduling.step_line import StepLine, Steps


class Around:
    """A client processor over tables of its own."""

    def __init__(self, **limits: int) -> None:
        clock = FakeClock()
        self.consumers = ConsumerTable(clock, **limits)
        self.producers = ProducerTable(clock)
        self.client = ClientProcessor(
            Configuration(broker=BrokerSettings(broker_name="b-a")),
            metadata(clock, consumers=self.consumers, producers=self.producers),
        )
        self.answers: list[RemotingCommand | Exception] = []

    def beat(
        self, connection: FakeConnection, consumers: list[str], producers: list[str] | None = None, topics: int = 0
    ) -> RemotingCommand | Coroutine[Any, Any, RemotingCommand]:
        subscriptions = [{"topic": f"T{number}", "subString": "*"} for number in range(topics)]
        body = {
            "clientID": "c1",
            "consumerDataSet": [{"groupName": name, "subscriptionDataSet": subscriptions} for name in consumers],
            "producerDataSet": [{"groupName": name} for name in producers or []],
        }
        return self.client.heartbeat(connection, request(34, body=json.dumps(body).encode()))

    def leave(self, connection: FakeConnection, group: str) -> RemotingCommand | Coroutine[Any, Any, RemotingCommand]:
        return self.client.unregister(connection, request(35, {"clientID": "c1", "consumerGroup": group}))

    async def answer(self, work: RemotingCommand | Coroutine[Any, Any, RemotingCommand]) -> None:
        assert not isinstance(work, RemotingCommand)
        try:
            self.answers.append(await work)
        except TableFull as error:
            self.answers.append(error)

    def registered(self) -> int:
        return len(self.consumers.groups()) + len(list(self.producers.items()))

    async def most_in_a_pass(self, wanted: int) -> int:
        """Run until that number is registered; return the most that came between two looks of another task."""
        most = before = self.registered()
        while before < wanted:
            await trio.lowlevel.checkpoint()
            now = self.registered()
            most, before = max(most, now - before), now
        return most


def names(letter: str, count: int) -> list[str]:
    return [f"{letter}{number}" for number in range(count)]


async def test_other_tasks_run_while_a_heartbeat_of_many_groups_is_registered() -> None:
    around = Around()
    async with trio.open_nursery() as nursery:
        work = around.beat(FakeConnection(), names("g", 100), names("p", 100))
        assert around.registered() == 0
        nursery.start_soon(around.answer, work)
        assert await around.most_in_a_pass(200) <= 2 * WORK_IN_A_STEP  # the order within a pass is random
    assert [getattr(answer, "code", None) for answer in around.answers] == [0]


async def test_many_heartbeats_at_once_share_the_line_of_steps() -> None:
    around = Around()
    line = StepLine(Scheduler(), count().__next__)  # each step lasts a second: one fills a pass
    async with trio.open_nursery() as nursery:
        nursery.start_soon(line.run)

        async def run(client: int) -> None:
            connection = FakeConnection(f"10.0.0.1:{client}")
            connection.steps = Steps(line)
            await connection.steps.begin()  # as tasks of connections begin
            await around.answer(around.beat(connection, names(f"g{client}-", 40)))

        async with trio.open_nursery() as clients:
            for client in range(10):
                clients.start_soon(run, client)
            assert await around.most_in_a_pass(400) <= 2 * WORK_IN_A_STEP
        nursery.cancel_scope.cancel()
    assert len(around.answers) == 10


async def test_groups_with_many_subscriptions_are_steps_of_their_own() -> None:
    around = Around()
    async with trio.open_nursery() as nursery:
        topics = SUBSCRIPTIONS_LIKE_A_GROUP * WORK_IN_A_STEP
        nursery.start_soon(around.answer, around.beat(FakeConnection(), names("g", 3), topics=topics))
        assert await around.most_in_a_pass(3) <= 2  # the order within a pass is random
    assert len(around.answers) == 1


def test_a_heartbeat_of_few_groups_is_registered_at_once() -> None:
    around = Around()
    work = around.beat(FakeConnection(), names("g", WORK_IN_A_STEP - 1), ["p"])
    assert isinstance(work, RemotingCommand)
    assert around.registered() == WORK_IN_A_STEP


async def test_what_a_client_asks_behind_its_long_heartbeat_is_done_after_it() -> None:
    around = Around()
    connection = FakeConnection()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(around.answer, around.beat(connection, names("g", 50)))
        nursery.start_soon(around.answer, around.beat(connection, ["g49"], topics=1))
        nursery.start_soon(around.answer, around.leave(connection, "g48"))
        others = around.leave(FakeConnection("10.0.0.2:1"), "g0")
        assert isinstance(others, RemotingCommand)
    assert len(around.answers) == 3
    assert around.consumers.get("g48") is None
    last = around.consumers.get("g49")
    assert last is not None
    assert list(last.subscriptions) == ["T0"]
    assert isinstance(around.beat(connection, ["g0"]), RemotingCommand)


async def test_a_connection_that_closes_in_the_middle_registers_nothing_more() -> None:
    around = Around()
    early, late = FakeConnection(), FakeConnection("10.0.0.2:1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(around.answer, around.beat(early, names("e", 20)))
        nursery.start_soon(around.answer, around.beat(late, names("l", 100)))
        early.close()
        while around.registered() == 0:
            await trio.lowlevel.checkpoint()
        late.close()
        seen = around.registered()
        await trio.testing.wait_all_tasks_blocked()
    assert around.registered() == seen < 100
    assert around.consumers.get("e0") is None


async def test_a_cancelled_heartbeat_lets_the_next_one_on() -> None:
    around = Around()
    connection = FakeConnection()
    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            scope.cancel()
            await around.answer(around.beat(connection, names("a", 20)))
        nursery.start_soon(around.answer, around.beat(connection, names("b", 20)))
    assert around.registered() == WORK_IN_A_STEP + 20  # a cancelled task runs up to its first checkpoint


async def test_a_full_table_refuses_what_is_new_after_all_groups_were_tried() -> None:
    around = Around(max_groups=30)
    await around.answer(around.beat(FakeConnection(), names("g", 30)))
    await around.answer(around.beat(FakeConnection("10.0.0.2:1"), [*names("n", 10), *names("g", 30)]))
    assert isinstance(around.answers[1], TableFull)
    last = around.consumers.get("g29")
    assert last is not None
    assert len(last.members()) == 2
