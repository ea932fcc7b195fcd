"""Dry runs, plans and the question before what destroys: every command against a cluster that records requests."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_cluster import MESSAGE_ID, FakeCluster, fake_cluster
from verb_calls import typed

from triomq.admin import execute
from triomq.admin.__main__ import main
from triomq.admin.changes import READING
from triomq.admin.commands import consumer_status, messages
from triomq.admin.execute import DESTROYING
from triomq.admin.table import ROWS

ROOT = Path(__file__).resolve().parents[2]

# What each command line needs beyond its required options, so that it changes what it can change.
MORE = {
    "updateTopic": ["-c", "C", "-o", "true"],
    "updateSubGroup": ["-c", "C"],
    "deleteSubGroup": ["-c", "C", "-r", "true"],
    "updateBrokerConfig": ["-c", "C"],
    "updateTopicPerm": ["-c", "C"],
    "brokerStatus": ["-c", "C"],
    "queryMsgById": ["-s", "true"],
    "updateOrderConf": ["-v", "b:2"],
    "cleanExpiredCQ": ["-c", "C"],
    "deleteExpiredCommitLog": ["-c", "C"],
    "cleanUnusedTopic": ["-c", "C"],
    "checkMsgSendRT": ["-a", "2"],
    "clusterRT": ["-a", "2"],
    "getBrokerConfig": ["-c", "C"],
    "consumeMessage": [],
    "updateAclConfig": ["-c", "C"],
    "deleteAclConfig": ["-c", "C"],
    "clusterAclConfigVersion": ["-c", "C"],
    "updateGlobalWhiteAddr": ["-c", "C"],
    "getAclConfig": ["-c", "C"],
    "exportMetadata": ["-c", "C"],
    "sendMsgStatus": ["-c", "2"],
}
VALUES = {
    "t": "T",
    "c": "C",
    "g": "G",
    "k": "key",
    "v": "value",
    "p": "6",
    "i": "0",
    "o": "0",
    "s": "now",
    "a": "acc",
    "q": "0",
    "d": "D",
    "m": "put",
}
SPECIAL = {
    "queryMsgById": {"i": MESSAGE_ID},
    "queryMsgByUniqueKey": {"i": MESSAGE_ID},
    "queryMsgTraceById": {"i": MESSAGE_ID},
    "queryMsgByKey": {"k": "k"},
    "cloneGroupOffset": {"s": "G"},
    "updateKvConfig": {"s": "space"},
    "deleteKvConfig": {"s": "space"},
    "updateAclConfig": {"s": "very-secret-1"},
    "updateGlobalWhiteAddr": {"g": "10.0.0.2"},
    "sendMsgStatus": {"b": "b"},
    "brokerConsumeStats": {"b": ""},
    "producer": {"b": ""},
    "allocateMQ": {"i": "10.0.0.1"},
    "queryMsgByOffset": {"b": "b"},
    "printMsgByQueue": {"a": "b"},
    "wipeWritePerm": {"b": "b"},
    "addWritePerm": {"b": "b"},
    "sendMessage": {"p": "body"},
}
CHANGING = {
    "updateTopic",
    "deleteTopic",
    "updateSubGroup",
    "deleteSubGroup",
    "updateBrokerConfig",
    "updateTopicPerm",
    "queryMsgById",
    "sendMsgStatus",
    "cloneGroupOffset",
    "updateKvConfig",
    "deleteKvConfig",
    "wipeWritePerm",
    "addWritePerm",
    "resetOffsetByTime",
    "skipAccumulatedMessage",
    "updateOrderConf",
    "cleanExpiredCQ",
    "deleteExpiredCommitLog",
    "cleanUnusedTopic",
    "checkMsgSendRT",
    "clusterRT",
    "updateNamesrvConfig",
    "sendMessage",
    "updateAclConfig",
    "deleteAclConfig",
    "updateGlobalWhiteAddr",
}
ENDLESS = {"clusterRT", "startMonitoring"}
EVERY = [row[0] for row in ROWS]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeCluster]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(messages, "BODY_DIRECTORY", str(tmp_path / "bodies"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with fake_cluster() as found:
        yield found


def words_of(name: str, cluster: FakeCluster) -> list[str]:
    """Return a command line that changes what the command can change."""
    row = next(row for row in ROWS if row[0] == name)
    words = [name, *MORE.get(name, [])]
    for letter, _, takes_value, is_required, _ in row[2:]:
        if is_required and f"-{letter}" not in words:
            value = SPECIAL.get(name, {}).get(letter, VALUES.get(letter, "")) or cluster.address
            words += [f"-{letter}", value] if takes_value else [f"-{letter}"]
    if name == "queryMsgById":
        words[words.index("-i") + 1] = cluster.offset_id
    if name == "updateTopicPerm":
        words[words.index("-p") + 1] = "4"
    if "f" in {option[0] for option in row[2:]} and name.startswith("export"):
        words += ["-f", "exported"]
    return [*words, "-n", cluster.address]


@pytest.mark.parametrize("name", EVERY)
def test_a_dry_run_sends_no_request_that_changes_and_writes_no_file(
    name: str, cluster: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words_of(name, cluster), "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert cluster.codes <= READING
    assert list(tmp_path.iterdir()) == []
    if name in CHANGING:
        assert printed.startswith("Would do, in ")
        assert "send request" not in printed  # each has a preview of its own
    elif not name.startswith(("export", "query", "consumerStatus")):
        assert printed == "Nothing would change.\n"
    assert "very-secret-1" not in printed


@pytest.mark.parametrize("name", [name for name in EVERY if name not in ENDLESS])
def test_without_it_the_same_command_line_does_what_the_dry_run_did_not(name: str, cluster: FakeCluster) -> None:
    assert main(words_of(name, cluster)) == 0
    assert bool(cluster.codes - READING) == (name in CHANGING)


def test_the_plan_of_a_reset_has_the_offsets_before_and_after_of_each_queue(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["resetOffsetByTime", "-g", "G", "-t", "T", "-n", cluster.address, "--dry-run"]
    assert main([*words, "-s", "now", "--output", "json"]) == 0
    steps = json.loads(capsys.readouterr().out)
    assert [(step["queueId"], step["before"], step["after"]) for step in steps] == [(0, 2, 5), (1, 2, 5)]
    assert main([*words, "-s", "1000"]) == 0
    assert "queue 1: 2 -> 1\n" in capsys.readouterr().out
    # Without force an offset only moves back.
    assert main([*words, "-s", "now", "-f", "false"]) == 0
    assert "queue 0: 2 -> 2\n" in capsys.readouterr().out


def test_the_plan_of_a_deleted_topic_has_what_goes_with_it(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["deleteTopic", "-c", "C", "-t", "T", "-n", cluster.address, "--dry-run"]) == 0
    assert capsys.readouterr().out == (
        "Would do, in 2 steps:\n"
        f"  delete topic T at {cluster.address}: 2 queues, 10 messages, read by G\n"
        f"  remove the route of topic T from NameServer {cluster.address}\n"
    )


def test_a_setting_is_shown_before_and_after(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["updateBrokerConfig", "-b", cluster.address, "-k", "key", "-v", "new", "--dry-run"]
    assert main(words) == 0
    assert capsys.readouterr().out.splitlines()[1] == f'  set key at {cluster.address}: "old" -> "new"'


def test_equal_steps_are_one_with_a_count(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checkMsgSendRT", "-t", "T", "-a", "7", "-n", cluster.address, "--dry-run"]) == 0
    [_, step] = capsys.readouterr().out.splitlines()
    assert step == f"  send a message of 128 bytes to topic T at {cluster.address} (7 times)"


def test_a_dry_run_of_what_does_not_exist_fails_as_the_command_does(cluster: FakeCluster) -> None:
    cluster.refusals[105] = (17, "no route")
    assert main(["resetOffsetByTime", "-g", "G", "-t", "T", "-s", "now", "-n", cluster.address, "--dry-run"]) == 3


def test_a_plan_has_a_bound(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    from triomq.admin import changes

    monkeypatch.setattr(changes, "MAX_STEPS", 3)
    assert main(["checkMsgSendRT", "-t", "T", "-a", "4", "-n", cluster.address, "--dry-run"]) == 6


def test_an_endless_command_plans_one_round(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["startMonitoring", "-n", cluster.address, "--dry-run"]) == 0
    assert consumer_status.ROUND_SECONDS > 30  # it did not wait for the next round
    assert capsys.readouterr().out == "Nothing would change.\n"


def test_a_topic_that_the_broker_will_create_has_the_four_queues_of_a_producers_default(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = {"brokerName": "b", "cluster": "C", "brokerAddrs": {"0": cluster.address}}
    queues = {"brokerName": "b", "readQueueNums": 8, "writeQueueNums": 8, "perm": 7}
    default = {105: {"brokerDatas": [broker], "queueDatas": [queues]}}

    def answer(code: int, fields: dict[str, str], body: bytes) -> tuple[int, str, dict[str, str], bytes]:
        if code == 105 and fields["topic"] != "TBW102":
            return 17, "no route", {}, b""
        if code == 105:
            return 0, "", {}, json.dumps(default[105]).encode()
        return FakeCluster.answer(cluster, code, fields, body)

    monkeypatch.setattr(cluster, "answer", answer)
    assert main(["send", "New", "x", "--count", "12", "-n", cluster.address]) == 0
    sent = [int(fields["e"]) for code, fields, _ in cluster.requests if code == 310]
    assert sorted(sent) == sorted([0, 1, 2, 3] * 3)


# -- the question ------------------------------------------------------------------------------------------------------


def test_every_destroying_command_changes_something() -> None:
    assert DESTROYING <= CHANGING


def on_terminal(words: list[str], typed: str) -> tuple[int, str]:
    """Run mqadmin on a terminal where a person types. Return its exit status and what the terminal shows."""
    main_end, program_end = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TERM": "xterm"}
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "triomq.admin", *words],
        stdin=program_end,
        stdout=program_end,
        stderr=program_end,
        env=environment,
    ) as process:
        os.close(program_end)
        os.write(main_end, typed.encode())
        shown = b""
        while True:
            try:
                data = os.read(main_end, 65536)
            except OSError:  # the program has closed its end
                break
            if not data:
                break
            shown += data
        status = process.wait(30)
    os.close(main_end)
    return status, shown.decode()


DELETE = ["deleteTopic", "-c", "C", "-t", "T"]
SKIP = ["skipAccumulatedMessage", "-g", "G", "-t", "T"]


@pytest.mark.parametrize(
    ("words", "typed", "acts"),
    [
        (DELETE, "T\n", True),
        (DELETE, "y\n", False),  # a topic with messages needs its name
        (DELETE, "\n", False),
        (SKIP, "y\n", True),
        (SKIP, "n\n", False),
        ([*SKIP, "--yes"], "", True),
    ],
)
def test_on_a_terminal_a_person_is_asked_first(words: list[str], typed: str, acts: bool, cluster: FakeCluster) -> None:
    status, shown = on_terminal([*words, "-n", cluster.address], typed)
    assert status == (0 if acts else 1)
    assert bool(cluster.codes - READING) == acts
    assert ("nothing was changed" in shown) == (not acts)
    if words == SKIP:
        assert "queue 0: 2 -> 5" in shown
        assert "Do this? [y/N]" in shown


def test_not_on_a_terminal_it_acts_at_once_as_rocketmq_does(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(execute, "is_terminal", lambda: False)
    assert main([*DELETE, "-n", cluster.address]) == 0
    assert cluster.codes - READING == {215, 216}
    assert capsys.readouterr().err == ""


# -- offsets of a group without members --------------------------------------------------------------------------------


@pytest.mark.parametrize("words", ["resetOffsetByTime -s 0", "skipAccumulatedMessage"])
def test_queues_are_moved_and_printed_in_the_order_of_rocketmqs_map(
    words: str, cluster: FakeCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """RocketMQ's tool printed queue 1 of this topic at this broker before queue 0."""
    row = {"brokerOffset": 5, "consumerOffset": 2, "lastTimestamp": 0}
    queues = [{"topic": "Commands_1", "brokerName": "broker-a", "queueId": number} for number in (0, 1)]
    stats = {"offsetTable": {json.dumps(queue): row for queue in queues}}
    monkeypatch.setattr(cluster, "_bodies", lambda bodies=cluster._bodies: {**bodies(), 208: stats})
    cluster.refusals[222] = (206, "nobody is online")
    assert main([*words.split(), "-g", "G", "-t", "Commands_1", "-n", cluster.address, "--output", "json"]) == 0
    assert [item["queueId"] for item in json.loads(capsys.readouterr().out)] == [1, 0]
    assert [fields["queueId"] for code, fields, _ in cluster.requests if code == 15] == ["1", "0"]


# -- secrets -----------------------------------------------------------------------------------------------------------


def test_a_secret_can_come_from_standard_input_and_no_plan_shows_it(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["updateAclConfig", "-a", "shop", "-s", "-", "-c", "C", "-n", cluster.address]
    for options in (["--dry-run"], []):
        typed(b"a-secret-of-the-shop\nmore\n", monkeypatch)
        assert main([*words, *options]) == 0
    assert [fields["secretKey"] for code, fields, _ in cluster.requests if code == 50] == ["a-secret-of-the-shop"]
    printed = capsys.readouterr()
    assert "a-secret-of-the-shop" not in printed.out + printed.err
    typed(b"", monkeypatch)
    assert main(words) == 2
    assert "the secret key is empty" in capsys.readouterr().err
