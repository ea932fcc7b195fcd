"""`--check` finds what would prevent a daemon from starting, without starting it or writing anything."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from triomq.daemon.directory_check import directory_problem

SOURCE = Path(__file__).resolve().parents[2] / "src"
GROUP = "enableDLegerCommitLog=true\ndLegerGroup=G\ndLegerSelfId=n0\ndLegerPeers=n0-127.0.0.1:40911\n"


def check(home: Path, program: str, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    path = home / "a.conf"
    path.write_text(text)
    return subprocess.run(
        [sys.executable, "-m", f"triomq.{program}", "-c", str(path), "--check", *options],
        env={"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("program", ["broker", "namesrv"])
def test_a_valid_configuration(tmp_path: Path, program: str) -> None:
    done = check(tmp_path, program, "namesrvAddr=127.0.0.1:9876\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"mq{program}: the configuration is valid\n", "")
    assert [path.name for path in tmp_path.iterdir()] == ["a.conf"], "no store, log or pid file"


def test_warnings_are_shown_and_do_not_fail(tmp_path: Path) -> None:
    done = check(tmp_path, "broker", "deleteWhen=25\nbrokerNam=x\n", "stray")
    assert done.returncode == 0
    for text in ("there is no hour 25", "did_you_mean=brokerName", "no NameServer is configured", "words=stray"):
        assert text in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a.conf"]


@pytest.mark.parametrize(
    ("program", "text", "reason"),
    [
        ("broker", "listenPort=x\n", "listenPort: 'x' is not a whole number"),
        ("broker", "namesrvAddr=a:1,b:1\n", "separated by ';'"),
        ("broker", "storePathRootDir={home}/a.conf/store\n", "storePathRootDir: {home}/a.conf is not a directory"),
        ("broker", "storePathCommitLog={home}/log,{home}/a.conf\n", "storePathCommitLog: {home}/a.conf is not a d"),
        ("broker", "tls.test.mode.enable=false\n", "tls.server.certPath"),
        ("broker", f"{GROUP}listenPort=40911\n", "dLegerPeers: n0 has port 40911, which is listenPort"),
        ("broker", f"{GROUP}listenPort=40913\n", "dLegerPeers: n0 has port 40911, which is the fast port"),
        ("namesrv", "kvConfigPath={home}/a.conf/kv.json\n", "kvConfigPath: {home}/a.conf is not a directory"),
        ("namesrv", "tls.test.mode.enable=false\n", "tls.server.certPath"),
        ("namesrv", "namesrvAddr=a:1,b:1\n", "separated by ';'"),
    ],
)
def test_what_would_keep_it_from_serving(tmp_path: Path, program: str, text: str, reason: str) -> None:
    done = check(tmp_path, program, text.format(home=tmp_path))
    assert (done.returncode, done.stdout) == (253, "")
    assert reason.format(home=tmp_path) in done.stderr


def test_access_control_files_are_read_and_not_created(tmp_path: Path) -> None:
    text = f"namesrvAddr=a:1\naclEnable=true\nrocketmqHome={tmp_path}\n"
    done = check(tmp_path, "broker", text)
    assert (done.returncode, [path.name for path in tmp_path.iterdir()]) == (0, ["a.conf"])
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/plain_acl.yml").write_text("accounts:\n- accessKey: short\n  secretKey: 12345678\n")
    done = check(tmp_path, "broker", text)
    assert (done.returncode, done.stdout) == (253, "")
    assert "longer than 6 characters" in done.stderr
    assert "12345678" not in done.stderr


def test_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert directory_problem(tmp_path / "not" / "there" / "yet") is None
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    assert directory_problem(tmp_path / "dangling" / "store") == f"{tmp_path}/dangling is not a directory"
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root ignores permissions
    assert directory_problem(tmp_path / "x") == f"{tmp_path} cannot be written by this account"
