import errno
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs

from triomq.daemon.errors import ExitCode, StartError
from triomq.daemon.open_files import raise_open_files_limit
from triomq.daemon.pid_file import pid_file
from triomq.daemon.run import report, run, settle_memory
from triomq.daemon.signals import DaemonSignals
from triomq.protocol.settings import SettingError


@pytest.fixture(autouse=True)
def _leave_no_trace() -> Iterator[None]:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    with capture_logs():
        yield
    gc.unfreeze()
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def heeded(request: pytest.FixtureRequest) -> Iterator[signal.Signals]:
    """A signal that is not ignored; under nohup, or in a background job of a shell, some are."""
    number: signal.Signals = request.param
    before = signal.signal(number, signal.SIG_DFL)
    yield number
    signal.signal(number, before)


@pytest.mark.parametrize("heeded", [signal.SIGTERM, signal.SIGINT], indirect=True)
def test_a_stop_signal_ends_with_0(heeded: signal.Signals, capsys: pytest.CaptureFixture[str]) -> None:
    cleaned = []

    async def serve(*, task_status: trio.TaskStatus[str]) -> None:
        task_status.started("up at last")
        os.kill(os.getpid(), heeded)
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.lowlevel.checkpoint()
            cleaned.append(True)

    assert run("mqtest", serve, stop_deadline_seconds=60) == ExitCode.STOPPED
    assert cleaned == [True]
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("up at last\n", "")


# A daemon whose stop takes two turns of its event loop; each turn brings another stop request.
ASKED_AGAIN = """
import os, signal, sys, trio
from triomq.daemon.run import run

async def serve(*, task_status):
    os.kill(os.getpid(), signal.SIGTERM)
    task_status.started("up")
    try:
        await trio.sleep_forever()
    finally:
        with trio.CancelScope(shield=True):
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                os.kill(os.getpid(), number)
                await trio.lowlevel.checkpoint()
        print("store closed", flush=True)

code = run("mqtest", serve, stop_deadline_seconds=60)
os.kill(os.getpid(), signal.SIGTERM)
print("pid file removed", flush=True)
sys.exit(code)
"""


def test_a_stop_is_not_interrupted_by_further_signals() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ASKED_AGAIN],
        capture_output=True,
        text=True,
        timeout=60,
        # Each line is one write, which the log's lines, written by a thread, cannot divide.
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src"), "PYTHONUNBUFFERED": ""},
    )
    printed = [line for line in done.stdout.splitlines() if "[info" not in line]
    assert (done.returncode, printed) == (0, ["up", "store closed", "pid file removed"])
    assert done.stderr.count("mqtest: already stopping") == 3, "SIGTERM, SIGINT and SIGTERM after the stop"


def test_a_stop_signal_that_arrives_before_the_event_loop_counts() -> None:
    signals = DaemonSignals("mqtest")
    os.kill(os.getpid(), signal.SIGTERM)
    assert trio.run(signals.wait_stop) == signal.SIGTERM


def test_an_ignored_stop_signal_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    DaemonSignals("mqtest")
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_a_hangup_reloads_and_does_not_stop() -> None:
    reloads = []

    async def reload() -> None:
        reloads.append(trio.current_time())
        if len(reloads) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            os.kill(os.getpid(), signal.SIGHUP)

    async def serve(*, task_status: trio.TaskStatus[str]) -> None:
        task_status.started("up")
        os.kill(os.getpid(), signal.SIGHUP)
        await trio.sleep_forever()

    assert run("mqtest", serve, stop_deadline_seconds=60, reload=reload) == ExitCode.STOPPED
    assert len(reloads) == 2


async def test_a_hangup_before_the_event_loop_counts() -> None:
    signals = DaemonSignals("mqtest")
    os.kill(os.getpid(), signal.SIGHUP)
    reloaded = trio.Event()

    async def reload() -> None:
        reloaded.set()

    async with trio.open_nursery() as nursery:
        await nursery.start(signals.obey_reload, reload)
        await reloaded.wait()
        nursery.cancel_scope.cancel()


