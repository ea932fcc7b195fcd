"""What the Spark tests share: one session, one cluster, and the recorded stores, unpacked once.

Tests with the marker `spark` need pyspark and Java 17 and skip by name without. Those that talk to a broker use
TrioMQ's; TRIOMQ_INTEROP_TARGET=apache runs them against Apache's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from golden_data import golden_expectation, golden_store

from triomq.protocol.extras import install_hint

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "interop"))


def why_no_spark() -> str | None:
    try:
        import pyspark  # noqa: F401
    except ImportError:
        return f"pyspark is not installed: {install_hint('spark')}"
    java = shutil.which("java")
    if java is None:
        return "Java 17 is not installed"
    version = subprocess.run([java, "-version"], capture_output=True, text=True).stderr
    number = version.partition('"')[2].partition(".")[0]
    return None if number.isdigit() and int(number) >= 17 else f"Java 17 is needed, found {version.splitlines()[:1]}"


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("spark") is not None and (reason := why_no_spark()) is not None:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One local session for all tests, with the formats registered."""
    from small_spark import small_session

    import triomq.spark

    os.environ["PYSPARK_PYTHON"] = sys.executable
    warehouse = str(tmp_path_factory.mktemp("warehouse"))
    session = small_session("local[2]", spark_sql_warehouse_dir=warehouse, spark_driver_memory="1g")
    triomq.spark.register(session)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def unpacked() -> Callable[[str], Path]:
    """Name of a recorded set -> its store directory. Tests must not change it."""
    return golden_store


@pytest.fixture(scope="session")
def expected() -> Callable[[str], Any]:
    """Name of a recorded set -> the content of the real store after it recovered that directory."""
    return golden_expectation


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """NameServer and broker in separate processes."""
    from apache_peer import find_peer
    from interop_cluster import running_cluster

    target = os.environ.get("TRIOMQ_INTEROP_TARGET", "triomq")
    if target == "apache" and find_peer() is None:
        pytest.skip("Apache's daemons: no Java or no Maven")
    with running_cluster(target, tmp_path_factory.mktemp("cluster")) as running:
        yield running
