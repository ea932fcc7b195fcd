"""The bounds that header and body records declare, field by field (protocol/bounds.py)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from docs.generators.body_registry import REQUEST_BODIES, RESPONSE_BODIES
from triomq.protocol.bodies.base import Body
from triomq.protocol.bounds import Bound
from triomq.protocol.codes import RequestCode
from triomq.protocol.headers import namesrv
from triomq.protocol.headers.base import Header
from triomq.protocol.headers.registry import REQUEST_HEADERS

RESPONSE_HEADERS: dict[int, type[Header]] = {
    RequestCode.REGISTER_BROKER: namesrv.RegisterBrokerResponseHeader,
    RequestCode.QUERY_DATA_VERSION: namesrv.QueryDataVersionResponseHeader,
}
"""Headers of responses that a broker reads."""

_TESTS = "tests/protocol/test_protocol_bounds.py::test_one_beyond_a_"
HEADERS = _TESTS + "header_field_s_bound_is_refused_by_name"
BODIES = _TESTS + "body_field_s_bound_is_refused_by_name"
"""The tests of the bounds that decoders enforce."""

_CONTAINERS = (list, set, frozenset, dict, tuple)


@dataclass(frozen=True)
class Declared:
    """One value that a peer chooses. `path`: the members that lead to it, by their names on the wire; `[]` stands for
    an item, `{}` for a key. `bound` is None if nothing is declared."""

    record: type[msgspec.Struct]
    path: str
    kind: type
    meta: msgspec.Meta | None
    bound: Bound | None

    @property
    def limit(self) -> str:
        """Return the bound in words."""
        words = []
        if self.meta is not None and self.meta.max_length is not None:
            words.append(f"{self.meta.max_length:,} {'characters' if self.kind is str else 'items'}")
        if self.kind is int and self.meta is not None and self.meta.le is not None:
            words.append("32 bits" if self.meta.le == 2**31 - 1 else "64 bits")
        if self.bound is not None and self.bound.limit:
            words = [self.bound.limit]
        elif self.bound is not None and self.bound.key:
            words.append(f"`{self.bound.key}`")
        return ", ".join(words)

    @property
    def test(self) -> str:
        """Return the test that shows what happens beyond."""
        if self.bound is not None and self.bound.test is not None:
            return self.bound.test
        return HEADERS if issubclass(self.record, Header) else BODIES


def declared(record: type[msgspec.Struct]) -> Iterator[Declared]:
    """Return every value in a record that a peer chooses, those of records within it included."""
    yield from _members(record, record, "", ())


def _members(
    record: type[msgspec.Struct], owner: type[msgspec.Struct], path: str, above: tuple[type, ...]
) -> Iterator[Declared]:
    if owner in above:
        raise TypeError(f"{owner.__name__} contains itself: its depth has no bound")
    hints = get_type_hints(owner, include_extras=True)
    for field in msgspec.structs.fields(owner):
        yield from _values(record, hints[field.name], path + field.encode_name, (*above, owner))


def _values(record: type[msgspec.Struct], hint: Any, path: str, above: tuple[type, ...]) -> Iterator[Declared]:
    if get_origin(hint) in (Union, UnionType):
        for member in get_args(hint):
            yield from _values(record, member, path, above)
        return
    notes: tuple[Any, ...] = ()
    if get_origin(hint) is Annotated:
        hint, notes = hint.__origin__, hint.__metadata__
    base = get_origin(hint) or hint
    if base in (bool, NoneType, Literal):
        return
    if isinstance(base, type) and issubclass(base, msgspec.Struct):
        yield from _members(record, base, f"{path}.", above)
        return
    meta = next((note for note in notes if isinstance(note, msgspec.Meta)), None)
    bound = next((note for note in notes if isinstance(note, Bound)), None)
    yield Declared(record, path, base, meta, bound)
    if base in _CONTAINERS:
        arguments = get_args(hint)
        if base is dict:
            yield from _values(record, arguments[0], path + "{}", above)
        yield from _values(record, arguments[-1], path + "[]", above)


def records() -> Iterator[tuple[int, str, type[Header] | type[Body]]]:
    """Return (code, what it is, record) of every header and body that a peer sends."""
    for code in RequestCode:
        header = REQUEST_HEADERS[code]
        if header is not None:
            yield code, "header", header
        for body in REQUEST_BODIES.get(code, ()):
            yield code, "body", body
        if code in RESPONSE_HEADERS:
            yield code, "header of the response", RESPONSE_HEADERS[code]
        for body in RESPONSE_BODIES.get(code, ()):
            yield code, "body of the response", body
