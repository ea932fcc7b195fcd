"""Values of SQL92 filters as Java reads, compares and prints them.

The literal decides how the text of a property is read: as 32 bit or 64 bit integer, double, or boolean. Text that does
not parse raises EvaluationError, as the Java classes throw.
"""

from __future__ import annotations

import re
from decimal import Decimal
from enum import Enum
from math import copysign, isnan
from typing import TypeAlias

from triomq.broker.errors import EvaluationError

Value: TypeAlias = str | int | float | bool | None


class Kind(Enum):
    """What a node evaluates to; known when the expression is compiled, since properties are always text."""

    TEXT = "text"
    INT32 = "32 bit integer"
    INT64 = "64 bit integer"
    DOUBLE = "double"
    BOOLEAN = "boolean"
    NULL = "null"


_JAVA_DOUBLE = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[fFdD]?)",
    re.ASCII,
)
_JAVA_HEX_DOUBLE = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?\d+)[fFdD]?", re.ASCII
)


def compare(left: Value, left_kind: Kind, right: Value, right_kind: Kind) -> int:
    """Return a number below 0, 0 or above 0. Text is parsed as the type of the other side. Types that do not fit are
    unequal (-1)."""
    if left_kind is Kind.BOOLEAN:
        if right_kind is Kind.TEXT:
            raise EvaluationError("a truth value on the left cannot be compared with text")
        return _order(bool(left), bool(right)) if right_kind is Kind.BOOLEAN else -1
    if left_kind is Kind.TEXT:
        if right_kind is Kind.TEXT:
            return _order(str(left), str(right))
        left = _read(str(left), right_kind)
        left_kind = right_kind
    elif right_kind is Kind.TEXT:
        right = _read(str(right), left_kind)
        right_kind = left_kind
    elif right_kind is Kind.BOOLEAN:
        return -1
    if left_kind is Kind.BOOLEAN:
        return _order(bool(left), bool(right))
    assert isinstance(left, int | float)
    assert isinstance(right, int | float)
    if Kind.DOUBLE in (left_kind, right_kind):
        return compare_doubles(float(left), float(right))
    return _order(left, right)


def compare_doubles(left: float, right: float) -> int:
    """Compare as Double.compare does: NaN equals itself and is above everything, -0.0 is below 0.0."""
    if isnan(left) or isnan(right):
        return int(isnan(left)) - int(isnan(right))
    if left == right == 0.0:
        return _order(copysign(1.0, left), copysign(1.0, right))
    return _order(left, right)


def parse_integer(text: str, bits: int) -> int:
    """Parse as Integer.parseInt or Long.parseLong does. Raises EvaluationError."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isdecimal() or any(ord(digit) > 0xFFFF for digit in digits) or len(digits) > 64:
        raise EvaluationError(f"{text[:64]!r} is not an integer")
    number = -int(digits) if text[0] == "-" else int(digits)
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise EvaluationError(f"{text} does not fit into {bits} bits")
    return number


def parse_double(text: str) -> float:
    """Parse as Double.parseDouble does. Raises EvaluationError."""
    trimmed = text.strip("".join(map(chr, range(33))))
    if _JAVA_DOUBLE.fullmatch(trimmed):
        return float(trimmed.rstrip("fFdD") if trimmed[-1:] in "fFdD" else trimmed)
    hexadecimal = _JAVA_HEX_DOUBLE.fullmatch(trimmed)
    if hexadecimal is not None:
        try:
            return float.fromhex(hexadecimal[1])
        except OverflowError:
            return float("-inf") if trimmed.startswith("-") else float("inf")
    raise EvaluationError(f"{text[:64]!r} is not a number")


def double_text(value: float) -> str:
    """Return a double as Java prints it: 5.0, 1.0E20, 1.0E-5."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits))
    return f"{'-' if sign else ''}{text[0]}.{text[1:] or '0'}E{exponent + len(text) - 1}"


def _read(text: str, kind: Kind) -> int | float | bool:
    if kind is Kind.INT32:
        return parse_integer(text, 32)
    if kind is Kind.INT64:
        return parse_integer(text, 64)
    if kind is Kind.DOUBLE:
        return parse_double(text)
    return text.lower() == "true"


def _order(left: str | float | bool, right: str | float | bool) -> int:
    return (left > right) - (left < right)  # type: ignore[operator]
