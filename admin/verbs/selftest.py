"""selftest: what `python -m triomq.store selftest` does, in a process of its own with all that it imports."""

from __future__ import annotations

import subprocess
import sys

from triomq.admin.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from triomq.admin.run import Run


def selftest(run: Run) -> None:
    directory = run.get("DIR")
    text = f"write, sync and kill processes in a scratch directory inside of {directory}"
    run.change("testDisk", text, lambda: _test(run, directory))


def _test(run: Run, directory: str) -> None:
    command = [sys.executable, "-P", "-m", "triomq.store", "selftest"]
    for name in ("seconds", "mib"):
        command += [f"--{name}", run.get(name)] if run.has(name) else []
    report = []
    with subprocess.Popen([*command, "--", directory], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            report.append(line.rstrip("\n"))
            run.out.line(report[-1])
    if process.returncode == 2:
        raise UsageError("nothing was tested; see the line above")
    run.out.item(directory=directory, passed=process.returncode == 0, report=report)
    run.exit_status = process.returncode
