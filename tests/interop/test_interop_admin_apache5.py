"""Java's mqadmin 4.9.7 and ours on a broker of RocketMQ 5.3.3 print the same, and the verbs of our own work there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
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
