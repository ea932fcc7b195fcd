"""Driver and broker are killed with SIGKILL during a stream: each message arrives exactly once. These are a few kills;
bin/dev/soak-spark-kills makes more.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

# A driver takes a minute on a machine with ten other busy processes.
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1500)]

DRIVER_KILLS = 1
BROKER_KILLS = 2  # a broker restarts in a second, a driver in ten


def test_kills_lose_and_double_nothing(spark: Any, tmp_path: Path) -> None:
    from apache_peer import find_peer
    from interop_cluster import running_cluster
    from stream_kills import copy_under_fire

    target = os.environ.get("TRIOMQ_INTEROP_TARGET", "triomq")
    if target == "apache" and find_peer() is None:
        pytest.skip("Apache's daemons: no Java or no Maven")
    with running_cluster(target, tmp_path / "cluster") as cluster:
        counted = copy_under_fire(cluster, tmp_path, DRIVER_KILLS, BROKER_KILLS, random.Random(7), lambda: spark)
    assert counted.is_exact, (counted.missing[:5], counted.doubled[:5])
