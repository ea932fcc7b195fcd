"""Copies between clusters of two brokers: names, queues of each broker, retry and dead letter topics of groups."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from copied import Admin, Message, MessageQueue, copy

from triomq.blocking import MessageExt, Producer, PullConsumer
from triomq.client.core import requests
from triomq.spark.cluster import Cluster
from triomq.spark.options import OptionTable, connection_options
from triomq.testing import LocalCluster

DEADLINE_SECONDS = 20


@pytest.fixture(scope="module")
def north() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2, cluster_name="north") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def south() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2, cluster_name="south") as cluster:
        yield cluster


def found(cluster: LocalCluster, topic: str) -> dict[tuple[str, int], list[MessageExt]]:
    """Return (broker, queue id) -> messages."""
    table: dict[tuple[str, int], list[MessageExt]] = {}
    with PullConsumer("reader", name_server=cluster.name_server) as consumer:
        for queue in consumer.queues(topic):
            end = consumer.max_offset(queue)
            line = table[queue.broker_name, queue.queue_id] = []
            while len(line) < end:
                line += consumer.pull(queue, "*", len(line)).messages
    return table


def texts(cluster: LocalCluster, topic: str) -> dict[tuple[str, int], list[bytes]]:
    return {place: [message.body for message in line] for place, line in found(cluster, topic).items()}


def fill(cluster: LocalCluster, topic: str) -> None:
    with Admin(name_server=cluster.name_server) as admin:
        admin.create_topic(topic, read_queues=2, write_queues=2)
    with Producer("p", name_server=cluster.name_server) as producer:
        for broker in sorted(cluster.brokers):
            for number in range(6):
                text = f"{broker} {number}".encode()
                producer.send(Message(topic, text), queue=MessageQueue(topic, broker, number % 2))


@pytest.mark.parametrize("more", [(), ("--exactly-once",)], ids=["at_least_once", "exactly_once"])
def test_each_queue_of_each_broker_has_its_own_there(
    north: LocalCluster, south: LocalCluster, tmp_path: Path, more: tuple[str, ...]
) -> None:
    topic = f"Wide{len(more)}"
    fill(north, topic)
    for _ in range(2):
        assert copy(north, south, tmp_path, "--topics", topic, "--rename", f"{topic}=New{topic}", *more) == 0
    assert texts(south, f"New{topic}") == texts(north, topic)


def test_one_broker_gets_the_queues_of_two(north: LocalCluster, west: LocalCluster, tmp_path: Path) -> None:
    fill(north, "Narrow")
    assert copy(north, west, tmp_path, "--topics", "Narrow") == 0
    there = texts(west, "Narrow")
    assert len(there) == 4
    assert sorted(there.values()) == sorted(texts(north, "Narrow").values())


def test_retried_messages_and_dead_letters_go_with_their_group(
    north: LocalCluster, south: LocalCluster, tmp_path: Path
) -> None:
    fill(north, "Tried")
    with Admin(name_server=north.name_server) as admin:
        admin.create_group("tired")
    broker = min(north.brokers)
    first, second, *_ = found(north, "Tried")[broker, 0]
    with Cluster(connection_options(OptionTable({"nameServer": north.name_server}, ()))) as cluster:
        address = cluster.address("Tried", broker)
        cluster.call(address, requests.send_back("tired", first, delay_level=-1))
        cluster.call(address, requests.send_back("tired", second, delay_level=1))
    deadline = time.monotonic() + DEADLINE_SECONDS
    with Admin(name_server=north.name_server) as admin:
        while "%RETRY%tired" not in admin.topics() or not any(texts(north, "%RETRY%tired").values()):
            assert time.monotonic() < deadline
        admin.set_offset("tired", MessageQueue("%RETRY%tired", broker, 0), 1)
    words = ("--topics", "Tried", "--groups", "tired")
    for more in ((), ("--exactly-once",)):
        assert copy(north, south, tmp_path / f"{len(more)}", *words, *more) == 0
        for topic, message in (("%DLQ%tired", first), ("%RETRY%tired", second)):
            (ours,) = (line for line in found(north, topic).values() if line)
            (theirs,) = (line for line in found(south, topic).values() if line)
            assert [each.body for each in theirs] == [message.body] * (1 + len(more))
            assert theirs[-1].reconsume_times == ours[0].reconsume_times
            assert theirs[-1].properties.get("RETRY_TOPIC") == ours[0].properties.get("RETRY_TOPIC")
    with Admin(name_server=south.name_server) as admin:
        assert admin.offset("tired", MessageQueue("%RETRY%tired", broker, 0)) == 2
