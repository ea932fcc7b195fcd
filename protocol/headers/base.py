"""Typed header records: the fields of a request or response header, read from and written to extFields.

On the wire every header field is text, in all codecs (RocketMQ's CommandCustomHeader). A header class is a frozen
record whose fields ARE the schema:

    class GetMaxOffsetRequestHeader(Header):
        topic: TopicName                # required: no default
        queue_id: QueueId               # "queueId" on the wire, decimal text
        broker_name: BrokerName | None = msgspec.field(default=None, name="bname")

The types come from `protocol.bounds` and carry the longest text and the range of numbers that a decoder takes. One
call into msgspec decodes the text into typed fields. If msgspec rejects it, the header is decoded field by field, which
either applies RocketMQ's lenient rules (any text but "true" is false) or finds the name of the field at fault.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import pack
from types import UnionType
from typing import Annotated, Any, Final, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from triomq.protocol.errors import HeaderFieldError

UNBOUNDED: Final = 2**32 - 1
"""In `Columns` the longest text of a field that has no bound of its own."""


class Header(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """Base of all header records (RocketMQ: CommandCustomHeader)."""


H = TypeVar("H", bound=Header)

Columns: TypeAlias = tuple[tuple[str, ...], tuple[bytes, ...], bytes, tuple[Any, ...], bytes]
"""A header class in the form that the fast path needs: attributes, wire names, kinds, defaults and longest texts, one
of each per field. Kinds: 0 text, 1 int32, 2 int64, 3 boolean. A default of ... marks a required field. The longest
texts are numbers of 32 bits in the order of the machine."""
HeaderReader: TypeAlias = Callable[..., Any]
"""Fast path of `decode_header`: reader(entries, cls, columns) returns the header record, or None if a required field
is missing or the text of a field is too long or not in the canonical form of its kind."""

_decoders: dict[type[Header], msgspec.json.Decoder[Any]] = {}
_schemas: dict[type[Header], list[tuple[str, str, type, bool, Any]]] = {}
_flags: dict[type[Header], list[tuple[str, str]]] = {}


def decode_header_json(cls: type[H], ext_json: bytes | msgspec.Raw) -> H:
    """Decode a header of class `cls` from the JSON text of extFields. Raise HeaderFieldError naming the field."""
    decoder = _decoders.get(cls)
    if decoder is None:
        decoder = _decoders[cls] = msgspec.json.Decoder(cls, strict=False)
    try:
        header: H = decoder.decode(ext_json)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return decode_header(cls, decode_ext_json(ext_json))
    for attribute, _ in flags_of(cls):
        if getattr(header, attribute):
            return decode_header(cls, decode_ext_json(ext_json))
    return header


def decode_ext_json(ext_json: bytes | msgspec.Raw) -> dict[str, str]:
    """Return extFields as a mapping of text. Numbers and booleans, which some clients send unquoted, become text.

    Raise HeaderFieldError if the JSON text is malformed or not an object.
    """
    try:
        value = msgspec.json.decode(ext_json)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise HeaderFieldError(f"extFields cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise HeaderFieldError("extFields must be an object of texts")
    return {key: item if isinstance(item, str) else _text(item) for key, item in value.items() if item is not None}


def decode_header(cls: type[H], ext_fields: Mapping[str, str]) -> H:
    """Decode a header of class `cls` from extFields. Raise HeaderFieldError naming the field."""
    try:
        header = msgspec.convert(ext_fields, cls, strict=False)
    except msgspec.ValidationError:
        pass
    else:
        for _, name in flags_of(cls):
            if ext_fields.get(name) == "1":  # msgspec reads this as true, Java as false
                break
        else:
            return header
    values: dict[str, Any] = {}
    for attribute, name, kind, required, default in _schema(cls):
        text = ext_fields.get(name)
        if text is None:
            if required:
                raise HeaderFieldError(f"the header field <{name}> of {cls.__name__} is required and missing")
            values[attribute] = default
        else:
            values[attribute] = _parse(cls, name, kind, text)
    return cls(**values)


def encode_header(header: Header) -> dict[str, str]:
    """Return the extFields of a header: integers in decimal, booleans as "true" or "false", None omitted."""
    fields: dict[str, str] = {}
    for attribute, name, _, _, _ in _schema(type(header)):
        value = getattr(header, attribute)
        if value is not None:
            fields[name] = value if isinstance(value, str) else _text(value)
    return fields


def _text(value: Any) -> str:
    if value is True:
        return "true"
    if value is False:
        return "false"
    return value if isinstance(value, str) else str(value)


def _parse(cls: type[Header], name: str, kind: type, text: str) -> Any:
    field = f"the header field <{name}> of {cls.__name__}"
    if kind is bool:
        return text.lower() == "true"
    bound = _bound_of(_annotation(cls, name))
    if kind is not int:
        if bound.max_length is not None and len(text) > bound.max_length:
            raise HeaderFieldError(f"{field} has {len(text)} characters, the longest is {bound.max_length}")
        return text
    try:
        number = int(text) if text.lstrip("+-").isascii() and text.lstrip("+-").isdigit() else None
    except ValueError:
        number = None
    if number is None or not -(2**63) <= number < 2**63:
        shown = text if len(text) <= 64 else text[:64] + "…"
        raise HeaderFieldError(f"{field} must be an integer, not {shown!r}")
    low, high = bound.ge, bound.le
    if (low is not None and number < low) or (high is not None and number > high):
        raise HeaderFieldError(f"{field} is out of the range of a 32 bit integer: {number}")
    return number


def flags_of(cls: type[Header]) -> list[tuple[str, str]]:
    """Return (attribute, wire name) of each boolean field."""
    flags = _flags.get(cls)
    if flags is None:
        flags = _flags[cls] = [(row[0], row[1]) for row in _schema(cls) if row[2] is bool]
    return flags


def _annotation(cls: type[Header], name: str) -> Any:
    hints = get_type_hints(cls, include_extras=True)
    attribute = next(row[0] for row in _schema(cls) if row[1] == name)
    return hints[attribute]


def _schema(cls: type[Header]) -> list[tuple[str, str, type, bool, Any]]:
    """Return rows of (attribute, wire name, str | int | bool, required, default), in order of declaration."""
    rows = _schemas.get(cls)
    if rows is None:
        hints = get_type_hints(cls)
        rows = []
        for field in msgspec.structs.fields(cls):
            hint = hints[field.name]
            kinds = [kind for kind in (get_args(hint) or (hint,)) if kind is not type(None)]
            rows.append(
                (field.name, field.encode_name, kinds[0], field.required, None if field.required else field.default)
            )
        _schemas[cls] = rows
    return rows


def schema_columns(cls: type[Header]) -> Columns:
    """Return the `Columns` of a header class, in order of declaration."""
    hints = get_type_hints(cls, include_extras=True)
    rows = _schema(cls)
    bounds = [_bound_of(hints[row[0]]) for row in rows]
    kinds = [
        0 if row[2] is str else 3 if row[2] is bool else 1 if bound.le == 2**31 - 1 else 2
        for row, bound in zip(rows, bounds, strict=True)
    ]
    longest = [UNBOUNDED if bound.max_length is None else bound.max_length for bound in bounds]
    return (
        tuple([row[0] for row in rows]),
        tuple([row[1].encode() for row in rows]),
        bytes(kinds),
        tuple([... if row[3] else row[4] for row in rows]),
        pack(f"={len(longest)}I", *longest),
    )


def _bound_of(hint: Any) -> msgspec.Meta:
    """Return what a type says of the longest text or the range of a number."""
    members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    for member in members:
        if get_origin(member) is Annotated:
            for note in member.__metadata__:
                if isinstance(note, msgspec.Meta):
                    return note
    return _ANY


_ANY: Final = msgspec.Meta()
