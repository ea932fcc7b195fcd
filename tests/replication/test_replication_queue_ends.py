"""A slave asks its master for the ends of queues of whose messages its own log has none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from store_support import inline, message, open_store
from trio.testing import MockClock

from triomq.broker.replication import queue_ends
from triomq.broker.replication.master_tables import MasterTables
from triomq.broker.replication.queue_ends import QueueEnds
from triomq.broker.tables.delay_offsets import DelayOffsets
from triomq.broker.tables.groups import GroupTable
from triomq.broker.tables.offsets import OffsetTable
from triomq.broker.tables.topics import TopicTable
from triomq.protocol.bodies.consume_stats import TopicOffset, TopicStatsTable
from triomq.protocol.bodies.kv_table import KVTable
from triomq.protocol.bodies.topic_config import TopicConfig
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_response
from triomq.protocol.headers.topic import GetTopicStatsInfoRequestHeader
from triomq.protocol.message_queue import MessageQueue
from triomq.store.config import BrokerRole
from triomq.store.message_store import DefaultMessageStore

FILE_BYTES = 4096
QUEUES = 3


class Pair:
    """A master's store, and that of a slave whose log begins at the master's second file. Early has messages in front
    of it only, T everywhere, Unused has none."""

    def __init__(self, master: DefaultMessageStore, slave: DefaultMessageStore) -> None:
        self.master = master
        self.slave = slave
        self.topics = TopicTable(now_ms=lambda: 5)
        for topic in ("Early", "T", "Unused"):
            self.topics.update(TopicConfig(topic_name=topic, write_queue_nums=QUEUES, read_queue_nums=QUEUES))
        self.ends = QueueEnds(self.topics, slave)
        self.asked: list[str] = []
        self.answers: dict[str, int] = {}
        """Topic -> the code of the master's response, if it is not a success."""
        self.before: Callable[[str], None] = lambda what: None
        """Called with each question."""

    async def ask(self, request: RemotingCommand) -> RemotingCommand:
        if request.code == RequestCode.GET_BROKER_RUNTIME_INFO:
            self._asked("end")
            return new_response(
                request, body=KVTable(table={"commitLogMaxOffset": str(self.master.appended_offset)}).encode()
            )
        assert request.code == RequestCode.GET_TOPIC_STATS_INFO
        topic = request.header(GetTopicStatsInfoRequestHeader).topic
        self._asked(topic)
        if topic in self.answers:
            return new_response(request, self.answers[topic])
        table = {
            MessageQueue(topic, "b", each): TopicOffset(max_offset=self.master.reading.max_offset(topic, each))
            for each in range(QUEUES)
        }
        await trio.lowlevel.checkpoint()
        return new_response(request, body=TopicStatsTable(offset_table=table).encode())

    def _asked(self, what: str) -> None:
        self.asked.append(what)
        self.before(what)

    def put(self, topic: str, count: int = 1, queue_id: int = 0) -> None:
        for _ in range(count):
            assert self.master.append(message(topic, queue_id, b"." * 60)).is_ok
        self.master.commit()

    def replicate(self) -> None:
        end = self.master.reading.max_physical_offset
        while (begin := max(FILE_BYTES, self.slave.appended_offset)) < end:
            stop = min(end, begin - begin % FILE_BYTES + FILE_BYTES)
            assert self.slave.replica.append(begin, self.master.reading.read_log(begin, stop - begin))
            self.slave.replica.dispatch()

    async def copy(self, master: str = "10.0.0.1:10911") -> list[str]:
        """Copy once. Return what the master was asked."""
        self.asked.clear()
        await self.ends.copy(master, self.ask)
        return self.asked

    def end(self, topic: str = "Early", queue_id: int = 0) -> int:
        return self.slave.reading.max_offset(topic, queue_id)


@pytest.fixture
async def pair(tmp_path: Path) -> Pair:
    slave = await open_store(tmp_path / "slave", broker_role=BrokerRole.SLAVE)
    it = Pair(await open_store(tmp_path / "master"), slave)
    it.put("Early", 4)
    it.put("Early", 2, queue_id=2)
    for queue_id in range(QUEUES):
        it.put("T", 40, queue_id)
    it.replicate()
    return it


async def test_a_slave_asks_once_for_the_ends_of_queues_of_which_it_has_no_message(pair: Pair) -> None:
    assert await pair.copy() == ["end", "Early", "Unused", "end"]
    assert [pair.end("Early", each) for each in range(QUEUES)] == [4, 0, 2]
    assert pair.slave.reading.min_offset("Early", 0) == 4
    assert pair.end("T") == 40 and "Unused" not in pair.slave.reading.queues()
    assert await pair.copy() == [], "all is known"
    pair.topics.update(TopicConfig(topic_name="New", write_queue_nums=1))
    assert await pair.copy() == ["end", "New", "end"]


async def test_another_master_is_asked_for_everything_again(pair: Pair) -> None:
    """A master that was filled from the middle itself knows no ends."""
    pair.answers = {"Early": ResponseCode.TOPIC_NOT_EXIST, "Unused": ResponseCode.TOPIC_NOT_EXIST}
    await pair.copy()
    assert pair.end() == 0 and await pair.copy() == []
    pair.answers = {}
    assert await pair.copy("10.0.0.2:10911") == ["end", "Early", "Unused", "end"]
    assert pair.end() == 4


