"""Bodies as columns: JSON objects whose fields are typed by the columns of the table.

The columns are the pinned schema. A field without a column gets one, in a commit of its own before its rows are
committed; what does not fit its column makes the whole row a dead one, with a reason. Which rows are dead thus depends
on the bodies and the pinned columns alone, and not on how the messages are cut into commits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final

from triomq.pipeline.tables.rows import RAW_SCHEMA, TYPES
from triomq.spark.jobs.session import JobFailed

Kinds = dict[str, str]
"""Column -> type name, as in rows.TYPES."""

VALUE_KINDS: Final = ("string", "bigint", "double", "boolean", "timestamp", "date", "binary")
MOST_COLUMNS: Final = 1000
PREFIX: Final = "value_"
"""In front of a field that has the name of a message's column."""
_RESERVED: Final = frozenset(name.lower() for name in RAW_SCHEMA.names)
_NAME: Final = re.compile(r"[^\s,;{}()=.\"`\\/\x00-\x1f\ud800-\udfff]{1,128}")
_LEAST, _MOST = -(2**63), 2**63


class Unfit(Exception):
    """A body that does not fit, with the reason."""


def json_object(body: bytes) -> dict[str, Any]:
    """Return a JSON object. Raises Unfit."""
    try:
        value = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Unfit(f"not JSON: {str(error)[:200]}") from None
    if not isinstance(value, dict):
        raise Unfit("JSON, but not an object")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def column_of(field: str) -> str:
    """Return the column of a field. Raises Unfit for a name that no format takes."""
    if _NAME.fullmatch(field) is None:
        raise Unfit(f"field {ascii(field)[:100]}: not a name of a column")
    return PREFIX + field if field.lower() in _RESERVED else field


def new_columns(values: Iterable[Mapping[str, Any]], pinned: Mapping[str, str]) -> Kinds:
    """Return columns for the fields that have none, from the first value of each; whole numbers and fractions
    together are double. A field that cannot have a column is left out."""
    found: Kinds = {}
    taken = {name.lower() for name in pinned} | _RESERVED
    for fields in values:
        for field, value in fields.items():
            if value is None:
                continue
            try:
                name = column_of(field)
            except Unfit:
                continue
            if name in found:
                if {found[name], _kind(value)} == {"bigint", "double"}:
                    found[name] = "double"
            elif name.lower() not in taken and len(taken) < MOST_COLUMNS:
                found[name] = _kind(value)
                taken.add(name.lower())
    return found


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "bigint" if _LEAST <= value < _MOST else "double"
    kinds: tuple[tuple[type, str], ...] = (
        (float, "double"), (datetime, "timestamp"), (date, "date"), (bytes, "binary"),
    )  # fmt: skip
    return next((kind for known, kind in kinds if isinstance(value, known)), "string")


def fitted(fields: Mapping[str, Any], pinned: Mapping[str, str]) -> dict[str, Any]:
    """Return column -> value. Raises Unfit."""
    row = {}
    for field, value in fields.items():
        if value is None:
            continue
        name = column_of(field)
        kind = pinned.get(name)
        if kind is None:
            same = next((known for known in pinned if known.lower() == name.lower()), None)
            if same is not None:
                raise Unfit(f"field {field!r} is not column {same!r}: they differ in case")
            raise Unfit(f"field {field!r} has no column: the table has its {MOST_COLUMNS} columns")
        if name in row:
            raise Unfit(f"two fields for column {name!r}")
        try:
            row[name] = _FITS[kind](value)
        except (TypeError, ValueError, OverflowError, RecursionError):
            raise Unfit(f"field {field!r}: {_shown(value)} is not {kind}") from None
    return row


def _shown(value: Any) -> str:
    return ascii(value)[:60] if isinstance(value, (bool, int, float, str)) else type(value).__name__


def _whole(value: Any) -> int:
    if type(value) is not int or not _LEAST <= value < _MOST:
        raise TypeError
    return value


def _fraction(value: Any) -> float:
    if type(value) not in (int, float):
        raise TypeError
    return float(value)


def _truth(value: Any) -> bool:
    if type(value) is not bool:
        raise TypeError
    return value


def _text(value: Any) -> str:
    if isinstance(value, (dict, list)):
        value = json.dumps(value, ensure_ascii=False, default=str)
    if type(value) is not str:
        raise TypeError
    if not value.isascii():
        value.encode()  # JSON can have half a surrogate pair, which is not text
    return value


def _moment(value: Any) -> datetime:
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    if not isinstance(moment, datetime):
        raise TypeError
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _day(value: Any) -> date:
    day = date.fromisoformat(value) if isinstance(value, str) else value
    if type(day) is not date:
        raise TypeError
    return day


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError
    return value


_FITS: Final[dict[str, Callable[[Any], Any]]] = {
    "string": _text,
    "bigint": _whole,
    "double": _fraction,
    "boolean": _truth,
    "timestamp": _moment,
    "date": _day,
    "binary": _bytes,
}


def arrow_columns(rows: Sequence[Mapping[str, Any]], pinned: Mapping[str, str]) -> list[Any]:
    """Return an Arrow array for each column, with nulls where a row has none."""
    import pyarrow as pa

    return [pa.array([row.get(name) for row in rows], TYPES[kind]) for name, kind in pinned.items()]


def schema_file(path: str) -> Kinds:
    """Return the columns of a --schema file: a JSON object of column -> type. Raises JobFailed."""
    try:
        given = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise JobFailed(f"--schema {path}: {error.strerror}") from error
    except ValueError as error:
        raise JobFailed(f"--schema {path}: not JSON ({error})") from None
    if not isinstance(given, dict):
        raise JobFailed(f'--schema {path}: expected {{"column": "type"}}')
    kinds: Kinds = {}
    for name, kind in given.items():
        if kind not in VALUE_KINDS:
            raise JobFailed(f"--schema {path}: column {name!r}: {kind!r} is none of {', '.join(VALUE_KINDS)}")
        try:
            column = column_of(name)
        except Unfit as error:
            raise JobFailed(f"--schema {path}: {error}") from None
        if column.lower() in {known.lower() for known in kinds}:
            raise JobFailed(f"--schema {path}: column {name!r} is there twice")
        kinds[column] = kind
    return kinds
