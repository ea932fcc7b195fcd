"""One cluster for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from triomq.testing import LocalCluster


@pytest.fixture(scope="module")
def shop() -> Iterator[LocalCluster]:
    with LocalCluster(cluster_name="shop") as cluster:
        yield cluster
