"""Runs of pytest in forked children of a process that has imported everything except the project.

A child imports the project with the mutant in it and runs the chosen tests. It writes its results as JSON to a file at
each failure and at its end, so a child that is killed later still reports its failures.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any

import pytest

MEMORY_BYTES = 3 << 30  # a mutant may allocate without end
# A child shares the machine, so its bound is CPU time. A child that waits for what never comes uses none for so long.
IDLE_SECONDS = 25.0


@dataclass(slots=True)
class Trial:
    """The results of one run of pytest. `entered` maps a test to the functions (path, first line) that it entered."""

    passed: dict[str, float] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    entered: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    exit_code: int | None = None
    is_timeout: bool = False
    seconds: float = 0.0


class _Recorder:
    """The plugin of a child: which tests passed, how long they took, which functions each entered."""

    def __init__(self, report: Path, package: str | None) -> None:
        self.report = report
        self.package = package
        self.trial = Trial()
        self.codes: set[Any] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        if self.package is None:
            return (yield)
        self.codes.clear()
        seen = self.codes

        def note(frame: Any, event: str, argument: object) -> None:
            seen.add(frame.f_code)  # without a trace function of its own a frame reports only its beginning

        sys.settrace(note)
        threading.settrace(note)  # for the threads that the test starts
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
            self.trial.entered[item.nodeid] = [
                (code.co_filename.partition(self.package)[2], code.co_firstlineno)
                for code in seen.copy()
                if self.package in code.co_filename
            ]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.note_failed(report.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.note_failed(report.nodeid)
        elif report.when == "call" and report.passed:
            self.trial.passed[report.nodeid] = round(report.duration, 4)

    def note_failed(self, nodeid: str) -> None:
        self.trial.failed.append(nodeid)
        self.write()

    def write(self) -> None:
        trial = self.trial
        facts = {"passed": trial.passed, "failed": trial.failed, "entered": trial.entered}
        self.report.write_text(json.dumps(facts))


def run_trial(
    copy: Path, words: list[str], cpu_seconds: float, *, package: str | None = None, name: str = ".trial"
) -> Trial:
    """Run pytest with these arguments in a child that imports the project from `copy`. With `package`, a part of the
    path of the functions of interest, the child also notes which of them each test enters. The child is ended when it
    has used too much CPU time, as in an endless loop, or when it runs for too long without using any. `name`: of its
    report and its output; trials that run at the same time need different ones.
    """
    report = copy / f"{name}.json"
    report.unlink(missing_ok=True)
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        _run_child(copy, words, report, package, cpu_seconds)
    exit_code = _wait(pid)
    is_timeout = exit_code in (None, -signal.SIGXCPU)
    trial = Trial(exit_code=exit_code, is_timeout=is_timeout, seconds=time.monotonic() - began)
    if report.exists():
        found = trial_of(json.loads(report.read_text()))
        trial.passed, trial.failed, trial.entered = found.passed, found.failed, found.entered
    return trial


def trial_of(facts: dict[str, Any]) -> Trial:
    """Read the results from their JSON form."""
    entered = {test: [(path, line) for path, line in each] for test, each in facts["entered"].items()}
    return Trial(facts["passed"], facts["failed"], entered)


def _wait(pid: int) -> int | None:
    """Return the exit status of the child (negative: the signal that ended it); None if it was ended because it was
    idle.
    """
    used, since = "", time.monotonic()
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            _end_group(pid)
            return os.waitstatus_to_exitcode(status)
        now_used, now = _cpu_time(pid), time.monotonic()
        if now_used != used:
            used, since = now_used, now
        elif now - since > IDLE_SECONDS:
            _end_group(pid)
            os.waitpid(pid, 0)
            return None
        time.sleep(0.02)


def _cpu_time(pid: int) -> str:
    """Return a text that changes while the process uses CPU time."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return " ".join(fields[11:15])  # its own time and that of its children, in user and in system mode


def _end_group(pid: int) -> None:
    """End the child and the processes that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _run_child(copy: Path, words: list[str], report: Path, package: str | None, cpu_seconds: float) -> None:
    code = 99
    try:
        output = os.open(report.with_suffix(".out"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (ceil(cpu_seconds), ceil(cpu_seconds) + 5))
        os.chdir(copy)
        os.environ["PYTHONPATH"] = f"{copy / 'src'}{os.pathsep}{copy}"
        os.environ["TMPDIR"] = str(copy / ".tmp")
        sys.path[:0] = [str(copy / "src"), str(copy)]
        recorder = _Recorder(report, package)
        code = int(pytest.main(["-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:xdist", *words], [recorder]))
        recorder.write()
    finally:
        os._exit(code)
