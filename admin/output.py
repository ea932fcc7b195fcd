"""The output of a command: text as RocketMQ's mqadmin prints it, or JSON for programs.

A command calls both `text` and `item`; the output writes only one of them. With `json` the items of a command are one
array, written at its end; with `jsonl` each is one line, written at once.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TextIO

TEXT, JSON, JSON_LINES = "table", "json", "jsonl"
FORMATS = (TEXT, JSON, JSON_LINES)


class Output:
    def __init__(self, stream: TextIO, form: str = TEXT, *, with_header: bool = True) -> None:
        self._stream = stream
        self._form = form
        self._with_header = with_header
        self._items: list[dict[str, Any]] = []

    @property
    def is_text(self) -> bool:
        return self._form == TEXT

    def text(self, text: str) -> None:
        """Write text unchanged, without a newline after it."""
        if self._form == TEXT:
            self._stream.write(text)
            self._stream.flush()

    def line(self, text: str = "") -> None:
        self.text(text + "\n")

    def header(self, text: str) -> None:
        """Write the line of column names, unless --no-header omits it."""
        if self._with_header:
            self.line(text)

    def item(self, **fields: Any) -> None:
        """Write one item as JSON. Names are in camelCase, as in the bodies of the protocol."""
        if self._form == JSON_LINES:
            self._stream.write(_json(fields) + "\n")
            self._stream.flush()
        elif self._form == JSON:
            self._items.append(fields)

    def finish(self) -> None:
        if self._form == JSON:
            self._stream.write(_json(self._items, indent=2) + "\n")
            self._stream.flush()


def warn(text: str) -> None:
    """Write a line to standard error."""
    sys.stderr.write(text + "\n")


def _json(value: object, indent: int | None = None) -> str:
    import json

    return json.dumps(value, ensure_ascii=False, indent=indent)
