"""The life of a daemon process: start, boot line on standard output, run, stop on a signal, exit code.

The daemon itself is `serve`, an async callable that calls `task_status.started(boot_line)` once it accepts requests,
and runs until it is cancelled. When cancelled, it stops gracefully; code that it shields must end by itself. If it does
not end within the deadline, the process ends with code 3.
"""

import gc
import os
from collections.abc import Awaitable, Iterable
from typing import Protocol

import structlog
import trio

from triomq.daemon.deadline import Deadline
from triomq.daemon.errors import ExitCode, StartError
from triomq.daemon.lines import complain, say
from triomq.daemon.monotonic_clock import MonotonicClock
from triomq.daemon.open_files import raise_open_files_limit
from triomq.daemon.shortage import leaves
from triomq.daemon.signals import DaemonSignals, Reload
from triomq.daemon.systemd import Notices
from triomq.protocol.settings import SettingError

log = structlog.get_logger("triomq.daemon.run")

_COLLECTOR_THRESHOLDS = (5_000, 2, 1_000)
"""Python's own are 700, 10, 10. A collection looks at all objects that came since the one before it, a quarter of a
microsecond each, and holds the event loop meanwhile. So the second kind, of all since the last of its kind, comes after
fifteen thousand; the third, of all objects, is rare."""


class Serve(Protocol):
    """The daemon that `run` runs. It reports its boot line, and ends when cancelled."""

    def __call__(self, *, task_status: trio.TaskStatus[str]) -> Awaitable[None]: ...


def run(
    program: str, serve: Serve, *, stop_deadline_seconds: float, log_hint: str = "", reload: Reload | None = None
) -> ExitCode:
    """Run `serve` until a stop signal. All errors end here: one line on standard error, details in the log.

    `log_hint` says where the log is; `reload` is called for each SIGHUP. Return the exit code. The signal handlers
    stay in place, so that a late signal does not interrupt what the caller does before the process ends.
    """
    signals = DaemonSignals(program)
    notices = Notices(os.environ)
    raise_open_files_limit()
    late = f"not stopped within {stop_deadline_seconds:g} s, ending the process"
    watchdog = Deadline(program, stop_deadline_seconds, ExitCode.STOPPED_LATE, late)
    try:
        clock = MonotonicClock()
        trio.run(_supervise, serve, watchdog, signals, notices, reload or _nothing_to_reload, clock=clock)
        return ExitCode.STOPPED
    except KeyboardInterrupt:
        return ExitCode.FAILED
    except BaseException as error:
        return report(program, error, log_hint)
    finally:
        watchdog.cancel()


def report(program: str, error: BaseException, log_hint: str = "") -> ExitCode:
    """Print one line to standard error about an error that ends the process. Return the exit code.

    Only unexpected errors have a traceback, in the log.
    """
    causes = list(leaves(error))
    for cause in causes:
        if isinstance(cause, StartError):
            _complain(program, str(cause))
            return cause.exit_code
    for cause in causes:
        if isinstance(cause, SettingError):
            _complain(program, str(cause))
            return ExitCode.REFUSED
    first = causes[0]
    if isinstance(first, OSError) and len(causes) == 1:
        log.info("daemon ended by an operating system error", exc_info=error)
        _complain(program, _os_error_text(first))
    else:
        log.critical("daemon ended by an error", exc_info=error)
        hint = f"; see {log_hint}" if log_hint else ""
        _complain(program, f"failed: {type(first).__name__}: {first}{hint}")
    return ExitCode.FAILED


def report_check(program: str, problems: Iterable[str]) -> ExitCode:
    """Finish --check: print each problem to standard error, or one line to standard output if there is none."""
    code = ExitCode.STOPPED
    for problem in problems:
        _complain(program, problem)
        code = ExitCode.REFUSED
    if code is ExitCode.STOPPED:
        print(f"{program}: the configuration is valid", flush=True)  # noqa: T201
    return code


async def _supervise(
    serve: Serve, watchdog: Deadline, signals: DaemonSignals, notices: Notices, reload: Reload
) -> None:
    async def reload_with_notices() -> None:
        notices.reloading()
        await reload()
        notices.reloaded()

    async with trio.open_nursery() as nursery:
        await nursery.start(_stop_when_asked, signals, notices, nursery.cancel_scope, watchdog)
        await nursery.start(signals.obey_reload, reload_with_notices)  # logs may be rotated during a long start, too
        boot_line: str = await nursery.start(_serve_then_end, serve, nursery.cancel_scope)
        say(boot_line)
        log.info("daemon booted", line=boot_line)
        settle_memory()
        notices.ready(boot_line)
        nursery.start_soon(notices.watch)


def settle_memory() -> None:
    """Exclude the objects of the start, which live as long as the process, from garbage collection. Objects of requests
    are freed by reference counting. Only cycles left by failed tasks need the collector, so it runs rarely."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECTOR_THRESHOLDS)


async def _serve_then_end(serve: Serve, scope: trio.CancelScope, *, task_status: trio.TaskStatus[str]) -> None:
    await serve(task_status=task_status)
    scope.cancel()


async def _nothing_to_reload() -> None:
    log.info("reload ignored; there is nothing to reload")


async def _stop_when_asked(
    signals: DaemonSignals,
    notices: Notices,
    scope: trio.CancelScope,
    watchdog: Deadline,
    *,
    task_status: trio.TaskStatus[None],
) -> None:
    number = await signals.wait_stop(task_status=task_status)
    log.info("stop requested", signal=number.name)
    notices.stopping()
    watchdog.start()
    scope.cancel()


def _os_error_text(error: OSError) -> str:
    where = f": {error.filename}" if error.filename else ""
    return f"{error.strerror or error}{where}"


def _complain(program: str, text: str) -> None:
    complain(f"{program}: {text}")
