"""Completion: the scripts run in the shells that are here, and names come quickly or not at all."""

from __future__ import annotations

import os
import pty
import select
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_cluster import FakeCluster, fake_cluster

from triomq.admin.__main__ import main
from triomq.admin.verbs import completion
from triomq.admin.verbs.completion import complete_names

ROOT = Path(__file__).resolve().parents[2]
SHELLS = ("bash", "zsh", "fish")


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("NAMESRV_ADDR", "MQADMIN_CONTEXT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    with fake_cluster() as found:
        monkeypatch.setenv("NAMESRV_ADDR", found.address)
        yield found


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """mqadmin on the PATH."""
    path = tmp_path / "bin" / "mqadmin"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT / "src"} exec {sys.executable} -P -m triomq.admin "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(path.parent), prepend=":")


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


def in_bash(words: list[str], text: str) -> set[str]:
    """Return what bash offers for the last of the words."""
    array = " ".join([f"'{word}'" for word in words])
    program = f'{text}\nCOMP_WORDS=({array}); COMP_CWORD={len(words) - 1}; _mqadmin; printf "%s\\n" "${{COMPREPLY[@]}}"'
    result = subprocess.run(["bash", "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert result.stderr == ""
    return set(result.stdout.split())


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["topicR"], {"topicRoute"}),
        (["la"], {"lag"}),
        (["offsets", "re"], {"reset"}),
        (["help", "topicSt"], {"topicStatus"}),
        (["updateTopic", "--write"], {"--writeQueueNums"}),
        (["offsets", "reset", "--t"], {"--to", "--timeout"}),
        (["topicList", "--output", "js"], {"json", "jsonl"}),
        (["topicRoute", "-t", ""], {"T"}),
        (["tail", ""], {"T"}),
        (["lag", ""], {"G"}),
        (["lag", "--topic", ""], {"T"}),
        (["offsets", "show", ""], {"G"}),
        (["deleteTopic", "-c", ""], {"C"}),
        (["nosuch", "--dr"], {"--dry-run"}),
    ],
)
@pytest.mark.usefixtures("cluster", "program")
def test_bash_completes(words: list[str], offered: set[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert in_bash(["mqadmin", *words], script("bash", capsys)) == offered


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_accepts_its_script(shell: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = script(shell, capsys)
    assert all(name in text for name in ("topicRoute", "writeQueueNums", "reset", "__complete "))
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "script").write_text(text)
    subprocess.run([shell, "-n", str(tmp_path / "script")], check=True, timeout=60)


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("topicR", {"topicRoute"}),
        ("offsets re", {"reset"}),
        ("updateTopic --write", {"--writeQueueNums"}),
        ("topicList --output js", {"json", "jsonl"}),
        ("nosuch --dr", {"--dry-run"}),
        ("topicRoute -t ", {"T"}),
        ("lag ", {"G"}),
    ],
)
@pytest.mark.usefixtures("cluster", "program")
def test_fish_completes(line: str, offered: set[str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "script").write_text(script("fish", capsys))
    program = f"source {tmp_path}/script; complete -C 'mqadmin {line}'"
    result = subprocess.run(["fish", "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert {text.split("\t")[0] for text in result.stdout.splitlines()} == offered


class Zsh:
    """An interactive zsh on a terminal, in which Ctrl-T writes the edited line to a pipe and clears it."""

    def __init__(self, folder: Path) -> None:
        self._pipe = folder / "lines"
        os.mkfifo(self._pipe)
        self._lines = os.open(self._pipe, os.O_RDWR)
        self._terminal, program_end = pty.openpty()
        start = f"""
            PS1= PROMPT_EOL_MARK= HISTFILE=
            fpath=({folder} $fpath)
            autoload -Uz compinit && compinit -u -D
            report() {{ print -r -- "$BUFFER" > {self._pipe}; BUFFER= }}
            zle -N report
            bindkey '^T' report
            zle-line-init() {{ zle -D zle-line-init; print ready > {self._pipe} }}
            zle -N zle-line-init
        """
        (folder / ".zshrc").write_text(start)
        self._process = subprocess.Popen(
            ["zsh", "-d", "-i"],
            stdin=program_end,
            stdout=program_end,
            stderr=program_end,
            start_new_session=True,
            env={**os.environ, "ZDOTDIR": str(folder), "TERM": "dumb"},
        )
        os.close(program_end)
        assert self._read() == "ready"

    def completed(self, line: str) -> str:
        """Return what TAB makes of a line."""
        os.write(self._terminal, f"{line}\t\x14".encode())
        return self._read()

    def _read(self) -> str:
        """Return the next line of the pipe; what the terminal shows meanwhile is taken, so that zsh never waits."""
        line, shown = b"", b""
        while not line.endswith(b"\n"):
            readable, _, _ = select.select([self._lines, self._terminal], [], [], 60)
            assert readable, f"zsh is silent; it showed {shown!r}"
            if self._terminal in readable:
                shown += os.read(self._terminal, 65536)
            if self._lines in readable:
                line += os.read(self._lines, 65536)
        return line.decode().removesuffix("\n")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._terminal)
        os.close(self._lines)


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
@pytest.mark.usefixtures("cluster", "program")
def test_zsh_completes_from_the_first_tab_on(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "_mqadmin").write_text(script("zsh", capsys))
    zsh = Zsh(tmp_path)
    try:
        for line, completed in {
            "topicR": "topicRoute ",
            "offsets re": "offsets reset ",
            "help topicSt": "help topicStatus ",
            "updateTopic --write": "updateTopic --writeQueueNums ",
            "topicList --output js": "topicList --output json",
            "nosuch --dr": "nosuch --dry-run ",
            "topicRoute -t ": "topicRoute -t T ",
            "lag ": "lag G ",
        }.items():
            assert zsh.completed(f"mqadmin {line}") == f"mqadmin {completed}"
    finally:
        zsh.close()


def test_every_script_knows_the_global_options_and_zsh_answers_the_first_tab(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for shell in SHELLS:
        text = script(shell, capsys)
        assert all(f"{'-l ' if shell == 'fish' else '--'}{name}" in text for name in ("dry-run", "timeout", "fields"))
    assert script("zsh", capsys).endswith("_bash_complete -F _mqadmin\n")


def test_other_shells_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "bash, zsh, fish" in capsys.readouterr().err


# -- names -------------------------------------------------------------------------------------------------------------


def test_names_are_remembered_for_a_second(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    assert complete_names("topics") == ["T"]
    assert complete_names("topics") == ["T"]
    assert len(cluster.requests) == 1
    now = time.time()
    monkeypatch.setattr(completion.time, "time", lambda: now + 2)
    assert complete_names("topics") == ["T"]
    assert len(cluster.requests) == 2


def test_each_kind_of_name(cluster: FakeCluster) -> None:
    found = [complete_names(kind) for kind in ("groups", "clusters", "brokers", "contexts", "nosuch")]
    assert found == [["G"], ["C"], ["b"], [], []]


def test_a_name_that_a_shell_would_run_is_left_out(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "_asked", lambda session, kind: ["good-1", "$(touch x)", "`x`", "a b", "a;b", ""])
    assert complete_names("topics") == ["good-1"]


def test_a_silent_name_server_costs_a_moment_and_gives_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("NAMESRV_ADDR", f"127.0.0.1:{server.getsockname()[1]}")
        monkeypatch.setattr(completion, "LIMIT_SECONDS", 0.05)
        assert complete_names("topics") == []
    assert complete_names("topics") == []
