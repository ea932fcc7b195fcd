"""The command line of the jobs, and their progress bar."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_spark import SETTINGS

from triomq.spark.jobs.progress import Progress

PROJECT = Path(__file__).resolve().parents[2]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_on_a_terminal_and_nowhere_else() -> None:
    terminal, file = Terminal(), io.StringIO()
    for out in (terminal, file):
        progress = Progress("archive", 4, unit=" segments", out=out)
        progress.advance(3, note="1,000 messages")
        progress.finish()
    drawn = terminal.getvalue()
    assert "archive [######################        ]  75% 3/4 segments" in drawn
    assert "1,000 messages" in drawn and drawn.endswith("\n")
    assert file.getvalue() == ""
    quiet = Terminal()
    Progress("archive", 4, out=quiet, quiet=True).finish()
    assert quiet.getvalue() == ""


def test_a_bar_without_a_total_counts() -> None:
    progress = Progress("lag", unit=" rows", out=Terminal())
    progress.set(12_345)
    assert progress.text().startswith("lag 12,345 rows 0s")


@pytest.mark.spark
@pytest.mark.parametrize("name", ["archive", "replay", "audit", "rebuild", "lag", "trace"])
def test_each_job_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    from triomq.spark.jobs import main

    with pytest.raises(SystemExit) as over:
        main.run([name, "--help"])
    assert over.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: mqpipeline {name} [-h]")
    assert "--master MASTER" in text and "--conf KEY=VALUE" in text and "--quiet" in text


@pytest.mark.spark
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("archive --to /tmp/x", "give either --name-server and --topics, or --store"),
        ("archive --to /tmp/x -n h:1", "--topics is missing"),
        ("archive --to /tmp/x --store /s --slice-rows 0", "--slice-rows must be at least 1"),
        ("audit /nowhere", "no commit log files in /nowhere/commitlog"),
        ("rebuild /nowhere --to /tmp/x", "no commit log files in /nowhere/commitlog"),
        ("lag -n h:1 --samples 0", "--samples, --interval and --window must be more than 0"),
        ("lag -n h --samples 1", "option nameServer: 'h' is not host:port"),
        ("lag -n h:1 --option accessKey", "--option: 'accessKey' is not NAME=VALUE"),
    ],
)
def test_mistakes_are_told_in_one_line(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    from triomq.spark.jobs import main

    assert main.run(words.split()) == 2
    assert capsys.readouterr().err == f"mqpipeline {words.split()[0]}: {message}\n"


@pytest.mark.spark
@pytest.mark.slow
def test_spark_submit_runs_a_job(
    unpacked: Callable[[str], Path], expected: Callable[[str], Any], tmp_path: Path
) -> None:
    """The job runs with Spark's own launcher, master and settings, from another directory."""
    import pyspark

    home = Path(pyspark.__file__).parent
    settings = [word for name, value in SETTINGS.items() for word in ("--conf", f"{name}={value}")]
    words = ["--master", "local[1]", "--driver-memory", "512m", *settings]
    job = ["rebuild", str(unpacked("1a_clean")), "--to", str(tmp_path / "made"), "--topics", "GoldOrders", "--quiet"]
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(PROJECT / "src"),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    ran = subprocess.run(
        [str(home / "bin" / "spark-submit"), *words, str(PROJECT / "spark" / "jobs" / "main.py"), *job],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=550,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    count = sum(message["topic"] == "GoldOrders" for message in expected("1a_clean")["messages"])
    assert f"{count:,} queue entries" in ran.stdout
    files = [path for path in (tmp_path / "made").rglob("*") if path.is_file()]
    made = {path.relative_to(tmp_path / "made"): path.read_bytes() for path in files}
    assert made == {path: (unpacked("1a_clean") / path).read_bytes() for path in made} != {}
