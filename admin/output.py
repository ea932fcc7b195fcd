"""The output of a command: text as RocketMQ's mqadmin prints it, or JSON for programs.

A command calls both `text` and `item`; the output writes only one of them. With `json` the items of a command are one
array, written at its end; with `jsonl` each is one line, written at once. With chosen fields the text is a table of
the items.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, TextIO

TEXT, JSON, JSON_LINES = "table", "json", "jsonl"
SILENT = "silent"  # of a dry run: the command writes as text, and nobody reads it
FORMATS = (TEXT, JSON, JSON_LINES)

_COLOURS = {"red": "31", "green": "32", "yellow": "33", "bold": "1"}


class Output:
    """`fields` are the only ones to write, in this order; empty for all."""

    def __init__(
        self, stream: TextIO, form: str = TEXT, *, with_header: bool = True, fields: Sequence[str] = ()
    ) -> None:
        self._stream = stream
        self._form = form
        self._with_header = with_header
        self._fields = list(fields)
        self._items: list[dict[str, Any]] = []

    @property
    def is_text(self) -> bool:
        return self._form in (TEXT, SILENT)

    @property
    def has_colour(self) -> bool:
        """Whether the output is a terminal that shows colours, and NO_COLOR is not set."""
        return (
            self._form == TEXT
            and self._stream.isatty()
            and not os.environ.get("NO_COLOR")
            and os.environ.get("TERM", "dumb") != "dumb"
        )

    def painted(self, text: str, colour: str) -> str:
        return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if self.has_colour else text

    def text(self, text: str) -> None:
        """Write text unchanged, without a newline after it."""
        if self._form == TEXT and not self._fields:
            self._write(text)

    def line(self, text: str = "") -> None:
        self.text(text + "\n")

    def header(self, text: str) -> None:
        """Write the line of column names, unless --no-header omits it."""
        if self._with_header:
            self.line(text)

    def item(self, **fields: Any) -> None:
        """Write one item as JSON. Names are in camelCase, as in the bodies of the protocol."""
        if self._form == SILENT:
            return
        chosen = {name: fields.get(name) for name in self._fields} if self._fields else fields
        if self._form == JSON_LINES:
            self._write(_json(chosen, self._stream.encoding) + "\n")
        elif self._form == JSON or self._fields:
            self._items.append(chosen)

    def table(self, columns: dict[str, str], items: Iterable[dict[str, Any]]) -> None:
        """Write items, as text in aligned columns: `columns` has the title of each field that is shown."""
        rows = list(items)
        if self._form == TEXT and not self._fields:
            titles = list(columns.values()) if self._with_header else []
            for line in table_lines(titles, [[item.get(name) for name in columns] for item in rows]):
                self.line(line)
        for item in rows:
            self.item(**item)

    def finish(self) -> None:
        if self._form == JSON:
            self._write(_json(self._items, self._stream.encoding, indent=2) + "\n")
        elif self._form == TEXT and self._fields:
            titles = self._fields if self._with_header else []
            rows = [list(item.values()) for item in self._items]
            self._write("".join([line + "\n" for line in table_lines(titles, rows)]))
        self._items = []

    def lose_reader(self) -> None:
        """Write nothing more: who read the output has closed it. The command continues."""
        lead_nowhere(self._stream.fileno())
        self._form = SILENT

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def lead_nowhere(descriptor: int) -> None:
    """Let what is written to a descriptor vanish, also what a stream still holds for it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def table_lines(titles: list[str], rows: list[list[Any]]) -> list[str]:
    """Return lines of aligned columns; a column that has only numbers is aligned to the right."""
    cells = [[_cell(value) for value in row] for row in rows]
    every = [titles, *cells] if titles else cells
    if not every:
        return []
    widths = [max([len(row[index]) for row in every]) for index in range(len(every[0]))]
    right = [
        bool(rows) and all(isinstance(row[index], int | float | None) for row in rows) for index in range(len(widths))
    ]
    return [
        "  ".join(
            [
                text.rjust(width) if is_right else text.ljust(width)
                for text, width, is_right in zip(row, widths, right, strict=True)
            ]
        ).rstrip()
        for row in every
    ]


def printable(text: str) -> str:
    """Return text of a message for a terminal: control characters are shown, not obeyed."""
    return "".join([each if each.isprintable() else repr(each)[1:-1] for each in text])


def warn(text: str) -> None:
    """Write a line to standard error."""
    sys.stderr.write(text + "\n")


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.2f}"
    return printable(value) if isinstance(value, str) else str(value) if isinstance(value, int) else _json(value, None)


def _json(value: object, encoding: str | None, indent: int | None = None) -> str:
    """Return the JSON of a value for a stream of this encoding: one that lacks characters gets them escaped."""
    import json

    has_all = (encoding or "utf-8").lower().replace("-", "").startswith("utf")
    return json.dumps(value, ensure_ascii=not has_all, indent=indent)
