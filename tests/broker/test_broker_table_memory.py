"""Tables take memory of the budget: their accounts are exact, new entries are refused when it is used up, and what is
there stays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from broker_fakes import FakeConnection
from broker_whole import now_ms, whole_broker
from hypothesis import given
from hypothesis import strategies as st

from triomq.broker.filters.bloom import BloomFilter
from triomq.broker.tables.consumers import ConsumerTable, Consumption
from triomq.broker.tables.filters import FilterTable
from triomq.broker.tables.groups import GroupTable
from triomq.broker.tables.offsets import OffsetTable
from triomq.broker.tables.producers import ProducerTable
from triomq.broker.tables.queue_locks import QueueLockTable
from triomq.broker.tables.topics import TopicTable
from triomq.protocol.bodies.heartbeat import HeartbeatData, ProducerData
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.subscription import SQL92, SubscriptionData
from triomq.remoting.memory import LEAST_BYTES
from triomq.remoting.table_memory import MemoryShort, TableAccount, TableMemory

NAMES = st.sampled_from(["a", "bb", "a-longer-name", "n" * 100])


class File:
    """A file in memory."""

    def __init__(self) -> None:
        self.text: str | None = None

    def load(self, decode: Callable[[str], Any]) -> Any:
        return decode(self.text) if self.text is not None else None

    def save(self, text: str) -> None:
        self.text = text

    def save_pieces(self, pieces: Sequence[bytes]) -> None:
        self.save(b"".join(pieces).decode())


class Filled:
    """One table of each kind, with accounts of one memory."""

    def __init__(self, limit_bytes: int = 1 << 40, files: list[File] | None = None) -> None:
        self.memory = TableMemory(limit_bytes)
        self.files = files or [File() for _ in range(5)]
        self.connections = [FakeConnection(f"10.0.0.1:{number}") for number in range(3)]
        topics, groups, offsets, filters, locks = self.files
        self.topics = TopicTable(topics, now_ms=now_ms)
        self.topics.count_on(self.account("topics"))
        self.groups = GroupTable(groups, now_ms=now_ms)
        self.groups.count_on(self.account("subscription groups"))
        self.offsets = OffsetTable(offsets, account=self.account("consumer offsets"))
        bloom = BloomFilter(20, 32)
        self.filters = FilterTable(bloom, filters, now_ms=now_ms, account=self.account("SQL92 filters"))
        self.locks = QueueLockTable(now_ms, file=locks, account=self.account("queue locks"))
        self.consumers = ConsumerTable(now_ms, account=self.account("consumers"))
        self.producers = ProducerTable(now_ms, account=self.account("producers"))
        self.empty_bytes = self.memory.held_bytes

    def account(self, name: str) -> TableAccount:
        return self.memory.account(name)

    def load(self) -> None:
        for table in (self.topics, self.groups, self.offsets, self.filters, self.locks):
            table.load()

    def save(self) -> None:
        self.filters.persist()
        for table in (self.offsets, self.locks):
            table._writer.save()

    def add(self, kind: str, first: str, second: str, number: int) -> None:
        """Add an entry of one table."""
        if kind == "topic":
            self.topics.create_on_send_back(first, 1, 6, 0)
        elif kind == "group":
            self.groups.find(first)
        elif kind == "offset":
            self.offsets.commit(first, second, number, 1)
        elif kind == "filter":
            expression = f"a = '{second}'"
            self.filters.register(
                first,
                [SubscriptionData(topic=second, sub_string=expression, expression_type=SQL92, sub_version=number)],
            )
        elif kind == "lock":
            self.locks.lock(first, [MessageQueue(second, "b", number)], "c")
        elif kind == "consumer":
            wanted = [
                SubscriptionData(topic=f"{second}-{each}", tags_set=frozenset({second})) for each in range(number)
            ]
            self.consumers.register(first, self.connections[number], second, 0, 0, Consumption(), wanted)
        else:
            self.producers.register(first, self.connections[number], second, 0, 0)

    def remove(self, kind: str, first: str, second: str, number: int) -> None:
        if kind == "topic":
            self.topics.delete(first)
        elif kind == "group":
            self.groups.delete(first)
        elif kind == "offset":
            self.offsets.remove(first, second)
        elif kind == "filter":
            if self.filters.get(second, first) is not None:
                self.filters._drop(second, first)
        elif kind == "lock":
            self.locks.unlock(first, [MessageQueue(second, "b", number)], "c")
        elif kind == "consumer":
            self.consumers.unregister(first, self.connections[number])
        else:
            self.producers.unregister(first, self.connections[number])


KINDS = ["topic", "group", "offset", "filter", "lock", "consumer", "producer"]


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(KINDS), NAMES, NAMES, st.integers(0, 2)), max_size=40))
def test_accounts_are_those_of_the_entries_and_nothing_is_left(
    steps: list[tuple[bool, str, str, str, int]],
) -> None:
    filled = Filled()
    for is_added, *entry in steps:
        (filled.add if is_added else filled.remove)(*entry)
    filled.save()
    again = Filled(files=filled.files)
    again.load()
    members = filled.consumers._account.held_bytes + filled.producers._account.held_bytes
    assert again.memory.held_bytes == filled.memory.held_bytes - members
    for connection in filled.connections:
        filled.consumers.leave(connection, 1000)
        filled.producers.leave(connection, 1000)
    assert filled.memory.held_bytes == again.memory.held_bytes
    for _, *entry in steps:
        filled.remove(*entry)
    assert filled.memory.held_bytes == filled.empty_bytes


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_entry_is_refused_when_the_memory_is_used_up_and_the_others_stay(kind: str) -> None:
    filled = Filled()
    filled.memory.limit_bytes = filled.empty_bytes + 20_000
    added = 0
    with pytest.raises(MemoryShort, match=r"no memory left.*maxRequestBytes") as refused:
        while added < 1000:
            filled.add(kind, f"name-{added:04d}", f"other-{added:04d}", 1)
            added += 1
    assert refused.value.code == ResponseCode.SYSTEM_BUSY
    assert 10 < added < 200
    before = filled.memory.held_bytes
    assert filled.empty_bytes < before <= filled.memory.limit_bytes
    filled.add(kind, "name-0000", "other-0000", 1)  # what it knows
    assert filled.memory.held_bytes == before
    filled.remove(kind, "name-0000", "other-0000", 1)
    filled.add(kind, "name-0000", "other-0000", 1)


@pytest.mark.parametrize("kind", KINDS)
def test_the_texts_of_an_entry_count(kind: str) -> None:
    short, long = Filled(), Filled()
    short.add(kind, "s", "s", 1)
    long.add(kind, "l" * 100, "l" * 100, 1)
    more = long.memory.held_bytes - short.memory.held_bytes
    assert more > 99, more


def test_what_a_file_brings_stays_and_new_entries_are_refused() -> None:
    filled = Filled()
    for number in range(50):
        filled.add("offset", f"group-{number}", "topic", 0)
    filled.save()
    again = Filled(10_000, filled.files)
    again.load()
    assert again.offsets.query("group-49", "topic", 0) == 1
    again.offsets.commit("group-49", "topic", 0, 2)
    with pytest.raises(MemoryShort):
        again.offsets.commit("new", "topic", 0, 2)
    with pytest.raises(MemoryShort):
        again.offsets.commit("group-49", "topic", 1, 2)


async def test_a_broker_refuses_heartbeats_and_serves_the_others_when_its_tables_are_full(tmp_path: Path) -> None:
    """The least budget is 64 MiB; the tables may take half."""
    async with whole_broker(tmp_path, maxRequestBytes="1") as broker:
        await broker.create_topic("T", 1)
        assert (await broker.send("T")).code == (await broker.pull("T")).code == 0
        memory = broker.controller.serving.tables.surroundings.table_memory
        assert memory.limit_bytes == LEAST_BYTES // 2
        ballast = memory.account("ballast")
        ballast.set(memory.limit_bytes - memory.held_bytes - 20_000)
        heartbeat = HeartbeatData(
            client_id="c", producer_data_set=[ProducerData(group_name=f"g{number}") for number in range(100)]
        )
        refused = await broker.ask(RequestCode.HEART_BEAT, body=heartbeat.encode())
        assert refused.code == ResponseCode.SYSTEM_BUSY
        assert "producers take" in str(refused.remark)
        assert (await broker.send("T")).code == 0
        assert (await broker.pull("T")).code == 0
        ballast.set(0)
        assert (await broker.ask(RequestCode.HEART_BEAT, body=heartbeat.encode())).code == 0
