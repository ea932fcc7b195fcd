"""A RocketMQ for tests: install the package and ask for the fixture `rocketmq`.

    def test_orders(rocketmq):
        with blocking.Producer("g", name_server=rocketmq.name_server) as producer: ...

    rocketmq         NameServer and broker in a thread of the test process, shared by the whole session; topics and
                     groups are not cleaned between tests, so use names of your own (`rocketmq_name` makes some)
    rocketmq_proc    the same in a child process
    rocketmq_name    a function that returns unused names: rocketmq_name("orders") -> "orders_3f2a..."
    rocketmq_factory, rocketmq_proc_factory
                     functions that start further ones with options of LocalCluster / ProcessCluster (brokers=2,
                     settings={"autoCreateTopicEnable": "false"}); they are stopped at the end of the test

Options: --rocketmq-port N (port of the NameServer, default: a free one), --rocketmq-settings KEY=VALUE (repeatable).
Under pytest-xdist each worker has a cluster of its own; with a port N the first worker takes N, the second N + 1.
`-p no:triomq` leaves the plugin out. docs/how-to/testing.md has examples.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from triomq.broker.embedded import LocalCluster, ProcessCluster


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of this plugin."""
    group = parser.getgroup("rocketmq", "RocketMQ for tests (TrioMQ)")
    group.addoption(
        "--rocketmq-port",
        type=int,
        default=0,
        metavar="N",
        help="port of the NameServer of the fixture rocketmq (default: a free one); the worker gw1 of pytest-xdist "
        "takes N + 1, and so on",
    )
    group.addoption(
        "--rocketmq-settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="broker setting by its RocketMQ key, for the fixtures rocketmq and rocketmq_proc",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse options that cannot be used before the first test runs."""
    _settings(config)
    _port(config)


def _port(config: pytest.Config) -> int:
    """Return the port of this process's NameServer: several workers of pytest-xdist cannot share one."""
    port: int = config.getoption("--rocketmq-port")
    workers: dict[str, str] = getattr(config, "workerinput", {})
    number = int(workers.get("workerid", "gw0").removeprefix("gw") or 0)
    taken = port + number if port else 0
    if not 0 <= taken <= 65535:
        raise pytest.UsageError(f"--rocketmq-port {port}: there is no port {taken}")
    return taken


def _settings(config: pytest.Config) -> dict[str, str]:
    settings: dict[str, str] = {}
    for text in config.getoption("--rocketmq-settings"):
        key, equals, value = text.partition("=")
        if not equals:
            raise pytest.UsageError(f"--rocketmq-settings takes KEY=VALUE, not {text!r}")
        settings[key.strip()] = value.strip()
    return settings


@pytest.fixture(scope="session")
def rocketmq(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """Return a NameServer and a broker in a thread of this process, for the whole session."""
    from triomq.broker.embedded import LocalCluster

    with LocalCluster(name_server_port=_port(request.config), settings=_settings(request.config)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def rocketmq_proc(request: pytest.FixtureRequest) -> Iterator[ProcessCluster]:
    """Return a NameServer and a broker in a child process, for the whole session."""
    from triomq.broker.embedded import ProcessCluster

    with ProcessCluster(settings=_settings(request.config)) as cluster:
        yield cluster


@pytest.fixture
def rocketmq_factory() -> Iterator[Callable[..., LocalCluster]]:
    """Return a function that starts further clusters in threads; its arguments are those of LocalCluster."""
    from triomq.broker.embedded import LocalCluster

    with ExitStack() as stack:

        def make(**options: Any) -> LocalCluster:
            return stack.enter_context(LocalCluster(**options))

        yield make


@pytest.fixture
def rocketmq_proc_factory() -> Iterator[Callable[..., ProcessCluster]]:
    """Return a function that starts further clusters in child processes; its arguments are those of ProcessCluster."""
    from triomq.broker.embedded import ProcessCluster

    with ExitStack() as stack:

        def make(**options: Any) -> ProcessCluster:
            return stack.enter_context(ProcessCluster(**options))

        yield make


@pytest.fixture(scope="session")
def rocketmq_name() -> Callable[[str], str]:
    """Return a function that makes unused names of topics and groups."""

    def make(prefix: str) -> str:
        return f"{prefix}_{uuid.uuid4().hex[:12]}"

    return make
