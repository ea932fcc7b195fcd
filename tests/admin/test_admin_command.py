"""The command table: help as recorded from RocketMQ's mqadmin, and reading of command lines."""

from __future__ import annotations

import pytest
from golden_data import golden_lines

from triomq.admin.__main__ import GLOBAL_OPTIONS, main
from triomq.admin.command import GENERAL_OPTIONS, Command, find_command, overview
from triomq.admin.commands import MODULES, function_of
from triomq.admin.errors import UsageError
from triomq.admin.table import LATER, ROWS


def command(name: str) -> Command:
    found = find_command(name)
    assert found is not None
    return found


def test_every_help_text_is_that_of_rocketmq() -> None:
    recorded = {run["args"][1]: run["stdout"] for run in golden_lines("mqadmin", "help")}
    assert len(recorded) == 57
    later = {
        name: f"\n\nof RocketMQ 5:\n -{letter},--{long} <arg>   {text}"
        for name, ((letter, long, *_, text),) in LATER.items()
    }
    assert {name: command(name).usage().removesuffix(later.get(name, "")) + "\n" for name in recorded} == recorded
    assert all(command(name).usage().endswith(text) for name, text in later.items())


def test_the_overview_is_that_of_rocketmq() -> None:
    [recorded] = [run["stdout"] for run in golden_lines("mqadmin", "outputs") if run["name"] == "no_args"]
    assert overview() + "\n" == recorded


def test_every_command_of_the_table_has_a_function_and_no_other_has() -> None:
    assert sorted(name for names in MODULES.values() for name in names) == sorted(row[0] for row in ROWS)
    for row in ROWS:
        assert callable(function_of(row[0]))


def test_commands_are_found_in_any_case_and_by_their_alias() -> None:
    assert command("TOPICROUTE").name == "topicRoute"
    assert command("deleteAccessConfig").name == "deleteAclConfig"
    assert find_command("nosuch") is None
    assert find_command("") is None


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["-t", "T", "-b", "h:1"], {"t": "T", "b": "h:1"}),
        (["--topic", "T", "--brokerAddr=h:1"], {"t": "T", "b": "h:1"}),
        (["-tT", "-bh:1"], {"t": "T", "b": "h:1"}),
        (["--top", "T", "--brokerAddr", "h:1"], {"t": "T", "b": "h:1"}),
        (["-t", "T", "-b", "h:1", "stray", "--", "-z"], {"t": "T", "b": "h:1"}),
        (["-h"], {"h": ""}),
    ],
)
def test_options_are_read_as_posix_tools_do(words: list[str], values: dict[str, str]) -> None:
    assert command("updateTopic").parse(words) == values


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["-b", "h:1"], "missing required option: -t"),
        (["-t", "T"], "exactly one of -b and -c"),
        (["-t", "T", "-b", "h:1", "-c", "C"], "exactly one of -b and -c"),
        (["-t"], "-t needs a value"),
        (["-t", "T", "-z"], "unrecognized option: -z"),
        (["--nosuch"], "unrecognized option: --nosuch"),
        (["--brok"], "--brok needs a value"),
        (["--help=yes"], "takes no value"),
    ],
)
def test_words_that_do_not_fit_are_refused_with_the_reason(words: list[str], reason: str) -> None:
    with pytest.raises(UsageError, match=reason.replace("(", r"\(")):
        command("updateTopic").parse(words)


def test_letters_without_values_may_stand_together() -> None:
    assert command("exportMetadata").parse(["-tgs", "-b", "h:1"]) == {"t": "", "g": "", "s": "", "b": "h:1"}


def test_an_ambiguous_long_name_is_refused() -> None:
    with pytest.raises(UsageError, match="ambiguous option: --retry"):
        command("updateSubGroup").parse(["--retry", "1"])  # retryQueueNums or retryMaxTimes


# -- what stands before the name of a command --------------------------------------------------------------------------

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize("words", [["--help"], ["-h"]])
def test_help_needs_no_command(words: list[str], capsys: Capture) -> None:
    assert main([]) == 0
    overviews = capsys.readouterr()
    assert main(words) == 0
    assert capsys.readouterr() == overviews


def test_the_version_is_printed(capsys: Capture) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("mqadmin (TrioMQ) ")


@pytest.mark.parametrize(
    "leading", [["-n", "127.0.0.1"], ["-n127.0.0.1"], ["-n=127.0.0.1"], ["--namesrvAddr=127.0.0.1"]]
)
@pytest.mark.parametrize("words", [["clusterList"], ["lag"], ["offsets", "show", "G"], ["--timeout", "1", "topicList"]])
def test_name_servers_may_stand_before_the_command(leading: list[str], words: list[str], capsys: Capture) -> None:
    assert main([*leading, *words]) == 2
    assert capsys.readouterr().err.endswith(": '127.0.0.1' is not an address: write HOST:PORT\n")


@pytest.mark.parametrize("words", [["-h", "lag"], ["-n", "h:1", "--help", "lag"]])
def test_help_before_a_command_is_that_of_the_command(words: list[str], capsys: Capture) -> None:
    assert main(words) == 0
    assert capsys.readouterr().out.startswith("usage: mqadmin lag [GROUP]")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["-n"], "the option -n needs a value"),
        (["-t", "T", "topicRoute"], "-t cannot stand before the name of a command: mqadmin help lists the commands"),
        (["--nosuch", "lag"], "--nosuch cannot stand before the name of a command: mqadmin help lists the commands"),
    ],
)
def test_other_options_before_the_command_are_refused(words: list[str], reason: str, capsys: Capture) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err == f"mqadmin: {reason}\n"


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["laag"], "lag"),
        (["help", "laag"], "lag"),
        (["laag", "billing"], "lag"),
        (["-n", "h:1", "clusterlst"], "clusterList"),
        (["offset", "show", "G"], "offsets show"),
        (["dlq", "shw"], "dlq show"),
        (["offsts"], "offsets"),
    ],
)
def test_a_misspelt_command_has_a_suggestion(words: list[str], name: str, capsys: Capture) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err == f"mqadmin: did you mean {name}?\n"


def test_the_first_word_of_verbs_lists_those_that_begin_with_it(capsys: Capture) -> None:
    main(["dlq"])
    printed = capsys.readouterr().out.splitlines()
    names = [" ".join(line.split()[:2]) for line in printed if line.startswith("   dlq ")]
    assert names == ["dlq list", "dlq show", "dlq resend", "dlq export"]


@pytest.mark.parametrize("words", [["zzzz"], ["dlq"], ["bogus", "lag"]])
def test_a_command_like_no_other_has_no_suggestion(words: list[str], capsys: Capture) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err == ""


def test_the_help_of_a_verb_lists_what_every_command_accepts(capsys: pytest.CaptureFixture[str]) -> None:
    assert {name for name, _, _ in GENERAL_OPTIONS} == set(GLOBAL_OPTIONS)
    assert {name for name, value, _ in GENERAL_OPTIONS if value and value[0] != "["} == {
        name for name, takes_value in GLOBAL_OPTIONS.items() if takes_value
    }
    assert main(["lag", "--help"]) == 0
    assert "--dry-run" in capsys.readouterr().out
