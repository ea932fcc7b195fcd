"""mqadmin backup and restore: what a cluster has comes back in an empty one, and nothing is silently overwritten."""

from __future__ import annotations

import json
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from verb_calls import SETTINGS, items, lines, set_offset

from triomq.admin import backup_file
from triomq.admin.__main__ import main
from triomq.admin.commands.exports import SYSTEM_GROUPS
from triomq.admin.errors import AdminError, UsageError
from triomq.blocking import PushConsumer
from triomq.protocol import system_topics
from triomq.testing import LocalCluster, ProcessCluster

Capture = pytest.CaptureFixture[str]
SECRET = "hush-hush-1234"
MINIMAL: dict[str, Any] = {
    "format": "mqadmin-backup",
    "version": 1,
    "createdAt": "x",
    "nameServers": "",
    "withSecrets": False,
    "clusters": {},
    "brokers": {},
    "kv": {},
    "messages": {},
}
BROKER: dict[str, Any] = {"settings": {}, "topics": {}, "groups": {}, "offsets": {}, "acl": None}


@pytest.fixture(scope="module")
def source() -> Iterator[LocalCluster]:
    with LocalCluster(settings=SETTINGS) as found:
        yield found


@pytest.fixture
def empty() -> Iterator[LocalCluster]:
    with LocalCluster(settings=SETTINGS) as found:
        yield found


