"""What all tests share: where the recorded data of the real RocketMQ is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# A slow machine is no failure.
settings.register_profile("triomq", deadline=None)
settings.load_profile("triomq")


def golden_directory() -> Path | None:
    """TRIOMQ_GOLDEN, or `shared/golden` next to the project or to one of the directories above it, or None."""
    named = os.environ.get("TRIOMQ_GOLDEN")
    if named:
        return Path(named) if Path(named).is_dir() else None
    for directory in Path(__file__).resolve().parents:
        found = directory / "shared" / "golden"
        if found.is_dir():
            return found
    return None


@pytest.fixture(scope="session")
def golden() -> Path:
    """The directory of recorded data; the test is skipped when there is none."""
    directory = golden_directory()
    if directory is None:
        pytest.skip("no recorded RocketMQ data: set TRIOMQ_GOLDEN to its directory")
    return directory
