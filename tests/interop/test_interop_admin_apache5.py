"""Java's mqadmin 4.9.7 and ours on a broker of RocketMQ 5.3.3 print the same, and the verbs of our own work there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from apache5_peer import jars
from interop_cluster import BROKER_NAME, CLUSTER_NAME, Cluster, running_cluster
from interop_mqadmin import JavaAdmin
from test_interop_admin import assert_same, ours_at

LINES = (
    "topicList",
    "topicRoute -t Fifth",
    "topicStatus -t Fifth",
    "topicClusterList -t Fifth",
    "clusterList -m",
    "getBrokerConfig -b {b}",
    "getNamesrvConfig",
    "getConsumerConfig -g fifth_group",
    "consumerProgress -g fifth_group",
    "queryMsgById -i {i}",
    "queryMsgByUniqueKey -t Fifth -i {u}",
    "queryMsgByKey -t Fifth -k key",
    "queryMsgByOffset -t Fifth -b {name} -i 0 -o 0",
    "printMsg -t Fifth",
    "updateTopic -t Fifth -r 1 -w 1 -c {cluster}",
    "updateSubGroup -g fifth_group -b {b}",
    "updateTopicPerm -t Fifth -p 6 -b {b}",
    "updateOrderConf -t Fifth -m put -v {name}:1",
    "updateOrderConf -t Fifth -m get",
    "updateKvConfig -s both -k k -v v",
    "deleteKvConfig -s both -k k",
    "wipeWritePerm -b {name}",
    "addWritePerm -b {name}",
    "cleanExpiredCQ -b {b}",
    "exportMetadata -c {cluster} -f {d}",
    "resetOffsetByTime -g fifth_group -t Fifth -s 0",
)


@pytest.fixture(scope="module")
def fifth(peer: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = {"autoCreateTopicEnable": "false"}
    with running_cluster("apache5", tmp_path_factory.mktemp("fifth"), settings=settings) as running:
        for words in (
            ["updateTopic", "-t", "Fifth", "-r", "1", "-w", "1", "-c", CLUSTER_NAME],
            ["updateTopic", "-t", "%RETRY%fifth_group", "-r", "1", "-w", "1", "-c", CLUSTER_NAME],
            ["updateSubGroup", "-g", "fifth_group", "-c", CLUSTER_NAME],
        ):
            done = ours_at(running, *words)
            assert (done.returncode, done.stderr) == (0, "")
        yield running


def test_both_tools_print_the_same_on_a_broker_of_version_5(
    fifth: Cluster, separate_admin: JavaAdmin, tmp_path: Path
) -> None:
    done = ours_at(fifth, "sendMessage", "-t", "Fifth", "-p", "hello", "-k", "key", "--output", "json")
    [sent] = json.loads(done.stdout)
    line = {"group": "fifth_group", "topic": "Fifth", "brokerName": BROKER_NAME, "queueId": 0, "offset": 1}
    (tmp_path / "offsets").write_text(json.dumps(line))
    assert ours_at(fifth, "offsets", "import", str(tmp_path / "offsets"), "--yes").returncode == 0
    by_offset = ours_at(fifth, "queryMsgByOffset", "-t", "Fifth", "-b", BROKER_NAME, "-i", "0", "-o", "0").stdout
    [offset_id] = re.findall(r"OffsetID: +(\w+)", by_offset)
    names = {
        "b": fifth.broker_address,
        "name": BROKER_NAME,
        "cluster": CLUSTER_NAME,
        "i": offset_id,
        "u": sent["msgId"],
        "d": str(tmp_path),
    }
    differences = []
    for text in LINES:
        words = text.format(**names).split()
        mine = ours_at(fifth, *words)
        theirs = separate_admin.run(*words, "-n", fifth.namesrv_address)
        try:
            assert_same(text, mine, theirs)
        except AssertionError as error:
            differences.append(f"{text}: {mine.returncode} {mine.stderr}{error}")
    assert not differences, "\n".join(differences)


def test_our_verbs_work_on_a_broker_of_version_5(fifth: Cluster, tmp_path: Path) -> None:
    for words in (
        "health",
        "lag",
        "send Fifth again",
        "tail Fifth",
        "offsets reset fifth_group Fifth --to first --yes",
        "offsets show fifth_group",
        "top --once -i 0.1",
        "config get brokerName",
        "bench latency --count 5",
        f"backup {tmp_path}/m --messages Fifth",
        f"backup {tmp_path}/b",
        f"restore {tmp_path}/b --yes --dry-run",
        "message {msgId}",
    ):
        if "{msgId}" in words:
            [sent, *_] = json.loads(ours_at(fifth, "tail", "Fifth", "--output", "json").stdout)
            words = words.format(**sent)
        done = ours_at(fifth, *words.split())
        assert (done.returncode, done.stderr) == (0, ""), words


OF_VERSION_5 = (
    ("topicStatus -t Sold", r"broker-a +0 +0 +3 "),
    ("topicRoute -t Sold", r"writeQueueNums"),
    ("topicList", r"Sold"),
    ("clusterList", r"broker-a"),
    ("consumerProgress -g sellers", r"Sold +broker-a +0 +3 +2 +1 +0 "),
    ("consumerProgress", r"sellers +0 .* 1\b"),
    ("getConsumerConfig -g sellers", r"groupName *= *sellers"),
    ("brokerConsumeStats -b {b}", r"Sold +sellers"),
    ("statsAll -t Sold", r"Sold +sellers"),
    ("getBrokerConfig -b {b}", r"brokerName *= *broker-a"),
    ("queryMsgByKey -t Sold -k key", r"[0-9A-F]{{32}}"),
    ("queryMsgByOffset -t Sold -b broker-a -i 0 -o 0", r"OffsetID"),
    ("updateTopic -t Made -r 2 -w 2 -b {b}", r"create topic to .* success"),
    ("updateTopicPerm -t Made -p 4 -b {b}", r"update topic perm from 6 to 4"),
    ("updateSubGroup -g makers -b {b}", r"create subscription group to .* success"),
    ("resetOffsetByTime -g sellers -t Sold -s 0", r"broker-a +0 +3 +2 +0 +0"),
    ("deleteTopic -t Made -c {cluster}", r"delete topic \[Made\] from cluster .* success"),
    ("deleteSubGroup -g makers -b {b}", r"delete subscription group \[makers\] from broker .* success"),
)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster("triomq", tmp_path_factory.mktemp("ours")) as running:
        for words in (
            ["updateTopic", "-t", "Sold", "-r", "1", "-w", "1", "-c", CLUSTER_NAME],
            ["updateTopic", "-t", "%RETRY%sellers", "-r", "1", "-w", "1", "-c", CLUSTER_NAME],
            ["updateSubGroup", "-g", "sellers", "-c", CLUSTER_NAME],
            *(["sendMessage", "-t", "Sold", "-p", f"{number}", "-k", "key"] for number in range(3)),
        ):
            assert ours_at(running, *words).returncode == 0
        yield running


@pytest.fixture(scope="module")
def admin_of_version_5(peer: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaAdmin]:
    admin = JavaAdmin(peer, tmp_path_factory.mktemp("mqadmin5"), class_path=f"{jars()}/*")
    yield admin
    admin.close()


def test_mqadmin_of_version_5_works_on_a_broker_of_ours(
    ours: Cluster, admin_of_version_5: JavaAdmin, tmp_path: Path
) -> None:
    line = {"group": "sellers", "topic": "Sold", "brokerName": BROKER_NAME, "queueId": 0, "offset": 2}
    (tmp_path / "offsets").write_text(json.dumps(line))
    assert ours_at(ours, "offsets", "import", str(tmp_path / "offsets"), "--yes").returncode == 0
    failures = []
    for text, expected in OF_VERSION_5:
        words = text.format(b=ours.broker_address, cluster=CLUSTER_NAME).split()
        printed = admin_of_version_5.run(*words, "-n", ours.namesrv_address)
        if "Exception" in printed or re.search(expected.replace("{{", "{").replace("}}", "}"), printed) is None:
            failures.append(f"{text}: {printed}")
    assert not failures, "\n".join(failures)
