"""The effects of the real mqadmin on live consumers, and the precision of delays."""

from __future__ import annotations

import re
import statistics
from pathlib import Path

import interop_wire as wire
import pytest
from interop_cluster import BROKER_NAME, Cluster, running_cluster
from interop_drivers import Driver, Running
from interop_mqadmin import JavaAdmin
from interop_processes import wait_until
from interop_texts import line_of, numbered

GET_CONSUMER_CONNECTION_LIST = 203
QUERY_CONSUME_QUEUE = 321

# Each of the 18 levels is a queue and a timer of its own, so short ones stand for those of up to two hours.
LEVEL_SECONDS = [1, 2, 3, 4, 5, 6] * 3


class Group:
    """A topic of two queues with ten messages, and a Java consumer that has read all of them."""

    def __init__(self, cluster: Cluster, java: Driver, name: str, directory: Path) -> None:
        self.cluster = cluster
        self.java = java
        self.topic = cluster.create_topic(name, queues=2)
        self.name = f"{self.topic}_group"
        cluster.create_topic(f"%RETRY%{self.name}", queues=1, numbered=False)
        self.common = {"namesrv": cluster.namesrv_address, "topic": self.topic}
        self.here = ("-n", cluster.namesrv_address)
        self.sent = java.run("send-lines", **self.common, file=numbered(directory, 10), order_by_queue=2)[:-1]
        self.consumer = self.start(self.name)
        self.consumer.wait_messages(10)

    def store_progress(self, admin: JavaAdmin) -> None:
        """Store at the broker that all ten were consumed.

        A pull that was sent before the last message was consumed may store an older offset after this one. The consumer
        corrects it when it next persists its offsets, within ten seconds.
        """
        self.cluster.store_offsets(self.topic, self.name, {0: 5, 1: 5})
        wait_until(lambda: self.progress(admin) == [(5, 5), (5, 5)], 30, "the broker to know all offsets")

    def start(self, group: str) -> Running:
        return self.java.receive(**self.common, group=group)

    @property
    def client_id(self) -> str:
        [started] = self.consumer.of("started")
        client_id: str = started["client_id"]
        return client_id

    def progress(self, admin: JavaAdmin, group: str | None = None) -> list[tuple[int, int]]:
        """Return (broker offset, consumer offset) of the topic's queues."""
        output = admin.run("consumerProgress", "-g", group or self.name, *self.here)
        rows = [line.split() for line in output.splitlines() if line.startswith(self.topic)]
        return [(int(row[3]), int(row[4])) for row in rows]


def test_the_running_info_of_a_consumer(cluster: Cluster, admin: JavaAdmin, java4: Driver, tmp_path: Path) -> None:
    group = Group(cluster, java4, "RunningInfo", tmp_path)
    info = admin.run("consumerStatus", "-g", group.name, "-i", group.client_id, *group.here)
    for part in (
        "#Consumer Properties#",
        "#Consumer Subscription#",
        "#Consumer Offset#",
        "PROP_CONSUMEORDERLY",
        rf"\b{group.topic} +{BROKER_NAME} +[01] +5\b",
    ):
        assert re.search(part, info), f"no {part} in:\n{info}"
    with_stacks = admin.run("consumerStatus", "-g", group.name, "-i", group.client_id, "-s", *group.here)
    assert "java.lang.Thread.run" in with_stacks
    missing = admin.run("consumerStatus", "-g", group.name, "-i", "nobody@1", *group.here)
    assert "The Consumer <" in missing
    group.consumer.stop()


def test_a_message_is_pushed_to_one_consumer(cluster: Cluster, admin: JavaAdmin, java4: Driver, tmp_path: Path) -> None:
    group = Group(cluster, java4, "Directly", tmp_path)
    words = ("-i", group.sent[3]["offset_msg_id"], "-g", group.name, "-d", group.client_id)
    output = admin.run("queryMsgById", *words, *group.here)
    assert "ConsumeMessageDirectlyResult" in output
    assert "consumeResult=CR_SUCCESS" in output
    [again] = group.consumer.wait_messages(11)[10:]
    assert line_of(again) == 3
    assert again["queue_offset"] == group.sent[3]["queue_offset"]
    group.consumer.stop()


def test_offsets_go_back_while_the_group_is_online(
    cluster: Cluster, admin: JavaAdmin, java4: Driver, tmp_path: Path
) -> None:
    group = Group(cluster, java4, "ResetOnline", tmp_path)
    group.store_progress(admin)
    begin = "2000-01-01#00:00:00:000"
    output = admin.run("resetOffsetByTime", "-g", group.name, "-t", group.topic, "-s", begin, *group.here)
    assert sorted(re.findall(rf"{BROKER_NAME} +([01]) +(\d+)", output)) == [("0", "0"), ("1", "0")]
    group.consumer.wait_messages(20)
    assert sorted(line_of(message) for message in group.consumer.messages[10:]) == list(range(10))
    now = admin.run("resetOffsetByTime", "-g", group.name, "-t", group.topic, "-s", "now", *group.here)
    assert sorted(re.findall(rf"{BROKER_NAME} +([01]) +(\d+)", now)) == [("0", "5"), ("1", "5")]
    assert len(group.consumer.messages) == 20
    # The consumer is stopped in the background: while a Java client takes new offsets, it sleeps for ten seconds.