def choose(cluster: LocalCluster | ProcessCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", cluster.name_server)


def content(directory: Path) -> dict[str, Any]:
    """Return what a backup holds, without its time, its place, and the settings of its brokers."""
    found: dict[str, Any] = json.loads((directory / "backup.json").read_bytes())
    for broker in found["brokers"].values():
        del broker["settings"]
        for topic in broker["topics"].values():
            del topic["order"]  # brokers take it from ORDER_TOPIC_CONFIG at their next registration
    for entry in found["messages"].values():
        entry["lines"] = (directory / entry["file"]).read_text()
    return {key: value for key, value in found.items() if key not in ("createdAt", "nameServers")}


def fill(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    """Make topics, a group, offsets, key-value pairs and messages."""
    for words in (
        ["updateTopic", "-c", "DefaultCluster", "-t", "Orders", "-r", "3", "-w", "2", "-p", "6"],
        ["updateTopic", "-c", "DefaultCluster", "-t", "Reports", "-r", "1", "-w", "1", "-p", "4", "-o", "true"],
        ["updateSubGroup", "-c", "DefaultCluster", "-g", "billing", "-r", "3", "-q", "2"],
        ["updateKvConfig", "-s", "own", "-k", "colour", "-v", "red;blue"],
    ):
        assert main(words) == 0
    for number in range(5):
        words = ["send", "Orders", f"order {number}", "-b", "broker-a", "-q", "0", "-k", f"k{number}", "-p", "a=b"]
        assert main([*words, "--tag", "new"]) == 0
    set_offset("billing", "Orders", 3, monkeypatch, capsys)


def as_json(value: object) -> bytes:
    return json.dumps(value).encode()


BACKUP = ["--messages", "Orders", "--namespace", "own"]


def test_a_restored_cluster_backs_up_equal(
    source: LocalCluster, empty: LocalCluster, monkeypatch: pytest.MonkeyPatch, capsys: Capture, tmp_path: Path
) -> None:
    choose(source, monkeypatch)
    fill(monkeypatch, capsys)
    [item] = items(["backup", str(tmp_path / "one"), *BACKUP], capsys)
    assert (item["brokerName"], item["offsets"], item["accounts"]) == ("broker-a", 1, 0)
    choose(empty, monkeypatch)
    found = items(["restore", str(tmp_path / "one"), "--yes"], capsys)
    assert {each["result"] for each in found} == {"created"}
    assert {"topic", "group", "kv", "messages", "offset"} == {each["kind"] for each in found}
    items(["backup", str(tmp_path / "two"), *BACKUP], capsys)
    assert content(tmp_path / "two") == content(tmp_path / "one")
    assert [each["body"] for each in items(["tail", "Orders"], capsys)] == [f"order {n}" for n in range(5)]
    # A second restore finds all of it. Messages are not sent twice.
    assert main(["restore", str(tmp_path / "one"), "--yes"]) == 6
    assert len(items(["tail", "Orders", "--from", "first"], capsys)) == 5


def test_what_differs_is_shown_and_kept_until_it_may_be_overwritten(
    empty: LocalCluster, monkeypatch: pytest.MonkeyPatch, capsys: Capture, tmp_path: Path
) -> None:
    choose(empty, monkeypatch)
    fill(monkeypatch, capsys)
    assert main(["backup", str(tmp_path / "b"), "--namespace", "own"]) == 0
    assert main(["updateTopic", "-c", "DefaultCluster", "-t", "Orders", "-r", "8", "-w", "8", "-p", "6"]) == 0
    assert main(["updateSubGroup", "-c", "DefaultCluster", "-g", "billing", "-r", "9"]) == 0
    assert main(["updateKvConfig", "-s", "own", "-k", "colour", "-v", "green"]) == 0
    set_offset("billing", "Orders", 1, monkeypatch, capsys)
    found = items(["restore", str(tmp_path / "b"), "--yes"], capsys, status=6)
    kept = {item["name"]: item for item in found}
    assert {item["result"] for item in found} == {"kept"}
    assert kept.keys() == {"Orders", "billing", "own/colour", "billing/Orders/0"}
    assert (kept["own/colour"]["before"], kept["own/colour"]["after"]) == ("green", "red;blue")
    assert items(["offsets", "show", "billing"], capsys)[0]["offset"] == 1
    found = items(["restore", str(tmp_path / "b"), "--yes", "--overwrite"], capsys)
    assert {item["result"] for item in found} == {"changed"}
    assert items(["offsets", "show", "billing"], capsys)[0]["offset"] == 3
    found = items(["restore", str(tmp_path / "b"), "--yes", "--all"], capsys)
    assert {item["result"] for item in found} == {"same"}
    *_, settings, counts = lines(["restore", str(tmp_path / "b"), "--yes"], capsys)
    assert counts == f"{len(found)} same"
    assert "settings of brokers are left alone, because" in settings


def test_a_plan_changes_nothing_and_a_script_needs_yes(
    source: LocalCluster, empty: LocalCluster, monkeypatch: pytest.MonkeyPatch, capsys: Capture, tmp_path: Path
) -> None:
    choose(source, monkeypatch)
    fill(monkeypatch, capsys)
    planned = lines(["backup", str(tmp_path / "b"), *BACKUP, "--dry-run"], capsys)
    assert not (tmp_path / "b").exists()
    assert any("messages of topic Orders to" in line for line in planned)
    assert main(["backup", str(tmp_path / "b"), *BACKUP]) == 0
    choose(empty, monkeypatch)
    plan = "\n".join(lines(["restore", str(tmp_path / "b"), "--dry-run"], capsys))
    assert "create topic Orders at" in plan
    assert "create group billing at" in plan
    assert "messages to topic Orders, broker broker-a, queue 0" in plan
    assert "queue 0: - -> 3" in plan
    assert main(["restore", str(tmp_path / "b")]) == 2
    assert "nothing was changed: --yes does this" in capsys.readouterr().err
    assert main(["topicRoute", "-t", "Orders"]) == 3


def test_offsets_do_not_point_beyond_what_the_queue_has(
    empty: LocalCluster, monkeypatch: pytest.MonkeyPatch, capsys: Capture, tmp_path: Path
) -> None:
    """Else the group would skip what is sent next."""
    offsets = {"g": {"T": {"0": 12}}}
    topic = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicSysFlag": 0, "order": False}
    write(tmp_path / "b", {"brokers": {"broker-a": {**BROKER, "topics": {"T": topic}, "offsets": offsets}}})
    choose(empty, monkeypatch)
    found = items(["restore", str(tmp_path / "b"), "--yes"], capsys)
    assert [(item["kind"], item["after"]) for item in found if item["kind"] == "offset"] == [("offset", 0)]


@pytest.mark.parametrize(("offset", "after"), [(8, 0), (10, 0), (12, 2), (15, 5), (99, 5)])
def test_offsets_count_from_the_first_message_of_the_backup(
    offset: int, after: int, empty: LocalCluster, monkeypatch: pytest.MonkeyPatch, capsys: Capture, tmp_path: Path
) -> None:
    """It had offset 10. A group that was behind it when the messages before it were deleted begins with it."""
    config = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicSysFlag": 0, "order": False}
    line: dict[str, Any] = {"brokerName": "broker-a", "queueId": 0, "flag": 0, "bornTimestamp": 1, "properties": {}}
    messages = {"T": {"file": "messages-T.jsonl", "count": 5}}
    broker = {**BROKER, "topics": {"T": config}, "offsets": {"g": {"T": {"0": offset}}}}
    write(tmp_path / "b", {"brokers": {"broker-a": broker}, "messages": messages})
    with (tmp_path / "b" / "messages-T.jsonl").open("w") as file:
        for number in range(5):
            file.write(json.dumps({**line, "queueOffset": 10 + number, "body": "bQ=="}) + "\n")
    choose(empty, monkeypatch)
    found = items(["restore", str(tmp_path / "b"), "--yes"], capsys)
    assert [item["after"] for item in found if item["kind"] in ("messages", "offset")] == [5, after]


def test_a_broker_of_another_name_takes_the_place(
    empty: LocalCluster, monkeypatch: pytest.MonkeyPatch, capsys: Capture, tmp_path: Path
) -> None:
    topic = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicSysFlag": 0, "order": False}
    write(tmp_path / "b", {"brokers": {"gone": {**BROKER, "topics": {"T": topic}}}})
    choose(empty, monkeypatch)
    assert main(["restore", str(tmp_path / "b"), "--yes"]) == 3
    assert "--map gone=OTHER" in capsys.readouterr().err
    assert main(["restore", str(tmp_path / "b"), "--yes", "--map", "nosuch=broker-a"]) == 2
    assert main(["restore", str(tmp_path / "b"), "--yes", "--map", "gone=broker-a"]) == 0
    assert main(["topicRoute", "-t", "T"]) == 0


# -- secrets -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def guarded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[LocalCluster]:
    """A broker with accounts; this machine is on its white list."""
    home = tmp_path / "home"
    (home / "conf").mkdir(parents=True)
    account = f"{{accessKey: operator, secretKey: {SECRET}, admin: true}}"
    accounts = f"globalWhiteRemoteAddresses: [127.0.0.1]\naccounts:\n- {account}\n"
    (home / "conf" / "plain_acl.yml").write_text(accounts)
    (home / "conf" / "plain_acl.yml").chmod(0o600)
    with LocalCluster(settings={**SETTINGS, "aclEnable": "true", "rocketmqHome": str(home)}) as found:
        choose(found, monkeypatch)
        yield found


def test_secrets_are_in_no_backup_unless_asked_for(guarded: LocalCluster, capsys: Capture, tmp_path: Path) -> None:
    assert "--secrets keeps them" in lines(["backup", str(tmp_path / "b")], capsys)[-1]
    assert SECRET not in (tmp_path / "b" / "backup.json").read_text()
    assert main(["backup", str(tmp_path / "s"), "--secrets"]) == 0
    assert SECRET in (tmp_path / "s" / "backup.json").read_text()
    assert stat.S_IMODE((tmp_path / "s" / "backup.json").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o700


def test_accounts_come_back_and_their_secrets_are_never_shown(
    guarded: LocalCluster, capsys: Capture, tmp_path: Path
) -> None:
    words = ["updateAclConfig", "-c", "DefaultCluster", "-a", "billing-app", "-s", SECRET]
    assert main([*words, "-t", "Orders=SUB,Reports=PUB", "-i", "DENY"]) == 0
    assert main(["backup", str(tmp_path / "s"), "--secrets"]) == 0
    assert main(["backup", str(tmp_path / "b")]) == 0
    assert main(["deleteAclConfig", "-c", "DefaultCluster", "-a", "billing-app"]) == 0
    found = items(["restore", str(tmp_path / "b"), "--yes"], capsys, status=6)
    assert [item["result"] for item in found if item["name"] == "billing-app"] == ["failed"]
    capsys.readouterr()
    assert main(["restore", str(tmp_path / "s"), "--yes"]) == 0
    printed = capsys.readouterr()
    assert "billing-app" in printed.out
    assert SECRET not in printed.out + printed.err
    assert main(["backup", str(tmp_path / "again"), "--secrets"]) == 0
    assert content(tmp_path / "again") == content(tmp_path / "s")
    assert main([*words[:-1], "another-secret", "-t", "Orders=SUB,Reports=PUB"]) == 0
    capsys.readouterr()
    assert main(["restore", str(tmp_path / "s"), "--yes"]) == 6
    printed = capsys.readouterr()
    assert "that of the backup" in printed.out
    assert "another-secret" not in printed.out + printed.err


def test_everything_that_a_cluster_has_comes_back_in_an_empty_one(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, tmp_path: Path
) -> None:
    def guarded_cluster(name: str) -> LocalCluster:
        home = tmp_path / name
        (home / "conf").mkdir(parents=True)
        (home / "conf" / "plain_acl.yml").write_text("globalWhiteRemoteAddresses: [127.0.0.1]\naccounts: []\n")
        (home / "conf" / "plain_acl.yml").chmod(0o600)
        return LocalCluster(settings={**SETTINGS, "aclEnable": "true", "rocketmqHome": str(home)})

    with guarded_cluster("full") as full:
        choose(full, monkeypatch)
        fill(monkeypatch, capsys)
        words = ["updateAclConfig", "-c", "DefaultCluster", "-a", "billing-app", "-s", SECRET, "-t", "Orders=SUB"]
        assert main([*words, "-g", "billing=SUB", "-i", "DENY"]) == 0
        assert main(["updateOrderConf", "-t", "Reports", "-m", "put", "-v", "broker-a:1"]) == 0
        assert main(["updateGlobalWhiteAddr", "-c", "DefaultCluster", "-g", "127.0.0.1,10.0.0.*"]) == 0
        assert main(["backup", str(tmp_path / "one"), *BACKUP, "--secrets"]) == 0
    saved = content(tmp_path / "one")
    [broker] = saved["brokers"].values()
    counts = [len(broker[kind]) for kind in ("topics", "groups", "offsets")]
    assert (counts, len(broker["acl"]["accounts"]), broker["acl"]["whiteAddresses"]) == (
        [2, 1, 1],
        1,
        ["10.0.0.*", "127.0.0.1"],
    )
    assert saved["kv"] == {"own": {"colour": "red;blue"}, "ORDER_TOPIC_CONFIG": {"Reports": "broker-a:1"}}
    assert saved["messages"]["Orders"]["lines"].count("\n") == 5
    with guarded_cluster("empty") as empty:
        choose(empty, monkeypatch)
        assert main(["restore", str(tmp_path / "one"), "--yes", "--overwrite"]) == 0
        assert main(["backup", str(tmp_path / "two"), *BACKUP, "--secrets"]) == 0
    assert content(tmp_path / "two") == saved


# -- the file ----------------------------------------------------------------------------------------------------------


def write(directory: Path, changes: dict[str, Any]) -> None:
    directory.mkdir()
    (directory / "backup.json").write_bytes(backup_file.encoded({**MINIMAL, **changes}))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": "other"}, "not a backup"),
        ({"version": 2}, "version 2"),
        ({"brokers": []}, "must be an object"),
        ({"brokers": {"a": {}}}, "lacks 'settings'"),
        ({"brokers": {"a": {**BROKER, "acl": 1}}}, "wrong kind"),
        ({"brokers": {"a": {**BROKER, "offsets": {"g": {"t": {"0": True}}}}}}, "must be int"),
        ({"brokers": {"a": {**BROKER, "offsets": {"g": {"t": {"0": -1}}}}}}, "at least 0"),
        ({"brokers": {"a": {**BROKER, "offsets": {"g": {"t": {"x": 1}}}}}}, "queue number"),
        ({"messages": {"T": {"file": "../secret", "count": 1}}}, "not the name of a file"),
        ({"clusters": {"c": [1]}}, "entry 0 must be str"),
    ],
)
def test_a_file_that_is_no_backup_is_refused_with_the_reason(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        backup_file.decoded(backup_file.encoded({**MINIMAL, **changes}), "f")


@given(st.binary(max_size=200) | st.recursive(st.integers() | st.text(), st.lists).map(as_json))
def test_no_bytes_but_those_of_a_backup_are_read(data: bytes) -> None:
    with pytest.raises(UsageError):
        backup_file.decoded(data, "f")


def test_a_backup_overwrites_no_file(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("mine")
    with pytest.raises(AdminError, match="is not empty"):
        backup_file.make_directory(str(tmp_path))


def test_a_backup_that_was_cut_off_is_not_taken_for_a_whole_one(tmp_path: Path) -> None:
    def parts() -> Iterator[bytes]:
        yield b"{"
        raise AdminError("gone in the middle")

    with pytest.raises(AdminError, match="middle"):
        backup_file.write_private(str(tmp_path / "backup.json"), parts())
    assert not (tmp_path / "backup.json").exists()


def test_a_topic_with_too_many_messages_is_refused(
    source: LocalCluster, monkeypatch: pytest.MonkeyPatch, capsys: Capture, tmp_path: Path
) -> None:
    choose(source, monkeypatch)
    fill(monkeypatch, capsys)
    assert main(["backup", str(tmp_path / "b"), *BACKUP, "--atMost", "4"]) == 2
    assert "--atMost allows more" in capsys.readouterr().err


def test_between_real_processes(monkeypatch: pytest.MonkeyPatch, capsys: Capture, tmp_path: Path) -> None:
    with ProcessCluster(settings=SETTINGS) as origin, ProcessCluster(settings=SETTINGS) as target:
        choose(origin, monkeypatch)
        fill(monkeypatch, capsys)
        assert main(["backup", str(tmp_path / "one"), *BACKUP]) == 0
        choose(target, monkeypatch)
        assert main(["restore", str(tmp_path / "one"), "--yes"]) == 0
        assert main(["backup", str(tmp_path / "two"), *BACKUP]) == 0
    assert content(tmp_path / "two") == content(tmp_path / "one")


def test_the_groups_that_are_left_out_are_the_brokers_own() -> None:
    assert {*system_topics.SYSTEM_GROUPS, system_topics.TRANS_CONSUMER_GROUP} == SYSTEM_GROUPS


def test_a_plan_is_shown_whatever_is_online_and_whatever_differs(
    empty: LocalCluster, monkeypatch: pytest.MonkeyPatch, capsys: Capture, tmp_path: Path
) -> None:
    topic = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicSysFlag": 0, "order": False}
    saved = {**BROKER, "topics": {"OnlineT": topic}, "offsets": {"online": {"OnlineT": {"0": 0}}}}
    write(tmp_path / "b", {"brokers": {"broker-a": saved}})
    choose(empty, monkeypatch)
    assert main(["updateTopic", "-c", "DefaultCluster", "-t", "OnlineT", "-r", "2", "-w", "2"]) == 0
    with PushConsumer("online", name_server=empty.name_server) as consumer:
        consumer.subscribe("OnlineT")
        deadline = time.monotonic() + 30
        while main(["consumerConnection", "-g", "online"]) != 0 and time.monotonic() < deadline:
            pass
        plan = "\n".join(lines(["restore", str(tmp_path / "b"), "--dry-run"], capsys))
        assert main(["restore", str(tmp_path / "b"), "--yes"]) == 6
    assert "would fail: group online: members are online" in plan
    assert "keep topic OnlineT at broker-a, which differs" in plan
    assert "queue 0:" in plan, "the offsets, too"
