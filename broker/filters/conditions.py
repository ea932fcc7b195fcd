"""SQL92 expressions as bytes that the C function `take_records` of store/ evaluates over stored records.

    conditions: count u8, names (length u8, ASCII), steps
    step:       kind u8, then for what looks at a property: number of its name u8, value if it is missing u8, and
        PRESENT   value if it is there u8
        TEXT      value if its text is one of these u8, count u16, texts (length u16, ASCII)
        INTEGER   orders u8, bits u8, number i64
        DOUBLE    orders u8, number f64
        BOOLEAN   the boolean u8
                and for the others
        NOT
        AND, OR   number of operands u8
        CONSTANT  value u8

Numbers are big endian. The steps work on a stack: operands come first, the last step leaves the value of the whole. A
value is 0 for False, 1 for True, 2 for unknown. `orders` tells for which orders of property and constant the comparison
is True: 1 less, 2 equal, 4 greater.

Only what is said in these few steps is encoded, and only up to the limits below; `broker.filters.expression` defines
what it means, and evaluates every other expression, and every record about which these steps cannot decide.
"""

from __future__ import annotations

import struct
from typing import Final

from triomq.broker.filters.expression import (
    And,
    BooleanCast,
    BooleanConstant,
    BooleanExpression,
    Constant,
    Equal,
    Expression,
    In,
    Junction,
    Not,
    Order,
    Property,
)
from triomq.broker.filters.java_values import Kind

MAX_CONDITION_BYTES: Final = 4096
MAX_NAMES: Final = 16
MAX_STACK: Final = 32

_PRESENT, _TEXT, _INTEGER, _DOUBLE, _BOOLEAN, _NOT, _AND, _OR, _CONSTANT = range(1, 10)
_FALSE, _TRUE, _UNKNOWN = range(3)
_LESS, _EQUAL, _GREATER = 1, 2, 4
_ORDERS: Final = {"<": _LESS, "<=": _LESS | _EQUAL, ">": _GREATER, ">=": _GREATER | _EQUAL}
_BITS: Final = {Kind.INT32: 32, Kind.INT64: 64}


class _NotEncoded(Exception):
    """The expression has a part that no step says, or exceeds a limit."""


def encode_conditions(expression: BooleanExpression) -> bytes:
    """Return the conditions; b"" for an expression that cannot be encoded."""
    encoder = _Encoder()
    try:
        encoder.add(expression, 0)
        return encoder.conditions()
    except _NotEncoded:
        return b""


class _Encoder:
    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        self._steps = bytearray()

    def conditions(self) -> bytes:
        names = b"".join([bytes([len(name)]) + name.encode() for name in self._names])
        encoded = bytes([len(self._names)]) + names + self._steps
        if len(encoded) > MAX_CONDITION_BYTES:
            raise _NotEncoded
        return encoded

    def add(self, node: BooleanExpression, depth: int) -> None:
        """Append the steps of `node`, which is evaluated above `depth` values on the stack."""
        if depth >= MAX_STACK or len(self._steps) > MAX_CONDITION_BYTES:
            raise _NotEncoded
        if isinstance(node, Junction):
            self._junction(node, depth)
        elif isinstance(node, Not):
            self.add(node.operand, depth)
            self._steps.append(_NOT)
        elif isinstance(node, BooleanConstant):
            self._steps += bytes([_CONSTANT, _UNKNOWN if node.value is None else int(node.value)])
        elif isinstance(node, BooleanCast):
            self._property(_PRESENT, node.operand, _UNKNOWN, bytes([_FALSE]))
        elif isinstance(node, In):
            self._texts(node.operand, _UNKNOWN, not node.negated, sorted(node.members))
        elif isinstance(node, Equal):
            self._equal(node.left, node.right)
        elif isinstance(node, Order):
            self._order(node)
        else:
            raise _NotEncoded

    def _junction(self, node: Junction, depth: int) -> None:
        if len(node.operands) > MAX_STACK:
            raise _NotEncoded
        for position, operand in enumerate(node.operands):
            self.add(operand, depth + position)
        self._steps += bytes([_AND if isinstance(node, And) else _OR, len(node.operands)])

    def _equal(self, left: Expression, right: Expression) -> None:
        if isinstance(left, Property):
            if isinstance(right, BooleanConstant):
                if right.value is None:
                    self._property(_PRESENT, left, _TRUE, bytes([_FALSE]))
                else:
                    self._property(_BOOLEAN, left, _UNKNOWN, bytes([right.value]))
                return
            self._constant(left, _UNKNOWN, _EQUAL, right)
        elif isinstance(right, Property):
            self._constant(right, _FALSE, _EQUAL, left)
        else:
            raise _NotEncoded

    def _order(self, node: Order) -> None:
        orders = _ORDERS[node.symbol]
        if isinstance(node.left, Property):
            self._constant(node.left, _UNKNOWN, orders, node.right)
        elif isinstance(node.right, Property):
            turned = orders & _EQUAL | (_GREATER if orders & _LESS else 0) | (_LESS if orders & _GREATER else 0)
            self._constant(node.right, _UNKNOWN, turned, node.left)
        else:
            raise _NotEncoded

    def _constant(self, operand: Property, missing: int, orders: int, constant: Expression) -> None:
        """Append the comparison of a property with a constant."""
        if isinstance(constant, Constant) and isinstance(constant.value, str):
            self._texts(operand, missing, True, [constant.value])
            return
        if isinstance(constant, BooleanExpression | Property):
            raise _NotEncoded
        number = constant.evaluate({})  # only constants and their negations are of a number's kind
        if constant.kind is Kind.DOUBLE and isinstance(number, float):
            self._property(_DOUBLE, operand, missing, struct.pack(">Bd", orders, number))
        elif constant.kind in _BITS and isinstance(number, int):
            self._property(_INTEGER, operand, missing, struct.pack(">BBq", orders, _BITS[constant.kind], number))
        else:
            raise _NotEncoded

    def _texts(self, operand: Property, missing: int, value: bool, texts: list[str]) -> None:
        """Append a comparison with texts. They are ASCII: the bytes of a property differ from other text in more ways
        than its characters do, because bytes that are not UTF-8 all decode to U+FFFD."""
        steps = bytearray(struct.pack(">BH", value, min(len(texts), 0xFFFF)))
        for text in texts:
            if not text.isascii() or len(steps) > MAX_CONDITION_BYTES:
                raise _NotEncoded
            steps += struct.pack(">H", len(text) & 0xFFFF) + text.encode()
        self._property(_TEXT, operand, missing, bytes(steps))

    def _property(self, kind: int, operand: Property, missing: int, rest: bytes) -> None:
        number = self._names.setdefault(operand.name, len(self._names))
        if number >= MAX_NAMES or len(operand.name) > 255 or len(rest) > MAX_CONDITION_BYTES:
            raise _NotEncoded
        self._steps += bytes([kind, number, missing]) + rest
