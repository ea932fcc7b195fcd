"""What all tests share: the settings of hypothesis, signals, logging, how several processes divide the tests, and where
the time of a run went."""

from __future__ import annotations

import gc
import os
import resource
import signal
from collections import defaultdict
from collections.abc import Generator, Iterator
from typing import Any

import pytest
import structlog
from hypothesis import settings

# A slow machine is not a failure. The examples are the same in each run, so that a failure is due to the change under
# test. With TRIOMQ_SEED set to any text, they are different ones.
settings.register_profile("triomq", deadline=None, derandomize="TRIOMQ_SEED" not in os.environ)
settings.load_profile("triomq")


# Shells start background jobs with SIGINT ignored. Daemons of tests would inherit that and ignore the signal, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Where rich is installed, as with PyIceberg, structlog draws tracebacks with it, a third of a second each.
_console: Any = structlog.get_config()["processors"][-1]
_console.exception_formatter = structlog.dev.plain_traceback

# Brokers of tests are many at a time, and gRPC has one default port. Those that test it choose one.
os.environ.setdefault("JAVA_OPT", "-DgrpcServerPort=0")

# What takes longest begins first, each in one process as a whole: real clients share brokers and virtual machines, and
# Spark's tests a JVM. Other files go one by one.
SHARES = {
    "tests/spark": ("tests/spark/",),
    "interop: Apache's tools": (
        "tests/interop/test_interop_admin",
        "tests/interop/test_interop_broker_features.py",
        "tests/interop/test_interop_differential.py",
        "tests/interop/test_interop_flood.py",
        "tests/interop/test_interop_mqadmin",
        "tests/interop/test_interop_namesrv_differential.py",
    ),
    "interop: groups": ("tests/interop/test_interop_group",),
    "interop: pairs": (
        "tests/interop/test_interop_replication.py",
        "tests/interop/test_interop_store_both_ways.py",
    ),
    "interop: clients": ("tests/interop/",),
    "client: beside Apache's servers": (
        "tests/client/test_client_admin.py",
        "tests/client/test_client_load.py",
        "tests/client/test_client_servers",
        "tests/client/test_client_typed.py",
    ),
    "tests/client": ("tests/client/",),
    "tests/replication/test_replication_processes.py": ("tests/replication/test_replication_processes.py",),
    "tests/test_simulation.py": ("tests/test_simulation.py",),
    "tests/dledger/test_dledger_simulation.py": ("tests/dledger/test_dledger_simulation.py",),
    "tests/dledger/test_dledger_processes.py": ("tests/dledger/test_dledger_processes.py",),
}
"""Share -> what the paths of its files begin with; the first that fits counts. Idle servers of Apache's take a third of
a processor, so what needs them is together."""

last_of_share: dict[str, str] = {}
"""Share -> the last test of it."""

PROCESSOR_SECONDS = "processor seconds"
_processor_seconds = 0.0
"""Those that were spent before the present test."""


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """Commands set up logging for the whole process; the next test's captured logs must not depend on that."""
    before = structlog.get_config() if structlog.is_configured() else None
    yield
    if before is None:
        structlog.reset_defaults()
    else:
        structlog.configure(**before)


def share_of(nodeid: str) -> str:
    """Return the group of tests that must run in the same process as this one."""
    file = nodeid.partition("::")[0]
    return next((share for share, beginnings in SHARES.items() if file.startswith(beginnings)), file)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("PYTEST_XDIST_WORKER"):
        items.sort(key=lambda item: (*SHARES, share := share_of(item.nodeid)).index(share))
    last_of_share.update((share_of(item.nodeid), item.nodeid) for item in items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """End what the tests of a long share used together: brokers, clients and virtual machines. The process that ran
    them continues with other files, and idle ones would compute beside it until the run ends."""
    share = share_of(item.nodeid)
    if share in SHARES and last_of_share.get(share) == item.nodeid:
        item.session._setupstate.teardown_exact(None)


def pytest_collection_finish() -> None:
    """Leave the thousands of tests out of garbage collection: each full one would look at all of them."""
    global _processor_seconds
    gc.collect()
    gc.freeze()
    _processor_seconds = processor_seconds()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    class ByShare(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return share_of(nodeid)

    return ByShare(config, log)


def processor_seconds() -> float:
    """Return what this process and those of its children that have ended have taken of the processors."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note in each report what the processors have done since the one before. What a daemon did counts when it ends."""
    global _processor_seconds
    report = yield
    before, _processor_seconds = _processor_seconds, processor_seconds()
    report.user_properties.append((PROCESSOR_SECONDS, _processor_seconds - before))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what the longest shares of tests took: none can end sooner with more processes. Only with --durations."""
    if not config.option.durations:
        return
    took: defaultdict[str, float] = defaultdict(float)
    used: defaultdict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                share = share_of(report.nodeid)
                took[share] += report.duration
                used[share] += sum(
                    float(str(value)) for name, value in report.user_properties if name == PROCESSOR_SECONDS
                )
    terminalreporter.section("files that took longest")
    terminalreporter.write_line("        s   of a processor")
    for share, seconds in sorted(took.items(), key=lambda each: -each[1])[:40]:
        terminalreporter.write_line(f"{seconds:9.1f} {used[share]:9.1f}   {share}")
    terminalreporter.write_line(f"{sum(took.values()):9.1f} {sum(used.values()):9.1f}   in all")
