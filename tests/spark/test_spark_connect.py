"""Spark Connect: the session in this process has no JVM and no context."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from test_spark_counting import MESSAGES, send_tagged

from triomq.spark.errors import OptionError
from triomq.spark.jobs.folders import ArrowFolder, open_folder
from triomq.spark.jobs.progress import watching
from triomq.spark.registration import PUSHDOWN, context_of, register

SOURCES = Path(__file__).parents[2] / "spark"
IN_THIS_PROCESS = re.compile(r"\b_jvm\b|\b_jsc\b|_jsparkSession|\bsparkContext\b|\.rdd\b|\bSparkContext\b")
GUARDED = {
    'return ArrowFolder(path) if getattr(spark, "_jvm", None) is None else HadoopFolder(spark, path)',
    'return getattr(spark, "sparkContext", None)',
}


def test_nothing_needs_a_jvm_in_this_process_but_hadoops_folder() -> None:
    found = []
    for path in sorted(SOURCES.rglob("*.py")):
        text = path.read_text("utf-8")
        if path.name == "folders.py":
            text = re.sub(r"\nclass HadoopFolder.*?\nclass ", "\n", text, flags=re.DOTALL)
        for line in text.splitlines():
            code = line.partition("#")[0].strip()
            if IN_THIS_PROCESS.search(code) and not code.startswith('"""') and code not in GUARDED:
                found.append(f"{path.name}: {code}")
    assert found == []


class ConnectSession:
    """Like a session of Spark Connect: it has settings and sources, and nothing of this process's JVM."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}
        self.sources: list[type] = []
        self.conf = SimpleNamespace(set=self.settings.__setitem__)
        self.dataSource = SimpleNamespace(register=self.sources.append)


def test_formats_register_with_a_session_that_has_no_context() -> None:
    session = ConnectSession()
    register(session)
    assert session.settings == {PUSHDOWN: "true"}
    assert [source.name() for source in session.sources] == ["rocketmq", "rocketmq-store"]  # type: ignore[attr-defined]
    assert context_of(session) is None
    with watching(session, "job", quiet=False):
        pass


def test_a_folder_without_a_jvm_keeps_what_a_job_writes(tmp_path: Path) -> None:
    folder = open_folder(ConnectSession(), str(tmp_path / "out"))
    assert isinstance(folder, ArrowFolder)
    assert (folder.exists(), folder.names(), folder.files_below("a")) == (False, [], [])
    folder.write("a/one.json", "ä 1")
    folder.write("a/b/two", "22")
    assert folder.read("a/one.json") == "ä 1"
    assert (folder.names(), folder.names("a")) == (["a"], ["b", "one.json"])
    assert folder.files_below("a") == [("b/two", 2), ("one.json", 4)]
    folder.rename("a/b/two", "c/d/two")
    assert (tmp_path / "out" / "c" / "d" / "two").read_text() == "22"
    with pytest.raises(OSError, match="could not be renamed"):
        folder.rename("c/d/two", "a/one.json")
    with pytest.raises(OSError, match="could not be renamed"):
        folder.write("a/one.json", "other")
    for name in ("a", "c/d/two", "nothing"):
        folder.remove(name)
        assert not folder.exists(name)
    assert folder.files_below("c") == []


@pytest.mark.parametrize("path", ["relative/out", "no-such-scheme://host/out"])
def test_a_folder_that_arrow_cannot_use_is_named(path: str) -> None:
    with pytest.raises(OptionError, match=f"folder {path}: .*with Spark Connect give an absolute path or a URI"):
        open_folder(ConnectSession(), path)


@pytest.mark.spark
@pytest.mark.slow
def test_batch_stream_sink_and_jobs_run_with_spark_connect(cluster: Any, tmp_path: Path) -> None:
    for name in ("grpc", "grpc_status", "google.rpc", "pandas"):
        pytest.importorskip(name, reason=f"Spark Connect needs {name}: pip install 'pyspark[connect]'")
    source, target = cluster.create_topic("ConnectFrom", 2), cluster.create_topic("ConnectTo", 2)
    send_tagged(cluster.namesrv_address, source)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    environment |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    words = [sys.executable, str(Path(__file__).parent / "connect_driver.py")]
    words += [cluster.namesrv_address, source, target, str(tmp_path)]
    ran = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=550)
    assert ran.returncode == 0, ran.stderr[-3000:]
    lines = [line for line in ran.stdout.splitlines() if not line.startswith(f"{MESSAGES:,} messages")]
    assert lines == [
        f"rows {MESSAGES} {MESSAGES // 5}",
        f"copied {MESSAGES}",
        "lag 0",
        "archive 0",
        "replay 0",
        f"replayed {2 * MESSAGES}",
    ]
