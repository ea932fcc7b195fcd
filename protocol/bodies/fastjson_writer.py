"""Writes JSON as fastjson 1.2.69 does, byte for byte.

Compact form: no spaces; members of records in alphabetical order; null members omitted; map keys that are numbers or
objects unquoted; doubles as Java's Double.toString; byte arrays as base64; UTF-8.
Standard form (route data for newer clients): every map key quoted, maps sorted, all but ASCII as \\uXXXX.
Pretty form (files below config/): one tab per level, each named member on its own line, no space after the colon;
entries whose key is not a string continue on the current line.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Iterable
from typing import Any, Final, get_type_hints

import msgspec

from triomq.protocol.java import string_hash
from triomq.protocol.message_queue import MessageQueue

_SPECIAL: Final = re.compile('["\\\\\x00-\x1f\x7f-\x9f\u2028\u2029]')
_SPECIAL_STANDARD: Final = re.compile('["\\\\]|[^\x20-\x7e]')
# Bytes in msgspec's output that fastjson writes differently.
_FOREIGN: Final = re.compile(rb"\x7f|\xc2[\x80-\x9f]|\xe2\x80[\xa8\xa9]|\\u00[01][a-f]")
_SHORT: Final = {
    '"': '\\"',
    "\\": "\\\\",
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\f": "\\f",
    "\r": "\\r",
}


def dumps(value: Any) -> bytes:
    """Return the compact form of a value made of records, dicts, lists, sets, str, numbers, bytes, bool and None."""
    pieces: list[str] = []
    _Writer(pieces, standard=False, pretty=False).write(value, 0)
    return "".join(pieces).encode("utf-8", "replace")


def dumps_standard(value: Any) -> bytes:
    """Return the standard form: all map keys quoted and sorted, ASCII only."""
    pieces: list[str] = []
    _Writer(pieces, standard=True, pretty=False).write(value, 0)
    return "".join(pieces).encode()


def dumps_pretty(value: Any) -> bytes:
    """Return the pretty form, as in the files below config/."""
    pieces: list[str] = []
    _Writer(pieces, standard=False, pretty=True).write(value, 0)
    return "".join(pieces).encode("utf-8", "replace")


def quote(text: str) -> str:
    """Return `text` as a JSON string, escaped as fastjson does."""
    return f'"{text}"' if _SPECIAL.search(text) is None else f'"{_SPECIAL.sub(_escaped, text)}"'


def _quote_standard(text: str) -> str:
    return f'"{text}"' if _SPECIAL_STANDARD.search(text) is None else f'"{_SPECIAL_STANDARD.sub(_escaped, text)}"'


def _escaped(match: re.Match[str]) -> str:
    character = match.group()
    short = _SHORT.get(character)
    if short is not None:
        return short
    code = ord(character)
    if code > 0xFFFF:
        code -= 0x10000
        return f"\\u{0xD800 | code >> 10:04X}\\u{0xDC00 | code & 0x3FF:04X}"
    return f"\\u{code:04X}"


def double_text(number: float) -> str:
    """Format as Java's Double.toString: 0.0, 0.17, 1.0E10, 1.0E-5. NaN and infinities become null, as in fastjson."""
    if not math.isfinite(number):
        return "null"
    magnitude = abs(number)
    if magnitude == 0 or 1e-3 <= magnitude < 1e7:
        return repr(number)
    mantissa, _, exponent = f"{number!r}e0".partition("e")
    digits = mantissa.lstrip("-").replace(".", "")
    point = mantissa.lstrip("-").find(".")
    power = int(exponent.partition("e")[0]) + (point if point >= 0 else len(digits)) - 1
    leading = len(digits) - len(digits.lstrip("0"))
    digits = digits[leading:].rstrip("0") or "0"
    power -= leading
    return f"{'-' if number < 0 else ''}{digits[0]}.{digits[1:] or '0'}E{power}"


class _Record:
    """The writing plan of one Struct class: its members in alphabetical order of their wire names."""

    __slots__ = ("encode", "members")

    def __init__(self, cls: type[msgspec.Struct]) -> None:
        fields = sorted(msgspec.structs.fields(cls), key=lambda field: field.encode_name)
        self.members: list[tuple[str, str]] = [(field.name, quote(field.encode_name) + ":") for field in fields]
        # If all fields are integers, booleans or strings and declared in this order, one call into msgspec writes
        # the record.
        hints = get_type_hints(cls)
        in_order = [field.encode_name for field in msgspec.structs.fields(cls)] == [f.encode_name for f in fields]
        plain = in_order and all(hints[field.name] in (int, str, bool) for field in fields)
        self.encode: Callable[[Any], bytes] | None = msgspec.json.Encoder().encode if plain else None


_records: dict[type[msgspec.Struct], _Record] = {}


def _record(cls: type[msgspec.Struct]) -> _Record:
    record = _records.get(cls)
    if record is None:
        record = _records[cls] = _Record(cls)
    return record


