"""A short soak: many clients come and go, and the broker forgets them (bin/dev/bench-soak does it for ten minutes)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_clients_that_are_gone_leave_nothing_behind() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.soak", "--minutes", "0.05", "--clients", "60", "--json"],
        cwd=PROJECT,
        env=dict(os.environ, PYTHONPATH=str(PROJECT / "src")),
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.stdout, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["left_over"] == []
    assert report["failures"] == {}, report["stories"]
    assert report["lives"].keys() == {"producers", "consumers", "dead"}
    assert report["messages_received"] > 0
