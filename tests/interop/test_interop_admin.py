"""Run Java's mqadmin and ours on a broker in the same state: the output is the same except for times."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from interop_cluster import BROKER_NAME, CLUSTER_NAME, Cluster
from interop_drivers import Driver
from interop_mqadmin import JavaAdmin
from test_interop_mqadmin_commands import Shop

PROJECT = Path(__file__).resolve().parents[2]

# Commands that change nothing, so both see the same state. {t} topic, {g} group, {b} broker, {i} an id, {u} a unique
# key, {c} the consumer's client id, {d} a directory.
READING = (
    "topicList",
    "topicList -c",
    "topicRoute -t {t}",
    "topicRoute -t {t} -l",
    "topicStatus -t {t}",
    "topicClusterList -t {t}",
    "clusterList -m",
    "getBrokerConfig -b {b}",
    "getBrokerConfig -c {cluster}",
    "getNamesrvConfig",
    "getConsumerConfig -g {g}",
    "consumerProgress",
    "consumerProgress -g {g}",
    "consumerProgress -g {g} -s true",
    "brokerConsumeStats -b {b}",
    "consumerConnection -g {g}",
    "producerConnection -g {t}_producers -t {t}",
    "consumerStatus -g {g} -i {c}",
    "queryMsgById -i {i}",
    "queryMsgByUniqueKey -t {t} -i {u}",
    "queryMsgByKey -t {t} -k shop-3",
    "queryMsgByOffset -t {t} -b {name} -i 1 -o 2",
    "queryCq -t {t} -q 0 -i 0 -c 3 -b {b} -g {g}",
    "printMsg -t {t}",
    "printMsg -t {t} -s a -d false",
    "printMsgByQueue -t {t} -a {name} -i 0 -p true -d true -f true",
    "consumeMessage -t {t}",  # Java can run it only once per process
    "allocateMQ -t {t} -i 10.0.0.1,10.0.0.2,10.0.0.3",
    "updateOrderConf -t {t} -m put -v {name}:2",
    "updateOrderConf -t {t} -m get",
    "updateOrderConf -t {t} -m delete",
    "updateTopic -t {t} -r 2 -w 2 -b {b}",
    "updateTopic -t {t} -r 2 -w 2 -c {cluster}",
    "updateSubGroup -g {g} -b {b}",
    "updateKvConfig -s both -k k -v v",
    "deleteKvConfig -s both -k k",
    "addWritePerm -b {name}",
    "cleanExpiredCQ -b {b}",
    "cleanUnusedTopic -c {cluster}",
    "deleteExpiredCommitLog -b {b}",
    "cloneGroupOffset -s {g} -d {g}_copy -t {t}",
    "exportConfigs -c {cluster} -f {d}",
    "exportMetadata -b {b} -t -f {d}",
    "exportMetadata -c {cluster} -f {d}",
    "exportMetrics -c {cluster} -f {d}",
)
VARYING = (
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,\d{3})?", "<TIME>"),
    (r"(lastPull|lastConsume|lastLock)Timestamp=\d+", r"\1Timestamp=<TIME>"),
    (r"(?m)^(.* +)\d+\.\d\d +\d+\.\d\d +\d+\.\d\d +\d+\.\d\d +\d+\.\d\d( +\d+)$", r"\1<RATES>\2"),
    (r"Consume TPS: \d+\.\d\d", "Consume TPS: <N>"),
    (r"(PUSH +CLUSTERING +)\d+", r"\1<N>"),
)


@pytest.fixture(scope="module")
def admin(peer: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaAdmin]:
    """A separate process, because some of Java's commands work only once per process."""
    tool = JavaAdmin(peer, tmp_path_factory.mktemp("both-mqadmin"))
    yield tool
    tool.close()


@pytest.fixture(scope="module")
def shop(cluster: Cluster, admin: JavaAdmin, java4: Driver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    open_shop = Shop(cluster, admin, java4, tmp_path_factory.mktemp("both"))
    yield open_shop
    open_shop.end()


@pytest.fixture(scope="module")
def names(shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    listed = ours(shop, "consumerConnection", "-g", shop.group).stdout.splitlines()
    by_offset = ours(shop, "queryMsgByOffset", "-t", shop.topic, "-b", BROKER_NAME, "-i", "0", "-o", "0").stdout
    [offset_id] = re.findall(r"OffsetID: +(\w+)", by_offset)
    return {
        "t": shop.topic, "g": shop.group, "b": shop.cluster.broker_address, "name": BROKER_NAME,
        "cluster": CLUSTER_NAME, "i": offset_id, "u": shop.sent[0]["msg_id"], "c": listed[1].split()[0],
        "d": str(tmp_path_factory.mktemp("export")),
    }  # fmt: skip


def ours(shop: Shop, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key not in ("NAMESRV_ADDR", "ROCKETMQ_HOME")}
    return subprocess.run(
        [sys.executable, "-P", "-m", "triomq.admin", *words, "-n", shop.cluster.namesrv_address],
        env={**environment, "PYTHONPATH": str(PROJECT / "src")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def masked(text: str) -> str:
    for pattern, name in VARYING:
        text = re.sub(pattern, name, text)
    return text.rstrip("\n")


@pytest.mark.parametrize("line", READING)
def test_both_print_the_same(shop: Shop, names: dict[str, str], line: str) -> None:
    words = line.format(**names).split()
    mine = ours(shop, *words)
    assert mine.stderr == ""
    assert mine.returncode == 0
    assert masked(mine.stdout) == masked(shop.run(*words))
