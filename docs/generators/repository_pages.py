"""The files of the repository that are pages of the site, with links that work in both places.

In the repository a relative link names another file. On the site that file has another address, or none; then the link
becomes plain text.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

OUTSIDE = {
    "ARCHITECTURE.md": "project/architecture.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "CODE_OF_CONDUCT.md": "project/code-of-conduct.md",
    "benchmarks/README.md": "project/benchmarks.md",
    "README.md": "index.md",
}
"""File of the repository -> page of the site. README.md has a page of its own here."""

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s#]*)(#[^()\s]*)?\)")
_FENCE = re.compile(r"^\s*(```|~~~)")


def examples() -> dict[str, str]:
    """Return example program -> the page that shows it."""
    found = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "examples").rglob("*.py"))
    return {name: name.removesuffix(".py") + ".md" for name in found}


def pages() -> dict[str, str]:
    """Return every file of the repository that is a page of the site -> that page."""
    inside = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*") if path.is_file()}
    return OUTSIDE | examples() | {name: name.removeprefix("docs/") for name in inside if not name.endswith(".py")}


def relinked(markdown: str, source: str, target: str) -> str:
    """Return the text of the repository's file `source`, with its links adapted to page `target` of the site."""
    known = pages()
    lines: list[str] = []
    fence = ""
    for line in markdown.split("\n"):
        found = _FENCE.match(line)
        if found and (not fence or fence == found[1]):
            fence = "" if fence else found[1]
        if not fence and not found and not line.startswith("    "):
            line = _LINK.sub(lambda match: _link(match, source, target, known), line)
        lines.append(line)
    return "\n".join(lines)


def _link(match: re.Match[str], source: str, target: str, known: dict[str, str]) -> str:
    bang, text, path, anchor = match[1], match[2], match[3], match[4] or ""
    if not path or "://" in path or path.startswith("mailto:"):
        return match[0]
    named = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    if named in known:
        return f"{bang}[{text}]({posixpath.relpath(known[named], posixpath.dirname(target) or '.')}{anchor})"
    if (ROOT / named).exists() and not named.startswith("docs/"):
        return text if text.startswith("`") else f"{text} (`{named}`)" if named not in text else f"`{named}`"
    return match[0]  # MkDocs reports it
