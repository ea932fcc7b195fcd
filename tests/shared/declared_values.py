"""Values at and beyond the bounds that the records of requests declare (docs/generators/declared_bounds.py)."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from docs.generators.declared_bounds import Declared, declared, records
from triomq.protocol.headers.base import Header, schema_columns

USUAL = {0: "1", 1: "1", 2: "1", 3: "false"}


def bounded(is_header: bool) -> list[tuple[int, Declared]]:
    """Return (code, value) of every value that a decoder bounds, in headers or in bodies."""
    return [
        (code, one)
        for code, _, record in records()
        if issubclass(record, Header) is is_header
        for one in declared(record)
        if one.meta is not None
    ]


def leaf(one: Declared, beyond: int) -> Any:
    """Return the largest value that the decoder takes, or one `beyond` it."""
    meta = one.meta
    assert meta is not None
    if meta.max_length is None:
        assert meta.le is not None
        return int(meta.le) + beyond
    if one.kind is str:
        return "x" * (meta.max_length + beyond)
    return list(range(meta.max_length + beyond)) if "code" in one.path else _names(meta.max_length + beyond)


def header_fields(one: Declared, beyond: int) -> dict[str, str]:
    """Return the fields of a header whose other fields are usual."""
    columns = schema_columns(one.record)  # type: ignore[arg-type]
    fields = {name.decode(): USUAL[kind] for name, kind in zip(columns[1], columns[2], strict=True)}
    return {**fields, one.path: str(leaf(one, beyond))}


def body_text(one: Declared, beyond: int, others: dict[str, Any] | None = None) -> bytes:
    """Return a body, in the JSON of fastjson, that leads to the value; `others` are further members at the top."""
    kinds = {other.path: other.kind for other in declared(one.record)}
    tokens = re.findall(r"[^.\[\]{}]+|\[\]|\{\}", one.path)
    return _text({**(others or {}), **_around(tokens, "", kinds, leaf(one, beyond))}).encode()


def _around(tokens: list[str], path: str, kinds: dict[str, type], value: Any) -> Any:
    if not tokens:
        return value
    first, rest = tokens[0], tokens[1:]
    if first == "{}":
        inner = _around(rest, path + first, kinds, value)
        return {_Key(inner) if isinstance(inner, dict) else inner: _item(path, kinds)}
    if first == "[]":
        inner = _around(rest, path + first, kinds, value)
        return {_dict_key(path, kinds): inner} if kinds[path] is dict else [inner]
    path = f"{path}.{first}" if path else first
    inner = _around(rest, path, kinds, value)
    return _queue(inner, first) if _is_queue(path, kinds) else {first: inner}


class _Key:
    """A map key that is an object."""

    def __init__(self, members: dict[str, Any]) -> None:
        self.members = members


def _is_queue(path: str, kinds: dict[str, type]) -> bool:
    above = path.rpartition(".")[0]
    return all(f"{above}.{name}" in kinds for name in ("topic", "brokerName", "queueId")) and bool(above)


def _queue(value: Any, name: str) -> dict[str, Any]:
    return {"topic": "T", "brokerName": "b", "queueId": 0, name: value}


def _item(path: str, kinds: dict[str, type]) -> Any:
    """Return a usual value of the table at `path`."""
    kind = kinds.get(path + "[]")
    return {str: "x", int: 1, list: [], frozenset: []}.get(kind, {})  # type: ignore[arg-type]


def _dict_key(path: str, kinds: dict[str, type]) -> Any:
    if path + "{}" not in kinds:
        return _Key({"topic": "T", "brokerName": "b", "queueId": 0})
    return "1"


def _names(count: int) -> list[str]:
    return [f"n{number}" for number in range(count)]


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{_key(key)}:{_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list) and len(value) < 100:
        return "[" + ",".join(map(_text, value)) + "]"
    return json.dumps(value)


def _key(key: Any) -> str:
    if isinstance(key, _Key):
        return _text(key.members)
    return str(key) if isinstance(key, int) else json.dumps(key)


def name_of(one: Declared) -> str:
    """Return the id of a test case."""
    record: type[msgspec.Struct] = one.record
    return f"{record.__name__}.{one.path}"
