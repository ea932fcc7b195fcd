"""The commands of the real Java mqadmin that no scenario needs: each runs once, and its output must be that for
Apache's broker. Together with the other files this covers every command; the last test checks that.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from interop_cluster import BROKER_NAME, CLUSTER_NAME, Cluster
from interop_drivers import Driver, Running
from interop_mqadmin import JavaAdmin
from interop_processes import wait_until
from interop_texts import numbered

HERE = Path(__file__).resolve().parent
QUEUES = 2
MESSAGES = 10


class Shop:
    """A topic of two queues with five and six messages; a producer and a consumer group that keep running."""

    def __init__(self, cluster: Cluster, admin: JavaAdmin, java: Driver, directory: Path) -> None:
        self.cluster = cluster
        self.admin = admin
        self.broker = ("-b", cluster.broker_address)
        self.topic = cluster.create_topic("Commands", queues=QUEUES)
        self.group = f"{self.topic}_group"
        self.producers = f"{self.topic}_producers"
        cluster.create_topic(f"%RETRY%{self.group}", queues=1, numbered=False)
        common = {"namesrv": cluster.namesrv_address, "topic": self.topic}
        self.consumer = java.receive(**common, group=self.group, tags="a || b")
        file = numbered(directory, MESSAGES)
        self.sent = java.run("send-lines", **common, file=file, order_by_queue=QUEUES, tags="a,b", keys="shop")[:-1]
        self.consumer.wait_messages(MESSAGES)
        self.producer: Running = java.begin(
            "send-lines",
            **common,
            group=self.producers,
            file=numbered(directory, 1),
            order_by_queue=1,
            tags="a",
            pause_ms=600_000,
        )
        self.consumer.wait_messages(MESSAGES + 1)

    def run(self, *words: str) -> str:
        return self.admin.run(*words, "-n", self.cluster.namesrv_address)

    def end(self) -> None:
        self.producer.stop()
        self.consumer.stop()


@pytest.fixture(scope="module")
def shop(cluster: Cluster, admin: JavaAdmin, java4: Driver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    shop = Shop(cluster, admin, java4, tmp_path_factory.mktemp("shop"))
    yield shop
    shop.end()


def rows(output: str) -> list[list[str]]:
    """Return the table's cells, without the heading."""
    return [line.split() for line in output.splitlines() if line and not line.startswith("#")]


def test_where_a_topic_is(shop: Shop) -> None:
    assert shop.run("topicClusterList", "-t", shop.topic) == CLUSTER_NAME
    allocated = json.loads(shop.run("allocateMQ", "-t", shop.topic, "-i", "10.0.0.1,10.0.0.2"))
    assert allocated["result"].keys() == {"10.0.0.1", "10.0.0.2"}
    assert sorted(queue["queueId"] for [queue] in allocated["result"].values()) == [0, 1]


def test_the_clients_of_a_broker(shop: Shop) -> None:
    words = ("-g", shop.producers, "-t", shop.topic)
    wait_until(lambda: "JAVA" in shop.run("producerConnection", *words), 20, "the producer's first heartbeat")
    [row] = rows(shop.run("producerConnection", *words))
    assert row[0] == "0001"
    assert row[3:] == ["JAVA", "V4_9_7"]
    every = shop.run("producer", *shop.broker)
    assert re.search(rf"producer group \({shop.producers}\) instance : clientId=\S+,remoteIP=/127\.0\.0\.1:\d+", every)
    assert "CODE: 1 " in shop.run("producerConnection", "-g", "Nobody", "-t", shop.topic)


def test_the_progress_of_all_groups_of_a_broker(shop: Shop) -> None:
    def is_stored() -> bool:
        progress = rows(shop.run("consumerProgress", "-g", shop.group))
        stored = [row for row in progress if row[0] == shop.topic]
        return len(stored) == QUEUES and all(row[3] == row[4] for row in stored)

    wait_until(is_stored, 20, "the offsets of both queues are stored")
    output = shop.run("brokerConsumeStats", *shop.broker)  # works only once per process: it closes what it keeps
    found = [row for row in rows(output) if row[0] == shop.topic]
    assert [row[1:4] for row in found] == [[shop.group, BROKER_NAME, str(queue)] for queue in range(QUEUES)]
    assert [row[4:7] for row in found] == [["6", "6", "0"], ["5", "5", "0"]]
    assert re.search(r"^Diff Total: \d+$", output, re.MULTILINE)


