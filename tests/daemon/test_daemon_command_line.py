import re
from pathlib import Path

import pytest
from structlog.testing import capture_logs

import triomq
from triomq.daemon.command_line import CommandLine, parse_command_line, settings_listing, warn_of_ignored_words
from triomq.protocol.settings import SettingsRecord, setting


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], CommandLine()),
        (["-c", "a.conf", "-n", "x:1"], CommandLine(Path("a.conf"), "x:1")),
        (["--configFile", "a.conf", "--namesrvAddr=x:1;y:2"], CommandLine(Path("a.conf"), "x:1;y:2")),
        (["-ca.conf", "-pm"], CommandLine(Path("a.conf"), None, True, True)),
        (["--printConfigItem"], CommandLine(print_all=True)),
        (["--printImportantConfig"], CommandLine(print_important=True)),
        (["--explain", "-m", "--check"], CommandLine(print_important=True, explain=True, check=True)),
        (["--own"], CommandLine(explain=True, own=True)),
        (["start", "-p", "now"], CommandLine(print_all=True, ignored=("start", "now"))),
    ],
)
def test_options(arguments: list[str], expected: CommandLine) -> None:
    assert parse_command_line("mqbroker", arguments, letters="chmnp") == expected


@pytest.mark.parametrize("arguments", [["-x"], ["--nosuch"], ["-c"], ["-m"]])
def test_wrong_options_print_help_and_end_with_1(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse_command_line("mqnamesrv", arguments, letters="chnp")
    assert caught.value.code == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "usage: mqnamesrv [-c <arg>] [-h] [-n <arg>] [-p] [--explain] [--own] [--check] [--version]" in printed.err


def test_help_ends_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse_command_line("mqbroker", ["-h", "-c", "x"], letters="chmnp")
    assert caught.value.code == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert " -m,--printImportantConfig    print the important settings and end" in printed.out.splitlines()


def test_the_version_names_the_project_the_protocol_and_python(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse_command_line("mqnamesrv", ["--version"], letters="chnp")
    assert caught.value.code == 0
    line = capsys.readouterr().out
    assert line.startswith(f"mqnamesrv (TrioMQ) {triomq.__version__}, compatible with RocketMQ 4.9.7, ")
    assert re.search(r", (compiled|with C speedups|in pure Python) on \w+ 3\.[\d.]+\n$", line)


def test_listing() -> None:
    class Example(SettingsRecord, frozen=True, kw_only=True):
        name: str = setting("brokerName", "a", meaning="name", important=True)
        address: str | None = setting("haMasterAddress", None, meaning="address")

    both = "brokerName=a\nhaMasterAddress=\nbrokerName=b\nhaMasterAddress=\n"
    assert settings_listing([Example(), Example(name="b")]) == both
    assert settings_listing([Example()], important_only=True) == "brokerName=a\n"


def test_ignored_words_are_reported() -> None:
    with capture_logs() as logs:
        warn_of_ignored_words(CommandLine(ignored=("start", "conf/broker.conf")))
        warn_of_ignored_words(CommandLine())
    assert [line["words"] for line in logs] == ["start conf/broker.conf"]
