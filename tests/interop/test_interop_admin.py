"""Run Java's mqadmin and ours on a broker in the same state: the output is the same except for times."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from interop_cluster import BROKER_NAME, CLUSTER_NAME, Cluster, running_cluster
from interop_drivers import Driver
from interop_mqadmin import JavaAdmin
from interop_processes import wait_until
from test_interop_mqadmin_commands import Shop

from triomq.admin.command import overview

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
    "wipeWritePerm -b {name}",
    "addWritePerm -b {name}",
    "cleanExpiredCQ -b {b}",
    "cleanUnusedTopic -c {cluster}",
    "deleteExpiredCommitLog -b {b}",
    "cloneGroupOffset -s {g} -d {g}_copy -t {t}",
    "exportConfigs -c {cluster} -f {d}",
    "exportMetadata -b {b} -t -f {d}",
    "exportMetadata -c {cluster} -f {d}",
    "exportMetrics -c {cluster} -f {d}",
    "brokerStatus -b {b}",
    "producer -b {b}",
    "statsAll -t {t}",
    "sendMessage -t {aside} -p hello -k key",
    "sendMsgStatus -b {name} -s 16 -c 2",
    "checkMsgSendRT -t {aside} -a 2 -s 16",
    "queryMsgTraceById -i {traced}",
    "skipAccumulatedMessage -g {g} -t {t}",
)
# Commands that change what is there, each behind one that puts it back: that one runs before either tool.
CHANGING = (
    ("updateTopicPerm -t {aside} -p 6 -b {b}", "updateTopicPerm -t {aside} -p 4 -b {b}"),
    ("updateTopicPerm -t {aside} -p 4 -b {b}", "updateTopicPerm -t {aside} -p 6 -b {b}"),
    ("updateTopic -t {t}_gone -r 1 -w 1 -c {cluster}", "deleteTopic -t {t}_gone -c {cluster}"),
    ("updateSubGroup -g {g}_gone -b {b}", "deleteSubGroup -g {g}_gone -b {b}"),
    ("updateSubGroup -g {g}_gone -b {b}", "deleteSubGroup -g {g}_gone -c {cluster} -r true"),
    ("cloneGroupOffset -s {g} -d {g}_moved -t {t}", "resetOffsetByTime -g {g}_moved -t {t} -s 0"),
    ("cloneGroupOffset -s {g} -d {g}_moved -t {t}", "skipAccumulatedMessage -g {g}_moved -t {t}"),
)
# The same where there is access control, which lets an administrator change settings. "" changes nothing before.
ACCOUNT = "updateAclConfig -c {cluster} -a shop-app -s shop-secret -i DENY -u SUB -t A=PUB,B=SUB -g C=SUB"
GUARDED = (
    ("", "clusterAclConfigVersion -c {cluster}"),
    ("", "clusterAclConfigVersion -b {b}"),
    ("", ACCOUNT),
    (ACCOUNT, "getAclConfig -c {cluster}"),
    (ACCOUNT, "getAclConfig -b {b}"),
    (ACCOUNT, "deleteAclConfig -b {b} -a shop-app"),
    (ACCOUNT, "deleteAclConfig -c {cluster} -a shop-app"),
    ("", "updateGlobalWhiteAddr -c {cluster} -g 127.0.0.1,10.0.0.1"),
    ("", "updateBrokerConfig -b {b} -k flushDelayOffsetInterval -v 9999"),
    ("", "updateBrokerConfig -c {cluster} -k flushDelayOffsetInterval -v 8888"),
    ("", "updateNamesrvConfig -k clientWorkerThreads -v 5"),
)
VARYING = (
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,\d{3})?", "<TIME>"),
    (r"(lastPull|lastConsume|lastLock)Timestamp=\d+", r"\1Timestamp=<TIME>"),
    (r"(?m)^(.* +)\d+\.\d\d +\d+\.\d\d +\d+\.\d\d +\d+\.\d\d +\d+\.\d\d( +\d+)$", r"\1<RATES>\2"),
    # What statsAll counts, brokers sample every ten seconds.
    (r"(?m)^(\S+ +\S+ +\d+ +)\d+\.\d\d +\d+\.\d\d +\d+ +\d+$", r"\1<RATES>"),
    (r"Consume TPS: \d+\.\d\d", "Consume TPS: <N>"),
    (r"(PUSH +CLUSTERING +)\d+", r"\1<N>"),
    # What is sent twice, and how long it takes.
    (r"\b[0-9A-F]{32,56}\b", "<ID>"),  # longer where the address in it is that of IPv6
    (r"queueOffset=\d+\]", "queueOffset=<N>]"),
    (r"rt=\d+ms", "rt=<N>ms"),
    (r"(?m)(true +)\d+$", r"\1<N>"),
    (r"Avg RT: \d+\.\d\d", "Avg RT: <N>"),
    (r"lastUpdateTimestamp=\d+", "lastUpdateTimestamp=<TIME>"),
    (r"PlainAccessConfig@[0-9a-f]+", "PlainAccessConfig@<OBJECT>"),
)
# Every value of this command may have changed a moment later.
VALUES = (r"(?m)^(\S+) +: .*$", r"\1")


@pytest.fixture(scope="module")
def shop(
    cluster: Cluster, separate_admin: JavaAdmin, java4: Driver, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shop]:
    open_shop = Shop(cluster, separate_admin, java4, tmp_path_factory.mktemp("both"))
    yield open_shop
    open_shop.end()


@pytest.fixture(scope="module")
def names(shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    progress = ("consumerProgress", "-g", shop.group)
    wait_until(lambda: "Diff Total: 0" in ours(shop, *progress).stdout, 30, "the group has stored that it read all")
    listed = ours(shop, "consumerConnection", "-g", shop.group).stdout.splitlines()
    by_offset = ours(shop, "queryMsgByOffset", "-t", shop.topic, "-b", BROKER_NAME, "-i", "0", "-o", "0").stdout
    [offset_id] = re.findall(r"OffsetID: +(\w+)", by_offset)
    aside = f"{shop.topic}_aside"
    ours(shop, "updateTopic", "-t", aside, "-r", "1", "-w", "1", "-c", CLUSTER_NAME)
    [sent] = json.loads(ours(shop, "sendMessage", "-t", aside, "-p", "x", "-m", "true", "--output", "json").stdout)
    return {
        "aside": aside,
        "traced": sent["msgId"],
        "t": shop.topic,
        "g": shop.group,
        "b": shop.cluster.broker_address,
        "name": BROKER_NAME,
        "cluster": CLUSTER_NAME,
        "i": offset_id,
        "u": shop.sent[0]["msg_id"],
        "c": listed[1].split()[0],
        "d": str(tmp_path_factory.mktemp("export")),
    }


def ours(shop: Shop, *words: str) -> subprocess.CompletedProcess[str]:
    return ours_at(shop.cluster, *words)


def ours_at(cluster: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key not in ("NAMESRV_ADDR", "ROCKETMQ_HOME")}
    return subprocess.run(
        [sys.executable, "-P", "-m", "triomq.admin", *words, "-n", cluster.namesrv_address],
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


def assert_same(line: str, mine: subprocess.CompletedProcess[str], theirs: str) -> None:
    assert mine.stderr == ""
    assert mine.returncode == 0
    if line.startswith("brokerStatus"):
        assert re.sub(*VALUES, mine.stdout).split() == re.sub(*VALUES, theirs).split()
    else:
        assert masked(mine.stdout).strip("\n") == masked(theirs)


@pytest.mark.parametrize("line", READING)
def test_both_print_the_same(shop: Shop, names: dict[str, str], line: str) -> None:
    words = line.format(**names).split()
    try:
        assert_same(line, ours(shop, *words), shop.run(*words))
    except AssertionError:  # rates that a client takes every ten seconds may have changed between the two commands
        assert_same(line, ours(shop, *words), shop.run(*words))


@pytest.mark.parametrize(("before", "line"), CHANGING)
def test_both_change_the_same_and_print_the_same(shop: Shop, names: dict[str, str], before: str, line: str) -> None:
    words = line.format(**names).split()
    assert ours(shop, *before.format(**names).split()).returncode == 0
    mine = ours(shop, *words)
    assert ours(shop, *before.format(**names).split()).returncode == 0
    assert_same(line, mine, shop.run(*words))


def test_both_measure_round_trips_again_and_again(shop: Shop, names: dict[str, str]) -> None:
    line = f"clusterRT -c {CLUSTER_NAME} -a 2 -s 16 -i 1 -n {shop.cluster.namesrv_address}"
    row = rf"^{CLUSTER_NAME} +{BROKER_NAME} +[\d.]+ +2 +0"
    theirs = shop.admin.run_until(row, *line.split()).splitlines()
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "triomq.admin", *line.split()],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(PROJECT / "src")},
    ) as process:
        assert process.stdout is not None
        mine = [process.stdout.readline().rstrip("\n") for _ in theirs]
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    rtt = (r"\d+\.\d\d", "<N>")
    assert [re.sub(*rtt, text).split() for text in mine] == [re.sub(*rtt, text).split() for text in theirs]


def test_both_monitor_groups_without_a_word_on_standard_output(
    shop: Shop, names: dict[str, str], tmp_path: Path
) -> None:
    """RocketMQ's monitor writes what it finds to its log, ours to standard error."""
    behind = f"{shop.group}_behind"
    for words in (
        f"updateTopic -t %RETRY%{behind} -r 1 -w 1 -c {CLUSTER_NAME}",
        f"cloneGroupOffset -s {shop.group} -d {behind} -t {shop.topic}",
        f"resetOffsetByTime -g {behind} -t {shop.topic} -s 0",
    ):
        assert ours(shop, *words.split()).returncode == 0
    line = f"startMonitoring -n {shop.cluster.namesrv_address}"
    found = tmp_path / "found"
    with (
        found.open("w") as stderr,
        subprocess.Popen(
            [sys.executable, "-P", "-m", "triomq.admin", *line.split()],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env={**os.environ, "PYTHONPATH": str(PROJECT / "src")},
        ) as process,
    ):
        try:
            wait_until(
                lambda: re.search(rf"group {behind}: \d+ messages behind", found.read_text()), 30, "the group is seen"
            )
        finally:
            process.send_signal(signal.SIGINT)
        mine, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert mine.strip("\n") == shop.admin.run(*line.split())


