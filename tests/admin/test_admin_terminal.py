"""Whatever the terminal, the pipes and the home are like, no command ends in a traceback."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from triomq.admin.output import JSON, JSON_LINES, TEXT, Output

SHELL = ["sh", "-c"]
MQADMIN = f"'{sys.executable}' -m triomq.admin"


def run(command: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run a shell command in which MQADMIN stands for mqadmin."""
    own = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    text = command.replace("MQADMIN", MQADMIN)
    done = subprocess.run([*SHELL, text], capture_output=True, check=False, timeout=60, env={**own, **environment})
    assert b"Traceback" not in done.stderr and b"Exception ignored" not in done.stderr, done.stderr.decode()
    return done


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "gbk", "cp1252", "utf-8"])
def test_characters_that_the_encoding_lacks_are_question_marks(encoding: str) -> None:
    done = run("MQADMIN 'frühstück-订单-€'", PYTHONIOENCODING=encoding, PYTHONUTF8="1")
    assert done.returncode == 2
    assert done.stdout.decode(encoding).rstrip() == "The sub command {} not exist.".format(
        "frühstück-订单-€".encode(encoding, "replace").decode(encoding)
    )


@pytest.mark.parametrize("form", [JSON, JSON_LINES])
def test_json_escapes_characters_that_the_encoding_lacks(form: str) -> None:
    raw = io.BytesIO()
    out = Output(io.TextIOWrapper(raw, encoding="latin-1"), form)
    out.item(topic="订单-😀")
    out.finish()
    value = json.loads(raw.getvalue())
    assert value in ({"topic": "订单-😀"}, [{"topic": "订单-😀"}])


def test_json_shows_characters_that_the_encoding_has() -> None:
    raw = io.BytesIO()
    out = Output(io.TextIOWrapper(raw, encoding="UTF-8"), JSON_LINES)
    out.item(topic="订单")
    assert raw.getvalue() == '{"topic": "订单"}\n'.encode()


def test_a_table_is_text() -> None:
    raw = io.BytesIO()
    out = Output(io.TextIOWrapper(raw, encoding="UTF-8"), TEXT)
    out.table({"a": "A"}, [{"a": {"订": 1}}])
    assert "订".encode() in raw.getvalue()


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("MQADMIN help | head -1", 0),
        ("MQADMIN help >&-", 0),
        ("MQADMIN nonsense >&- 2>&-", 2),
        ("MQADMIN updateTopic 2>&1 | true", 0),
        ("MQADMIN clusterList -n nowhere:x 2>&-", 2),
        ("MQADMIN help <&-", 0),
        ("MQADMIN topicList -n 127.0.0.1:1 --timeout 1 2>&1 >&- | head -c 1", 0),
    ],
)
def test_closed_pipes_end_a_command_quietly(command: str, status: int) -> None:
    done = run(command)
    assert done.returncode == status, done


@pytest.mark.parametrize("home", [None, "/nonexistent", "/proc"])
@pytest.mark.parametrize("words", ["context list", "help", "context add x -n 127.0.0.1:1", "topicList"])
def test_a_home_that_is_missing_or_cannot_be_written_is_one_line(home: str | None, words: str, tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], **({"HOME": home} if home else {"XDG_CONFIG_HOME": str(tmp_path)})}
    done = subprocess.run(
        [sys.executable, "-m", "triomq.admin", *words.split()],
        capture_output=True,
        check=False,
        timeout=60,
        env=environment,
    )
    assert b"Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 1


def test_bytes_that_are_no_text_are_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "triomq.admin", "topicStatus", "-t", b"\xff\xfe"],
        capture_output=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONUTF8": "1"},
    )
    assert (done.returncode, b"Traceback" in done.stderr) == (2, False)
    assert b"is not text in the encoding of this terminal" in done.stderr
