"""store verify, dump, rebuild: what `python -m triomq.store` does with the store of a stopped broker, in a process of
its own with all that it imports.
"""

from __future__ import annotations

import subprocess
import sys

from triomq.admin.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from triomq.admin.run import Run


def store_verify(run: Run) -> None:
    _reported(run, "verify")


def store_dump(run: Run) -> None:
    directory = run.get("DIR")

    def show(line: str) -> None:
        run.out.line(line)
        run.out.item(directory=directory, line=line)

    start = ["--start", str(run.number("start", 0))] if run.has("start") else []
    run.exit_status = _started(run, "dump", start, show)


def store_rebuild(run: Run) -> None:
    directory = run.get("DIR")
    text = f"move the queues and the index of {directory} away and make them from its commit log"
    run.change("rebuildStore", text, lambda: _reported(run, "rebuild"))


def _reported(run: Run, command: str) -> None:
    """Show the report of a command that says at its end whether all is well."""
    report: list[str] = []

    def show(line: str) -> None:
        report.append(line)
        run.out.line(line)

    run.exit_status = _started(run, command, [], show)
    run.out.item(directory=run.get("DIR"), passed=run.exit_status == 0, report=report)


def _started(run: Run, command: str, options: list[str], show: Callable[[str], None]) -> int:
    """Call `show` with each line that the process prints. Return its exit status; its errors are on standard error."""
    words = [sys.executable, "-P", "-m", "triomq.store", command, *options]
    if run.has("config"):
        words += ["-c", run.get("config")]
    with subprocess.Popen([*words, "--", run.get("DIR")], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            show(line.rstrip("\n"))
    if process.returncode == UsageError.exit_status:
        raise UsageError(f"the store in {run.get('DIR')} cannot be read; see the line above")
    return process.returncode