@pytest.fixture(scope="module")
def guarded(peer: Path, target: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with access control, which lets this machine do everything."""
    directory = tmp_path_factory.mktemp("guarded")
    jars = subprocess.run([str(peer), "fetch"], capture_output=True, text=True, check=True).stdout.strip()
    home = Path(shutil.copytree(Path(jars).parent / "home", directory / "home"))
    account = "- accessKey: operator\n  secretKey: operators-secret\n  admin: true\n"
    (home / "conf" / "plain_acl.yml").write_text(f"globalWhiteRemoteAddresses:\n- 127.0.0.1\naccounts:\n{account}")
    (home / "conf" / "plain_acl.yml").chmod(0o600)
    settings = {"aclEnable": "true"} | ({"rocketmqHome": str(home)} if target == "triomq" else {})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PEER_HOME", str(home))
        opened = {"configUpdateWithoutAcl": "true"}
        with running_cluster(target, directory / "cluster", settings=settings, namesrv_settings=opened) as running:
            yield running


@pytest.mark.parametrize(("before", "line"), GUARDED)
def test_both_print_the_same_where_there_is_access_control(
    guarded: Cluster, separate_admin: JavaAdmin, before: str, line: str
) -> None:
    names = {"b": guarded.broker_address, "cluster": CLUSTER_NAME}
    words = line.format(**names).split()
    done = []
    for run in (lambda: ours_at(guarded, *words), lambda: separate_admin.run(*words, "-n", guarded.namesrv_address)):
        if before:
            assert ours_at(guarded, *before.format(**names).split()).returncode == 0
        done.append(run())
    assert_same(line, *done)


def test_every_command_runs_side_by_side(separate_admin: JavaAdmin) -> None:
    """startMonitoring and clusterRT have tests of their own."""
    printed = separate_admin.run()
    # Java's tool lists its commands once more for each time that it runs in one process.
    assert [*dict.fromkeys(printed.splitlines())] == [*dict.fromkeys(overview().strip("\n").splitlines())]
    listed = set(re.findall(r"^   (\w+) ", printed, re.MULTILINE))
    compared = {line.split()[0] for line in (*READING, *[line for _, line in (*CHANGING, *GUARDED)])}
    assert listed - compared == {"clusterRT", "startMonitoring"}
