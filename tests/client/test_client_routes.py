"""Route data to queues and addresses, the choice of the next queue, brokers to avoid."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triomq.client.core.latency import LatencyFaults, avoidance_ms
from triomq.client.core.routes import RouteTable, parse_order_conf, publish_queues, subscribe_queues, template_route
from triomq.protocol.bodies.route import BrokerData, QueueData, TopicRouteData
from triomq.protocol.message_queue import MessageQueue


def route(*brokers: tuple[str, dict[int, str], int, int, int], order: str | None = None) -> TopicRouteData:
    """brokers: (name, addresses, read queues, write queues, perm)."""
    return TopicRouteData(
        broker_datas=[BrokerData(broker_name=name, cluster="c", broker_addrs=to) for name, to, _, _, _ in brokers],
        queue_datas=[
            QueueData(broker_name=name, read_queue_nums=read, write_queue_nums=write, perm=perm)
            for name, _, read, write, perm in brokers
        ],
        order_topic_conf=order,
    )


A = ("b-a", {0: "h:1", 1: "h:2"}, 2, 1, 6)
SLAVE_ONLY = ("b-b", {1: "h:3"}, 2, 2, 6)
READ_ONLY = ("b-c", {0: "h:4"}, 1, 1, 4)
WRITE_ONLY = ("b-d", {0: "h:5"}, 1, 1, 2)


def test_publish_only_where_a_master_takes_messages() -> None:
    data = route(WRITE_ONLY, READ_ONLY, SLAVE_ONLY, A)
    assert publish_queues("T", data) == [MessageQueue("T", "b-a", 0), MessageQueue("T", "b-d", 0)]


def test_subscribe_wherever_one_may_read() -> None:
    data = route(A, SLAVE_ONLY, READ_ONLY, WRITE_ONLY)
    got = subscribe_queues("T", data)
    assert got == sorted(got)
    assert [(queue.broker_name, queue.queue_id) for queue in got] == [
        ("b-a", 0),
        ("b-a", 1),
        ("b-b", 0),
        ("b-b", 1),
        ("b-c", 0),
    ]


def test_an_order_configuration_fixes_the_queues_even_of_absent_brokers() -> None:
    data = route(A, order="b-z:2;b-a:1")
    assert [(queue.broker_name, queue.queue_id) for queue in publish_queues("T", data)] == [
        ("b-z", 0),
        ("b-z", 1),
        ("b-a", 0),
    ]


@pytest.mark.parametrize("conf", ["b-a", "b-a:x", "b-a:-1", ":1:"])
def test_a_bad_order_configuration_says_so(conf: str) -> None:
    with pytest.raises(ValueError, match="order configuration"):
        parse_order_conf(conf)


def test_the_template_has_no_more_queues_than_the_broker_will_make() -> None:
    data = template_route(route(("b-a", {0: "h:1"}, 8, 8, 7)), 4)
    assert len(publish_queues("New", data)) == 4


def test_sends_go_round_and_avoid_the_broker_that_failed() -> None:
    table = RouteTable()
    table.update("T", route(("b-a", {0: "h:1"}, 2, 2, 6), ("b-b", {0: "h:2"}, 2, 2, 6)))
    topic = table.get("T")
    assert topic is not None
    faults = LatencyFaults()
    four = [topic.next_queue(faults, 0) for _ in range(4)]
    assert len(set(four)) == 4
    for _ in range(8):
        queue = topic.next_queue(faults, 0, avoid={"b-a"})
        assert queue is not None
        assert queue.broker_name == "b-b"


def test_a_single_broker_is_used_although_it_failed() -> None:
    table = RouteTable()
    table.update("T", route(("b-a", {0: "h:1"}, 2, 2, 6)))
    topic = table.get("T")
    assert topic is not None
    queue = topic.next_queue(LatencyFaults(), 0, avoid={"b-a"})
    assert queue is not None
    assert queue.broker_name == "b-a"


def test_slow_brokers_rest_and_come_back() -> None:
    table = RouteTable()
    table.update("T", route(("b-a", {0: "h:1"}, 1, 1, 6), ("b-b", {0: "h:2"}, 1, 1, 6)))
    topic = table.get("T")
    assert topic is not None
    faults = LatencyFaults(enabled=True)
    faults.record("b-a", 600, 1000)
    assert {queue.broker_name for _ in range(6) if (queue := topic.next_queue(faults, 2999))} == {"b-b"}
    assert {queue.broker_name for _ in range(6) if (queue := topic.next_queue(faults, 3000))} == {"b-a", "b-b"}
    faults.record("b-a", 600, 4000)
    faults.record("b-b", 10, 4000, failed=True)
    assert {queue.broker_name for _ in range(6) if (queue := topic.next_queue(faults, 4001))} == {"b-a"}


@pytest.mark.parametrize(
    ("latency_ms", "rest_ms"),
    [
        (549, 0),
        (550, 2_000),
        (1_799, 2_000),
        (1_800, 5_000),
        (3_000, 6_000),
        (5_000, 10_000),
        (14_999, 10_000),
        (15_000, 30_000),
    ],
)
def test_each_latency_has_its_rest(latency_ms: int, rest_ms: int) -> None:
    assert avoidance_ms(latency_ms) == rest_ms


@given(st.integers(0, 100_000), st.integers(0, 100_000))
def test_slower_means_longer_rest(one: int, other: int) -> None:
    assert (avoidance_ms(one) <= avoidance_ms(other)) or one > other


def test_the_table_tells_changes_and_finds_addresses() -> None:
    table = RouteTable()
    assert table.update("T", route(A, SLAVE_ONLY))
    assert not table.update("T", route(SLAVE_ONLY, A))
    assert table.master("b-a") == "h:1"
    assert table.master("b-b") is None
    found = table.readable("b-b")
    assert found is not None
    assert (found.address, found.is_master) == ("h:3", False)
    preferred = table.readable("b-a", preferred_id=1)
    assert preferred is not None
    assert preferred.address == "h:2"
    assert [broker.address for broker in table.brokers()] == ["h:1", "h:2", "h:3"]
    assert table.update("T", route(A))
    table.update("U", route(READ_ONLY))
    table.forget("T")
    assert [broker.broker_name for broker in table.brokers()] == ["b-c"]
