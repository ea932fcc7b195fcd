"""Commands start fast because they import little. These tests list what each imports."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from triomq.admin.commands import MODULES

ROOT = Path(__file__).resolve().parents[2]
NEVER = {"trio", "structlog", "asyncio", "yaml", "rich", "outcome", "triomq.client", "triomq.broker"}
OF_REMOTING = {"triomq.remoting", "triomq.remoting.blocking_connection"}
BUILT_IN_ONLY = {"msgspec", "msgpack", "json", "re", "typing", "socket", "argparse", "dataclasses", "enum"}


def of_remoting(modules: set[str]) -> set[str]:
    return {name for name in modules if name.startswith("triomq.remoting")}


def loaded(program: str) -> set[str]:
    """Return the modules and packages that a program has imported when it ends, beyond those of Python's own start."""
    path = f"import sys; before = set(sys.modules); sys.path.insert(0, {str(ROOT / 'src')!r})"
    text = f"{path}\n{program}\nprint('\\n'.join(sorted(set(sys.modules) - before)), file=sys.stderr)"
    result = subprocess.run([sys.executable, "-I", "-c", text], capture_output=True, text=True, timeout=60, check=True)
    return set(result.stderr.split())


@pytest.mark.parametrize("words", [[], ["help"], ["help", "updateTopic"], ["clusterList", "-h"]])
def test_help_imports_nothing_but_the_table(words: list[str]) -> None:
    modules = loaded(f"from triomq.admin.__main__ import main; main({words!r})")
    assert modules & (NEVER | BUILT_IN_ONLY) == set()
    overview = {"triomq.admin.verb", "triomq.admin.verb_table"} if words in ([], ["help"]) else set()
    assert {name for name in modules if name.startswith("triomq")} == {
        "triomq",
        "triomq.admin",
        "triomq.admin.__main__",
        "triomq.admin.command",
        "triomq.admin.errors",
        "triomq.admin.table",
        *overview,
    }


def test_the_script_imports_no_more_than_the_program() -> None:
    """`python -m` would: its runpy imports contextlib, collections and more."""
    environment = {**os.environ, "PYTHONPROFILEIMPORTTIME": "1"}
    imported, bare = [
        subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=True).stderr
        # The script may ask the same Python for its environment first.
        .rpartition("imported package\n")[2]
        for words in ([ROOT / "bin" / "mqadmin", "help"], [sys.executable, "-P", "-c", ""])
    ]
    names, own = ({line.split("|")[-1].strip() for line in text.splitlines()} for text in (imported, bare))
    assert "triomq.admin.table" in names
    assert {name for name in names - own if not name.startswith("triomq")} == {"__future__"}


@pytest.mark.parametrize("text", ["clusterList", "topicList", "topicRoute -t T", "brokerStatus -b h:1"])
def test_a_command_of_operators_needs_no_msgspec(text: str) -> None:
    words = [*text.split(), "-n", "127.0.0.1:1", "--timeout", "1"]
    modules = loaded(f"from triomq.admin.__main__ import main; main({words!r})")
    assert modules & (NEVER | {"msgspec", "msgpack", "typing", "argparse", "dataclasses"}) == set()
    assert of_remoting(modules) == OF_REMOTING


@pytest.mark.parametrize("module", sorted(MODULES))
def test_no_command_imports_an_event_loop(module: str) -> None:
    modules = loaded(f"import triomq.admin.commands.{module}")
    assert modules & NEVER == set()
    assert of_remoting(modules) <= OF_REMOTING
