"""The rooms of the client: each imports only earlier ones, and the core imports no library that waits."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

CLIENT = Path(__file__).resolve().parents[2] / "client"
ROOMS = ["core", "payloads", "instance", "produce", "consume", "administer", "facades", "compat", "app"]
WAITING = {"trio", "asyncio", "threading", "triomq.remoting.client"}


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found.add(node.module)
    return found


def test_every_room_is_known() -> None:
    assert sorted(ROOMS) == sorted(path.parent.name for path in CLIENT.glob("*/__init__.py"))


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_those_before_it(room: str) -> None:
    allowed = ROOMS[: ROOMS.index(room) + 1]
    for path in (CLIENT / room).glob("*.py"):
        rooms = {name.split(".")[2] for name in imports_of(path) if name.startswith("triomq.client.")}
        assert rooms <= set(allowed), path.name


def test_the_core_waits_for_nothing() -> None:
    for path in (CLIENT / "core").glob("*.py"):
        assert not imports_of(path) & WAITING, path.name
        waiting = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.AsyncFunctionDef)]
        assert not waiting, path.name
