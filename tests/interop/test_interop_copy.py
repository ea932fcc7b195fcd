"""`mqpipeline copy` from Apache's broker and to it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from interop_builds import need_java
from interop_cluster import Cluster

from triomq.blocking import Admin, Message, MessageExt, MessageQueue, Producer, PullConsumer
from triomq.client.core import requests
from triomq.spark.cluster import Cluster as Connections
from triomq.spark.jobs import main as jobs
from triomq.spark.options import OptionTable, connection_options
from triomq.testing import LocalCluster

BROKER = "broker-a"
DEADLINE_SECONDS = 20


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    need_java()
    cluster = Cluster("apache", tmp_path_factory.mktemp("apache"))
    try:
        cluster.start()
        yield cluster
    finally:  # nobody reads its store afterwards, and an orderly stop takes eight seconds
        cluster.broker.kill()
        cluster.namesrv.kill()


@pytest.fixture(scope="module")
def ours() -> Iterator[LocalCluster]:
    with LocalCluster(cluster_name="ours") as cluster:
        yield cluster


def found(name_server: str, topic: str) -> dict[int, list[MessageExt]]:
    """Return queue id -> messages."""
    table: dict[int, list[MessageExt]] = {}
    with PullConsumer("reader", name_server=name_server) as consumer:
        for queue in consumer.queues(topic):
            end = consumer.max_offset(queue)
            line = table[queue.queue_id] = []
            while len(line) < end:
                line += consumer.pull(queue, "*", len(line)).messages
    return table


def fill(name_server: str, topic: str, group: str) -> None:
    """Send messages, one of them compressed, and have a group that has consumed two, and has sent back another two."""
    with Admin(name_server=name_server) as admin:
        admin.create_topic(topic, read_queues=2, write_queues=2)
        admin.create_group(group)
        admin.set_offset(group, MessageQueue(topic, BROKER, 0), 2)
    with Producer("p", name_server=name_server) as producer:
        for number in range(20):
            message = Message(topic, b"x" * 20_000 if number == 7 else b"%d" % number, tags="t", keys=f"k{number}")
            producer.send(message, queue=MessageQueue(topic, BROKER, number % 2))
    first, second, *_ = found(name_server, topic)[0]
    with Connections(connection_options(OptionTable({"nameServer": name_server}, ()))) as connections:
        address = connections.address(topic, BROKER)
        connections.call(address, requests.send_back(group, first, delay_level=-1))
        connections.call(address, requests.send_back(group, second, delay_level=1))
    deadline = time.monotonic() + DEADLINE_SECONDS
    with Admin(name_server=name_server) as admin:
        while f"%RETRY%{group}" not in admin.topics() or not any(found(name_server, f"%RETRY%{group}").values()):
            assert time.monotonic() < deadline


def essence(lines: dict[int, list[MessageExt]]) -> dict[int, list[tuple[object, ...]]]:
    return {
        number: [(one.body, one.tags, one.keys, one.msg_id, one.born_timestamp, one.reconsume_times) for one in line]
        for number, line in lines.items()
    }


@pytest.mark.parametrize("direction", ["from_apache", "to_apache"])
def test_a_copy_is_equal_and_a_group_continues(
    apache: Cluster, ours: LocalCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], direction: str
) -> None:
    topic, group = f"Copied_{direction}", f"group_{direction}"
    sides = [apache.namesrv_address, ours.name_server]
    source, target = sides if direction == "from_apache" else reversed(sides)
    fill(source, topic, group)
    words = ["copy", "--from", source, "--to", target, "--topics", topic, "--groups", group, "--once", "--quiet"]
    words += ["--source-name", source, "--target-name", target, "--exactly-once", "--settle-seconds", "0.1"]
    for state in ("one", "one", "two"):  # the last reads all positions back from the target
        assert jobs.main([*words, "--state", str(tmp_path / state)]) == 0, capsys.readouterr().err
    for each in (topic, f"%RETRY%{group}"):
        assert essence(found(target, each)) == essence(found(source, each))
    queue = MessageQueue(topic, BROKER, 0)
    with Admin(name_server=target) as admin:
        assert admin.offset(group, queue) == 2
    assert capsys.readouterr().err == ""
