"""Describes the commands of mqadmin, from the table that the program itself uses."""

from __future__ import annotations

from collections.abc import Iterable

from triomq.admin.assistant.offers import CHANGING, READING
from triomq.admin.command import Command
from triomq.admin.table import ROWS
from triomq.admin.verb import Verb
from triomq.admin.verb_table import VERBS


def admin_commands() -> str:
    """Return a table of all commands, then the options of each."""
    rows = [f"| [`{row[0]}`](#{row[0].lower()}) | {row[1]} |" for row in ROWS]
    sections = [f"### {row[0]}\n\n```text\n{Command(row).usage()}\n```" for row in ROWS]
    return "\n".join(["| command | what it does |", "|---|---|", *rows]) + "\n\n" + "\n\n".join(sections)


def admin_verbs() -> str:
    """Return a table of all verbs, then the options of each."""
    rows = [f"| [`{row[0]}`](#{row[0].replace(' ', '-')}) | {row[2]} |" for row in VERBS]
    sections = [f"### {row[0]}\n\n```text\n{Verb(row).usage()}\n```" for row in VERBS]
    return "\n".join(["| command | what it does |", "|---|---|", *rows]) + "\n\n" + "\n\n".join(sections)


def assistant_reading() -> str:
    """Return a table of the tools of `mqadmin mcp` that read."""
    return _tools(READING)


def assistant_changing() -> str:
    """Return a table of the tools of `mqadmin mcp` that change something."""
    return _tools(CHANGING)


def _tools(names: Iterable[str]) -> str:
    helps = {row[0]: row[1] for row in ROWS} | {row[0]: row[2] for row in VERBS}
    anchors = {row[0]: row[0].lower() for row in ROWS} | {row[0]: row[0].replace(" ", "-") for row in VERBS}
    rows = [f"| [`{name.replace(' ', '_')}`](../mqadmin.md#{anchors[name]}) | {helps[name]} |" for name in names]
    return "\n".join(["| tool | what it does |", "|---|---|", *rows])
