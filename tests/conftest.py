"""What all tests share: where the recorded data of the real RocketMQ is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# A slow machine is no failure. The examples are the same each time, so that a check of a change speaks of that change;
# with TRIOMQ_SEED set, to any text, they are new ones.
settings.register_profile("triomq", deadline=None, derandomize="TRIOMQ_SEED" not in os.environ)
settings.load_profile("triomq")


HERE = Path(__file__).resolve().parent
# What takes longest and shares most: real clients and brokers of a session, and one Spark.
LONG = (HERE / "interop", HERE / "mqspark")
WHOLE = (*LONG, HERE / "mqclient")


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks at the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where several processes run the tests, a directory of WHOLE goes to one of them, since its tests share clusters;
    of the others each file does. LONG ones go first."""
    if not os.environ.get("PYTEST_XDIST_WORKER"):
        return
    for item in items:
        item.add_marker(pytest.mark.xdist_group(str(next(filter(item.path.is_relative_to, WHOLE), item.path))))
    items.sort(key=lambda item: not any(map(item.path.is_relative_to, LONG)))


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
