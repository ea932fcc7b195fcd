"""The NameServer's tables take memory of the budget; beyond it new brokers, topics and entries are refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triomq.namesrv.brokers import BrokerKey
from triomq.namesrv.kv_config import NAMESPACE_COST, TEXT_COST, KvConfig
from triomq.namesrv.route_limits import BROKER_COST, ROUTE_COST, TOPIC_COST, texts_bytes
from triomq.namesrv.routes import RouteTable
from triomq.protocol.bodies.registration import Parts, RestOfRegistration, TopicQueues
from triomq.protocol.bodies.route import BrokerData
from triomq.protocol.bodies.topic_config import DataVersion, TopicConfig
from triomq.protocol.codes import ResponseCode
from triomq.remoting.table_memory import MemoryShort, TableMemory

KIB = 1024


def register(
    table: RouteTable,
    number: int,
    topics: list[str],
    counter: int = 0,
    *,
    cluster: str = "c",
    name: str | None = None,
    broker_id: int = 0,
    filter_servers: Sequence[str] = (),
) -> None:
    table.register(
        BrokerKey(cluster, name or f"b{number}", broker_id, f"10.0.0.1:{number}"),
        ha_address="",
        data_version=DataVersion(counter=counter),
        topics={topic: TopicConfig(topic_name=topic, perm=counter) for topic in topics},
        filter_servers=list(filter_servers),
        owner=None,
        now=0,
    )


def counted(table: RouteTable) -> int:
    """Return the memory of what the table shows."""
    topics = table.topics()
    routes = [table.route(topic) for topic in topics]
    queues = sum(len(route.queue_datas) for route in routes if route is not None)
    # A broker has four entries: its name, its id, its cluster, its registration.
    brokers = [("c", name, *2 * [data.broker_addrs[0]], "", "") for name, data in known(table)]
    texts = [*topics, *(text for broker in brokers for text in broker), *filter_servers(table)]
    return texts_bytes(texts) + TOPIC_COST * len(topics) + ROUTE_COST * queues + 4 * BROKER_COST * len(brokers)


def known(table: RouteTable) -> list[tuple[str, BrokerData]]:
    return list(table.brokers.cluster_info().broker_addr_table.items())


def filter_servers(table: RouteTable) -> list[str]:
    found = table.brokers.filter_servers_of([data for _, data in known(table)])
    return [server for servers in found.values() for server in servers]


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
            register(table, number, topics, counter, filter_servers=topics)
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


def one_topic_at_many_brokers(table: RouteTable, number: int) -> None:
    register(table, number, ["T"])


def ids_whose_registration_left_under_another_name(table: RouteTable, number: int) -> None:
    register(table, number, [], name="b", broker_id=number)
    table.unregister(BrokerKey("c", "nobody", 0, f"10.0.0.1:{number}"))


def clusters_of_one_broker(table: RouteTable, number: int) -> None:
    register(table, 0, [], cluster=f"{number}-" + "c" * 1000)


def filter_servers_of_a_few_brokers(table: RouteTable, number: int) -> None:
    register(table, number, [], filter_servers=[str(each) * 300 for each in range(64)])


@pytest.mark.parametrize(
    "flood",
    [
        one_topic_at_many_brokers,
        ids_whose_registration_left_under_another_name,
        clusters_of_one_broker,
        filter_servers_of_a_few_brokers,
    ],
)
def test_a_flood_of_registrations_takes_no_more_than_the_memory(flood: Callable[[RouteTable, int], None]) -> None:
    memory = TableMemory(200 * KIB)
    table = RouteTable(account=memory.account("routes"))
    with pytest.raises(MemoryShort, match=r"registration of broker b.*maxRequestBytes"):
        for number in range(10_000):
            flood(table, number)
    assert 150 * KIB < memory.held_bytes <= memory.limit_bytes


def test_a_text_that_was_encoded_gives_back_what_it_took() -> None:
    memory = TableMemory()
    table = RouteTable(account=memory.account("routes"))
    register(table, 0, ["ä" * 100])
    msgspec.json.encode(table.topics())  # each keeps its UTF-8 text from now on
    table.unregister(BrokerKey("c", "b0", 0, "10.0.0.1:0"))
    assert memory.held_bytes == 0


def test_registrations_that_are_prepared_at_once_share_the_memory() -> None:
    memory = TableMemory(400 * KIB)
    routes = memory.account("routes")
    table = RouteTable(account=routes, incoming_account=memory.account("registrations"))
    topics = {number: {f"{number}-{each}": TopicQueues() for each in range(200)} for number in range(10)}

    def read(number: int) -> Parts:
        yield topics[number]
        return RestOfRegistration(DataVersion(), [])

    running = [
        table.registering(
            BrokerKey("c", f"b{number}", 0, f"10.0.0.1:{number}"),
            partial(read, number),
            ha_address="",
            owner=None,
            now=lambda: 0.0,
        )
        for number in topics
    ]
    refused = 0
    while running:
        for steps in list(running):
            try:
                next(steps)
            except StopIteration:
                running.remove(steps)
            except MemoryShort:
                running.remove(steps)
                refused += 1
            assert routes.held_bytes <= memory.limit_bytes
    assert memory.held_bytes == routes.held_bytes == counted(table)
    assert 0 < refused < 10


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
    assert memory.held_bytes == NAMESPACE_COST + TEXT_COST * len('"n"'), "as in RocketMQ the namespace stays"


@pytest.mark.parametrize("leaves", [False, True])
async def test_a_flood_of_key_value_entries_or_empty_namespaces_takes_no_more_than_the_memory(leaves: bool) -> None:
    memory = TableMemory(200 * KIB)
    kv_config = KvConfig(None, account=memory.account("key-value entries"))
    with pytest.raises(MemoryShort, match=r"key 'k'.*maxRequestBytes"):
        for number in range(10_000):
            await kv_config.put(str(number), "k", "")
            if leaves:
                await kv_config.delete(str(number), "k")
    assert 150 * KIB < memory.held_bytes <= memory.limit_bytes
