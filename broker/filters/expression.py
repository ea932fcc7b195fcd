"""The tree of a compiled SQL92 filter, and how it is evaluated on the properties of a message.

Sources: org.apache.rocketmq.filter.expression (ComparisonExpression, UnaryExpression, LogicExpression, ...). Their
rules are kept with their oddities, because the same expression has to select the same messages at either broker:

- A property is text or missing. Logic has three values: True, False and None (unknown); only True is a match.
- The literal decides how the text of a property is read: as 32 bit or 64 bit integer, double, or boolean. Text that
  does not parse is an error, so `price > 15` fails for "20.5", while `price > 15.0` compares.
- `missing = 5` is unknown, `5 = missing` is False, `missing = missing` is True, NOT unknown is unknown.
- A boolean literal on the left of a property is an error (`TRUE = flag`; a mistake of RocketMQ that stays).

`evaluate` raises EvaluationError where the Java classes throw; the message then does not match.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from enum import Enum
from math import copysign, isnan
from typing import TypeAlias

from triomq.broker.errors import FilterError

Value: TypeAlias = str | int | float | bool | None
Properties: TypeAlias = Mapping[str, str]


class EvaluationError(ValueError):
    """The expression makes no sense for the properties of this message."""


class Kind(Enum):
    """What a node evaluates to; known when the expression is compiled, since properties are always text."""

    TEXT = "text"
    INT32 = "32 bit integer"
    INT64 = "64 bit integer"
    DOUBLE = "double"
    BOOLEAN = "boolean"
    NULL = "null"


_NUMBERS = (Kind.INT32, Kind.INT64, Kind.DOUBLE)
_JAVA_DOUBLE = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[fFdD]?)",
    re.ASCII,
)
_JAVA_HEX_DOUBLE = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?\d+)[fFdD]?", re.ASCII
)


class Expression:
    """A node. `str` gives the text RocketMQ prints for the same tree."""

    __slots__ = ()
    kind: Kind = Kind.NULL

    def evaluate(self, properties: Properties) -> Value:
        """The value for a message with these properties."""
        raise NotImplementedError


class BooleanExpression(Expression):
    """A node whose value is True, False or unknown."""

    __slots__ = ()
    kind = Kind.BOOLEAN

    def evaluate(self, properties: Properties) -> bool | None:
        raise NotImplementedError


class Property(Expression):
    """The text of a message property."""

    __slots__ = ("name",)
    kind = Kind.TEXT

    def __init__(self, name: str) -> None:
        self.name = name

    def evaluate(self, properties: Properties) -> str | None:
        return properties.get(self.name)

    def __str__(self) -> str:
        return self.name


class Constant(Expression):
    """A text or number literal."""

    __slots__ = ("kind", "value")

    def __init__(self, value: str | int | float, kind: Kind) -> None:
        self.value = value
        self.kind = kind

    def evaluate(self, properties: Properties) -> str | int | float:
        return self.value

    def __str__(self) -> str:
        if isinstance(self.value, str):
            return "'" + self.value.replace("'", "''") + "'"
        return double_text(self.value) if isinstance(self.value, float) else str(self.value)


class BooleanConstant(BooleanExpression):
    """TRUE, FALSE or NULL."""

    __slots__ = ("value",)

    def __init__(self, value: bool | None) -> None:
        self.value = value

    def evaluate(self, properties: Properties) -> bool | None:
        return self.value

    def __str__(self) -> str:
        return "NULL" if self.value is None else str(self.value).upper()


class BooleanCast(BooleanExpression):
    """A property alone: never true, because no property is a boolean."""

    __slots__ = ("operand",)

    def __init__(self, operand: Property) -> None:
        self.operand = operand

    def evaluate(self, properties: Properties) -> bool | None:
        return None if self.operand.evaluate(properties) is None else False

    def __str__(self) -> str:
        return str(self.operand)


class Not(BooleanExpression):
    """NOT; unknown stays unknown."""

    __slots__ = ("operand",)

    def __init__(self, operand: BooleanExpression) -> None:
        self.operand = operand

    def evaluate(self, properties: Properties) -> bool | None:
        value = self.operand.evaluate(properties)
        return None if value is None else not value

    def __str__(self) -> str:
        return f"(NOT {self.operand})"


class Negate(Expression):
    """Unary minus: numbers only, anything else is unknown."""

    __slots__ = ("kind", "operand")

    def __init__(self, operand: Expression) -> None:
        self.operand = operand
        self.kind = operand.kind if operand.kind in _NUMBERS else Kind.NULL

    def evaluate(self, properties: Properties) -> Value:
        if self.kind is Kind.NULL:
            return None
        value = self.operand.evaluate(properties)
        assert isinstance(value, int | float)
        return -value

    def __str__(self) -> str:
        return f"(- {self.operand})"


class And(BooleanExpression):
    """AND of two or more: False decides, then unknown."""

    __slots__ = ("operands",)

    def __init__(self, operands: tuple[BooleanExpression, ...]) -> None:
        self.operands = operands

    def evaluate(self, properties: Properties) -> bool | None:
        unknown = False
        for operand in self.operands:
            value = operand.evaluate(properties)
            if value is False:
                return False
            unknown = unknown or value is None
        return None if unknown else True

    def __str__(self) -> str:
        return _joined(self.operands, "&&")


class Or(BooleanExpression):
    """OR of two or more: True decides, then unknown."""

    __slots__ = ("operands",)

    def __init__(self, operands: tuple[BooleanExpression, ...]) -> None:
        self.operands = operands

    def evaluate(self, properties: Properties) -> bool | None:
        unknown = False
        for operand in self.operands:
            value = operand.evaluate(properties)
            if value is True:
                return True
            unknown = unknown or value is None
        return None if unknown else False

    def __str__(self) -> str:
        return _joined(self.operands, "||")


class In(BooleanExpression):
    """Plain text membership."""

    __slots__ = ("members", "negated", "operand", "texts")

    def __init__(self, operand: Property, texts: list[str], negated: bool) -> None:
        self.operand = operand
        self.texts = texts
        self.members = frozenset(texts)
        self.negated = negated

    def evaluate(self, properties: Properties) -> bool | None:
        value = self.operand.evaluate(properties)
        return None if value is None else (value in self.members) != self.negated

    def __str__(self) -> str:
        return f"{self.operand} {'NOT IN' if self.negated else 'IN'} ( {', '.join(self.texts)} )"


class Equal(BooleanExpression):
    """`=`, and IS NULL with the constant NULL on the right."""

    __slots__ = ("left", "right")

    def __init__(self, left: Expression, right: Expression) -> None:
        self.left = left
        self.right = right

    def evaluate(self, properties: Properties) -> bool | None:
        left = self.left.evaluate(properties)
        right = self.right.evaluate(properties)
        if left is None or right is None:
            if left is None and right is None:
                return True
            return None if left is None else False
        return compare(left, self.left.kind, right, self.right.kind) == 0

    def __str__(self) -> str:
        return f"({self.left} == {self.right})"


class Order(BooleanExpression):
    """`<`, `<=`, `>`, `>=`."""

    __slots__ = ("left", "right", "symbol")

    def __init__(self, left: Expression, symbol: str, right: Expression) -> None:
        self.left = left
        self.symbol = symbol
        self.right = right

    def evaluate(self, properties: Properties) -> bool | None:
        left = self.left.evaluate(properties)
        if left is None:
            return None
        right = self.right.evaluate(properties)
        if right is None:
            return None
        if isinstance(left, str) and isinstance(right, str):
            order = compare_doubles(parse_double(left), parse_double(right))
        else:
            order = compare(left, self.left.kind, right, self.right.kind)
        if self.symbol == "<":
            return order < 0
        if self.symbol == "<=":
            return order <= 0
        return order > 0 if self.symbol == ">" else order >= 0

    def __str__(self) -> str:
        return f"({self.left} {self.symbol} {self.right})"


# -- building, with the checks the compiler makes ----------------------------------------------------------------------


def as_boolean(expression: Expression) -> BooleanExpression:
    """The node as an operand of AND, OR, NOT or as the whole; raises FilterError when it is no truth value."""
    if isinstance(expression, BooleanExpression):
        return expression
    if isinstance(expression, Property):
        return BooleanCast(expression)
    raise FilterError(f"Expression will not result in a boolean value: {expression}")


def equal(left: Expression, right: Expression) -> BooleanExpression:
    """`left = right`; raises FilterError for NULL, and for a boolean literal against another literal."""
    for operand in (left, right):
        if isinstance(operand, BooleanConstant) and operand.value is None:
            raise FilterError(f"'{operand}' cannot be compared.")
    if isinstance(left, BooleanConstant) and isinstance(right, Constant):
        raise FilterError(f"'{left}' cannot be compared with '{right}'")
    return Equal(left, right)


def is_null(operand: Expression) -> BooleanExpression:
    """`operand IS NULL`."""
    return Equal(operand, BooleanConstant(None))


def ordered(left: Expression, symbol: str, right: Expression) -> BooleanExpression:
    """`left < right` and its kin; raises FilterError for texts and truth values."""
    for operand in (left, right):
        if isinstance(operand, BooleanExpression) or (isinstance(operand, Constant) and operand.kind is Kind.TEXT):
            raise FilterError(f"Value '{operand}' cannot be compared.")
    return Order(left, symbol, right)


def between(operand: Expression, low: Expression, high: Expression) -> BooleanExpression:
    """`operand BETWEEN low AND high`; literal bounds have to be in order."""
    for bound in (low, high):
        if isinstance(bound, BooleanConstant) and bound.value is None:
            raise FilterError("Illegal values of between, values can not be null!")
    if isinstance(low, Constant) and isinstance(high, Constant):
        try:
            reversed_bounds = compare(high.value, high.kind, low.value, low.kind) < 0
        except EvaluationError as error:
            raise FilterError(str(error)) from None
        if reversed_bounds:
            raise FilterError(
                f"Illegal values of between, left value({_plain(low)}) must less than or equal to "
                f"right value({_plain(high)})"
            )
    return And((ordered(operand, ">=", low), ordered(operand, "<=", high)))


def not_between(operand: Expression, low: Expression, high: Expression) -> BooleanExpression:
    """`operand NOT BETWEEN low AND high`; the bounds are not checked."""
    return Or((ordered(operand, "<", low), ordered(operand, ">", high)))


def within(operand: Expression, texts: list[str], negated: bool) -> BooleanExpression:
    """`operand [NOT] IN (...)`; raises FilterError for anything but a property."""
    if not isinstance(operand, Property):
        raise FilterError(f"Expected a property for In expression, got: {operand}")
    return In(operand, texts, negated)


# -- values of Java ----------------------------------------------------------------------------------------------------


def compare(left: Value, left_kind: Kind, right: Value, right_kind: Kind) -> int:
    """Below 0, 0 or above 0; text is read as the type of the other side. Types that do not fit are unequal (-1)."""
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
    """Double.compare: NaN equals itself and is above everything, -0.0 is below 0.0."""
    if isnan(left) or isnan(right):
        return int(isnan(left)) - int(isnan(right))
    if left == right == 0.0:
        return _order(copysign(1.0, left), copysign(1.0, right))
    return _order(left, right)


def parse_integer(text: str, bits: int) -> int:
    """Integer.parseInt or Long.parseLong; raises EvaluationError."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isdecimal() or any(ord(digit) > 0xFFFF for digit in digits) or len(digits) > 64:
        raise EvaluationError(f"{text[:64]!r} is not an integer")
    number = -int(digits) if text[0] == "-" else int(digits)
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise EvaluationError(f"{text} does not fit into {bits} bits")
    return number


def parse_double(text: str) -> float:
    """Double.parseDouble; raises EvaluationError."""
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
    """A double as Java prints it: 5.0, 1.0E20, 1.0E-5."""
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


def _joined(operands: tuple[BooleanExpression, ...], symbol: str) -> str:
    text = str(operands[0])
    for operand in operands[1:]:
        text = f"({text} {symbol} {operand})"
    return text


def _plain(constant: Constant) -> str:
    return double_text(constant.value) if isinstance(constant.value, float) else str(constant.value)
