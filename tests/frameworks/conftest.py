"""Fixtures of the tests with the frameworks that applications are made with; each is skipped when its package is absent
(the extra `frameworks`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from framework_checks import LIMIT_SECONDS, Traffic, nothing_left

from triomq.blocking import Admin
from triomq.testing import LocalCluster

HERE = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A coroutine that nobody awaited, an unclosed socket and an error in a thread are failures."""
    for item in items:
        if HERE in item.path.parents:
            for kind in (
                "RuntimeWarning",
                "ResourceWarning",
                "pytest.PytestUnraisableExceptionWarning",
                "pytest.PytestUnhandledThreadExceptionWarning",
            ):
                item.add_marker(pytest.mark.filterwarnings(f"error::{kind}"))


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as running:
        yield running


@pytest.fixture
def traffic(cluster: LocalCluster, rocketmq_name: Callable[[str], str]) -> Iterator[Traffic]:
    """Make a topic with one queue; afterwards no client is left."""
    topic = rocketmq_name("topic")
    with Admin(name_server=cluster.name_server, timeout_seconds=LIMIT_SECONDS) as admin:
        admin.create_topic(topic, read_queues=1, write_queues=1)
    with nothing_left():
        yield Traffic(cluster.name_server, topic, rocketmq_name("group"))
