"""Registration with a session: the interpreter that the workers of a local session run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from triomq.spark.registration import use_this_python


class FakeContext:
    def __init__(self, master: str, **settings: str) -> None:
        self.master = master
        self.pythonExec = "python3"
        self.settings = {name.replace("_", "."): value for name, value in settings.items()}

    def getConf(self) -> Any:
        return SimpleNamespace(contains=self.settings.__contains__)


@pytest.fixture
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def worker_python(context: FakeContext) -> str:
    use_this_python(SimpleNamespace(sparkContext=context))
    return context.pythonExec


@pytest.mark.parametrize("master", ["local", "local[4]", "local[*]"])
def test_workers_of_a_local_session_run_the_python_of_the_program(
    master: str, plain_environment: pytest.MonkeyPatch
) -> None:
    assert worker_python(FakeContext(master)) == sys.executable


def test_a_configured_python_and_a_cluster_are_left_alone(plain_environment: pytest.MonkeyPatch) -> None:
    assert worker_python(FakeContext("local[2]", spark_pyspark_python="/opt/python")) == "python3"
    assert worker_python(FakeContext("spark://host:7077")) == "python3"
    assert worker_python(FakeContext("local-cluster[2,1,1024]")) == "python3"
    plain_environment.setenv("PYSPARK_PYTHON", "/opt/python")
    assert worker_python(FakeContext("local[2]")) == "python3"
    use_this_python(SimpleNamespace())  # like a Spark Connect session, which has no context


JOB = """
import sys
import triomq.spark
from small_spark import small_session
spark = small_session("local[1]", spark_driver_memory="512m")
triomq.spark.register(spark)
rows = spark.read.format("rocketmq-store").schema("topic string").load(sys.argv[1]).count()
print("rows", rows)
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.slow
def test_a_program_run_by_the_python_of_its_environment_needs_no_settings(unpacked: Any, tmp_path: Path) -> None:
    """The first `python3` on the PATH is one without triomq."""
    wrong = tmp_path / "python3"
    wrong.write_text("#!/bin/sh\necho 'this python has no triomq' >&2\nexit 9\n")
    wrong.chmod(0o755)
    (tmp_path / "job.py").write_text(JOB)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
    environment |= {
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(Path(__file__).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    words = [sys.executable, str(tmp_path / "job.py"), str(unpacked("1a_clean"))]
    ran = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert ran.stdout.startswith("rows ") and ran.stdout != "rows 0\n"
