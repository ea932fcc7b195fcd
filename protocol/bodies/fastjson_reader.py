"""Reads the JSON dialect of fastjson 1.2.69, a superset of standard JSON.

Beyond RFC 8259 a text may contain

    {0:"10.0.0.1:10911"}                                   map keys that are numbers, without quotes
    {{"brokerName":"b-a","queueId":0,"topic":"T"}:5}       map keys that are objects
    {"$ref":"$.consumerTable.c1"}                          a reference to another value in the same text
    'text', name:1, 5L, \\x41, trailing commas             accepted by fastjson's parser by default

msgspec reads standard JSON; only text that it rejects is read here. Nesting, the length of numbers and the expansion of
references are bounded, so that a small text cannot cost much memory or time.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

import msgspec

from triomq.protocol.errors import BodyError
from triomq.protocol.message_queue import MessageQueue

MAX_DEPTH: Final = 100
MAX_EXPANDED_NODES: Final = 2_000_000  # values in the tree after references are expanded

_SPACE: Final = re.compile(r"[ \t\r\n\f\b\ufeff]*(?:(?://[^\n]*|/\*.*?\*/)[ \t\r\n\f\b]*)*", re.DOTALL)
_NUMBER: Final = re.compile(
    r"([+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,400})?|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,5})?)([LSBFDlsbfd]?)"
)
_WORD: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$.-]*")
_DOUBLE_QUOTED: Final = re.compile(r'[^"\\]*')
_SINGLE_QUOTED: Final = re.compile(r"[^'\\]*")
_WORDS: Final[dict[str, Any]] = {
    "true": True,
    "false": False,
    "null": None,
    "undefined": None,
    "NaN": None,  # fastjson writes NaN and infinities as null
}
_ESCAPES: Final = {
    '"': '"',
    "'": "'",
    "\\": "\\",
    "/": "/",
    "b": "\b",
    "f": "\f",
    "F": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    **{str(number): chr(number) for number in range(8)},
}
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_QUEUE_KEYS: Final = frozenset(("topic", "brokerName", "queueId"))


def loads(data: bytes) -> Any:
    """Parse a fastjson text. Return a dict, list, str, int, float, bool or None.

    Unquoted number keys become int. Object keys become `MessageQueue` if they have its three members, else a frozenset
    of their items. A reference is replaced by the value it names (shared, not copied). Raise `BodyError` with the
    position of the error.
    """
    if b'"$ref"' not in data:
        try:
            return msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
    return loads_lenient(data)


def loads_lenient(data: bytes) -> Any:
    """Parse as `loads` does, without trying the strict reader first."""
    try:
        text = bytes(data).decode()
    except UnicodeDecodeError as error:
        raise BodyError(f"the JSON text is not UTF-8: byte {error.start}") from None
    reader = _Reader(text)
    value = reader.read_all()
    return _Resolver(value).resolve() if reader.has_references else value


class _Reader:
    """One pass over one text."""

    __slots__ = ("_at", "_depth", "_text", "has_references")

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self.has_references = False

    def read_all(self) -> Any:
        value = self._value()
        if self._peek():
            raise self._error("text follows the value")
        return value

    def _error(self, what: str) -> BodyError:
        shown = self._text[self._at : self._at + 20]
        return BodyError(f"the JSON text cannot be read: {what} at character {self._at}, before {shown!r}")

    def _peek(self) -> str:
        """Skip white space and comments. Return the next character, or "" at the end."""
        match = _SPACE.match(self._text, self._at)
        if match is not None:
            self._at = match.end()
        return self._text[self._at : self._at + 1]

    def _value(self) -> Any:
        start = self._peek()
        if start == "{":
            return self._object()
        if start == "[":
            return self._array()
        if start == '"' or start == "'":
            return self._string(start)
        return self._number_or_word()

    def _enter(self) -> None:
        self._at += 1
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error(f"nested deeper than {MAX_DEPTH}")

    def _object(self) -> dict[Any, Any]:
        self._enter()
        members: dict[Any, Any] = {}
        while True:
            start = self._peek()
            if start == "}":
                break
            if start == ",":
                self._at += 1
                continue
            key = self._key(start)
            if self._peek() != ":":
                raise self._error("expected ':'")
            self._at += 1
            value = self._value()
            members[key] = value
            if key == "$ref" and isinstance(value, str):
                self.has_references = True
            if self._peek() not in (",", "}"):
                raise self._error("expected ',' or '}'")
        self._at += 1
        self._depth -= 1
        return members

    def _key(self, start: str) -> Any:
        if start == '"' or start == "'":
            return self._string(start)
        if start and start in "{[":
            return _hashable(self._value())
        match = _WORD.match(self._text, self._at)
        if match is not None:
            self._at = match.end()
            return match.group()
        return self._number_or_word()

    def _array(self) -> list[Any]:
        self._enter()
        items: list[Any] = []
        while True:
            start = self._peek()
            if start == "]":
                break
            if start == ",":
                self._at += 1
                continue
            items.append(self._value())
            if self._peek() not in (",", "]"):
                raise self._error("expected ',' or ']'")
        self._at += 1
        self._depth -= 1
        return items

    def _string(self, quote: str) -> str:
        pattern = _DOUBLE_QUOTED if quote == '"' else _SINGLE_QUOTED
        self._at += 1
        pieces: list[str] = []
        while True:
            match = pattern.match(self._text, self._at)
            if match is not None:
                pieces.append(match.group())
                self._at = match.end()
            stop = self._text[self._at : self._at + 1]
            if not stop:
                raise self._error("the text ends inside a string")
            self._at += 1
            if stop == quote:
                break
            pieces.append(self._escape())
        return _join_surrogates("".join(pieces))

    def _escape(self) -> str:
        kind = self._text[self._at : self._at + 1]
        digits = {"u": 4, "x": 2}.get(kind, 0)
        if not digits:
            if kind not in _ESCAPES:
                raise self._error("unknown escape")
            self._at += 1
            return _ESCAPES[kind]
        code = self._text[self._at + 1 : self._at + 1 + digits]
        if len(code) != digits or not all(digit in "0123456789abcdefABCDEF" for digit in code):
            raise self._error("bad escape")
        self._at += 1 + digits
        return chr(int(code, 16))

    def _number_or_word(self) -> Any:
        match = _NUMBER.match(self._text, self._at)
        if match is not None:
            after = self._text[match.end() : match.end() + 1]
            if after and (after.isalnum() or after in "._"):
                raise self._error("bad number")
            number, suffix = match.groups()
            self._at = match.end()
            if (suffix and suffix in "FDfd") or any(sign in number for sign in ".eE"):
                value = float(number)
                if math.isinf(value):
                    raise self._error("a number beyond the range of doubles")
                return value
            return int(number)
        match = _WORD.match(self._text, self._at)
        if match is None or match.group() not in _WORDS:
            raise self._error("expected a value" if self._at < len(self._text) else "the text ends too early")
        self._at = match.end()
        return _WORDS[match.group()]


def _join_surrogates(text: str) -> str:
    """Join surrogate pairs, made of two \\u escapes. Replace a lone surrogate, which UTF-8 cannot encode, by U+FFFD."""
    if _LONE_SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "replace")


def _hashable(value: Any) -> Any:
    """Return the hashable form of an object or array that is a map key."""
    if isinstance(value, dict):
        if value.keys() >= _QUEUE_KEYS:
            topic = value["topic"]
            broker_name = value["brokerName"]
            queue_id = value["queueId"]
            if isinstance(topic, str) and isinstance(broker_name, str) and type(queue_id) is int:
                try:
                    return msgspec.convert(value, MessageQueue)
                except msgspec.ValidationError as error:
                    raise BodyError(f"the JSON text names a queue that is out of bounds: {error}") from None
        return frozenset((key, _hashable(item)) for key, item in value.items())
    if isinstance(value, list):
        return tuple(_hashable(item) for item in value)
    return value


class _Resolver:
    """Replaces each {"$ref": path} by the value it names. Paths: "$", "$.a.b[0]", ".." (parent), "@" (itself)."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._sizes: dict[int, int] = {}
        self._open: set[int] = set()

    def resolve(self) -> Any:
        self._replace(self._root, [])
        self._size(self._root, 0)
        return self._root

    def _replace(self, node: Any, parents: list[Any]) -> None:
        items: list[tuple[Any, Any]]
        if isinstance(node, dict):
            items = list(node.items())
        elif isinstance(node, list):
            items = list(enumerate(node))
        else:
            return
        parents.append(node)
        for key, item in items:
            path = _reference(item)
            if path is None:
                self._replace(item, parents)
            else:
                node[key] = self._target(path, parents)
        parents.pop()

    def _target(self, path: str, parents: list[Any]) -> Any:
        for _ in range(MAX_DEPTH):
            if path in ("@", "..") or path == "$":
                raise BodyError(f"the JSON reference {path!r} makes a value contain itself")
            value = self._root
            for step in _steps(path):
                value = _member(value, step, path)
            following = _reference(value)
            if following is None:
                if any(value is parent for parent in parents):
                    raise BodyError(f"the JSON reference {path!r} makes a value contain itself")
                return value
            path = following
        raise BodyError(f"the JSON reference {path!r} follows too many others")

    def _size(self, node: Any, depth: int) -> int:
        """Count the values in a subtree, references expanded. Raise BodyError for cycles and oversized trees."""
        if not isinstance(node, (dict, list)):
            return 1
        known = self._sizes.get(id(node))
        if known is not None:
            return known
        if id(node) in self._open or depth > MAX_DEPTH:
            raise BodyError("JSON references make a value contain itself")
        self._open.add(id(node))
        total = 1
        for item in node.values() if isinstance(node, dict) else node:
            total += self._size(item, depth + 1)
        if total > MAX_EXPANDED_NODES:
            raise BodyError(f"JSON references expand to more than {MAX_EXPANDED_NODES} values")
        self._open.discard(id(node))
        self._sizes[id(node)] = total
        return total


