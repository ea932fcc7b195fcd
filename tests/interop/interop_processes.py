"""Child processes of the interoperability tests, and the free ports they listen on.

Every child is ended by its own pid: by `end`, by the fixture that owns it, and (on Linux) by the kernel if the test
process is killed. Its output goes to a log file, so that a failing test can show the last lines.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from free_ports import PortTaken

PR_SET_PDEATHSIG = 1
PORT_TAKEN = "Address already in use"


class ProcessFailed(AssertionError):
    """A child ended, or was not ready in time; the message ends with the last lines of its log."""


def wait_until(condition: Callable[[], object], timeout_seconds: float, what: str) -> None:
    """Poll until `condition()` is true; `what` names the wait in the failure."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_seconds} s: {what}")
        time.sleep(0.02)


def pause(pid: int) -> None:
    """Stop a process, and return when all of its threads stand still: on a busy machine some run for a while."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: all(state in "TtXZ" for state in _thread_states(pid)), 30, f"process {pid} stops")


def resume(pid: int) -> None:
    os.kill(pid, signal.SIGCONT)


def _thread_states(pid: int) -> list[str]:
    """Return the state of each thread, as proc(5) has it: R runs, S sleeps, T is stopped."""
    states = []
    for path in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):  # a thread that has ended meanwhile
            states.append(path.read_text().rpartition(")")[2].split()[0])
    return states


def die_with_parent() -> Callable[[], None] | None:
    """A pre-exec hook: the kernel ends the child when the test process dies for any reason (Linux only)."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)

    def hook() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    return hook


class Child:
    """One child process with its log file."""

    def __init__(
        self,
        argv: list[str],
        *,
        log_path: Path,
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
        piped: bool = False,
    ) -> None:
        self.log_path = log_path
        self.name = Path(argv[0]).name
        self._log_begin = log_path.stat().st_size if log_path.exists() else 0
        with log_path.open("ab") as log:
            self.process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
                stdout=subprocess.PIPE if piped else log,
                stderr=log,
                env=env,
                cwd=cwd,
                preexec_fn=die_with_parent(),
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def stdin(self) -> IO[bytes]:
        assert self.process.stdin is not None
        return self.process.stdin

    @property
    def stdout(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    def log_text(self) -> str:
        with self.log_path.open("rb") as log:
            log.seek(self._log_begin)
            return log.read().decode(errors="replace")

    def log_tail(self, lines: int = 15) -> str:
        return "\n".join(self.log_text().splitlines()[-lines:])

    def wait_for_log(self, text: str, timeout_seconds: float) -> None:
        """Wait for a line in the log. Raises PortTaken if the child ended because another process has its port, else
        ProcessFailed.
        """
        deadline = time.monotonic() + timeout_seconds
        while text not in self.log_text():
            if self.process.poll() is not None:
                if PORT_TAKEN in self.log_text():
                    raise PortTaken(f"{self.name}: {PORT_TAKEN}:\n{self.log_tail()}")
                raise ProcessFailed(f"{self.name} ended with {self.process.returncode}:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise ProcessFailed(f"{self.name}: no {text!r} within {timeout_seconds} s:\n{self.log_tail()}")
            time.sleep(0.02)

    def end(self, first_signal: int = signal.SIGTERM, timeout_seconds: float = 20) -> int | None:
        """Send `first_signal`, later SIGKILL; return the exit status (negative: the signal that ended it)."""
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, first_signal)
            try:
                self.process.wait(timeout_seconds)
            except subprocess.TimeoutExpired:
                os.kill(self.pid, signal.SIGKILL)
                self.process.wait(10)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        return self.process.returncode