def test_the_configuration_of_a_group(shop: Shop) -> None:
    output = shop.run("getConsumerConfig", "-g", shop.group)
    assert f"{CLUSTER_NAME}:{BROKER_NAME}" in output
    pairs = dict(re.findall(r"^(\w+) +=  (\S+)$", output, re.MULTILINE))
    assert pairs == {
        "groupName": shop.group,
        "consumeEnable": "true",
        "consumeFromMinEnable": "true",
        "consumeBroadcastEnable": "true",
        "retryQueueNums": "1",
        "retryMaxTimes": "16",
        "brokerId": "0",
        "whichBrokerWhenConsumeSlowly": "1",
        "notifyConsumerIdsChangedEnable": "true",
    }


def test_the_entries_of_a_queue(shop: Shop) -> None:
    output = shop.run("queryCq", "-t", shop.topic, "-q", "1", "-i", "1", "-c", "3", *shop.broker, "-g", shop.group)
    assert '"subString":"a || b"' in output
    assert "max: 5, min: 0" in output
    assert re.findall(r"^idx: (\d)$", output, re.MULTILINE) == ["1", "2", "3"]
    entry = r"ConsumeQueueData\{physicOffset=\d+, physicSize=\d+, tagsCode=98, extendDataJson='null', bitMap='null'"
    assert len(re.findall(entry, output)) == 3


def test_messages_are_printed(shop: Shop) -> None:
    ids = [event["msg_id"] for event in shop.sent]
    printed = shop.run("printMsg", "-t", shop.topic, "-s", "b")
    assert re.findall(r"^MSGID: (\S+)", printed, re.MULTILINE) == ids[1::2]
    assert (
        f"minOffset=0, maxOffset=5, MessageQueue [topic={shop.topic}, brokerName={BROKER_NAME}, queueId=1]" in printed
    )
    queue = ("-t", shop.topic, "-i", "1")
    printed = shop.run("printMsgByQueue", *queue, "-a", BROKER_NAME, "-p", "true", "-d", "true", "-f", "true")
    assert re.findall(r"^MSGID: (\S+) MessageExt .* BODY: message \d", printed, re.MULTILINE) == ids[1::2]
    assert re.search(r"^Tag: b +Count: 5", printed, re.MULTILINE)
    consumed = shop.run("consumeMessage", *queue, "-b", BROKER_NAME, "-o", "1", "-c", "2", "-g", "by_the_tool")
    assert "Consume ok" in consumed
    assert re.findall(r"^MSGID: (\S+)", consumed, re.MULTILINE) == ids[3:7:2]


def test_messages_are_sent(shop: Shop) -> None:
    aside = shop.cluster.create_topic("SentByTool", queues=1)
    trace = ""
    sends = 0

    def is_traced() -> bool:
        """Return whether a send of its own is traced. The tool ends without waiting for its traces
        (AsyncTraceDispatcher.shutdown).
        """
        nonlocal trace, sends
        printed = shop.run("sendMessage", "-t", aside, "-p", "by hand", "-k", "byHand", "-m", "true")
        sends += 1
        # A trace that the tool's end interrupts leaves a stack trace on standard error, before or after the row. If the
        # shutdown itself fails, the tool has sent, but prints no row.
        found = [row for row in rows(printed) if row[:3] == [BROKER_NAME, "0", "SEND_OK"]]
        if not found:
            assert "RejectedExecutionException" in printed, printed
            return False
        trace = shop.run("queryMsgTraceById", "-i", found[0][3])
        return "success" in trace

    wait_until(is_traced, 60, "a send has left a trace")
    assert re.search(r"^Pub +\S+ +127\.0\.0\.1 .*\d+ms +success", trace, re.MULTILINE)
    by_offset = shop.run("queryMsgByOffset", "-t", aside, "-b", BROKER_NAME, "-i", "0", "-o", "0")
    [offset_id] = re.findall(r"OffsetID: +(\w+)", by_offset)
    again = shop.run("queryMsgById", "-i", offset_id, "-s", "true")
    assert re.search(rf"originalMsgId={offset_id}SendResult \[sendStatus=SEND_OK, .* queueOffset={sends}\]", again)
    sent = shop.run("sendMsgStatus", "-b", BROKER_NAME, "-s", "16", "-c", "3")
    offsets = [int(offset) for offset in re.findall(r"sendStatus=SEND_OK, .* queueOffset=(\d+)\]", sent)]
    first = offsets[0]  # other tests send to the broker's own topic, too
    assert offsets == [first, first + 1, first + 2]
    timed = rows(shop.run("checkMsgSendRT", "-t", aside, "-a", "3", "-s", "16"))
    assert [row[:3] for row in timed[:3]] == [[BROKER_NAME, "0", "true"]] * 3
    assert timed[3][:2] == ["Avg", "RT:"]


