"""A cluster in this process that the tests of a module share, and the environment in which mqadmin finds it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from verb_calls import SETTINGS

from triomq.testing import LocalCluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(settings=SETTINGS) as found:
        yield found


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide the contexts of the person who runs the tests."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("MQADMIN_CONTEXT", raising=False)


@pytest.fixture
def at_cluster(environment: None, cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands go to `cluster`."""
    monkeypatch.setenv("NAMESRV_ADDR", cluster.name_server)
