"""What errors say about missing packages works in a new environment, and names extras that exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from triomq.protocol.extras import install_hint

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [path for path in (ROOT / "src/triomq").glob("*/**/*.py") if path.name != "extras.py"]


def test_the_hint_needs_no_package_index() -> None:
    assert install_hint("avro") == ("install the extra: pip install '.[avro]' in the clone, or '/path/to/clone[avro]'")


def test_every_hint_is_this_one_and_names_an_extra_of_the_project() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    texts = {path.relative_to(ROOT / "src/triomq").as_posix(): path.read_text() for path in SOURCES}
    named = {name: found for name, text in texts.items() if (found := re.findall(r"install_hint\(['\"](\w+)", text))}
    assert len(named) >= 6
    assert {extra for found in named.values() for extra in found} <= set(extras)
    assert [name for name, text in texts.items() if re.search(r"triomq\[[a-z]+\]", text)] == []
