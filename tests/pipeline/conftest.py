"""Clusters for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from triomq.testing import LocalCluster


@pytest.fixture(scope="module")
def shop() -> Iterator[LocalCluster]:
    with LocalCluster(cluster_name="shop") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def east() -> Iterator[LocalCluster]:
    with LocalCluster(cluster_name="east") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def west() -> Iterator[LocalCluster]:
    with LocalCluster(cluster_name="west") as cluster:
        yield cluster