def test_rates(shop: Shop) -> None:
    output = shop.run("statsAll", "-t", shop.topic)
    [row] = [row for row in rows(output) if row[0] == shop.topic]
    assert row[1] == shop.group
    assert len(row) == 7
    assert re.search(r"^BenchmarkTest .* NO_CONSUMER$", shop.run("statsAll"), re.MULTILINE)


def test_permissions_of_a_topic(shop: Shop) -> None:
    topic = shop.cluster.create_topic("Permissions", queues=3)
    changed = shop.run("updateTopicPerm", "-t", topic, "-p", "4", *shop.broker)
    assert changed.splitlines() == [
        f"update topic perm from 6 to 4 in {shop.cluster.broker_address} success.",
        f"TopicConfig [topicName={topic}, readQueueNums=3, writeQueueNums=3, perm=R--, topicFilterType=SINGLE_TAG, "
        "topicSysFlag=0, order=false].",
    ]
    wait_until(lambda: shop.cluster.route(topic)["queueDatas"][0]["perm"] == 4, 10, "the NameServer knows")
    changed = shop.run("updateTopicPerm", "-t", topic, "-p", "6", "-c", CLUSTER_NAME)
    assert changed == f"update topic perm from 4 to 6 in {shop.cluster.broker_address} success."


def test_groups_are_removed_with_their_topics(shop: Shop) -> None:
    for group in ("removed_one", "removed_two"):
        shop.run("updateSubGroup", "-g", group, *shop.broker)
    where = f"broker [{shop.cluster.broker_address}]"
    deleted = shop.run("deleteSubGroup", "-g", "removed_one", "-r", "true", *shop.broker)
    assert deleted == f"delete subscription group [removed_one] from {where} success."
    deleted = shop.run("deleteSubGroup", "-g", "removed_two", "-c", CLUSTER_NAME)
    assert deleted.splitlines() == [
        f"delete subscription group [removed_two] from {where} in cluster [{CLUSTER_NAME}] success.",
        f"delete topic [%RETRY%removed_two] from cluster [{CLUSTER_NAME}] success.",
        "delete topic [%RETRY%removed_two] from NameServer success.",
        f"delete topic [%DLQ%removed_two] from cluster [{CLUSTER_NAME}] success.",
        "delete topic [%DLQ%removed_two] from NameServer success.",
    ]
    assert "removed_" not in shop.run("getConsumerConfig", "-g", "removed_one")


def test_what_is_left_is_skipped(shop: Shop) -> None:
    """The group is online: the response has the ends of its queues, and the members are notified."""
    skipped = rows(shop.run("skipAccumulatedMessage", "-g", shop.group, "-t", shop.topic))
    ends = {row[1]: row[3] for row in rows(shop.run("topicStatus", "-t", shop.topic))}
    assert {queue: offset for _, queue, offset in skipped} == ends
    assert {broker for broker, *_ in skipped} == {BROKER_NAME}


def test_the_name_server_s_keys(shop: Shop) -> None:
    here = shop.cluster.namesrv_address
    key = ("-s", "MINE", "-k", "k")
    assert shop.run("updateKvConfig", *key, "-v", "v") == "create or update kv config to namespace success."
    assert shop.run("deleteKvConfig", *key) == "delete kv config from namespace success."
    topic = ("-t", shop.topic)
    put = shop.run("updateOrderConf", *topic, "-v", f"{BROKER_NAME}:2", "-m", "put")
    assert put == f"update orderConf success. topic=[{shop.topic}], orderConf=[{BROKER_NAME}:2]"
    assert shop.run("updateOrderConf", *topic, "-m", "get").startswith("get orderConf success.")
    assert shop.run("updateOrderConf", *topic, "-m", "delete") == f"delete orderConf success. topic=[{shop.topic}]"
    assert "orderConf=[" not in shop.run("updateOrderConf", *topic, "-m", "get")
    listed = shop.run("getNamesrvConfig")
    assert f"============{here}============" in listed
    assert re.search(r"^serverWorkerThreads +=  8$", listed, re.MULTILINE)


