"""Everything public has a docstring, from which the site makes the reference page."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from triomq.client import api
from triomq.client.administer.admin import Admin
from triomq.client.instance.client import Client

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_every_public_name_has_a_docstring() -> None:
    for name in api.__all__:
        thing = getattr(api, name)
        text = inspect.getdoc(thing) or ""
        assert len(text) > 20, name
        assert not text.startswith(f"{name}("), f"{name} has only the docstring that dataclass makes"


def test_what_java_users_are_told_to_look_for_is_there() -> None:
    text = (DOCS / "python-client.md").read_text()
    section = text.partition("## Names of the Java client")[2].partition("\n## ")[0]
    right = [line.split("|")[2] for line in section.splitlines() if line.startswith("| ") and line.count("|") == 3]
    named = re.findall(r"`([A-Z]\w+)(?:\.(\w+))?`", "".join(right))
    assert len(named) > 60
    for kind, member in named:
        thing = {"Admin": Admin, "Client": Client}.get(kind) or getattr(api, kind)
        assert not member or hasattr(thing, member) or member in inspect.signature(thing).parameters, (kind, member)