def test_offsets_go_back_while_the_group_is_offline(
    cluster: Cluster, admin: JavaAdmin, java4: Driver, tmp_path: Path
) -> None:
    group = Group(cluster, java4, "ResetOffline", tmp_path)
    group.store_progress(admin)
    group.consumer.stop()
    begin = "2000-01-01#00:00:00:000"
    output = admin.run("resetOffsetByTime", "-g", group.name, "-t", group.topic, "-s", begin, *group.here)
    assert BROKER_NAME in output
    assert group.progress(admin) == [(5, 0), (5, 0)]
    again = group.start(group.name)
    again.wait_messages(10)
    again.stop()
    assert sorted(line_of(message) for message in again.messages) == list(range(10))


def test_offsets_are_cloned(cluster: Cluster, admin: JavaAdmin, java4: Driver, tmp_path: Path) -> None:
    group = Group(cluster, java4, "Cloned", tmp_path)
    group.store_progress(admin)
    group.consumer.stop()
    target = f"{group.topic}_clone"
    cluster.create_topic(f"%RETRY%{target}", queues=1, numbered=False)  # without it mqadmin shows no progress
    words = ("-s", group.name, "-d", target, "-t", group.topic, "-o", "true")
    output = admin.run("cloneGroupOffset", *words, *group.here)
    assert f"clone group offset success. srcGroup[{group.name}], destGroup=[{target}]" in output
    assert group.progress(admin, target) == [(5, 5), (5, 5)]
    more = numbered(tmp_path, 2, "more.txt")
    consumer = group.start(target)
    java4.run("send-lines", **group.common, file=more, order_by_queue=2)
    consumer.wait_messages(2)
    consumer.stop()
    assert [message["queue_offset"] for message in consumer.messages] == [5, 5], "only what came after the clone"


def test_delays_are_never_early_and_hardly_late(
    target: str, java4: Driver, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    """Test all 18 levels at a time. Lateness is printed, not checked, because it also depends on the machine."""
    directory = tmp_path_factory.mktemp("delays")
    levels = " ".join(f"{seconds}s" for seconds in LEVEL_SECONDS)
    with running_cluster(target, directory / "cluster", {"messageDelayLevel": levels}) as cluster:
        topic = cluster.create_topic("Delays", queues=4)
        common = {"namesrv": cluster.namesrv_address, "topic": topic}
        received = java4.receive(**common, group=f"{topic}_group")
        file = numbered(directory, 5)
        sending = [
            java4.begin("send-lines", **common, file=file, delay_level=level, tags=f"level{level}")
            for level in range(1, len(LEVEL_SECONDS) + 1)
        ]
        for each in sending:
            each.wait_done()
        received.wait_messages(5 * len(LEVEL_SECONDS), 30)
        received.stop()
    late_ms: list[int] = []
    for message in received.messages:
        wanted_ms = LEVEL_SECONDS[int(message["tags"].removeprefix("level")) - 1] * 1000
        late_ms.append(message["store_ms"] - message["born_ms"] - wanted_ms)
    with capsys.disabled():
        print(
            f"\n{len(late_ms)} delayed messages of {len(LEVEL_SECONDS)} levels, late by "
            f"{statistics.median(late_ms):.0f} ms (median), {max(late_ms)} ms (worst)"
        )
    assert len(late_ms) == 5 * len(LEVEL_SECONDS)
    assert min(late_ms) >= 0, "none came early"


def test_queue_entries_show_ext_units_and_bit_maps(
    target: str, java4: Driver, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """QUERY_CONSUME_QUEUE with enableConsumeQueueExt, for a group of a live Java consumer with an SQL92 expression."""
    directory = tmp_path_factory.mktemp("ext")
    settings = {"enableConsumeQueueExt": "true", "enableCalcFilterBitMap": "true"}
    with running_cluster(target, directory / "cluster", settings) as cluster:
        topic = cluster.create_topic("Ext", queues=1)
        common = {"namesrv": cluster.namesrv_address, "topic": topic}
        consumer = java4.receive(**common, group="ext_group", sql="line = 1")
        wait_until(
            lambda: (
                wire.ask(cluster.broker_address, GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "ext_group"}).code == 0
            ),
            20,
            "the group's filter is there",
        )
        java4.run("send-lines", **common, file=numbered(directory, 3), tags="a")
        consumer.wait_messages(1)
        fields = {"topic": topic, "queueId": 0, "index": 0, "count": 10, "consumerGroup": "ext_group"}
        answer = wire.ask(cluster.broker_address, QUERY_CONSUME_QUEUE, fields)
        consumer.stop()
    assert answer.code == 0
    body = wire.lenient_json(answer.body)
    entries = body["queueData"]
    assert [entry["eval"] for entry in entries] == [False, True, False]
    assert [entry["tagsCode"] for entry in entries] == [-(2**63), -(2**63) + 34, -(2**63) + 68]
    units = [wire.lenient_json(entry["extendDataJson"].encode()) for entry in entries]
    assert [list(unit) for unit in units] == [["filterBitMap", "msgStoreTime", "size", "tagsCode"]] * 3
    assert [(unit["size"], unit["tagsCode"]) for unit in units] == [(34, ord("a"))] * 3
    nothing = "0" * 48 + "\n" + "0" * 64 + "\n"
    assert [entry["bitMap"] for entry in entries[::2]] == [nothing, nothing]
    assert len(entries[1]["bitMap"]) == len(nothing)
    assert entries[1]["bitMap"].count("1") == 3
    assert wire.lenient_json(body["filterData"].encode())["expression"] == "line = 1"