def test_a_broker_is_closed_to_writers_and_opened_again(shop: Shop) -> None:
    here = shop.cluster.namesrv_address
    wiped = shop.run("wipeWritePerm", "-b", BROKER_NAME)
    try:
        assert re.fullmatch(rf"wipe write perm of broker\[{BROKER_NAME}\] in name server\[{here}\] OK, \d+", wiped)
        assert shop.cluster.route(shop.topic)["queueDatas"][0]["perm"] == 4
    finally:
        added = shop.run("addWritePerm", "-b", BROKER_NAME)
    assert re.fullmatch(rf"add write perm of broker\[{BROKER_NAME}\] in name server\[{here}\] OK, \d+", added)
    assert shop.cluster.route(shop.topic)["queueDatas"][0]["perm"] == 6


def test_cleaning(shop: Shop) -> None:
    assert shop.run("cleanExpiredCQ", *shop.broker) == "success"
    assert shop.run("cleanUnusedTopic", *shop.broker) == "success"
    assert shop.run("deleteExpiredCommitLog", *shop.broker) == "success"


def test_configuration_is_written_only_where_that_is_allowed(shop: Shop, target: str) -> None:
    """TrioMQ's daemons require access control or a setting that permits it, and say so."""
    broker = shop.run("updateBrokerConfig", *shop.broker, "-k", "flushDelayOffsetInterval", "-v", "9999")
    namesrv = shop.run("updateNamesrvConfig", "-k", "clientWorkerThreads", "-v", "5")
    if target == "apache":
        assert broker == f"update broker config success, {shop.cluster.broker_address}"
        there = shop.cluster.namesrv_address
        assert namesrv.splitlines() == [f"update name server config success![{there}]", "clientWorkerThreads : 5"]
        return
    for said in (broker, namesrv):
        assert "CODE: 16 " in said  # NO_PERMISSION
        assert "configUpdateWithoutAcl=true" in said


def test_exports(shop: Shop, tmp_path: Path) -> None:
    there = ("-c", CLUSTER_NAME, "-f", str(tmp_path))
    assert shop.run("exportMetadata", *there) == f"export {tmp_path}/metadata.json success"
    metadata = json.loads((tmp_path / "metadata.json").read_text())
    assert metadata["topicConfigTable"][shop.topic]["writeQueueNums"] == QUEUES
    assert metadata["subscriptionGroupTable"][shop.group]["retryMaxTimes"] == 16
    assert shop.run("exportConfigs", *there) == f"export {tmp_path}/configs.json success"
    configs = json.loads((tmp_path / "configs.json").read_text())
    assert configs["clusterScale"] == {"namesrvSize": 1, "masterBrokerSize": 1, "slaveBrokerSize": 0}
    assert configs["brokerConfigs"][BROKER_NAME]["brokerClusterName"] == CLUSTER_NAME
    assert shop.run("exportMetrics", *there) == f"export {tmp_path}/metrics.json success"
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert metrics["evaluateReport"][BROKER_NAME]["runtimeVersion"]["rocketmqVersion"] == "V4_9_7"
    assert "JAVA%V4_9_7" in metrics["evaluateReport"][BROKER_NAME]["runtimeVersion"]["clientInfo"]


def test_round_trips_are_measured_again_and_again(shop: Shop) -> None:
    words = ("-c", CLUSTER_NAME, "-a", "2", "-s", "16", "-i", "1", "-n", shop.cluster.namesrv_address)
    row = rf"^{CLUSTER_NAME} +{BROKER_NAME} +[\d.]+ +2 +0"
    output = shop.admin.run_until(row, "clusterRT", *words)
    assert "#successCount" in output


def test_the_monitor_joins(shop: Shop) -> None:
    """It watches groups by itself and consumes OFFSET_MOVED_EVENT in its own group."""
    shop.run("startMonitoring")
    wait_until(
        lambda: "OFFSET_MOVED_EVENT" in shop.run("consumerConnection", "-g", "__MONITOR_CONSUMER", *shop.broker),
        30,
        "the monitor listens",
    )


def commands_run() -> set[object]:
    """Return the words that the tests here pass to mqadmin."""
    found = set()
    for path in HERE.glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.startswith("run"):
                found.update(word.value for word in node.args if isinstance(word, ast.Constant))
    return found


def test_every_command_is_run(admin: JavaAdmin) -> None:
    """Compare the tool's own list with the words in these files."""
    listed = set(re.findall(r"^   (\w+) ", admin.run(), re.MULTILINE))
    assert {"updateTopic", "exportMetrics", "getAclConfig"} <= listed
    assert listed - commands_run() == set()
