"""Fixtures: the daemons under test, and real clients in driver processes.

`--interop-target=apache` (or TRIOMQ_INTEROP_TARGET=apache) runs every scenario against the real broker instead: a
scenario that fails there is itself wrong.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from apache_peer import find_peer
from interop_builds import ToolMissing, need_java
from interop_cluster import Cluster, running_cluster
from interop_driver_set import DriverSet
from interop_drivers import Driver
from interop_mqadmin import JavaAdmin
from interop_texts import corpus

HERE = Path(__file__).resolve().parent
TARGETS = ("triomq", "apache")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--interop-target", choices=TARGETS, help="which daemons the interoperability tests talk to")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.interop)


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest) -> str:
    chosen = request.config.getoption("--interop-target", default=None) or os.environ.get("TRIOMQ_INTEROP_TARGET")
    chosen = chosen or "triomq"
    assert chosen in TARGETS, f"TRIOMQ_INTEROP_TARGET is {chosen}, must be one of {TARGETS}"
    if chosen == "apache":
        require_apache()
    return chosen


def require_apache() -> Path:
    """Return the script that starts Apache's daemons and tools; skip the test if it cannot run."""
    peer = find_peer()
    if peer is None:
        pytest.skip("Apache's daemons and tools: no Java or no Maven")
    try:
        need_java()
    except ToolMissing as e:
        pytest.skip(f"Apache's daemons and tools: {e}")
    return peer


@pytest.fixture(scope="session")
def peer() -> Path:
    return require_apache()


@pytest.fixture(scope="session")
def cluster(target: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A NameServer and broker for all tests that restart nothing; each test creates its own topics and groups."""
    with running_cluster(target, tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def fragile_cluster(target: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster for tests that stop and kill its daemons; each must leave it running."""
    with running_cluster(target, tmp_path_factory.mktemp("fragile")) as running:
        yield running


@pytest.fixture(scope="session")
def admin(peer: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaAdmin]:
    """The real Java mqadmin without account or TLS, for `cluster`: queryMsgByUniqueKey remembers its NameServer."""
    admin = JavaAdmin(peer, tmp_path_factory.mktemp("mqadmin"))
    yield admin
    admin.close()


@pytest.fixture(scope="module")
def separate_admin(peer: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaAdmin]:
    """The real Java mqadmin in a process of its own: some commands work once, or with one NameServer, per process."""
    admin = JavaAdmin(peer, tmp_path_factory.mktemp("separate-mqadmin"))
    yield admin
    admin.close()


@pytest.fixture(scope="session")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DriverSet]:
    drivers = DriverSet(tmp_path_factory.mktemp("drivers"))
    yield drivers
    for driver in drivers.started:
        driver.end(signal.SIGKILL)


@pytest.fixture(autouse=True)
def nothing_left_running(drivers: DriverSet) -> Iterator[None]:
    """Stop consumers that a failed test leaves behind, because they would disturb the next one."""
    before = {id(command) for driver in drivers.started for command in driver.unfinished()}
    yield
    for driver in drivers.started:
        for command in driver.unfinished():
            if id(command) not in before:
                driver.tell(f"{command.id}\tstop")


@pytest.fixture(scope="session")
def java4(drivers: DriverSet) -> Driver:
    return drivers("java4")


@pytest.fixture(scope="session")
def java5(drivers: DriverSet) -> Driver:
    return drivers("java5")


@pytest.fixture(scope="session")
def go(drivers: DriverSet) -> Driver:
    return drivers("go")


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """About a thousand lines: licenses, and a text in many scripts."""
    return corpus(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="session")
def short_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return corpus(tmp_path_factory.mktemp("text"), full=False)
