"""Clients with many groups leave them in steps."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from broker_fakes import FakeConnection
from fake_clock import FakeClock

from triomq.broker.departures import GROUPS_IN_A_STEP, Departures
from triomq.broker.tables.client_channel import GROUPS_IN_A_STEP as GROUPS_LOOKED_AT
from triomq.broker.tables.consumers import ConsumerTable, Consumption
from triomq.broker.tables.producers import ProducerTable

GROUPS = 10 * GROUPS_IN_A_STEP


class Clients:
    """Both tables, and how many groups are left at once."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.left: list[str] = []
        self.consumers = ConsumerTable(self.clock, on_gone=self.left.append)
        self.producers = ProducerTable(self.clock)
        self.departures = Departures(self.producers, self.consumers)

    def connect(self, groups: int = GROUPS, *, name: str = "c") -> FakeConnection:
        connection = FakeConnection()
        for number in range(groups):
            self.consumers.register(f"{name}{number}", connection, name, 0, 0, Consumption(), [])
            self.producers.register(f"{name}{number}", connection, name, 0, 0)
        return connection

    def close(self, connection: FakeConnection) -> None:
        connection.close()
        self.departures.connection_closed(connection)

    def left_count(self) -> int:
        count = len(self.left)
        self.left.clear()
        return count

    def assert_empty(self) -> None:
        assert self.consumers.groups() == list(self.producers.items()) == []
        assert len(self.departures) == self.consumers._channel_count == self.producers._channel_count == 0


@pytest.fixture
def clients() -> Clients:
    return Clients()


async def test_a_client_with_many_groups_leaves_a_few_of_them_in_each_pass(clients: Clients, nursery: Any) -> None:
    nursery.start_soon(clients.departures.run)
    await trio.testing.wait_all_tasks_blocked()
    connection = clients.connect()
    small = clients.connect(3, name="d")
    clients.close(connection)
    steps = [clients.left_count()]
    clients.close(small)
    assert clients.left_count() == 3, "who has few groups leaves them at once"
    while len(clients.departures):
        await trio.lowlevel.checkpoint()
        steps.append(clients.left_count())
    assert steps[0] == GROUPS_IN_A_STEP
    assert max(steps) <= 2 * GROUPS_IN_A_STEP, "the loop runs tasks in any order, so two steps may follow each other"
    assert sum(steps) == GROUPS
    clients.assert_empty()


async def test_clients_that_close_while_others_leave_are_all_gone_in_the_end(clients: Clients, nursery: Any) -> None:
    nursery.start_soon(clients.departures.run)
    await trio.testing.wait_all_tasks_blocked()
    connections = [clients.connect(name=name) for name in "abc"]
    clients.close(connections[0])
    await trio.lowlevel.checkpoint()
    clients.close(connections[1])
    clients.close(connections[2])
    again = clients.connect(1, name="a")
    await trio.testing.wait_all_tasks_blocked()
    group = clients.consumers.get("a0")
    assert group is not None
    assert [member.connection for member in group.members()] == [again]
    clients.close(again)
    clients.assert_empty()


async def test_who_is_leaving_is_not_listed_as_a_member(clients: Clients, nursery: Any) -> None:
    nursery.start_soon(clients.departures.run)
    await trio.testing.wait_all_tasks_blocked()
    leaving = clients.connect()
    other = FakeConnection()
    clients.consumers.register(f"c{GROUPS - 1}", other, "other", 0, 0, Consumption(), [])
    clients.close(leaving)
    group = clients.consumers.get(f"c{GROUPS - 1}")
    assert group is not None
    assert leaving in group.channels
    assert group.client_ids() == ["other"]


def test_without_a_task_clients_leave_at_once(clients: Clients) -> None:
    clients.close(clients.connect())
    clients.assert_empty()


def test_the_look_for_silent_clients_has_steps(clients: Clients) -> None:
    connections = [clients.connect(GROUPS_LOOKED_AT, name=name) for name in "ab"]
    clients.clock.advance(120_001)
    for expire in (clients.consumers.expire, clients.producers.expire):
        steps = 0
        before = len(clients.consumers.groups()) + len(list(clients.producers.items()))
        for _ in expire():
            steps += 1
            now = len(clients.consumers.groups()) + len(list(clients.producers.items()))
            assert before - now <= GROUPS_LOOKED_AT
            before = now
        assert steps == 2
    assert not any(connection.is_open for connection in connections)
    clients.assert_empty()
