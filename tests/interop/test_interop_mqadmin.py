"""The real Java mqadmin against the daemons. The form of its output is compared with recorded outputs."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from golden_data import golden_lines
from interop_cluster import BROKER_NAME, CLUSTER_NAME, Cluster
from interop_drivers import Driver
from interop_mqadmin import JavaAdmin
from interop_processes import wait_until
from interop_texts import numbered

SYSTEM_TOPICS = {
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "BenchmarkTest",
    "OFFSET_MOVED_EVENT",
    "TBW102",
    "SELF_TEST_TOPIC",
    "SCHEDULE_TOPIC_XXXX",
    "RMQ_SYS_TRACE_TOPIC",
    CLUSTER_NAME,
    f"{CLUSTER_NAME}_REPLY_TOPIC",
    BROKER_NAME,
}


@pytest.fixture(scope="module")
def used_topic(cluster: Cluster, java4: Driver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A topic of two queues with five messages each, and a live consumer group that has read all of them."""
    topic = cluster.create_topic("Admin", queues=2)
    cluster.create_topic(
        f"%RETRY%{topic}_group", queues=1, numbered=False
    )  # otherwise the client may find it only 20 s later
    common = {"namesrv": cluster.namesrv_address, "topic": topic}
    received = java4.receive(**common, group=f"{topic}_group", tags="a || b")
    file = numbered(tmp_path_factory.mktemp("admin"), 10)
    java4.run("send-lines", **common, file=file, order_by_queue=2, tags="a,b", keys="admin")
    received.wait_messages(10)
    received.stop()  # a client stores its offsets first after 10 s, or when it stops
    java4.receive(**common, group=f"{topic}_group", tags="a || b")
    return topic


@pytest.fixture(scope="module")
def golden() -> dict[str, str]:
    """Return recorded outputs of mqadmin by name."""
    return {run["name"]: run["stdout"] for run in golden_lines("mqadmin", "outputs")}


def rows(output: str) -> list[list[str]]:
    """Return the table's cells, without the heading."""
    return [line.split() for line in output.splitlines() if line and not line.startswith("#")]


def keys_of(output: str) -> set[str]:
    return {found[1] for found in re.finditer(r"^([A-Z][\w ]+): ", output, re.MULTILINE)}


def test_cluster_list_with_totals(cluster: Cluster, admin: JavaAdmin, used_topic: str) -> None:
    [row] = rows(admin.run("clusterList", "-m", "-n", cluster.namesrv_address))
    assert row[:2] == [CLUSTER_NAME, BROKER_NAME]
    assert len(row) == 6
    assert int(row[4]) >= 10


def test_topic_list(cluster: Cluster, admin: JavaAdmin, used_topic: str) -> None:
    topics = admin.run("topicList", "-n", cluster.namesrv_address).split()
    assert {*SYSTEM_TOPICS, used_topic, f"%RETRY%{used_topic}_group"} <= set(topics)
    assert len(topics) == len(set(topics))
    listed = rows(admin.run("topicList", "-c", "-n", cluster.namesrv_address))
    assert [CLUSTER_NAME, used_topic, f"{used_topic}_group"] in listed


def test_topic_route(cluster: Cluster, admin: JavaAdmin, used_topic: str, golden: dict[str, str]) -> None:
    output = admin.run("topicRoute", "-t", used_topic, "-n", cluster.namesrv_address)
    recorded = golden["topicRoute"].replace("127.0.0.2:21811", cluster.broker_address)
    assert output.split() == recorded.replace("wire-a", BROKER_NAME).replace("WireCluster", CLUSTER_NAME).split()
    [row, _, total] = rows(admin.run("topicRoute", "-t", used_topic, "-l", "-n", cluster.namesrv_address))
    assert row == [CLUSTER_NAME, BROKER_NAME, f"{{0={cluster.broker_address}}}", "2", "2", "6"]
    assert total == ["Total:", "1", "2", "2"]
    assert "No topic route info" in admin.run("topicRoute", "-t", "NoSuchTopic", "-n", cluster.namesrv_address)


def test_topic_status(cluster: Cluster, admin: JavaAdmin, used_topic: str) -> None:
    status = rows(admin.run("topicStatus", "-t", used_topic, "-n", cluster.namesrv_address))
    assert [row[:4] for row in status] == [[BROKER_NAME, str(queue), "0", "5"] for queue in (0, 1)]
    for row in status:
        assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}", " ".join(row[4:]))


def test_consumer_progress(cluster: Cluster, admin: JavaAdmin, java4: Driver, used_topic: str) -> None:
    group = f"{used_topic}_group"
    output = ""

    def is_up_to_date() -> bool:
        nonlocal output
        output = admin.run("consumerProgress", "-g", group, "-n", cluster.namesrv_address)
        return "Diff Total: 0" in output and f"%RETRY%{group}" in output

    wait_until(is_up_to_date, 15, "the group's progress shows all queues read")
    progress = [row for row in rows(output) if row[0] == used_topic]
    assert [row[:3] for row in progress] == [[used_topic, BROKER_NAME, str(queue)] for queue in (0, 1)]
    assert all(len(row) == 8 for row in progress)
    assert {row[3] for row in progress} == {"5"}
    assert re.search(r"Consume TPS: \d+\.\d\d", output)
    every = rows(admin.run("consumerProgress", "-n", cluster.namesrv_address))
    [row] = [row for row in every if row[0] == group]
    assert row[1:5] == ["1", "V4_9_7", "PUSH", "CLUSTERING"]
    missing = admin.run("consumerProgress", "-g", "NoSuchGroup", "-n", cluster.namesrv_address)
    assert "SubCommandException" in missing


