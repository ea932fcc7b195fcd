"""docs/internals/awaits.md lists every function of the daemons that awaits, and tests that exist."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "internals" / "awaits.md"
ROOMS = ("broker", "daemon", "dashboard", "dledger", "monitoring", "namesrv", "remoting", "store")
# Modules that run outside of a daemon: programs of one task, and what embeds a whole cluster.
OUTSIDE = (
    *(
        "broker/embedded/",
        "broker/lifecycle/quickstart.py",
        "broker/lifecycle/both_daemons.py",
        "store/__main__.py",
        "store/selftest/",
    ),
    *("dledger/__main__.py", "dledger/member/alone.py", "dledger/member/client.py", "dledger/member/watching.py"),
    "dledger/convert/",
)
KINDS = ("Snapshot", "Again", "Alone")


def awaits(function: ast.AsyncFunctionDef) -> bool:
    """Return whether the function itself, not one inside of it, gives the event loop away."""
    pending: list[ast.AST] = list(function.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith):
            return True
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            pending += ast.iter_child_nodes(node)
    return False


def awaiting_functions(source: str) -> set[str]:
    nodes = ast.walk(ast.parse(source))
    return {node.name for node in nodes if isinstance(node, ast.AsyncFunctionDef) and awaits(node)}


def rows(page: str) -> Iterator[tuple[str, list[str], str, list[str]]]:
    """Yield (file, functions, what they rely on, tests) for each row."""
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if len(cells) == 4 and cells[0].startswith("`"):
            file, *functions = re.findall(r"`([^`]+)`", cells[0])
            yield file, functions, cells[2], re.findall(r"`(test_\w+)`", cells[3])


def test_every_function_that_awaits_is_listed() -> None:
    listed: defaultdict[str, set[str]] = defaultdict(set)
    for file, functions, _, _ in rows(PAGE.read_text()):
        assert not listed[file] & set(functions) or file == "broker/message_writer.py", f"{file} lists one twice"
        listed[file] |= set(functions)
    found = {
        path.relative_to(ROOT).as_posix(): names
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
        if (names := awaiting_functions(path.read_text()))
    }
    found = {file: names for file, names in found.items() if not file.startswith(OUTSIDE)}
    missing = {file: names - listed[file] for file, names in found.items() if names - listed[file]}
    assert not missing, f"these await: say in {PAGE.name} what they may rely on afterwards: {missing}"
    stale = {file: names - found.get(file, set()) for file, names in listed.items() if names - found.get(file, set())}
    assert not stale, f"these await no more: take them out of {PAGE.name}: {stale}"


def test_the_tests_that_hold_the_list_exist() -> None:
    known = {
        node.name
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    named = {test for *_, tests in rows(PAGE.read_text()) for test in tests}
    assert named - known == set()


def test_what_is_relied_on_is_held_by_a_test() -> None:
    without = [
        (file, functions)
        for file, functions, relies_on, tests in rows(PAGE.read_text())
        if any(f"**{kind}**" in relies_on for kind in KINDS) and not tests
    ]
    assert without == []


def test_the_rules_see_what_they_forbid() -> None:
    source = "async def a():\n  await b\n\nasync def c():\n  async def d():\n    async with e: pass\n  return 1"
    assert awaiting_functions(source) == {"a", "d"}
    page = "| code | awaits |\n| `x/y.py`: `f`, `g` | a file | **Alone** | `test_f` |\n"
    assert list(rows(page)) == [("x/y.py", ["f", "g"], "**Alone**", ["test_f"])]
