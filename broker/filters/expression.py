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

from collections.abc import Mapping
from typing import TypeAlias

from triomq.broker.errors import EvaluationError, FilterError
from triomq.broker.filters.java_values import (
    Kind,
    Value,
    compare,
    compare_doubles,
    double_text,
    parse_double,
)

Properties: TypeAlias = Mapping[str, str]


_NUMBERS = (Kind.INT32, Kind.INT64, Kind.DOUBLE)


class Expression:
    """A node. `str` returns the text that RocketMQ prints for the same tree."""

    __slots__ = ()
    kind: Kind = Kind.NULL

    def evaluate(self, properties: Properties) -> Value:
        """Return the value for a message with these properties."""
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


class Junction(BooleanExpression):
    """AND or OR of two or more operands: one `decisive` operand determines the value, otherwise an unknown one does."""

    __slots__ = ("operands",)
    decisive = False
    symbol = ""

    def __init__(self, operands: tuple[BooleanExpression, ...]) -> None:
        self.operands = operands

    def evaluate(self, properties: Properties) -> bool | None:
        unknown = False
        for operand in self.operands:
            value = operand.evaluate(properties)
            if value is self.decisive:
                return value
            unknown = unknown or value is None
        return None if unknown else not self.decisive

    def __str__(self) -> str:
        return _joined(self.operands, self.symbol)


class And(Junction):
    """AND: False is decisive."""

    __slots__ = ()
    decisive = False
    symbol = "&&"


class Or(Junction):
    """OR: True is decisive."""

    __slots__ = ()
    decisive = True
    symbol = "||"


class In(BooleanExpression):
    """Membership of a property's text in a list."""

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
    """Return the node as an operand of AND, OR, NOT or as the whole. Raises FilterError if it is not boolean."""
    if isinstance(expression, BooleanExpression):
        return expression
    if isinstance(expression, Property):
        return BooleanCast(expression)
    raise FilterError(f"Expression will not result in a boolean value: {expression}")


def equal(left: Expression, right: Expression) -> BooleanExpression:
    """Return `left = right`. Raises FilterError for NULL, and for a boolean literal against another literal."""
    for operand in (left, right):
        if isinstance(operand, BooleanConstant) and operand.value is None:
            raise FilterError(f"'{operand}' cannot be compared.")
    if isinstance(left, BooleanConstant) and isinstance(right, Constant):
        raise FilterError(f"'{left}' cannot be compared with '{right}'")
    return Equal(left, right)


def is_null(operand: Expression) -> BooleanExpression:
    """Return `operand IS NULL`."""
    return Equal(operand, BooleanConstant(None))


def ordered(left: Expression, symbol: str, right: Expression) -> BooleanExpression:
    """Return `left symbol right`, one of the four orderings. Raises FilterError for strings and booleans."""
    for operand in (left, right):
        if isinstance(operand, BooleanExpression) or (isinstance(operand, Constant) and operand.kind is Kind.TEXT):
            raise FilterError(f"Value '{operand}' cannot be compared.")
    return Order(left, symbol, right)


def between(operand: Expression, low: Expression, high: Expression) -> BooleanExpression:
    """Return `operand BETWEEN low AND high`; literal bounds must be in order."""
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
    """Return `operand NOT BETWEEN low AND high`; the bounds are not checked."""
    return Or((ordered(operand, "<", low), ordered(operand, ">", high)))


def within(operand: Expression, texts: list[str], negated: bool) -> BooleanExpression:
    """Return `operand [NOT] IN (...)`. Raises FilterError if `operand` is not a property."""
    if not isinstance(operand, Property):
        raise FilterError(f"Expected a property for In expression, got: {operand}")
    return In(operand, texts, negated)


def _joined(operands: tuple[BooleanExpression, ...], symbol: str) -> str:
    text = str(operands[0])
    for operand in operands[1:]:
        text = f"({text} {symbol} {operand})"
    return text


def _plain(constant: Constant) -> str:
    return double_text(constant.value) if isinstance(constant.value, float) else str(constant.value)
