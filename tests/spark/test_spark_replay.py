"""Where a replay sends the archived queues: one queue for each, the same one in each run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from triomq.protocol.message_queue import MessageQueue


class Routes:
    """Topic -> its queues as (broker, number of queues); new topics follow TBW102, with at most four queues."""

    def __init__(self, **topics: dict[str, int]) -> None:
        self.topics = topics

    def publish_route(self, topic: str) -> Any:
        brokers = self.topics.get(topic)
        is_template = brokers is None
        if brokers is None:
            brokers = {name: min(count, 4) for name, count in self.topics["TBW102"].items()}
        queues = [MessageQueue(topic, name, number) for name, count in brokers.items() for number in range(count)]
        return SimpleNamespace(publish=queues, is_template=is_template)


def placed(routes: Routes, *queues: tuple[str, str, int], how: str = "auto") -> tuple[str, ...]:
    from triomq.spark.jobs.replay import _placed

    return _placed(routes, [MessageQueue(*queue) for queue in queues], how)  # type: ignore[arg-type]


@pytest.mark.spark
def test_each_archived_queue_goes_to_one_queue() -> None:
    from triomq.spark.jobs.replay import BY_NAME, SAME_ID, SAME_QUEUE
    from triomq.spark.jobs.session import JobFailed

    two = Routes(T={"a": 4, "b": 4}, TBW102={"a": 8, "b": 8})
    assert placed(two, ("T", "a", 3), ("T", "b", 0)) == SAME_QUEUE
    assert placed(two, ("T", "a", 3), how="hash") == BY_NAME
    assert placed(two, ("T", "a", 4)) == BY_NAME
    assert placed(two, ("T", "elsewhere", 0)) == BY_NAME
    with pytest.raises(JobFailed, match="--queues same: topic 'T' does not have all the archived queues"):
        placed(two, ("T", "elsewhere", 0), how="same")
    with pytest.raises(JobFailed, match="topic 'New' does not exist; create it first"):
        placed(two, ("New", "a", 0))
    one = Routes(T={"c": 4}, TBW102={"c": 8})
    assert placed(one, ("T", "a", 3), ("T", "b", 3)) == SAME_ID
    assert placed(one, ("T", "", 3)) == SAME_ID
    assert placed(one, ("T", "a", 4)) == BY_NAME
    # a topic that the sink will create has four queues
    assert placed(one, ("New", "c", 3)) == placed(Routes(New={"c": 4}), ("New", "c", 3)) == SAME_QUEUE
    assert placed(one, ("New", "a", 3)) == placed(Routes(New={"c": 4}), ("New", "a", 3)) == SAME_ID
    assert placed(one, ("New", "c", 4)) == placed(Routes(New={"c": 4}), ("New", "c", 4)) == BY_NAME


@pytest.fixture
def second_broker(cluster: Any, tmp_path: Path) -> Iterator[str]:
    """Return the address of another broker of the same cluster, called broker-b."""
    from free_ports import free_port
    from interop_cluster import PROJECT, Daemon

    if cluster.target != "triomq":
        pytest.skip("the second broker is TrioMQ's")
    port = free_port()
    pairs = {
        "listenPort": port,
        "namesrvAddr": cluster.namesrv_address,
        "brokerIP1": "127.0.0.1",
        "brokerName": "broker-b",
        "storePathRootDir": tmp_path / "store-b",
    }
    (tmp_path / "broker.conf").write_text("".join(f"{key}={value}\n" for key, value in pairs.items()))
    argv = [str(PROJECT / "bin" / "mqbroker"), "-c", str(tmp_path / "broker.conf")]
    daemon = Daemon(argv, tmp_path, f"127.0.0.1:{port}")
    daemon.start()
    yield daemon.address
    daemon.stop()


@pytest.mark.spark
def test_queues_of_several_brokers_keep_their_order(
    spark: Any, cluster: Any, second_broker: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import interop_wire as wire
    from interop_processes import wait_until

    from triomq.spark.jobs import main

    def on_both(name: str) -> str:
        topic: str = cluster.create_topic(name, 2)
        fields = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": 2,
            "writeQueueNums": 2,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": "false",
        }
        assert wire.ask(second_broker, wire.UPDATE_AND_CREATE_TOPIC, fields).code == 0
        wait_until(lambda: len(cluster.route(topic)["queueDatas"]) == 2, 20, f"both brokers have {topic}")
        return topic

    first, second = on_both("TwoBrokersFrom"), on_both("TwoBrokersTo")
    common = {"nameServer": cluster.namesrv_address}
    rows = spark.range(0, 80, numPartitions=1).selectExpr(
        "cast(id as string) as body",
        "cast(id % 2 as int) as queueId",
        "if(id % 4 < 2, 'broker-a', 'broker-b') as brokerName",
    )
    rows.write.format("rocketmq").options(**common, topic=first).mode("append").save()
    words = ["-n", cluster.namesrv_address, "--quiet"]
    folder = str(tmp_path / "archive")
    assert main.run(["archive", *words, "--topics", first, "--to", folder]) == 0
    replay = ["replay", *words, "--from", folder, "--to-topic", second, "--rate", "100000"]
    assert (main.run(replay), main.run(replay)) == (0, 0)
    table = spark.read.format("rocketmq").options(**common, subscribe=second).load()
    found: dict[tuple[str, int], list[int]] = {}
    for row in table.select("brokerName", "queueId", "queueOffset", "body").orderBy("queueOffset").collect():
        found.setdefault((row["brokerName"], row["queueId"]), []).append(int(row["body"]))
    assert found == {
        ("broker-a", 0): list(range(0, 80, 4)),
        ("broker-a", 1): list(range(1, 80, 4)),
        ("broker-b", 0): list(range(2, 80, 4)),
        ("broker-b", 1): list(range(3, 80, 4)),
    }
    assert json.dumps(second)[1:-1] in capsys.readouterr().out
