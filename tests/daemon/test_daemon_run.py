import errno
import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs

from triomq.daemon.errors import ExitCode, StartError
from triomq.daemon.pid_file import pid_file
from triomq.daemon.run import report, run
from triomq.protocol.settings import SettingError


@pytest.fixture(autouse=True)
def _leave_no_trace() -> Iterator[None]:
    with capture_logs():
        yield
    gc.unfreeze()


@pytest.fixture
def heeded(request: pytest.FixtureRequest) -> Iterator[signal.Signals]:
    """A signal that is not ignored; under nohup, or as a background job of a shell, some are."""
    number: signal.Signals = request.param
    before = signal.signal(number, signal.SIG_DFL)
    yield number
    signal.signal(number, before)


@pytest.mark.parametrize("heeded", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], indirect=True)
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
def test_an_error_is_one_line(
    error: Exception, code: ExitCode, line: str, capfd: pytest.CaptureFixture[str]
) -> None:
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
