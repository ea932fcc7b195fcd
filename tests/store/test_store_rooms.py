"""The rooms of the store and their imports. The modules beside them are shared by all rooms, or use all of them."""

from __future__ import annotations

import ast
from pathlib import Path

STORE = Path(__file__).resolve().parents[2] / "store"
# Each room and the rooms it may import, itself included.
ROOMS = {
    "disk": {"disk"},
    "log": {"disk", "log"},
    "queues": {"disk", "log", "queues"},
    "upkeep": {"disk", "log", "queues", "upkeep"},
    "reading": {"disk", "log", "queues", "reading"},
    "writing": {"disk", "log", "queues", "upkeep", "writing"},
}
# The module that combines the rooms: none may import it.
ABOVE = {"message_store"}


def imported(path: Path) -> set[str]:
    """Return the parts of triomq.store that a module imports: rooms, or modules beside them."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("triomq.store."):
            found.add((node.module or "").split(".")[2])
    return found


def test_rooms_import_only_what_lies_below_them() -> None:
    for room, allowed in ROOMS.items():
        modules = sorted((STORE / room).glob("*.py"))
        assert len(modules) > 2, room
        for module in modules:
            arrows = imported(module)
            assert arrows & (ROOMS.keys() - allowed) == set(), module
            assert arrows & ABOVE == set(), module


def test_modules_import_each_other_in_one_direction() -> None:
    modules = {".".join(path.relative_to(STORE.parent).with_suffix("").parts): path for path in STORE.rglob("*.py")}
    arrows: dict[str, set[str]] = {}
    for name, path in modules.items():
        targets: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("triomq.store"):
                base = (node.module or "").removeprefix("triomq.")
                targets |= {base, *(f"{base}.{alias.name}" for alias in node.names)} & modules.keys()
        arrows[name] = targets - {name}
    while leaves := [name for name, targets in arrows.items() if not targets]:
        for leaf in leaves:
            del arrows[leaf]
        for targets in arrows.values():
            targets.difference_update(leaves)
    assert arrows == {}, "an import circle"
