"""JSON output is an interface: each command's output fits its schema file; --fields chooses, --watch repeats."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from admin_replay import recorded_runs, replayed
from fake_cluster import FakeCluster, fake_cluster
from test_admin_changes import CHANGING, ENDLESS, EVERY, words_of
from verb_calls import SCHEMAS, check

from triomq.admin import execute
from triomq.admin.__main__ import main
from triomq.admin.commands import messages
from triomq.admin.output import JSON, Output, printable, table_lines
from triomq.admin.schema import names, schema_files
from triomq.admin.verb_table import VERBS


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeCluster]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(messages, "BODY_DIRECTORY", str(tmp_path / "bodies"))
    with fake_cluster() as found:
        yield found


def test_the_schema_files_are_those_of_the_declarations_and_every_command_has_one() -> None:
    assert {path.name: path.read_text() for path in SCHEMAS.iterdir()} == schema_files()
    assert set(names()) == {*EVERY, *[row[0] for row in VERBS], "dry-run"}


@pytest.mark.parametrize("name", sorted(recorded_runs().keys()))
def test_recorded_responses_of_rocketmq_give_json_that_fits(name: str, tmp_path: Path) -> None:
    words = [word.replace("/opt/mq/run/export", str(tmp_path)) for word in recorded_runs()[name]["args"]]
    if words[0] in ENDLESS or words[0].endswith("AclConfig") or words[0] == "clusterAclConfigVersion":
        return
    printed, failure, _ = replayed(name, words, JSON)
    if failure is None:
        check(words[0], printed)


@pytest.mark.parametrize("name", [name for name in EVERY if name not in ENDLESS])
def test_the_json_of_every_command_fits_its_schema(
    name: str, cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words_of(name, cluster), "--output", "json"]) == 0
    printed = capsys.readouterr().out
    items = check(name, printed)
    assert items or name in ("printMsg", "printMsgByQueue", "consumeMessage", "queryMsgByOffset", "queryMsgTraceById")
    assert "hush-hush" not in printed


@pytest.mark.parametrize("name", sorted(CHANGING))
def test_the_json_of_every_plan_fits_the_schema_of_plans(
    name: str, cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words_of(name, cluster), "--output", "json", "--dry-run"]) == 0
    assert check("dry-run", capsys.readouterr().out)


def test_a_field_that_no_schema_has_is_seen() -> None:
    with pytest.raises(jsonschema.ValidationError):
        check("topicList", '[{"topic": "T", "extra": 1}]')
    with pytest.raises(jsonschema.ValidationError):
        check("topicList", '[{"topic": 1}]')


# -- --fields ----------------------------------------------------------------------------------------------------------


def test_fields_choose_the_columns_and_their_order(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["consumerProgress", "-g", "G", "-n", cluster.address]
    assert main([*words, "--fields", "diff,queueId"]) == 0
    assert capsys.readouterr().out == "diff  queueId\n   3        0\n   3        1\n"
    assert main([*words, "--fields=queueId", "--no-header"]) == 0
    assert capsys.readouterr().out == "0\n1\n"
    assert main([*words, "--fields", "diff,queueId", "--output", "jsonl"]) == 0
    assert capsys.readouterr().out == '{"diff": 3, "queueId": 0}\n{"diff": 3, "queueId": 1}\n'


def test_a_wrong_field_is_refused_before_anything_happens(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["deleteTopic", "-c", "C", "-t", "T", "-n", cluster.address, "--fields", "nosuch"]) == 2
    assert cluster.requests == []
    assert "deleteTopic has no field 'nosuch': it has topic, cluster, deleted" in capsys.readouterr().err


def test_tables_align_numbers_to_the_right_and_show_control_characters() -> None:
    rows = [["a\x1b[31m", 5, None], ["bb", 10, 1.5]]
    lines = table_lines(["NAME", "N", "RATE"], rows)
    assert lines == ["NAME        N  RATE", "a\\x1b[31m   5     -", "bb         10  1.50"]
    assert table_lines([], []) == []
    assert printable("é\n\x00") == "é\\n\\x00"


# -- --watch -----------------------------------------------------------------------------------------------------------


class Rounds:
    """Stands for time.sleep: interrupts the program when it waits for the third round. Other threads, which an earlier
    test may have left, sleep as they want: one of them would take the interruption, and the program would not end."""

    def __init__(self) -> None:
        self.waited: list[float] = []
        self._thread = threading.current_thread()
        self._sleep = time.sleep

    def __call__(self, seconds: float) -> None:
        if threading.current_thread() is not self._thread:
            self._sleep(seconds)
            return
        self.waited.append(seconds)
        if len(self.waited) >= 3:
            raise KeyboardInterrupt


def test_watch_repeats_until_it_is_interrupted_and_exits_with_130(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds = Rounds()
    monkeypatch.setattr(time, "sleep", rounds)
    assert main(["topicList", "-n", cluster.address, "--watch", "0.5"]) == 130
    assert rounds.waited == [0.5, 0.5, 0.5]
    printed = capsys.readouterr()
    assert printed.out.split() == ["T", "%RETRY%G"] * 3 or printed.out.split() == ["%RETRY%G", "T"] * 3
    assert printed.err == ""


def test_watch_shows_a_failure_and_tries_again(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.refusals[105] = (17, "no route")
    monkeypatch.setattr(time, "sleep", Rounds())
    assert main(["topicRoute", "-t", "T", "-n", cluster.address, "--watch"]) == 130
    assert capsys.readouterr().err.count("does it exist?") == 3


def test_watch_never_changes_anything(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["deleteTopic", "-c", "C", "-t", "T", "-n", cluster.address, "--watch"]) == 2
    assert cluster.codes == {106}
    assert "change nothing" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["--watch=0", "--watch=x", "--watch=-1", "--watch=3601"])
def test_the_interval_has_bounds(text: str, cluster: FakeCluster) -> None:
    assert main(["topicList", "-n", cluster.address, text]) == 2


# -- environment and colours -------------------------------------------------------------------------------------------


def test_options_may_stand_in_the_environment_and_the_command_line_wins(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MQADMIN_OUTPUT", "jsonl")
    monkeypatch.setenv("MQADMIN_FIELDS", "queueId")
    words = ["topicStatus", "-t", "T", "-n", cluster.address]
    assert main(words) == 0
    assert capsys.readouterr().out == '{"queueId": 0}\n{"queueId": 1}\n'
    monkeypatch.setenv("MQADMIN_NO_HEADER", "1")
    assert main([*words, "--output", "table"]) == 0
    assert capsys.readouterr().out == "0\n1\n"
    monkeypatch.setenv("MQADMIN_TIMEOUT", "soon")
    assert main(words) == 2
    assert "--timeout must be seconds" in capsys.readouterr().err
    assert execute.environment_settings()["timeout"] == "soon"


class Terminal:
    def isatty(self) -> bool:
        return True


def test_colours_are_only_for_terminals_and_no_color_switches_them_off(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal: Any = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert Output(terminal).painted("x", "red") == "\x1b[31mx\x1b[0m"
    assert Output(terminal, JSON).painted("x", "red") == "x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert Output(terminal).painted("x", "red") == "x"
