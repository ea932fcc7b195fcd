"""mqshutdown ends the daemons that it can identify, and nothing else."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from triomq.daemon import shutdown


@pytest.fixture
def signalled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[int, int]]:
    sent: list[tuple[int, int]] = []
    lines = {
        1001: ["/p/.venv/bin/python", "-P", "-m", "triomq.broker", "-c", "broker.conf"],
        1002: ["/p/.venv/bin/python", "/usr/local/bin/mqbroker", "-n", "x:1"],
        1003: ["python3", "-m", "triomq.namesrv"],
        1004: ["vim", "broker.conf"],
    }
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    monkeypatch.setattr(shutdown, "command_line", lambda pid: lines.get(pid, []))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("JAVA_OPT", raising=False)
    monkeypatch.delenv("JAVA_OPT_EXT", raising=False)
    return sent


def pid_files(home: Path, program: str, *texts: str) -> Path:
    directory = home / ".triomq" / "run"
    directory.mkdir(parents=True, exist_ok=True)
    for text in texts:
        (directory / f"{program}.{text}.pid").write_text(f"{text}\n")
    return directory


def test_all_brokers_are_asked_and_stale_files_go(
    signalled: list[tuple[int, int]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = pid_files(tmp_path, "mqbroker", "1001", "1002", "1003", "1004", "9999", "x", "1", "-1")
    pid_files(tmp_path, "mqnamesrv", "1003")
    assert shutdown.main(["broker"]) == 0
    assert signalled == [(1001, signal.SIGTERM), (1002, signal.SIGTERM)]
    assert "Send shutdown request to mqbroker(1001) OK" in capsys.readouterr().out
    assert sorted(path.name for path in directory.iterdir()) == [
        "mqbroker.1001.pid",
        "mqbroker.1002.pid",
        "mqnamesrv.1003.pid",
    ]
    assert shutdown.main(["namesrv"]) == 0
    assert signalled[-1] == (1003, signal.SIGTERM)


def test_nothing_runs(signalled: list[tuple[int, int]], capsys: pytest.CaptureFixture[str]) -> None:
    assert shutdown.main(["namesrv"]) == 255
    assert capsys.readouterr().out == "No mqnamesrv running.\n"


def test_help_goes_to_standard_output(signalled: list[tuple[int, int]], capsys: pytest.CaptureFixture[str]) -> None:
    assert shutdown.main(["-h"]) == 0
    assert capsys.readouterr().out == shutdown.HELP + "\n"
    assert signalled == []


@pytest.mark.parametrize("arguments", [[], ["all"], ["broker", "namesrv"]])
def test_wrong_arguments(
    signalled: list[tuple[int, int]], arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The usage goes to standard error."""
    assert shutdown.main(arguments) == 1
    assert signalled == []
    assert capsys.readouterr() == ("", shutdown.HELP.splitlines()[0] + "\n")


def test_the_command_line_of_a_process() -> None:
    words = shutdown.command_line(os.getpid())
    assert any("pytest" in word or "python" in word for word in words)
    assert not shutdown.is_daemon(words, "broker")
    assert shutdown.command_line(2**22 + 1) == []
