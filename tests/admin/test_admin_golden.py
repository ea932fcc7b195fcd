"""Each command, given the responses that RocketMQ's mqadmin received, prints the same bytes as RocketMQ's mqadmin."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from admin_replay import recorded_runs, replayed

from triomq.admin.commands import messages, sending
from triomq.admin.errors import AdminError, NotAllowed, NotFound
from triomq.admin.output import JSON, JSON_LINES

RUNS = recorded_runs()
ENDLESS = {"clusterRT", "startMonitoring"}
# Runs that failed in Java. `*_acl_off`: RocketMQ never responds, so nothing was recorded.
FAILED = {
    "topicRoute_unknown": NotFound.exit_status,
    "topicStatus_unknown": NotFound.exit_status,
    "consumerProgress_unknown": NotFound.exit_status,
    "consumerConnection_offline": NotFound.exit_status,
    "producerConnection_offline": AdminError.exit_status,
    "queryMsgById_unknown": AdminError.exit_status,
    "queryMsgByKey_none": NotFound.exit_status,
    "queryMsgTraceById_none": NotFound.exit_status,
    "updateTopic_illegal": AdminError.exit_status,
    "updateTopic_system": AdminError.exit_status,
    "resetOffsetByTime_offline_group": AdminError.exit_status,
}
SILENT = {"clusterAclConfigVersion_acl_off", "getAclConfig_acl_off"}
COMPARED = sorted(RUNS.keys() - ENDLESS - FAILED.keys() - SILENT)

# Values that differ in each run: ids of sent messages, durations, the age of a log, file names made of the time.
VARYING = (
    (r"C0000202[0-9A-F]{24}(?=\n)", "<ID>"),
    (r"[0-9A-F]{32}(?=\n)", "<ID>"),
    (r"msgId=[0-9A-F]{32}, off", "msgId=<ID>, off"),
    (r"(?m)^rt=\d+ms", "rt=<N>ms"),
    (r"(?m)(true +)\d+$", r"\1<N>"),
    (r"Avg RT: \d+\.\d\d", "Avg RT: <N>"),
    (r" \d{6}\.\d\d (?=\d\.\d{4}$)", " <HOURS> "),
    (r"\d{13}/", "<TIME>/"),
)


@pytest.fixture(autouse=True)
def in_utc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Use UTC, as the recording did; commands write their files to a directory of the test."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(messages, "BODY_DIRECTORY", str(tmp_path / "bodies"))
    yield
    monkeypatch.undo()
    time.tzset()


def masked(text: str) -> str:
    for pattern, name in VARYING:
        text = re.sub(pattern, name, text, flags=re.MULTILINE)
    return text


def words_of(name: str, tmp_path: Path) -> list[str]:
    return [word.replace("/opt/mq/run/export", str(tmp_path / "export")) for word in RUNS[name]["args"]]


@pytest.mark.parametrize("name", COMPARED)
def test_a_command_prints_what_rocketmqs_prints(name: str, tmp_path: Path) -> None:
    printed, failure, _ = replayed(name, words_of(name, tmp_path))
    assert failure is None
    recorded = RUNS[name]["stdout"].replace("/opt/mq/run/export", str(tmp_path / "export"))
    recorded = recorded.replace("/tmp/rocketmq/msgbodys", str(tmp_path / "bodies"))
    if name in ("statsAll", "statsAll_a"):  # the frames of the last topic were not recorded
        printed, recorded = (re.sub(r"(?m)^wire-a .*\n", "", text) for text in (printed, recorded))
        assert printed.count("\n") > 3
    assert masked(printed) == masked(recorded)


@pytest.mark.parametrize("name", sorted(FAILED))
def test_a_command_that_fails_prints_nothing_and_says_why_by_its_exit_status(name: str, tmp_path: Path) -> None:
    printed, failure, _ = replayed(name, words_of(name, tmp_path))
    assert failure is not None
    assert failure.exit_status == FAILED[name]
    assert printed == RUNS[name]["stdout"] == ""


@pytest.mark.parametrize("name", [name for name in COMPARED if name.startswith("export") or name == "consumerStatus"])
def test_files_hold_what_rocketmqs_hold(name: str, tmp_path: Path) -> None:
    replayed(name, words_of(name, tmp_path))
    paths = [path for path in tmp_path.rglob("*") if path.is_file()]
    written = {str(path.relative_to(tmp_path)): path.read_text() for path in paths}
    assert without_times(written) == without_times(RUNS[name]["files"])


def without_times(files: dict[str, str]) -> dict[str, str]:
    """Return the text of each file without the time at which it was written."""
    return {
        re.sub(r"\d{13}", "<TIME>", name): re.sub(r'(?<="exportTime":)\d+', "<TIME>", text)
        for name, text in files.items()
    }


@pytest.mark.parametrize("name", COMPARED)
def test_as_json_a_command_writes_one_array_and_as_lines_the_same_objects(name: str, tmp_path: Path) -> None:
    words = words_of(name, tmp_path)
    array, failure, _ = replayed(name, words, JSON)
    assert failure is None
    values = json.loads(array)
    assert isinstance(values, list)
    assert all(isinstance(value, dict) for value in values)
    assert all(re.fullmatch(r"[a-z][A-Za-z0-9]*", key) for value in values for key in value if not key.startswith("_"))
    lines, _, _ = replayed(name, words, JSON_LINES)
    assert [set(json.loads(line)) for line in lines.splitlines()] == [set(value) for value in values]


def test_json_has_times_as_milliseconds_and_with_their_zone(tmp_path: Path) -> None:
    array, _, _ = replayed("topicStatus", words_of("topicStatus", tmp_path), JSON)
    first = json.loads(array)[0]
    assert first["lastUpdateTimestamp"] == 1795240620967
    assert first["lastUpdate"] == "2026-11-21T05:57:00.967+00:00"


def test_json_has_no_secrets(tmp_path: Path) -> None:
    array, _, _ = replayed("getBrokerConfig_b", words_of("getBrokerConfig_b", tmp_path), JSON)
    assert "secretKey" not in array


def test_a_broker_that_refuses_for_its_access_control_is_not_allowed() -> None:
    from triomq.admin.session import Refused
    from triomq.protocol.json_frame import Response

    assert Refused("b:1", Response(16, 1, "no", {}, b"")).exit_status == NotAllowed.exit_status
    remark = "org.apache.rocketmq.acl.common.AclException: No accessKey is configured"
    assert Refused("b:1", Response(1, 1, remark, {}, b"")).exit_status == NotAllowed.exit_status


def test_send_results_are_those_of_java() -> None:
    fields = {"msgId": "7F00", "queueId": "3", "queueOffset": "9"}
    assert sending.result_text(sending.SendResult("SEND_OK", "C0", "T", "b", fields)) == (
        "SendResult [sendStatus=SEND_OK, msgId=C0, offsetMsgId=7F00, "
        "messageQueue=MessageQueue [topic=T, brokerName=b, queueId=3], queueOffset=9]"
    )
