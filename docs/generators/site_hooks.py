"""What MkDocs calls while it builds the site (mkdocs.yml, `hooks`).

Three things make the Markdown of the repository a site:

- Pages that live outside of docs/ (the changelog, the examples ...) become pages of the site.
- `<!-- generated: NAME -->` is replaced by a table made from the code, so that no table can be out of date.
- Relative links keep working in both places: on the forge, where they name files of the repository, and on the site,
  where those files have other addresses or none.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

import command_help
import request_table
import settings_tables
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

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

GENERATED = {
    "command help": command_help.command_help,
    "broker settings": settings_tables.broker_settings,
    "namesrv settings": settings_tables.namesrv_settings,
    "system properties": settings_tables.system_properties,
    "tls settings": settings_tables.tls_settings,
    "configuration differences": settings_tables.differences,
    "broker requests": request_table.broker_requests,
    "namesrv requests": request_table.namesrv_requests,
    "other requests": request_table.other_requests,
}

_MARKER = re.compile(r"(?m)^<!-- generated: ([a-z ]+) -->$")
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s#]*)(#[^()\s]*)?\)")
_FENCE = re.compile(r"^\s*(```|~~~)")


def examples() -> dict[str, str]:
    """Example program -> page that shows it."""
    found = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "examples").rglob("*.py"))
    return {name: name.removesuffix(".py") + ".md" for name in found}


def pages() -> dict[str, str]:
    """Every file of the repository that is a page of the site -> that page."""
    inside = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*") if path.is_file()}
    return OUTSIDE | examples() | {name: name.removeprefix("docs/") for name in inside if not name.endswith(".py")}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that do not live in docs/."""
    for name, page in OUTSIDE.items():
        if page != "index.md":
            files.append(File.generated(config, page, content=(ROOT / name).read_text()))
    for name, page in examples().items():
        text = f"# {name}\n\n```python\n{(ROOT / name).read_text().rstrip()}\n```\n"
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Fill in generated tables and point links at pages of the site."""
    target = page.file.src_uri
    source = next((name for name, uri in pages().items() if uri == target and name != "README.md"), f"docs/{target}")
    return relinked(_MARKER.sub(lambda match: GENERATED[match[1]](), markdown), source, target)


def relinked(markdown: str, source: str, target: str) -> str:
    """Text of the repository's file `source` with its links changed to fit page `target` of the site."""
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