def test_consumer_connection(cluster: Cluster, admin: JavaAdmin, used_topic: str) -> None:
    output = admin.run("consumerConnection", "-g", f"{used_topic}_group", "-n", cluster.namesrv_address)
    assert re.search(r"@i\d+-\d+\s+127\.0\.0\.1:\d+\s+JAVA\s+V4_9_7", output)
    assert re.search(rf"{used_topic}\s+a \|\| b", output)
    for line in ("ConsumeType: CONSUME_PASSIVELY", "MessageModel: CLUSTERING", "ConsumeFromWhere: CONSUME_FROM_FIRST"):
        assert line in output


def test_making_and_deleting_topics_and_groups(cluster: Cluster, admin: JavaAdmin) -> None:
    here = ("-n", cluster.namesrv_address)
    made = admin.run("updateTopic", "-t", "MadeByAdmin", "-r", "3", "-w", "3", "-c", CLUSTER_NAME, *here)
    assert made.splitlines() == [
        f"create topic to {cluster.broker_address} success.",
        "TopicConfig [topicName=MadeByAdmin, readQueueNums=3, writeQueueNums=3, perm=RW-, topicFilterType=SINGLE_TAG, "
        "topicSysFlag=0, order=false]",
    ]
    assert cluster.route("MadeByAdmin")["queueDatas"][0]["writeQueueNums"] == 3
    assert "TopicConfig [" not in admin.run("updateTopic", "-t", "bad topic", "-b", cluster.broker_address, *here)
    made = admin.run("updateSubGroup", "-g", "made_group", "-b", cluster.broker_address, *here)
    assert "groupName=made_group, consumeEnable=true" in made
    deleted = admin.run("deleteTopic", "-t", "MadeByAdmin", "-c", CLUSTER_NAME, *here)
    assert deleted.splitlines() == [
        f"delete topic [MadeByAdmin] from cluster [{CLUSTER_NAME}] success.",
        "delete topic [MadeByAdmin] from NameServer success.",
    ]
    assert cluster.route("MadeByAdmin") is None


def test_messages_by_key_and_id(cluster: Cluster, admin: JavaAdmin, used_topic: str, golden: dict[str, str]) -> None:
    here = ("-n", cluster.namesrv_address)
    [[message_id, queue, offset]] = rows(admin.run("queryMsgByKey", "-t", used_topic, "-k", "admin-5", *here))
    assert (queue, offset) == ("1", "2")
    by_unique_id = admin.run("queryMsgByUniqueKey", "-t", used_topic, "-i", message_id, *here)
    assert keys_of(by_unique_id) == keys_of(golden["queryMsgByUniqueKey"]), by_unique_id
    for line in (r"Topic: +" + used_topic, r"Tags: +\[b\]", r"Keys: +\[admin-5\]", r"Queue Offset: +2"):
        assert re.search(line, by_unique_id), f"no {line} in:\n{by_unique_id}"
    by_offset = admin.run("queryMsgByOffset", "-t", used_topic, "-b", BROKER_NAME, "-i", "1", "-o", "2", *here)
    [offset_id] = re.findall(r"OffsetID: +(\w+)", by_offset)
    by_offset_id = admin.run("queryMsgById", "-i", offset_id, *here)
    assert keys_of(by_offset_id) == keys_of(golden["queryMsgById"])
    assert re.search(r"Keys: +\[admin-5\]", by_offset_id)


def test_broker_status_has_the_same_keys(
    cluster: Cluster, admin: JavaAdmin, used_topic: str, golden: dict[str, str], target: str
) -> None:
    def names(output: str) -> set[str]:
        found = {re.sub(r"_/.*", "_DIR", line.split(":")[0].strip()) for line in output.splitlines() if ":" in line}
        return {name for name in found if not name.startswith("scheduleMessageOffset_")}

    output = admin.run("brokerStatus", "-b", cluster.broker_address, "-n", cluster.namesrv_address)
    own = {"eventLoopLagMax", "syncTimes", "syncLatency99", "syncLatencyMax", "product", "productVersion"}
    expected = names(golden["brokerStatus_b"])
    assert names(output) == (expected | own if target == "triomq" else expected)
    assert re.search(r"brokerVersionDesc +: V4_9_7", output)


def test_broker_config_has_the_same_keys(cluster: Cluster, admin: JavaAdmin, golden: dict[str, str]) -> None:
    def names(output: str) -> set[str]:
        return {line.partition("=")[0].strip() for line in output.splitlines() if " =  " in line}

    output = admin.run("getBrokerConfig", "-b", cluster.broker_address, "-n", cluster.namesrv_address)
    assert names(golden["getBrokerConfig_b"]) <= names(output)


def test_cluster_list_as_the_tool_is_shipped(cluster: Cluster, peer: Path) -> None:
    done = subprocess.run(
        [str(peer), "admin", "clusterList", "-n", cluster.namesrv_address], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0
    [[name, broker, broker_id, address, version, *figures]] = rows(done.stdout)
    assert (name, broker, broker_id, address) == (CLUSTER_NAME, BROKER_NAME, "0", cluster.broker_address)
    assert version == "V4_9_7"
    assert re.fullmatch(r"[\d.]+\(0,0ms\) [\d.]+\(0,0ms\) \d+ [\d.]+ [\d.]+", " ".join(figures))