class _Writer:
    __slots__ = ("_pieces", "_pretty", "_quote", "_standard")

    def __init__(self, pieces: list[str], *, standard: bool, pretty: bool) -> None:
        self._pieces = pieces
        self._standard = standard
        self._pretty = pretty
        self._quote = _quote_standard if standard else quote

    def write(self, value: Any, depth: int) -> None:
        if isinstance(value, str):
            self._pieces.append(self._quote(value))
        elif value is None:
            self._pieces.append("null")
        elif value is True:
            self._pieces.append("true")
        elif value is False:
            self._pieces.append("false")
        elif isinstance(value, int):
            self._pieces.append(int.__repr__(value))
        elif isinstance(value, msgspec.Struct):
            self._write_record(value, depth)
        elif isinstance(value, dict):
            self._write_map(value, depth)
        elif isinstance(value, (list, tuple)):
            self._write_list(value, depth)
        elif isinstance(value, float):
            self._pieces.append(double_text(value))
        elif isinstance(value, (set, frozenset)):
            self._write_list(java_set_order(value), depth)
        elif isinstance(value, (bytes, bytearray, memoryview)):
            self._pieces.append(f'"{base64.b64encode(value).decode("ascii")}"')
        else:
            raise TypeError(f"a {type(value).__name__} cannot be written as JSON")

    def _line(self, depth: int) -> None:
        self._pieces.append("\n" + "\t" * depth)

    def _write_record(self, value: msgspec.Struct, depth: int) -> None:
        record = _record(type(value))
        pieces = self._pieces
        if record.encode is not None and not self._pretty and not self._standard:
            data = record.encode(value)
            if _FOREIGN.search(data) is None:
                pieces.append(data.decode())
                return
        separator = "{"
        for attribute, name in record.members:
            member = getattr(value, attribute)
            if member is None:
                continue
            pieces.append(separator)
            separator = ","
            if self._pretty:
                self._line(depth + 1)
            pieces.append(name)
            self.write(member, depth + 1)
        if separator == "{":
            pieces.append("{")
        if self._pretty:
            self._line(depth)
        pieces.append("}")

    def _write_map(self, value: dict[Any, Any], depth: int) -> None:
        pieces = self._pieces
        items: Iterable[tuple[Any, Any]] = value.items()
        if self._standard:
            items = sorted(items, key=_key_order)
        separator = "{"
        for key, member in items:
            if member is None:
                continue
            pieces.append(separator)
            separator = ","
            if isinstance(key, str):
                if self._pretty:
                    self._line(depth + 1)
                pieces.append(self._quote(key))
            elif self._standard and isinstance(key, int):
                pieces.append(f'"{key:d}"')
            elif isinstance(key, frozenset):
                self._write_map(dict(sorted(key, key=_key_order)), depth + 1)
            else:
                self.write(key, depth + 1)
            pieces.append(":")
            self.write(member, depth + 1)
        if separator == "{":
            pieces.append("{}")
            return
        if self._pretty:
            self._line(depth)
        pieces.append("}")

    def _write_list(self, items: list[Any] | tuple[Any, ...], depth: int) -> None:
        pieces = self._pieces
        if not items:
            pieces.append("[]")
            return
        # fastjson keeps an int[] on one line even in the pretty form (bitPos of consumerFilter.json).
        lines = self._pretty and not all(type(item) is int for item in items)
        separator = "["
        for item in items:
            pieces.append(separator)
            separator = ","
            if lines:
                self._line(depth + 1)
            self.write(item, depth + 1)
        if lines:
            self._line(depth)
        pieces.append("]")


def _key_order(item: tuple[Any, Any]) -> tuple[int, int, str]:
    key = item[0]
    if isinstance(key, int):
        return 0, key, ""
    return 1, 0, str(key)


def java_hash(value: Any) -> int:
    """Return Java's hashCode of a member of a set in these bodies: String, Integer or MessageQueue. Signed 32 bits."""
    if isinstance(value, str):
        return string_hash(value)
    if isinstance(value, int):
        return value
    if isinstance(value, MessageQueue):
        number = 31 * (31 * (31 + string_hash(value.broker_name)) + value.queue_id) + string_hash(value.topic)
        return (number + 0x80000000) % 0x100000000 - 0x80000000
    return 0


def java_set_order(values: Iterable[Any]) -> list[Any]:
    """Return the items in the iteration order of a java.util.HashSet to which they were added one by one.

    Items of one bucket are in natural order here, in Java in insertion order.
    """
    items = sorted(values)
    buckets = 16
    while len(items) > buckets * 3 // 4:
        buckets *= 2

    def bucket(item: Any) -> int:
        number = java_hash(item) & 0xFFFFFFFF
        return (number ^ number >> 16) & (buckets - 1)

    items.sort(key=bucket)
    return items
