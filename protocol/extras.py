"""How to install what only some programs need: the extras of pyproject.toml."""

from __future__ import annotations


def install_hint(extra: str) -> str:
    """Return what to do about the missing packages of an extra, for the end of an error's text."""
    # No package index has the project, so `pip install 'triomq[...]'` fails in a new environment.
    return f"install the extra: pip install '.[{extra}]' in the clone, or '/path/to/clone[{extra}]'"