async def test_a_log_that_was_replaced_begins_the_questions_anew(pair: Pair) -> None:
    """Messages of the new one may lie in front of it that the old one would have had."""
    await pair.copy()
    assert await pair.copy() == []
    pair.slave.quorum.replaced(pair.slave.appended_offset)
    assert await pair.copy() == ["end", "Early", "Unused", "end"]


async def test_a_master_that_is_busy_is_asked_again(pair: Pair) -> None:
    pair.answers = {"Early": ResponseCode.SYSTEM_BUSY}
    await pair.copy()
    assert pair.end() == 0
    pair.answers = {}
    assert await pair.copy() == ["end", "Early", "end"]
    assert pair.end() == 4


async def test_a_slave_that_has_the_whole_log_asks_nothing(pair: Pair, tmp_path: Path) -> None:
    pair.slave = await open_store(tmp_path / "whole", broker_role=BrokerRole.SLAVE)
    pair.ends = QueueEnds(pair.topics, pair.slave)
    assert await pair.copy() == []
    begin, end = 0, pair.master.reading.max_physical_offset
    while begin < end:
        stop = min(end, begin + FILE_BYTES)
        assert pair.slave.replica.append(begin, pair.master.reading.read_log(begin, stop - begin))
        pair.slave.replica.dispatch()
        begin = stop
    assert await pair.copy() == []


async def test_a_slave_that_is_behind_asks_no_more_than_that(pair: Pair) -> None:
    pair.put("T")
    assert await pair.copy() == ["end"]
    assert pair.end() == 0
    pair.replicate()
    assert await pair.copy() == ["end", "Early", "Unused", "end"]
    assert pair.end() == 4


async def test_an_end_counts_when_the_own_log_has_what_it_counts(
    autojump_clock: MockClock, nursery: trio.Nursery, pair: Pair
) -> None:
    """Else a message that is in flight would come to lie at a place behind its own."""

    def put(what: str) -> None:
        if what == "Early":
            pair.put("Early")

    pair.before = put
    nursery.start_soon(pair.copy)
    await trio.testing.wait_all_tasks_blocked()
    assert pair.end() == 0
    pair.replicate()
    await trio.testing.wait_all_tasks_blocked()
    assert (pair.slave.reading.min_offset("Early", 0), pair.end()) == (4, 5), "the log itself has told it"
    assert pair.end("Early", 2) == 2


async def test_an_end_is_given_up_when_the_log_does_not_arrive(autojump_clock: MockClock, pair: Pair) -> None:
    def put(what: str) -> None:
        if what == "Early":
            pair.put("T")

    pair.before = put
    await pair.copy()
    assert pair.end() == 0
    pair.before = lambda what: None
    pair.replicate()
    await pair.copy()
    assert pair.end() == 4


async def test_an_end_of_a_topic_that_is_deleted_meanwhile_does_not_count(pair: Pair) -> None:
    """The topic's next life begins at 0."""

    def delete(what: str) -> None:
        if what == "Unused":
            pair.master.upkeep.delete_topic("Early")
            pair.slave.upkeep.delete_topic("T")  # as the record of a deletion does
            pair.before = lambda what: None
            pair.replicate()

    pair.before = delete
    await pair.copy()
    assert pair.end() == 0
    await pair.copy()
    assert pair.end() == 0 and pair.slave.reading.queues().keys().isdisjoint({"Early"})


async def test_a_master_is_asked_for_some_topics_at_a_time(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_ends, "MAX_TOPICS", 2)
    monkeypatch.setattr(queue_ends, "MAX_ROUNDS", 2)
    for number in range(6):
        pair.topics.update(TopicConfig(topic_name=f"More{number}", write_queue_nums=1))
    first = await pair.copy()
    assert first == ["end", "Early", "Unused", "end", "More0", "More1", "end"]
    assert await pair.copy() == ["end", "More2", "More3", "end", "More4", "More5", "end"]
    assert await pair.copy() == ["end"] and await pair.copy() == []


async def test_the_ends_come_with_the_tables_and_only_of_a_master_that_is_trusted(pair: Pair) -> None:
    class Client:
        async def invoke(self, address: str, request: RemotingCommand, timeout_seconds: float) -> RemotingCommand:
            if request.code in (RequestCode.GET_BROKER_RUNTIME_INFO, RequestCode.GET_TOPIC_STATS_INFO):
                return await pair.ask(request)
            return new_response(request, ResponseCode.SYSTEM_ERROR)

    trusted = False
    tables = MasterTables(
        Client(),  # type: ignore[arg-type]
        pair.topics,
        GroupTable(now_ms=lambda: 5),
        OffsetTable(offload=inline),
        DelayOffsets(offload=inline),
        is_trusted=lambda: trusted,
        ends=pair.ends,
    )
    tables.master_known("10.0.0.1:10911")
    await tables.sync()
    assert pair.asked == []

    def change(what: str) -> None:
        if what == "Unused":
            tables.master_known("10.0.0.2:10911")

    trusted, pair.before = True, change
    await tables.sync()
    assert pair.end() == 0, "another broker is the master by then"
    await tables.sync()
    assert pair.end() == 4
