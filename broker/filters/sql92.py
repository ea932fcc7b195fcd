"""SQL92 message filters: from the text of an expression to its tree (RocketMQ: SelectorParser).

    or         = and ("OR" and)*
    and        = equality ("AND" equality)*
    equality   = comparison ("=" comparison | "<>" comparison | "IS" "NULL" | "IS" "NOT" "NULL")*
    comparison = unary (("<" | "<=" | ">" | ">=") unary | ["NOT"] "BETWEEN" unary "AND" unary
                        | ["NOT"] "IN" "(" string ("," string)* ")")*
    unary      = "+" unary | "-" unary | "NOT" unary | primary
    primary    = number | string | "TRUE" | "FALSE" | "NULL" | property | "(" or ")"

Words may be written in any case, property names are case-sensitive. Two things follow from RocketMQ's parser and are
kept: NOT binds tighter than comparisons (`NOT a > 5` does not compile), and tokens are read only as far as they are
needed, so whatever follows a complete expression is ignored. It is written by hand rather than with a parser generator
because of the latter, and so that a broker that filters nothing loads nothing.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from functools import lru_cache
from typing import Final
from weakref import WeakValueDictionary

from triomq.broker.errors import FilterError
from triomq.broker.filters.expression import (
    And,
    BooleanConstant,
    BooleanExpression,
    Constant,
    Expression,
    Negate,
    Not,
    Or,
    Property,
    as_boolean,
    between,
    equal,
    is_null,
    not_between,
    ordered,
    within,
)
from triomq.broker.filters.java_values import Kind
from triomq.broker.filters.limits import MAX_EXPRESSION_CHARACTERS, REMEMBERED_CHARACTERS

MAX_DEPTH: Final = 200
MAX_CHAINED: Final = 50
"""Comparisons whose left side is a comparison, as in `a = 1 = TRUE`. Each makes the tree one deeper."""
TOKENS_IN_A_STEP: Final = 200
"""Those that `compile_steps` reads in a step: a third of a millisecond."""

_SKIPPED = re.compile(r"(?:[ \t\n\r\f]|--[^\n\r]*(?:\r\n|[\n\r])|/\*.*?\*/)+", re.DOTALL)
_TOKEN = re.compile(
    r"""
    (?P<double>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
  | (?P<integer>0|[1-9][0-9]*[lL]?)
  | (?P<string>'(?:''|[^'])*')
  | (?P<word>[a-zA-Z_$][a-zA-Z0-9_$]*)
  | (?P<symbol><>|<=|>=|[<>=(),+-])
    """,
    re.VERBOSE,
)
_WORDS: Final = frozenset({"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "IS", "NULL"})
_END: Final = "end of the expression"


Parsing = Generator[None, None, Expression]
"""A rule in progress. An item ends a step."""


class Compiled:
    """What came of a long expression: its tree, or why it has none."""

    __slots__ = ("__weakref__", "_result")

    def __init__(self, result: BooleanExpression | FilterError) -> None:
        self._result = result

    def tree(self) -> BooleanExpression:
        if isinstance(self._result, FilterError):
            raise FilterError(str(self._result))
        return self._result


_held: Final[WeakValueDictionary[str, Compiled]] = WeakValueDictionary()


def compile_expression(text: str) -> BooleanExpression:
    """Return the tree of an expression. Raises FilterError with position and reason. Short expressions are cached."""
    if len(text) > MAX_EXPRESSION_CHARACTERS:
        raise FilterError(f"the expression has {len(text)} characters, {MAX_EXPRESSION_CHARACTERS} are allowed")
    if len(text) <= REMEMBERED_CHARACTERS:
        return _compiled(text)
    found = _held.get(text)
    return _all_of(_Parser(text).parse()) if found is None else found.tree()


def compile_steps(text: str) -> Generator[None, None, Compiled | None]:
    """Compile a long expression in steps; an item ends a step. As long as the caller holds what it returns,
    `compile_expression` has its result at once, be it a failure. An expression of another length needs no steps."""
    if not REMEMBERED_CHARACTERS < len(text) <= MAX_EXPRESSION_CHARACTERS:
        return None
    found = _held.get(text)
    if found is None:
        try:
            found = Compiled((yield from _Parser(text).parse()))
        except FilterError as error:
            found = Compiled(error.with_traceback(None))
        _held[text] = found
    return found


@lru_cache(maxsize=1024)
def _compiled(text: str) -> BooleanExpression:
    return _all_of(_Parser(text).parse())


def _all_of(parsing: Generator[None, None, BooleanExpression]) -> BooleanExpression:
    while True:
        try:
            next(parsing)
        except StopIteration as end:
            tree: BooleanExpression = end.value
            return tree


class _Parser:
    """A recursive descent over lazily read tokens. Each rule is a generator: a long expression is read in steps.

    `_type` is the current token's: a symbol, a word in upper case, or "integer", "double", "string", "property".
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._depth = 0
        self._chained = 0
        self._tokens_left = TOKENS_IN_A_STEP
        self._type = ""
        self._image = ""
        self._start = 0

    def parse(self) -> Generator[None, None, BooleanExpression]:
        return as_boolean((yield from self._or()))

    # -- tokens --------------------------------------------------------------------------------------------------------

    def _peek(self) -> str:
        """Return the type of the next token, which is read on first access."""
        if self._type:
            return self._type
        skipped = _SKIPPED.match(self._text, self._position)
        if skipped is not None:
            self._position = skipped.end()
        self._start = self._position
        if self._position >= len(self._text):
            self._type = _END
            self._image = ""
            return self._type
        token = _TOKEN.match(self._text, self._position)
        if token is None:
            raise FilterError(f"{self._place()}: {self._text[self._position]!r} cannot stand here")
        self._image = token[0]
        self._position = token.end()
        kind = token.lastgroup or ""
        if kind == "symbol":
            self._type = self._image
        elif kind == "word":
            self._type = self._image.upper() if self._image.upper() in _WORDS else "property"
        else:
            self._type = kind
        return self._type

    def _take(self) -> str:
        """Consume the next token; return its text."""
        self._peek()
        self._tokens_left -= 1
        self._type = ""
        return self._image

    def _is_step_over(self) -> bool:
        if self._tokens_left > 0:
            return False
        self._tokens_left = TOKENS_IN_A_STEP
        return True

    def _expect(self, *types: str) -> str:
        if self._peek() not in types:
            found = self._image or _END
            raise FilterError(f"{self._place()}: expected {' or '.join(types)}, found {found[:64]!r}")
        return self._take()

    def _place(self) -> str:
        line = self._text.count("\n", 0, self._start) + 1
        column = self._start - (self._text.rfind("\n", 0, self._start) + 1) + 1
        return f"line {line}, column {column}"

    # -- rules ---------------------------------------------------------------------------------------------------------

    def _or(self) -> Parsing:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise FilterError(f"the expression is nested more than {MAX_DEPTH} deep")
        first = yield from self._and()
        operands: list[BooleanExpression] = []
        while self._peek() == "OR":
            self._take()
            right = yield from self._and()
            if not operands:
                operands.append(as_boolean(first))
            operands.append(as_boolean(right))
        self._depth -= 1
        return Or(tuple(operands)) if operands else first

    def _and(self) -> Parsing:
        first = yield from self._equality()
        operands: list[BooleanExpression] = []
        while self._peek() == "AND":
            self._take()
            right = yield from self._equality()
            if not operands:
                operands.append(as_boolean(first))
            operands.append(as_boolean(right))
        return And(tuple(operands)) if operands else first

    def _equality(self) -> Parsing:
        operand = left = yield from self._comparison()
        while True:
            token = self._peek()
            if token not in ("=", "<>", "IS"):
                return left
            self._chained += left is not operand
            if self._chained > MAX_CHAINED:
                raise FilterError(f"{self._place()}: more than {MAX_CHAINED} comparisons stand behind others")
            if token == "=":
                self._take()
                left = equal(left, (yield from self._comparison()))
            elif token == "<>":
                self._take()
                left = Not(equal(left, (yield from self._comparison())))
            else:
                self._take()
                negated = self._peek() == "NOT"
                if negated:
                    self._take()
                self._expect("NULL") if negated else self._expect("NULL", "NOT")
                left = Not(is_null(left)) if negated else is_null(left)

    def _comparison(self) -> Parsing:
        left = yield from self._unary()
        while True:
            token = self._peek()
            if token in ("<", "<=", ">", ">="):
                self._take()
                left = ordered(left, token, (yield from self._unary()))
                continue
            negated = token == "NOT"
            if negated:
                self._take()
                token = self._peek()
                if token not in ("BETWEEN", "IN"):
                    self._expect("BETWEEN", "IN")
            if token == "BETWEEN":
                left = yield from self._between(left, negated)
            elif token == "IN":
                left = yield from self._in(left, negated)
            else:
                return left

    def _between(self, left: Expression, negated: bool) -> Parsing:
        self._take()
        low = yield from self._unary()
        self._expect("AND")
        high = yield from self._unary()
        return not_between(left, low, high) if negated else between(left, low, high)

    def _in(self, left: Expression, negated: bool) -> Parsing:
        self._take()
        self._expect("(")
        texts = [_string(self._expect("string"))]
        while self._peek() == ",":
            if self._is_step_over():
                yield
            self._take()
            texts.append(_string(self._expect("string")))
        self._expect(")", ",")
        return within(left, texts, negated)

    def _unary(self) -> Parsing:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise FilterError(f"the expression is nested more than {MAX_DEPTH} deep")
        if self._is_step_over():
            yield
        token = self._peek()
        if token == "+":
            self._take()
            found = yield from self._unary()
        elif token == "-":
            self._take()
            found = Negate((yield from self._unary()))
        elif token == "NOT":
            self._take()
            found = Not(as_boolean((yield from self._unary())))
        else:
            found = yield from self._primary()
        self._depth -= 1
        return found

    def _primary(self) -> Parsing:
        token = self._peek()
        if token == "(":
            self._take()
            inner = yield from self._or()
            self._expect(")")
            return inner
        if token == "integer":
            return _integer(self._take())
        if token == "double":
            return _double(self._take())
        if token == "string":
            return Constant(_string(self._take()), Kind.TEXT)
        if token == "property":
            return Property(self._take())
        if token in ("TRUE", "FALSE", "NULL"):
            self._take()
            return BooleanConstant(None if token == "NULL" else token == "TRUE")
        self._expect("a property", "a number", "a string", "TRUE", "FALSE", "NULL", "NOT", "(")
        raise AssertionError("unreachable")


def _string(image: str) -> str:
    return image[1:-1].replace("''", "'")


def _integer(image: str) -> Constant:
    value = int(image.rstrip("lL"))
    if value >= 1 << 63:
        raise FilterError(f"the integer {image[:64]} does not fit into 64 bits")
    return Constant(value, Kind.INT32 if value < 1 << 31 else Kind.INT64)


def _double(image: str) -> Constant:
    value = float(image)
    if value == float("inf"):
        raise FilterError(f"{image[:64]} is greater than 1.7976931348623157E308")
    if value == 0:
        raise FilterError(f"{image[:64]} is less than 4.9E-324")
    return Constant(value, Kind.DOUBLE)
