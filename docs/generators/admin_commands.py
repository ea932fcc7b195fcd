"""Describes the commands of mqadmin, from the table that the program itself uses."""

from __future__ import annotations

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
