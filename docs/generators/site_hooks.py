"""The hooks that MkDocs calls while it builds the site (mkdocs.yml, `hooks`).

- Pages that live outside of docs/ (the changelog, the examples ...) become pages of the site.
- `<!-- generated: NAME -->` is replaced by text made from the code, so that no table can be out of date.
- The reference of the client is made by mkdocstrings: client_reference.py.
- Links keep working: repository_pages.py.
"""

from __future__ import annotations

import re
from typing import Any

import admin_commands
import client_reference
import command_help
import limits_table
import request_table
import settings_tables
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from repository_pages import OUTSIDE, ROOT, examples, pages, relinked

GENERATED = {
    "admin commands": admin_commands.admin_commands,
    "admin verbs": admin_commands.admin_verbs,
    "assistant reading": admin_commands.assistant_reading,
    "assistant changing": admin_commands.assistant_changing,
    "command help": command_help.command_help,
    "broker settings": settings_tables.broker_settings,
    "namesrv settings": settings_tables.namesrv_settings,
    "system properties": settings_tables.system_properties,
    "tls settings": settings_tables.tls_settings,
    "configuration differences": settings_tables.differences,
    "broker requests": request_table.broker_requests,
    "namesrv requests": request_table.namesrv_requests,
    "other requests": request_table.other_requests,
    "request limits": limits_table.request_limits,
    "other limits": limits_table.other_limits,
}

_MARKER = re.compile(r"(?m)^> Made from the code: .*\n\n<!-- generated: ([a-z ]+) -->$")
"""The line before it is for those who read the page in the repository."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add every page of docs/internals/ to the navigation, so that a new one needs no line in mkdocs.yml."""
    for section in config.nav or []:
        for name, entries in section.items():
            if name == "Internals":
                listed = {page for entry in entries if isinstance(entry, dict) for page in entry.values()}
                found = sorted(f"internals/{path.name}" for path in (ROOT / "docs/internals").glob("*.md"))
                entries[1:1] = [page for page in found if page not in listed]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are outside of docs/."""
    for name, page in OUTSIDE.items():
        if page != "index.md":
            files.append(File.generated(config, page, content=(ROOT / name).read_text()))
    for name, page in examples().items():
        text = f"# {name}\n\n```python\n{(ROOT / name).read_text().rstrip()}\n```\n"
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Insert generated tables, and adapt links to the pages of the site."""
    target = page.file.src_uri
    source = next((name for name, uri in pages().items() if uri == target and name != "README.md"), f"docs/{target}")
    markdown = client_reference.on_site(markdown)
    return relinked(_MARKER.sub(lambda match: GENERATED[match[1]](), markdown), source, target)