def _reference(item: Any) -> str | None:
    if isinstance(item, dict) and len(item) == 1:
        path = item.get("$ref")
        if isinstance(path, str):
            return path
    return None


_STEP: Final = re.compile(r"""\.((?:\\.|[^.\[\\])+)|\[(\d{1,9})\]|\[(?:"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)')\]""")


def _steps(path: str) -> list[str | int]:
    """Split a path: "$.table.a\\.b[0]" -> ["table", "a.b", 0]. A backslash escapes each special character."""
    steps: list[str | int] = []
    at = 1
    if not path.startswith("$"):
        raise BodyError(f"the JSON reference {path!r} cannot be read")
    while at < len(path):
        match = _STEP.match(path, at)
        if match is None:
            raise BodyError(f"the JSON reference {path!r} cannot be read at character {at}")
        at = match.end()
        if match.group(2) is not None:
            steps.append(int(match.group(2)))
        else:
            name = match.group(1) or match.group(3) or match.group(4) or ""
            steps.append(re.sub(r"\\(.)", r"\1", name))
    return steps


def _member(value: Any, step: str | int, path: str) -> Any:
    if isinstance(value, list) and isinstance(step, int) and step < len(value):
        return value[step]
    if isinstance(value, dict):
        if step in value:
            return value[step]
        if isinstance(step, str) and step.lstrip("-").isdecimal() and int(step) in value:
            return value[int(step)]
        if str(step) in value:
            return value[str(step)]
    raise BodyError(f"the JSON reference {path!r} refers to nothing")
