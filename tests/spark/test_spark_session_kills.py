"""Driver and broker killed with SIGKILL in the middle of a stream: each message arrives exactly once. A few kills only;
bin/soak-spark-kills makes more of them."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

# Two drivers start in turn, which takes a minute each where ten others want the processor, too.
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1500)]

DRIVER_KILLS = 2
BROKER_KILLS = 4  # a new broker is there in a second, a new driver takes ten


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
