"""A message takes about as many steps as when it was last measured: Python instructions and calls of C functions,
counted.

The figures are from `TRIOMQ_PURE=1 bin/dev/bench-hot-path --steps`, Python 3.11; other versions count slightly
differently.
A change that makes the path of a message a quarter longer fails on any machine, however busy. Work inside of one C call
is not counted: `bin/dev/bench-hot-path` measures that. If a change is worth its steps, enter the new figures here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
STEPS = {
    "send json 4x64": 2889,
    "send binary 128 B": 3974,
    "send 1,000 topics": 3131,
    "send TLS 64x1": 3387,
    "batch send 32": 1361,
    "transaction 4x64": 9404,
    "delayed send 4x64": 4138,
    "delayed, due at once": 1803,
    "long poll": 8274,
    "long poll, 10 groups": 3936,
    "receive and ack 64x1": 6788,
    "heartbeat": 1701,
    "route": 798,
    "pull batch 32": 292,
    "pull batch 1": 2247,
    "pull TLS batch 32": 302,
    "pull tag 1 of 10": 945,
    "pull SQL92 1 of 10": 8763,
}
TOLERANCE = 1.25


@pytest.fixture(scope="module")
def steps() -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.hot_path", "--steps", "--json"]
    for name in STEPS:
        command += ["--only", name]
    pure = {**os.environ, "TRIOMQ_PURE": "1"}
    done = subprocess.run(command, cwd=ROOT, env=pure, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    counted: dict[str, float] = json.loads(done.stdout)
    return counted


@pytest.mark.parametrize("name", STEPS)
def test_a_message_takes_the_steps_that_it_took(steps: dict[str, float], name: str) -> None:
    limit = STEPS[name] * TOLERANCE
    assert 0 < steps[name] <= limit, f"{name}: {steps[name]:.0f} steps; {STEPS[name]} are known, {limit:.0f} allowed"


def test_steps_are_counted() -> None:
    """A loop that is twice as long counts twice as many; calls of C functions count, too."""
    from benchmarks.hot_path import Steps

    def walk(rounds: int) -> int:
        return sum(len(str(number)) for number in range(rounds))

    counts = []
    for rounds in (100, 200):
        with Steps() as steps:
            walk(rounds)
        counts.append(steps.count)
    assert counts[1] - counts[0] > 100 * 5
    assert 1.9 < counts[1] / counts[0] < 2.1
