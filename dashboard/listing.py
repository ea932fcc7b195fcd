"""Lists of a page: search, order and pages of rows, from the query of a request."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

ROWS: Final = 50
MOST_FIELDS: Final = 32
MOST_TICKED: Final = 64
"""Boxes of one form."""
MOST_CHARACTERS: Final = 512
STEP_NAMES: Final = 500
"""How many names one step of a search looks at."""
STEP_ROWS: Final = 8
"""How many rows of a long list one step makes."""
_T = TypeVar("_T")


def fields_of(text: str, most_characters: int = MOST_CHARACTERS, list_field: str = "") -> dict[str, str]:
    """Return the fields of a query or form; the last of one name counts. Those named `list_field` are one text, joined
    by spaces. Too many, too long or wrong ones are left out."""
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS + (MOST_TICKED if list_field else 0))
    except ValueError:
        return {}
    fields = {name: value for name, value in pairs if len(value) <= most_characters}
    if list_field:
        joined = " ".join([value for name, value in pairs if name == list_field])
        fields[list_field] = joined if len(joined) <= most_characters else ""
    return fields


def number_of(query: dict[str, str], name: str, default: int, low: int, high: int) -> int:
    """Return a whole number of a query between `low` and `high`; `default` if it is missing or no number."""
    text = query.get(name, "").strip()
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or len(digits) > 19:
        return default
    return min(high, max(low, int(text)))


@dataclass(slots=True)
class Page:
    """One page of a list as templates and JSON show it."""

    rows: list[Any]
    total: int
    number: int
    pages: int
    order: str
    is_down: bool
    search: str


def listed(
    names: Sequence[str],
    query: dict[str, str],
    make: Callable[[str], _T | None],
    keys: dict[str, Callable[[_T], Any]],
    *,
    default: str,
) -> Generator[None, None, Page]:
    """Return the page that a query asks for; an item ends a step. `make` makes the row of a name, None if
    that is gone by now; `keys` has what to order by. Ordered by name, which is the default, only the rows of the page
    are made."""
    search = query.get("q", "").strip()
    lowered = search.lower()
    found = sorted(names)
    if lowered:
        kept: list[str] = []
        for begin in range(0, len(found), STEP_NAMES):
            yield None
            kept += [name for name in found[begin : begin + STEP_NAMES] if lowered in name.lower()]
        found = kept
    order = query.get("sort", default)
    order = order if order in keys else default
    is_down = query.get("dir", "asc" if order == "name" else "desc") == "desc"
    pages = max(1, -(-len(found) // ROWS))
    number = number_of(query, "page", 1, 1, pages)
    begin = (number - 1) * ROWS
    rows: list[_T] = []
    if order == "name":
        if is_down:
            found.reverse()
        total = len(found)
        chosen = found[begin : begin + ROWS]
    else:
        total = len(found)
        chosen = found
    for count, name in enumerate(chosen, 1):
        row = make(name)
        if row is not None:
            rows.append(row)
        if count % STEP_ROWS == 0:
            yield None
    if order != "name":
        rows.sort(key=keys[order], reverse=is_down)
        rows = rows[begin : begin + ROWS]
    return Page(rows, total, number, pages, order, is_down, search)