def test_a_serve_that_ends_by_itself_ends_the_process() -> None:
    async def serve(*, task_status: trio.TaskStatus[str]) -> None:
        task_status.started("up")

    assert run("mqtest", serve, stop_deadline_seconds=60) == ExitCode.STOPPED


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (StartError("no such store"), ExitCode.REFUSED, "mqtest: no such store\n"),
        (StartError("port taken", ExitCode.FAILED), ExitCode.FAILED, "mqtest: port taken\n"),
        (SettingError("a.conf", "key", "is bad"), ExitCode.REFUSED, "mqtest: a.conf: key: is bad\n"),
        (OSError(errno.ENOSPC, "Disk full", "/x"), ExitCode.FAILED, "mqtest: Disk full: /x\n"),
        (ZeroDivisionError("oops"), ExitCode.FAILED, "mqtest: failed: ZeroDivisionError: oops; see the.log\n"),
    ],
)
def test_an_error_is_one_line(error: Exception, code: ExitCode, line: str, capfd: pytest.CaptureFixture[str]) -> None:
    async def serve(*, task_status: trio.TaskStatus[str]) -> None:
        async with trio.open_nursery():
            raise error

    assert run("mqtest", serve, stop_deadline_seconds=60, log_hint="the.log") == code
    assert capfd.readouterr().err == line


def test_of_several_errors_the_foreseen_one_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    group = BaseExceptionGroup("", [ValueError("x"), BaseExceptionGroup("", [StartError("the cause")])])
    assert report("mqtest", group) == ExitCode.REFUSED
    assert capsys.readouterr().err == "mqtest: the cause\n"


def test_the_open_files_limit_is_the_hard_one() -> None:
    import resource

    assert run("mqtest", _stop_at_once, stop_deadline_seconds=60) == ExitCode.STOPPED
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft == hard or hard == resource.RLIM_INFINITY


@pytest.mark.parametrize(("hard", "warned"), [(256, True), (4096, False)])
def test_few_open_files_are_warned_about(hard: int, warned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [(64, hard)]
    monkeypatch.setattr("resource.getrlimit", lambda _: limits[-1])
    monkeypatch.setattr("resource.setrlimit", lambda _, limit: limits.append(limit))
    with capture_logs() as logs:
        raise_open_files_limit()
    assert limits[-1] == (hard, hard)
    assert [line["limit"] for line in logs if line["log_level"] == "warning"] == [hard] * warned


async def _stop_at_once(*, task_status: trio.TaskStatus[str]) -> None:
    task_status.started("up")


def test_the_pid_file_is_there_while_it_runs(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    with pid_file(directory, "mqtest"):
        (path,) = directory.iterdir()
        assert path.name == f"mqtest.{os.getpid()}.pid"
        assert path.read_text() == f"{os.getpid()}\n"
    assert list(directory.iterdir()) == []


def test_no_pid_file_is_no_reason_not_to_run(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pid_file(tmp_path / "run", "mqtest"):
        pass


def test_a_collection_looks_at_a_bounded_number_of_new_objects_and_all_are_looked_at_rarely() -> None:
    """It holds the event loop: a hundred thousand held pulls took ninety milliseconds."""
    before = gc.get_threshold()
    looked_at: list[tuple[int, int]] = []

    def noted(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            counts = gc.get_objects(generation=0), gc.get_objects(generation=1)
            looked_at.append((info["generation"], sum(map(len, counts[: info["generation"] + 1]))))

    try:
        settle_memory()
        gc.callbacks.append(noted)
        kept = [[number] for number in range(200_000)]
    finally:
        gc.callbacks.remove(noted)
        gc.unfreeze()
        gc.set_threshold(*before)
    assert len(kept) == 200_000
    assert {generation for generation, _ in looked_at} == {0, 1}
    assert max(count for _, count in looked_at) < 22_000


def test_a_daemon_waits_by_the_clock_of_the_system() -> None:
    seen: list[float] = []

    async def serve(*, task_status: trio.TaskStatus[str]) -> None:
        task_status.started("")
        before = time.perf_counter()
        seen.append(trio.current_time() - before)
        await trio.sleep(0.01)
        seen.append(time.perf_counter() - before)
        os.kill(os.getpid(), signal.SIGTERM)
        await trio.sleep_forever()

    assert run("mqtest", serve, stop_deadline_seconds=60) == ExitCode.STOPPED
    behind, slept = seen
    assert 0 <= behind < 1
    assert slept >= 0.01
