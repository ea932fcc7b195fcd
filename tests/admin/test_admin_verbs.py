"""The verbs against a running cluster: what they print, change and refuse."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from fake_cluster import fake_cluster
from verb_calls import SETTINGS, items, lines, set_offset, typed

import triomq
from triomq.admin.__main__ import main
from triomq.admin.cluster_view import longest
from triomq.admin.verb_table import VERBS
from triomq.admin.verbs import function_of
from triomq.blocking import ConsumeFromWhere, DeadLetter, Message, MessageExt, Producer, PushConsumer
from triomq.testing import LocalCluster

Capture = pytest.CaptureFixture[str]
pytestmark = pytest.mark.usefixtures("at_cluster")


@pytest.fixture
def topic(request: pytest.FixtureRequest, capsys: Capture) -> str:
    """A topic of two queues, whose name is that of the test."""
    name = "".join([each for each in request.node.name if each.isalnum()])[:60]
    assert main(["updateTopic", "-c", "DefaultCluster", "-t", name, "-r", "2", "-w", "2"]) == 0
    capsys.readouterr()
    return name


def test_every_verb_of_the_table_has_a_function() -> None:
    for row in VERBS:
        assert callable(function_of(row[0])), row[0]


# -- send and tail -----------------------------------------------------------------------------------------------------


def test_what_is_sent_is_what_tail_shows(topic: str, capsys: Capture) -> None:
    words = ["send", topic, "hello", "--key", "k1", "--key", "k2", "--tag", "red", "-p", "no=1"]
    [sent] = items(words, capsys)
    [shown] = items(["tail", topic], capsys)
    assert (shown["msgId"], shown["body"], shown["keys"], shown["tags"]) == (sent["msgId"], "hello", "k1 k2", "red")
    assert shown["properties"]["no"] == "1"
    place = f"{shown['brokerName']}/{shown['queueId']}@{shown['queueOffset']}"
    assert lines(["tail", topic], capsys) == [f"{place} [red] k1 k2 hello"]


def test_lines_of_standard_input_are_messages_in_turn(
    topic: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed(b"a\nb\n\nlast", monkeypatch)
    sent = items(["send", topic, "--lines"], capsys)
    assert sorted(item["queueId"] for item in sent) == [0, 0, 1, 1]
    assert sorted(item["body"] for item in items(["tail", topic], capsys)) == ["", "a", "b", "last"]


def test_a_file_and_standard_input_are_whole_bodies(
    topic: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "body").write_bytes(b"\xff\x00")
    items(["send", topic, "--file", str(tmp_path / "body")], capsys)
    typed(b"one\ntwo\n", monkeypatch)
    items(["send", topic, "-"], capsys)
    found = items(["tail", topic], capsys)
    assert sorted(item.get("bodyBase64") or item["body"] for item in found) == ["/wA=", "one\ntwo\n"]


def test_an_order_key_always_has_the_same_queue(topic: str, capsys: Capture) -> None:
    sent = items(["send", topic, "x", "--orderBy", "customer-7", "--count", "5"], capsys)
    assert len({item["queueId"] for item in sent}) == 1
    assert len(sent) == 5


def test_a_rate_is_kept(topic: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    from triomq.admin.verbs import send

    waited: list[float] = []
    monkeypatch.setattr(send.time, "sleep", waited.append)
    items(["send", topic, "x", "--count", "3", "--rate", "0.01"], capsys)
    assert [round(seconds / 100) for seconds in waited] == [1, 2]


def test_a_dry_run_of_send_sends_nothing(topic: str, capsys: Capture) -> None:
    [_, step] = lines(["send", topic, "hello", "--count", "3", "--orderBy", "k", "--dry-run"], capsys)
    assert step.startswith(f"  send a message of 5 bytes to topic {topic} at ")
    assert step.endswith("(3 times)")
    assert items(["tail", topic], capsys) == []


@pytest.mark.parametrize(
    "words",
    [
        "x --queue 1",
        "x --delay 19",
        "x --rate -1",
        "x --count 0",
        "x -p nothing",
        "x -p KEYS=1",
        "x --lines",
        "x --file f",
        "x --rate fast",
        "x y",
    ],
)
def test_wrong_ways_to_send_are_refused(words: str, topic: str, capsys: Capture) -> None:
    assert main(["send", topic, *words.split()]) == 2
    assert "mqadmin send: " in capsys.readouterr().err


def test_a_topic_that_does_not_exist(capsys: Capture) -> None:
    assert main(["tail", "nosuch"]) == 3
    assert main(["send", "nosuch", "--file", "/nosuch"]) == 1
    capsys.readouterr()
    assert main(["send", "nosuch", "hello"]) == 3
    told = capsys.readouterr().err
    assert "route of topic 'nosuch'" in told and "updateTopic -t nosuch" in told


def test_tail_begins_where_it_is_asked_to(topic: str, capsys: Capture) -> None:
    sent = items(["send", topic, "x", "--orderBy", "k", "--count", "15"], capsys)

    def offsets(*words: str) -> list[int]:
        return [item["queueOffset"] for item in items(["tail", topic, *words], capsys)]

    assert offsets() == list(range(5, 15))
    assert offsets("--from", "first") == list(range(15))
    assert offsets("--from", "-3") == [12, 13, 14]
    assert offsets("--from", "12") == [12, 13, 14]
    assert offsets("--from", "first", "-c", "2") == [0, 1]
    assert offsets("--from", "last") == []
    assert offsets("--from", "1h") == list(range(15))
    assert offsets("--from", "2100-01-01T00:00:00") == []
    assert offsets("--queue", str(1 - sent[0]["queueId"])) == []
    assert main(["tail", topic, "--queue", "7"]) == 3
    assert main(["tail", topic, "--from", "yesterday"]) == 2
    assert main(["tail", topic, "--from", "-0"]) == 2


def test_tail_filters_and_the_last_n_are_of_those_that_fit(topic: str, capsys: Capture) -> None:
    for number in range(4):
        tag = "even" if number % 2 == 0 else "odd"
        words = ["send", topic, f"body {number}", "--tag", tag, "-k", f"k{number}", "-p", f"n={number}"]
        items(words, capsys)
    items(["send", topic, "noise", "--count", "30"], capsys)

    def bodies(*words: str) -> list[str]:
        return sorted(item["body"] for item in items(["tail", topic, *words], capsys))

    assert bodies("--tag", "even") == ["body 0", "body 2"]
    assert bodies("--tag", "even || odd", "--from", "-1") == ["body 3"]
    assert bodies("--key", "k1") == ["body 1"]
    assert bodies("--property", "n=3") == ["body 3"]
    assert bodies("--grep", "^body [01]$") == ["body 0", "body 1"]
    assert main(["tail", topic, "--grep", "("]) == 2
    assert main(["tail", topic, "--tag", "a", "--sql", "b > 1"]) == 2


def test_tail_asks_the_broker_for_sql(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalCluster(settings={"enablePropertyFilter": "true"}) as cluster:
        monkeypatch.setenv("NAMESRV_ADDR", cluster.name_server)
        for number in range(4):
            items(["send", "Filtered", f"body {number}", "-p", f"n={number}"], capsys)
        found = items(["tail", "Filtered", "--sql", "n > 1"], capsys)
        assert sorted(item["body"] for item in found) == ["body 2", "body 3"]
        assert main(["tail", "Filtered", "--sql", "n >"]) == 1


def test_the_format_is_that_of_kcat(topic: str, capsys: Capture) -> None:
    [sent] = items(["send", topic, "héllo", "-k", "key", "--tag", "T"], capsys)
    text = r"%t %q %o %k %g %s %S %i 100%%\n"
    expected = f"{topic} {sent['queueId']} 0 key T héllo 6 {sent['msgId']} 100%"
    assert lines(["tail", topic, "--format", text], capsys) == [expected]
    assert main(["tail", topic, "--format", "%z"]) == 2
    assert main(["tail", topic, "--format", "\\"]) == 2


def test_messages_cannot_control_the_terminal(topic: str, capsys: Capture) -> None:
    items(["send", topic, "\x1b[2Jgone"], capsys)
    [line] = lines(["tail", topic], capsys)
    assert line.endswith("\\x1b[2Jgone")


def test_follow_waits_for_more_and_stops_cleanly(topic: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    from triomq.admin import run

    items(["send", topic, "before"], capsys)
    rounds = 0

    def pause(self: run.Run, seconds: float) -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 1:
            assert main(["send", topic, "after", "--count", "2", "--fields", "nosuch"]) == 2
            assert main(["send", topic, "after", "--count", "2"]) == 0
        elif rounds == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(run.Run, "pause", pause)
    assert main(["tail", topic, "-f", "--format", "<%s>"]) == 130
    printed = capsys.readouterr().out
    assert printed.count("<after>") == 2
    assert "<before>" not in printed


def test_tail_leaves_no_trace(topic: str, capsys: Capture) -> None:
    items(["send", topic, "x"], capsys)
    before = items(["lag"], capsys)
    items(["tail", topic], capsys)
    assert items(["lag"], capsys) == before


# -- lag and offsets ---------------------------------------------------------------------------------------------------


def test_lag_shows_the_worst_group_first_and_each_queue_of_one(
    topic: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    items(["send", topic, "x", "-b", _broker(capsys), "-q", "0", "-c", "5"], capsys)
    set_offset("slow", topic, 1, monkeypatch, capsys)
    set_offset("quick", topic, 5, monkeypatch, capsys)
    assert main(["updateSubGroup", "-c", "DefaultCluster", "-g", "slow"]) == 0
    assert main(["updateSubGroup", "-c", "DefaultCluster", "-g", "quick"]) == 0
    found = {item["group"]: item for item in items(["lag", "--topic", topic], capsys)}
    assert next(iter(found)) == "slow"
    assert found["slow"]["backlog"] == 4
    assert found["slow"]["behindMs"] > 0
    assert (found["quick"]["backlog"], found["quick"]["behindMs"], found["quick"]["members"]) == (0, 0, 0)
    assert "quick" not in [item["group"] for item in items(["lag", "--topic", topic, "--atLeast", "1"], capsys)]
    worst = items(["lag", "slow"], capsys)[0]
    assert (worst["topic"], worst["queueId"], worst["consumerOffset"], worst["brokerOffset"]) == (topic, 0, 1, 5)
    assert lines(["lag", "slow", "--first", "1"], capsys)[0].split()[:4] == ["TOPIC", "BROKER", "QUEUE", "BACKLOG"]
    assert main(["lag", "nosuch"]) == 3
    assert main(["lag", "--first", "x"]) == 2


def test_a_group_that_has_read_nothing_is_as_late_as_what_waits(
    topic: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    items(["send", topic, "x", "-b", _broker(capsys), "-q", "0", "-c", "2"], capsys)
    set_offset("fresh", topic, 0, monkeypatch, capsys)
    time.sleep(0.01)
    [row] = [each for each in items(["lag", "fresh"], capsys) if each["backlog"]]
    assert row["lastTimestamp"] == 0
    assert row["behindMs"] > 0
    assert items(["check", "lag", "fresh", "--seconds"], capsys)[0]["value"] > 0


def test_the_longest_delay_is_one_that_is_known() -> None:
    assert (longest([]), longest([0]), longest([None, 3, 2]), longest([None])) == (0, 0, 3, None)


def test_a_group_that_nobody_knows_is_not_moved_unless_it_is_wanted(topic: str, capsys: Capture) -> None:
    words = ["offsets", "reset", "nogroup", topic, "--to", "last", "--yes"]
    assert main(words) == 3
    assert "no broker knows group 'nogroup'" in capsys.readouterr().err
    assert main(["offsets", "show", "nogroup"]) == 3, "nothing was stored"
    assert len(items([*words, "--create"], capsys)) == 2
    assert main(words) == 0, "it is known now"


def _broker(capsys: Capture) -> str:
    return str(items(["config", "get", "brokerName"], capsys)[0]["value"])


def test_offsets_are_reset_to_every_kind_of_place(topic: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    items(["send", topic, "x", "-b", _broker(capsys), "-q", "0", "-c", "9"], capsys)
    set_offset("mover", topic, 4, monkeypatch, capsys)

    def moved(to: str) -> tuple[int | None, int]:
        found = items(["offsets", "reset", "mover", topic, "--to", to, "--queue", "0", "--yes"], capsys)
        [item] = [item for item in found if item["queueId"] == 0]
        [now] = [item for item in items(["offsets", "show", "mover"], capsys) if item["queueId"] == 0]
        assert now["offset"] == item["offset"]
        return item["before"], item["offset"]

    assert moved("first") == (4, 0)
    assert moved("last") == (0, 9)
    assert moved("-3") == (9, 6)
    assert moved("+2") == (6, 8)
    assert moved("5") == (8, 5)
    assert moved("1h") == (5, 0)
    assert moved("100") == (0, 9)  # not beyond the end
    assert moved("-100") == (9, 0)


def test_a_script_needs_yes_and_sees_the_plan_without(
    topic: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    items(["send", topic, "x", "-b", _broker(capsys), "-q", "0", "-c", "3"], capsys)
    set_offset("safe", topic, 2, monkeypatch, capsys)
    assert main(["offsets", "reset", "safe", topic, "--to", "first", "--queue", "0"]) == 2
    printed = capsys.readouterr()
    assert "queue 0: 2 -> 0" in printed.err
    assert "nothing was changed: --yes does this" in printed.err
    assert [item["offset"] for item in items(["offsets", "show", "safe"], capsys)] == [2, 0]


def test_offsets_are_copied_exported_and_imported(
    topic: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    items(["send", topic, "x", "-b", _broker(capsys), "-q", "0", "-c", "3"], capsys)
    set_offset("origin", topic, 2, monkeypatch, capsys)
    assert items(["offsets", "copy", "origin", "copied", "--yes"], capsys)[0]["offset"] == 2
    exported = lines(["offsets", "export", "copied"], capsys)
    (tmp_path / "offsets.jsonl").write_text("\n".join(exported))
    item = items(["offsets", "import", str(tmp_path / "offsets.jsonl"), "-g", "third", "--yes"], capsys)[0]
    assert (item["group"], item["before"], item["offset"]) == ("third", None, 2)
    assert items(["offsets", "export", "third"], capsys)[0]["offset"] == 2


@pytest.mark.parametrize(
    "text", ["", "x", "[]", '{"group": "g"}', '{"group":"g","topic":"t","brokerName":"b","queueId":true,"offset":1}']
)
def test_what_is_not_offsets_is_refused(text: str, capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "f").write_text(text)
    assert main(["offsets", "import", str(tmp_path / "f"), "--yes"]) == 2
    assert main(["offsets", "import", str(tmp_path / "nosuch"), "--yes"]) == 1


@pytest.mark.parametrize("words", ["reset g t", "reset g", "show", "copy a", "reset g nosuch --to first"])
def test_wrong_ways_to_move_offsets(words: str, capsys: Capture) -> None:
    assert main(["offsets", *words.split(), "--yes"]) in (2, 3)


# -- configuration, health, checks -------------------------------------------------------------------------------------


def test_settings_are_read_and_changed(capsys: Capture) -> None:
    [before] = items(["config", "get", "fileReservedTime"], capsys)
    [changed] = items(["config", "set", "fileReservedTime", "71", "--yes"], capsys)
    assert (changed["before"], changed["value"]) == (before["value"], "71")
    assert items(["config", "get", "fileReservedTime"], capsys)[0]["value"] == "71"
    assert main(["config", "get", "reservedtime"]) == 3
    assert "perhaps fileReservedTime" in capsys.readouterr().err
    assert {"brokerName", "fileReservedTime"} < {item["key"] for item in items(["config", "get"], capsys)}
    assert main(["config", "set", "fileReservedTimes", "1", "--yes"]) == 3
    assert "perhaps fileReservedTime" in capsys.readouterr().err
    assert main(["config", "set", "nosuch", "1", "--yes"]) == 3
    for key, command in (("retryMaxTimes", "updateSubGroup -r"), ("PERM", "updateTopic -p")):
        assert main(["config", "set", key, "1", "--yes"]) == 3
        assert f"not of brokers: `mqadmin {command}` sets it" in capsys.readouterr().err
    assert main(["config", "set", "a=b", "1", "--yes"]) == 2
    assert main(["config", "get", "-b", "nosuch"]) == 3
    assert main(["config", "diff"]) == 2


def test_brokers_that_differ_are_shown(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalCluster(brokers=2, settings=SETTINGS) as cluster:
        monkeypatch.setenv("NAMESRV_ADDR", cluster.name_server)
        first, second = sorted(cluster.brokers)
        before = {item["key"] for item in items(["config", "diff"], capsys, status=1)}
        assert main(["config", "set", "fileReservedTime", "70", "-b", first, "--yes"]) == 0
        after = {item["key"]: item["values"] for item in items(["config", "diff"], capsys, status=1)}
        assert after.keys() - before == {"fileReservedTime"}
        assert after["fileReservedTime"][first] == "70"
        assert after["fileReservedTime"][second] != "70"


def test_health_is_0_or_2(cluster: LocalCluster, capsys: Capture) -> None:
    assert [item["ok"] for item in items(["health"], capsys)] == [True, True]
    assert [item["kind"] for item in items(["health", "namesrv"], capsys)] == ["namesrv"]
    found = items(["health", "broker", "--address", "127.0.0.1:1"], capsys, status=2)
    assert "cannot connect" in found[0]["error"]
    assert lines(["health", "--quiet"], capsys) == []
    assert main(["health", "everything"]) == 2


def test_versions_of_the_tool_and_of_every_daemon_are_shown(cluster: LocalCluster, capsys: Capture) -> None:
    found = items(["version"], capsys)
    assert [item["kind"] for item in found] == ["tool", "namesrv", "broker"]
    assert {(item["product"], item["version"], item["protocol"], item["error"]) for item in found} == {
        ("TrioMQ", triomq.__version__, "V4_9_7", None)
    }
    [broker] = cluster.brokers
    assert (found[2]["name"], found[2]["brokerId"]) == (broker, 0)
    servers = f"127.0.0.1:1;{cluster.name_server}"
    [_, lost, _, _] = items(["version", "-n", servers], capsys, status=6)
    assert (lost["address"], lost["version"]) == ("127.0.0.1:1", None)
    assert "cannot connect" in lost["error"]


def test_rocketmq_is_shown_with_the_version_of_its_protocol(capsys: Capture) -> None:
    with fake_cluster() as rocketmq:
        found = items(["version", "-n", rocketmq.address], capsys)
    assert [(item["product"], item["version"], item["protocol"]) for item in found[1:]] == [(None, None, "V4_9_7")] * 2


def test_checks_have_the_exit_status_of_monitoring(
    topic: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    items(["send", topic, "x", "-b", _broker(capsys), "-q", "0", "-c", "20"], capsys)
    set_offset("checked", topic, 5, monkeypatch, capsys)
    for warn, critical, status, state in ((15, 16, 0, "OK"), (14, 15, 1, "WARNING"), (1, 14, 2, "CRITICAL")):
        words = ["check", "lag", "checked", "-w", str(warn), "-c", str(critical)]
        [line] = lines(words, capsys, status=status)
        assert line == f"LAG {state} - checked 15 | 'checked'=15;{warn};{critical}"
    [item] = items(["check", "lag", "nosuch"], capsys, status=3)
    assert item["status"] == "UNKNOWN"
    assert items(["check", "disk", "-w", "100", "-c", "100"], capsys)[0]["status"] == "OK"
    assert items(["check", "disk", "-w", "0", "-c", "0"], capsys, status=2)[0]["value"] > 0
    assert items(["check", "registration", "-b", "nosuch"], capsys, status=2)[0]["value"] == 1
    assert items(["check", "registration"], capsys)[0]["value"] == 0
    assert items(["check", "replication"], capsys, status=3)[0]["subject"] == "nothing to measure"
    assert main(["check", "lag", "-w", "2", "-c", "1"]) == 2


# -- messages ----------------------------------------------------------------------------------------------------------


def test_a_message_is_found_by_either_id_without_its_topic(topic: str, capsys: Capture) -> None:
    [sent] = items(["send", topic, "find me"], capsys)
    for identity in (sent["msgId"], sent["offsetMsgId"]):
        [found] = items(["message", identity], capsys)
        assert (found["topic"], found["body"], found["msgId"]) == (topic, "find me", sent["msgId"])
    assert lines(["message", sent["msgId"]], capsys)[-1] == "find me"
    assert main(["message", "0" * 32]) == 3
    assert main(["message", "nonsense"]) == 2
    # An id that names another address is not a reason to connect to it.
    assert main(["message", "7F000001000000010000000000000000"]) == 3


def test_a_trace_is_in_the_order_of_time(topic: str, capsys: Capture) -> None:
    words = ["sendMessage", "-t", topic, "-p", "traced", "-m", "true", "--output", "json"]
    capsys.readouterr()
    assert main(words) == 0
    [sent] = json.loads(capsys.readouterr().out)
    events = items(["trace", sent["msgId"]], capsys)
    assert sorted(event["event"] for event in events) == ["sent", "stored"]
    assert [event["timestamp"] for event in events] == sorted(event["timestamp"] for event in events)
    assert main(["trace", "0" * 32]) == 3


def test_dead_letters_are_listed_shown_exported_and_sent_again(capsys: Capture) -> None:
    for name in ("%DLQ%sad", "%RETRY%sad"):
        assert main(["updateTopic", "-c", "DefaultCluster", "-t", name, "-r", "1", "-w", "1"]) == 0
    properties = ["-p", "RETRY_TOPIC=Orders", "-p", "ORIGIN_MESSAGE_ID=O1", "-k", "order-1"]
    [dead] = items(["send", "%DLQ%sad", "lost", *properties], capsys)
    items(["send", "%DLQ%sad", "other"], capsys)
    assert {"group": "sad", "topic": "%DLQ%sad", "messages": 2} in items(["dlq", "list"], capsys)
    shown = items(["dlq", "show", "sad"], capsys)
    assert [(item["body"], item["originTopic"]) for item in shown] == [("lost", "Orders"), ("other", None)]
    assert "Orders" in lines(["dlq", "show", "sad", "-c", "1"], capsys)[1]
    assert [json.loads(line)["body"] for line in lines(["dlq", "export", "sad"], capsys)] == ["lost", "other"]
    assert [item["body"] for item in items(["dlq", "export", "sad"], capsys)] == ["lost", "other"]
    assert main(["dlq", "resend", "sad", "--yes"]) == 2
    [again] = items(["dlq", "resend", "sad", "--id", "O1", "--yes"], capsys)
    assert again["originMsgId"] == dead["msgId"]
    [retried] = items(["tail", "%RETRY%sad"], capsys)
    assert (retried["body"], retried["keys"], retried["properties"]["RETRY_TOPIC"]) == ("lost", "order-1", "Orders")
    assert main(["dlq", "resend", "sad", "--id", "nosuch", "--yes"]) == 6
    both = items(["dlq", "resend", "sad", "--all", "--yes"], capsys)
    assert [(item["sendStatus"], item["offsetMsgId"] == again["offsetMsgId"]) for item in both] == [
        ("RESENT_BEFORE", True),
        ("SEND_OK", False),
    ]
    assert main(["dlq", "show", "happy"]) == 3


def test_a_dead_letter_of_a_group_without_retries_does_not_come_back_as_the_next(capsys: Capture) -> None:
    for name in ("%DLQ%once", "%RETRY%once"):
        assert main(["updateTopic", "-c", "DefaultCluster", "-t", name, "-r", "1", "-w", "1"]) == 0
    assert main(["updateSubGroup", "-c", "DefaultCluster", "-g", "once", "-r", "0"]) == 0
    items(["send", "%DLQ%once", "failed"], capsys)
    [sent] = items(["dlq", "resend", "once", "--all", "--yes"], capsys)
    assert sent["sendStatus"] == "SEND_OK"
    assert [each["body"] for each in items(["tail", "%RETRY%once"], capsys)] == ["failed"]
    assert [each["body"] for each in items(["tail", "%DLQ%once"], capsys)] == ["failed"]


def test_a_dead_letter_that_was_resent_is_marked_and_sent_again_only_on_demand(capsys: Capture) -> None:
    for name in ("%DLQ%glum", "%RETRY%glum"):
        assert main(["updateTopic", "-c", "DefaultCluster", "-t", name, "-r", "1", "-w", "1"]) == 0
    assert main(["updateSubGroup", "-c", "DefaultCluster", "-g", "glum"]) == 0
    for body in ("one", "two"):
        items(["send", "%DLQ%glum", body, "-k", "same-key"], capsys)
    letters = items(["dlq", "show", "glum"], capsys)
    assert [letter["resentAs"] for letter in letters] == [None, None]
    [sent] = items(["dlq", "resend", "glum", "--id", letters[0]["msgId"], "--yes"], capsys)
    assert (sent["sendStatus"], sent["msgId"]) == ("SEND_OK", letters[0]["offsetMsgId"])
    assert [letter["resentAs"] for letter in items(["dlq", "show", "glum"], capsys)] == [sent["offsetMsgId"], None]
    assert items(["dlq", "export", "glum"], capsys)[0]["resentAs"] == sent["offsetMsgId"]
    for words in (["--all"], ["--id", letters[0]["offsetMsgId"]]):
        items(["dlq", "resend", "glum", *words, "--yes"], capsys)
    assert [each["body"] for each in items(["tail", "%RETRY%glum"], capsys)] == ["one", "two"]
    [again] = items(["dlq", "resend", "glum", "--id", letters[0]["msgId"], "--again", "--yes"], capsys)
    assert again["sendStatus"] == "SEND_OK"
    assert len(items(["tail", "%RETRY%glum"], capsys)) == 3


def test_dead_letters_show_their_reason_and_how_often_they_were_tried(
    at_cluster: None, cluster: LocalCluster, capsys: Capture
) -> None:
    def give_up(message: MessageExt) -> None:
        raise DeadLetter("card expired")

    with Producer("P", name_server=cluster.name_server) as producer:
        assert main(["updateTopic", "-c", "DefaultCluster", "-t", "Cards", "-r", "1", "-w", "1"]) == 0
        producer.send(Message("Cards", b"lost"))
    began = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    with PushConsumer("cards", name_server=cluster.name_server, consume_from=began) as consumer:
        consumer.subscribe("Cards")
        consumer.listen(give_up)
        deadline = time.monotonic() + 30
        while main(["dlq", "show", "cards"]) != 0 and time.monotonic() < deadline:
            pass
    [letter] = items(["dlq", "show", "cards"], capsys)
    assert (letter["tries"], letter["reason"]) == (1, "card expired")
    header, row = lines(["dlq", "show", "cards"], capsys)
    assert "TRIES" in header and "REASON" in header
    assert "card expired" in row
    items(["dlq", "resend", "cards", "--all", "--yes"], capsys)
    [again] = items(["tail", "%RETRY%cards"], capsys)
    assert not [name for name in again["properties"] if name.startswith("DEAD_LETTER_")], "it may be given up anew"


def test_codes_are_explained(capsys: Capture) -> None:
    assert lines(["explain", "17"], capsys)[0] == "17 TOPIC_NOT_EXIST"
    assert items(["explain", "no_permission"], capsys)[0]["code"] == 16
    assert len(items(["explain"], capsys)) > 30
    assert main(["explain", "999"]) == 3
