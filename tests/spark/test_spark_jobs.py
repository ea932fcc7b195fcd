"""The command line of the jobs, and their progress bar."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from small_spark import SETTINGS

from triomq.blocking import Message, Producer, PullConsumer
from triomq.spark.jobs.progress import Progress
from triomq.testing import LocalCluster

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


WITHOUT_JAVA = """
import os, sys
os.environ["JAVA_HOME"] = os.environ["PATH"] = "/nowhere"
from triomq.spark.jobs import main
status = main.run(sys.argv[1:])
print("status", status)
"""


def run_without_java(*words: str) -> tuple[str, str]:
    """Return (standard output, standard error) of a job that cannot start a JVM."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK", "HADOOP"))
    }
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_JAVA, *words],
        env={**environment, "PYTHONPATH": str(PROJECT / "src")},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def local_cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as found:
        yield found


@pytest.mark.spark
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("arcive", "invalid choice: 'arcive'"),
        ("archive -n {ns} --topics Orders,Nosuch --to {here}/to", "--topics: topic 'Orders' does not exist"),
        ("archive -n {ns} --topics Orders --to {here}/file/to", "--to: {here}/file is not a directory"),
        ("archive -n {ns} --topics Orders --to {here} --option filterType=x", "option filterType"),
        ("archive --store {here}/none --to {here}/to", "--store: {here}/none is not a directory"),
        ("replay -n {ns} --from {here}", "--from: {here} holds no archive (no _manifest)"),
        ("trace -n {ns} --trace-topic Nosuch", "topic 'Nosuch' does not exist"),
        ("lag -n {ns} --to {here}/file", "--to: {here}/file is not a directory"),
    ],
)
def test_wrong_names_topics_and_targets_are_refused_before_a_jvm_starts(
    words: str, message: str, local_cluster: LocalCluster, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    given = words.format(ns=local_cluster.name_server, here=tmp_path).split()
    if given == ["arcive"]:
        with pytest.raises(subprocess.CalledProcessError) as caught:
            run_without_java(*given)
        error = caught.value.stderr
    else:
        out, error = run_without_java(*given)
        assert out == "status 2\n"
    assert message.format(here=tmp_path) in error


@pytest.mark.spark
def test_lag_needs_no_jvm(local_cluster: LocalCluster, tmp_path: Path) -> None:
    with Producer("P", name_server=local_cluster.name_server) as producer:
        for number in range(10):
            producer.send(Message("LagT", str(number).encode()))
    with PullConsumer("lagging", name_server=local_cluster.name_server) as consumer:
        consumer.commit(consumer.queues("LagT")[0], 0)
    out, error = run_without_java(
        "lag", "-n", local_cluster.name_server, "--groups", "lagging", "--samples", "1", "--quiet",
        "--html", str(tmp_path / "lag.html"),
    )  # fmt: skip
    assert (error, out.splitlines()[-1]) == ("", "status 0")
    assert "lagging" in out and "max lag" in out
    assert "Consumer lag" in (tmp_path / "lag.html").read_text()


@pytest.mark.spark
def test_percentiles_of_the_lag_are_nearest_ranks() -> None:
    from triomq.spark.jobs.lag import summarize

    rows = [(1000 * at, "G", "T", "b", queue, 3 + queue, 10 * at + queue) for at in range(100) for queue in (0, 1)]
    first, second = summarize(rows, 60)
    assert (first["windowMs"], first["maxLag"], first["max"]) == (0, 7, 591)
    assert (first["p50"], first["p90"], first["p99"]) == (291, 531, 590)
    assert (second["windowMs"], second["max"], second["p50"]) == (60_000, 991, 791)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0ms"),
        (999, "999ms"),
        (1000, "1.0s"),
        (59_999, "59.9s"),
        (60_000, "1m 00s"),
        (1_795_243, "29m 55s"),
        (7 * 3_600_000 + 150_000, "7h 02m"),
        (12 * 86_400_000 + 5 * 3_600_000, "12d 05h"),
    ],
)
def test_delays_are_printed_with_their_units(milliseconds: int, text: str) -> None:
    from triomq.spark.jobs.lag import as_time

    assert as_time(milliseconds) == text


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
