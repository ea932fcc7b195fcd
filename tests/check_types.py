"""mypy over the tests: names, attributes and arguments that do not exist. Exit code 1 if it finds any.

The tests hand fakes to typed code and build keyword arguments in tables, so what only says that a type is not the
declared one is left out. Each directory is checked by itself: several have a conftest.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent
PROJECT = TESTS.parent
LEFT_OUT = ("arg-type", "assignment", "index", "misc", "return-value", "union-attr", "var-annotated")


def main() -> int:
    directories = [TESTS, *sorted(path for path in TESTS.iterdir() if any(path.glob("*.py")))]
    environment = dict(os.environ, MYPYPATH=os.pathsep.join(map(str, [PROJECT / "src", *directories])))
    words = [sys.executable, "-m", "mypy", "--config-file", os.devnull, "--python-version", "3.11"]
    words += ["--ignore-missing-imports", "--check-untyped-defs", "--cache-dir", str(PROJECT / ".mypy_cache" / "tests")]
    words += [word for code in LEFT_OUT for word in ("--disable-error-code", code)]
    failed = False
    for directory in directories:
        files = sorted(str(path.relative_to(PROJECT)) for path in directory.glob("*.py"))
        done = subprocess.run(
            [*words, *files], cwd=PROJECT, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            failed = True
            print(done.stdout + done.stderr, end="")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
