"""JSON Schema (draft 2020-12) of what a command writes with --output json, made from `shapes`.

`python -m triomq.admin.schema DIRECTORY` writes a file for each command; docs/reference/mqadmin-schemas has them.
"""

from __future__ import annotations

import json
import os
import sys

from triomq.admin.shapes import PLAN, SHAPES, shape_of
from triomq.admin.verb_shapes import VERB_SHAPES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PLAN_NAME = "dry-run"


def schema_of(name: str) -> dict[str, Any]:
    """Return the schema of a command, a verb, or `dry-run`: that of a list of items."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"mqadmin {name}",
        "type": "array",
        "items": _kind(PLAN if name == PLAN_NAME else shape_of(name)),
    }


def _kind(kind: Any) -> dict[str, Any]:
    if isinstance(kind, dict):
        fields = {name.rstrip("?"): _kind(each) for name, each in kind.items() if name != "*"}
        required = [name for name in kind if not name.endswith("?") and name != "*"]
        return {
            "type": "object",
            "properties": fields,
            "required": required,
            "additionalProperties": "*" in kind,
        }
    if isinstance(kind, list):
        return {"type": "array", "items": _kind(kind[0])}
    if kind.endswith("?"):
        return {"anyOf": [_kind(kind[:-1]), {"type": "null"}]}
    if kind.startswith("["):
        return {"type": "array", "items": _kind(kind[1:-1])}
    if kind.startswith("{"):
        return {"type": "object", "additionalProperties": _kind(kind[1:-1])}
    if kind == "any":
        return {}
    if kind == "time":
        return {"type": "string", "format": "date-time"}
    return {"type": kind}


def names() -> list[str]:
    return [*SHAPES, *VERB_SHAPES, PLAN_NAME]


def schema_files() -> dict[str, str]:
    """Return the text of each file by its name."""
    return {
        f"{name.replace(' ', '-')}.json": json.dumps(schema_of(name), indent=1, ensure_ascii=False) + "\n"
        for name in names()
    }


def main(directory: str) -> None:
    os.makedirs(directory, exist_ok=True)
    for name, text in schema_files().items():
        with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    main(sys.argv[1])
