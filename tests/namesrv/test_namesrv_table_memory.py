"""The NameServer's tables take memory of the budget; beyond it new brokers, topics and entries are refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triomq.namesrv.brokers import BrokerKey
from triomq.namesrv.kv_config import KvConfig
from triomq.namesrv.route_limits import BROKER_COST, ROUTE_COST, TOPIC_COST
from triomq.namesrv.routes import RouteTable
from triomq.protocol.bodies.topic_config import DataVersion, TopicConfig
from triomq.protocol.codes import ResponseCode
from triomq.remoting.table_memory import MemoryShort, TableMemory

KIB = 1024


def register(table: RouteTable, number: int, topics: list[str], counter: int = 0) -> None:
    table.register(
        BrokerKey("c", f"b{number}", 0, f"10.0.0.1:{number}"),
        ha_address="",
        data_version=DataVersion(counter=counter),
        topics={topic: TopicConfig(topic_name=topic, perm=counter) for topic in topics},
        filter_servers=[],
        owner=None,
        now=0,
    )


def counted(table: RouteTable) -> int:
    """Return the memory of what the table shows."""
    topics = table.topics()
    routes = [table.route(topic) for topic in topics]
    queues = sum(len(route.queue_datas) for route in routes if route is not None)
    brokers = len(table.brokers.cluster_info().broker_addr_table)
    names = sum(map(sys.getsizeof, topics))
    return TOPIC_COST * len(topics) + names + ROUTE_COST * queues + 2 * BROKER_COST * brokers


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["register", "unregister", "delete", "delete in cluster"]),
            st.integers(0, 3),
            st.lists(st.sampled_from(["t", "topic", "u" * 50]), unique=True),
        ),
        max_size=30,
    )
)
def test_the_account_of_routes_is_that_of_what_is_there(steps: list[tuple[str, int, list[str]]]) -> None:
    memory = TableMemory()
    table = RouteTable(account=memory.account("routes"))
    for counter, (step, number, topics) in enumerate(steps):
        if step == "register":
            register(table, number, topics, counter)
        elif step == "unregister":
            table.unregister(BrokerKey("c", f"b{number}", 0, f"10.0.0.1:{number}"))
        else:
            for topic in topics:
                table.delete_topic(topic, "c" if step == "delete in cluster" else None)
        assert memory.held_bytes == counted(table)
    for number in range(4):
        table.unregister(BrokerKey("c", f"b{number}", 0, f"10.0.0.1:{number}"))
    assert memory.held_bytes == 0


def test_a_registration_beyond_the_memory_is_refused_as_a_whole() -> None:
    memory = TableMemory(100 * KIB)
    table = RouteTable(account=memory.account("routes"))
    topics = [f"topic-{number}" for number in range(100)]
    register(table, 0, topics)
    before = memory.held_bytes
    with pytest.raises(MemoryShort, match=r"registration of broker b1 with 200 topics.*maxRequestBytes") as refused:
        register(table, 1, [f"other-{number}" for number in range(200)])
    assert refused.value.code == ResponseCode.SYSTEM_BUSY
    assert (memory.held_bytes, len(table.topics())) == (before, 100)
    register(table, 0, topics, 1)  # what it knows
    register(table, 1, topics[:10])


async def test_key_value_entries_beyond_the_memory_are_refused(tmp_path: Path) -> None:
    memory = TableMemory(10 * KIB)
    kv_config = KvConfig(tmp_path / "kv.json", account=memory.account("key-value entries"))
    await kv_config.put("n", "a", "x" * 1000)
    with pytest.raises(MemoryShort, match=r"key 'b'.*maxRequestBytes"):
        await kv_config.put("n", "b", "x" * 2000)
    await kv_config.put("n", "a", "x" * 900)
    held_bytes = memory.held_bytes
    again = TableMemory()
    KvConfig(tmp_path / "kv.json", account=again.account("key-value entries")).load()
    assert again.held_bytes == held_bytes > 3600
    await kv_config.delete("n", "a")
    assert memory.held_bytes == 0
