"""Driver, master and executors in separate processes: everything that travels between them can be pickled and found.

Spark's local-cluster[2,1,1024] runs two executors as real processes. They find triomq over PYTHONPATH and the Python
over PYSPARK_PYTHON, as on a cluster whose nodes have the same environment.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROJECT = Path(__file__).resolve().parents[2]
RUN_SECONDS = 550
NOT_STARTED = 3


def run_on_cluster(work: Path, *arguments: str) -> dict[str, Any]:
    """Run `cluster_driver.py` with a driver of its own; return its results. Skip the test if Spark starts no executors
    here.
    """
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": str(PROJECT / "src"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(work / "worker"),
    }
    driver = Path(__file__).with_name("cluster_driver.py")
    ran = subprocess.run(
        [sys.executable, str(driver), *arguments],
        env=environment,
        cwd=work,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
    )
    if ran.returncode == NOT_STARTED:
        pytest.skip(f"Spark starts no local-cluster[2,1,1024] here: {ran.stdout.strip().splitlines()[-1:]}")
    assert ran.returncode == 0, ran.stderr[-4000:]
    answer: dict[str, Any] = json.loads(ran.stdout.strip().splitlines()[-1])
    assert answer["executors"] == 2
    assert answer["executor_pids"] and answer["driver_pid"] not in answer["executor_pids"]
    return answer


def test_executors_read_a_store_and_write_and_read_topics(
    unpacked: Callable[[str], Path], expected: Callable[[str], Any], cluster: Any, tmp_path: Path
) -> None:
    topic = cluster.create_topic("SparkCluster", 4)
    answer = run_on_cluster(tmp_path, str(unpacked("1a_clean")), cluster.namesrv_address, topic)
    assert answer["physical_offsets"] == [message["phys"] for message in expected("1a_clean")["messages"]]
    wanted = sorted(f"k{number}" for number in range(500))
    assert answer["batch"] == wanted  # written twice with the same writeId
    assert answer["stream"] == wanted
