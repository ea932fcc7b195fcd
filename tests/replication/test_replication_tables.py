"""The tables that a slave copies from its master over remoting (RocketMQ: SlaveSynchronize)."""

from __future__ import annotations

from typing import Any

import pytest

from triomq.broker.delay import DelayOffsets
from triomq.broker.replication.master_tables import MasterTables
from triomq.broker.tables.groups import GroupTable
from triomq.broker.tables.offsets import OffsetTable
from triomq.broker.tables.topics import TopicTable
from triomq.protocol.bodies.topic_config import TopicConfig
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import RemotingCommand, new_response
from triomq.remoting.errors import ConnectFailed


class FakeMaster:
    """Responds to a slave's requests; codes in `failing` fail, those in `odd` get an unreadable body."""

    def __init__(self) -> None:
        self.topics, self.groups, self.offsets, self.delays = tables()
        self.asked: list[tuple[str, int]] = []
        self.failing: set[int] = set()
        self.odd: set[int] = set()

    async def invoke(self, address: str, command: RemotingCommand, timeout_seconds: float) -> RemotingCommand:
        self.asked.append((address, command.code))
        if command.code in self.failing:
            raise ConnectFailed("no")
        bodies = {
            RequestCode.GET_ALL_TOPIC_CONFIG: self.topics.wrapper().encode,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.offsets.wrapper().encode,
            RequestCode.GET_ALL_DELAY_OFFSET: self.delays.wrapper().encode,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.groups.wrapper().encode,
        }
        body = b"{nonsense" if command.code in self.odd else bodies[RequestCode(command.code)]()
        return new_response(command, body=body)


def tables(now_ms: int = 5) -> tuple[TopicTable, GroupTable, OffsetTable, DelayOffsets]:
    return TopicTable(now_ms=lambda: now_ms), GroupTable(now_ms=lambda: now_ms), OffsetTable(), DelayOffsets()


class Slave:
    def __init__(self, master: FakeMaster, *, is_trusted: bool = True) -> None:
        self.is_trusted = is_trusted
        client: Any = master
        self.topics, self.groups, self.offsets, self.delays = tables(now_ms=7)
        self.tables = MasterTables(
            client, self.topics, self.groups, self.offsets, self.delays, is_trusted=lambda: self.is_trusted
        )
        self.tables.master_known("10.0.0.1:10911")


@pytest.fixture
def master() -> FakeMaster:
    master = FakeMaster()
    master.topics.update(TopicConfig(topic_name="T", read_queue_nums=3))
    master.groups.find("CID")
    master.offsets.commit("CID", "T", 2, 44)
    master.delays.set(3, 9)
    return master


async def test_everything_is_taken_over(master: FakeMaster) -> None:
    slave = Slave(master)
    slave.topics.update(TopicConfig(topic_name="Gone"))
    slave.offsets.commit("CID", "T", 1, 5)
    slave.offsets.commit("Other", "T", 0, 6)
    await slave.tables.sync()
    assert set(slave.topics.names()) == set(master.topics.names())
    assert slave.topics.data_version == master.topics.data_version
    assert slave.groups.get("CID") == master.groups.get("CID")
    assert slave.offsets.queues("CID", "T") == {2: 44}  # whole entries replace its own
    assert slave.offsets.query("Other", "T", 0) == 6  # and entries that the master lacks stay
    assert dict(slave.delays.items()) == {3: 9}


async def test_topics_are_asked_for_at_the_fast_port(master: FakeMaster) -> None:
    await Slave(master).tables.sync()
    assert master.asked == [
        ("10.0.0.1:10909", RequestCode.GET_ALL_TOPIC_CONFIG),
        ("10.0.0.1:10911", RequestCode.GET_ALL_CONSUMER_OFFSET),
        ("10.0.0.1:10911", RequestCode.GET_ALL_DELAY_OFFSET),
        ("10.0.0.1:10911", RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG),
    ]


@pytest.mark.parametrize("kind", ["failing", "odd"])
async def test_one_that_fails_leaves_the_others(master: FakeMaster, kind: str) -> None:
    slave = Slave(master)
    getattr(master, kind).update({RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_DELAY_OFFSET})
    await slave.tables.sync()
    assert slave.topics.get("T") is None
    assert dict(slave.delays.items()) == {}
    assert slave.offsets.query("CID", "T", 2) == 44
    assert slave.groups.get("CID") is not None
    getattr(master, kind).clear()
    await slave.tables.sync()
    assert slave.topics.get("T") is not None


async def test_nothing_is_asked_without_a_master_or_of_one_with_another_log(master: FakeMaster) -> None:
    slave = Slave(master, is_trusted=False)
    await slave.tables.sync()
    slave.is_trusted = True
    slave.tables.master_known(None)
    await slave.tables.sync()
    assert master.asked == []


@pytest.mark.parametrize("change", ["another log", "another master"])
async def test_nothing_is_taken_of_a_master_that_changed_while_it_was_asked(master: FakeMaster, change: str) -> None:
    """A master that restarts without its store would erase its slave's tables, too."""
    slave = Slave(master)
    slave.topics.update(TopicConfig(topic_name="Kept"))
    answer = master.invoke

    async def invoke(address: str, command: RemotingCommand, timeout_seconds: float) -> RemotingCommand:
        response = await answer(address, command, timeout_seconds)
        if change == "another log":
            slave.is_trusted = False
        else:
            slave.tables.master_known("10.0.0.2:10911")
        return response

    master.invoke = invoke  # type: ignore[method-assign]
    await slave.tables.sync()
    assert "Kept" in slave.topics.names()
    assert slave.topics.get("T") is None
    if change == "another log":
        assert master.asked == [("10.0.0.1:10909", RequestCode.GET_ALL_TOPIC_CONFIG)], "nothing more is asked"
