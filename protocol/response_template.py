"""Responses whose extFields always have the same names: one step formats the frame, instead of one step per field.

A ResponseTemplate holds the names and the constant values. A TemplatedResponse is a RemotingCommand that carries the
varying values, as bytes or numbers. Its extFields become a mapping only on demand.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from triomq.protocol.command import JAVA, JSON, ROCKETMQ, RPC_RESPONSE, VERSION, RemotingCommand
from triomq.protocol.speedups import accelerated

_encode_text: Final = msgspec.json.Encoder().encode
_pack_lengths: Final = struct.Struct(">ii").pack
_pack_short: Final = struct.Struct(">h").pack
_pack_int: Final = struct.Struct(">i").pack
_pack_fixed: Final = struct.Struct(">hbhiii").pack

Value: TypeAlias = bytes | int
"""Text that needs no escaping in JSON, or a number, which is written in decimal."""


Body: TypeAlias = bytes | int
"""A body, or the number of bytes of one that is sent behind what is returned."""


def fill_json_reference(pieces: tuple[bytes, ...], values: tuple[Value, ...], body: Body) -> bytes:
    """Return a frame in the JSON codec: piece, value, piece, ..., value, piece, then the body."""
    header = pieces[0]
    for at, value in enumerate(values):
        header += _text(value) + pieces[at + 1]
    size, here = _body(body)
    return _pack_lengths(4 + len(header) + size, len(header)) + header + here


def fill_binary_reference(
    names: tuple[bytes, ...],
    values: tuple[Value, ...],
    code: int,
    version: int,
    opaque: int,
    flag: int,
    remark: bytes,
    body: Body,
) -> bytes:
    """Return a frame in the ROCKETMQ codec with language JAVA. Each of `names` precedes the length of its value."""
    entries = b""
    for at, name in enumerate(names):
        value = _text(values[at])
        entries += name + _pack_int(len(value)) + value
    fixed = _pack_fixed(code, JAVA, version, opaque, flag, len(remark))
    size = len(fixed) + len(remark) + 4 + len(entries)
    body_size, here = _body(body)
    lengths = _pack_lengths(4 + size + body_size, ROCKETMQ << 24 | size)
    return b"%b%b%b%b%b%b" % (lengths, fixed, remark, _pack_int(len(entries)), entries, here)


_fill_json: Final = accelerated(fill_json_reference)
_fill_binary: Final = accelerated(fill_binary_reference)


def _text(value: Value) -> bytes:
    return b"%d" % value if isinstance(value, int) else value


def _body(body: Body) -> tuple[int, bytes]:
    """Return the size of a body, and what of it belongs to the bytes that are returned."""
    if not isinstance(body, int):
        return len(body), body
    if body < 0:
        raise struct.error("a body has a negative number of bytes")
    return body, b""


class ResponseTemplate:
    """The extFields of one kind of response: `constants` with their values, then `names`, whose values vary. `json` and
    `binary` are what lies around the values, as `fill_json` and `fill_binary` take it."""

    __slots__ = ("_constants", "_names", "binary", "json")

    def __init__(self, names: Sequence[str], constants: Mapping[str, str] | None = None) -> None:
        self._names = tuple(names)
        self._constants = dict(constants or {})
        self.json = self._json_pieces()
        entry = b""
        for name, value in self._constants.items():
            entry += _text_with_length(name) + _pack_int(len(value.encode())) + value.encode()
        binary: list[bytes] = []
        for name in self._names:
            binary.append(entry + _text_with_length(name))
            entry = b""
        self.binary = tuple(binary)

    def _json_pieces(self) -> tuple[bytes, ...]:
        """Return the text around the values, with the members in RocketMQ's order (see protocol.frame)."""
        pieces = [b'{"code":']
        opening = b',"extFields":{'
        for name, value in self._constants.items():
            opening += _encode_text(name) + b":" + _encode_text(value) + b","
        for name in self._names:
            pieces.append(opening + _encode_text(name) + b':"')
            opening = b'",'
        pieces.append(b'"},"flag":')
        pieces += [b',"language":"JAVA","opaque":', b",", b'"serializeTypeCurrentRPC":"JSON","version":', b"}"]
        return tuple(pieces)

    def answer(self, request: RemotingCommand, code: int, values: tuple[Value, ...]) -> bytes | None:
        """Return the frame of a response to `request` that has neither remark nor body, as a TemplatedResponse would
        be encoded. Return None in a codec without a template."""
        if request.serialize_type == ROCKETMQ:
            return _fill_binary(self.binary, values, code, VERSION, request.opaque, RPC_RESPONSE, b"", b"")
        if request.serialize_type == JSON:
            return _fill_json(self.json, (code, *values, RPC_RESPONSE, request.opaque, b"", VERSION), b"")
        return None

    def place_of(self, name: str) -> int:
        return self._names.index(name)

    def fields(self, values: Sequence[Value]) -> dict[str, str]:
        """Return extFields as a mapping."""
        fields = dict(self._constants)
        for name, value in zip(self._names, values, strict=True):
            fields[name] = _text(value).decode()
        return fields


class TemplatedResponse(RemotingCommand):
    """A response to `request`. `values` belong to the names of `template`; there is at least one."""

    __slots__ = ("_template", "values")

    def __init__(
        self,
        template: ResponseTemplate,
        request: RemotingCommand,
        code: int,
        values: tuple[Value, ...],
        remark: str | None = None,
        body: bytes = b"",
    ) -> None:
        # Sets the members of its base itself: each response would pay for the call.
        self.code = code
        self.flag = RPC_RESPONSE
        self.opaque = request.opaque
        self.remark = remark
        self.body = body
        self.serialize_type = request.serialize_type
        self.language = JAVA
        self.version = VERSION
        self._ext = None
        self._template = template
        self.values = values

    @property
    def ext_fields(self) -> dict[str, str] | None:
        """extFields as a mapping. After the first access the mapping is sent, since the caller may have changed it."""
        fields = self._ext
        if not isinstance(fields, dict):
            fields = self._ext = self._template.fields(self.values)
        return fields

    @ext_fields.setter
    def ext_fields(self, value: dict[str, str] | None) -> None:
        self._ext = {} if value is None else value

    def value(self, name: str) -> Value:
        """Return one of `values`, for a reader within the broker that needs no mapping."""
        return self.values[self._template.place_of(name)]

    def frame(self, body: Body) -> bytes | None:
        """Return the frame with this body, or None if it must be encoded field by field: in a codec without a template,
        and after an access to `ext_fields`."""
        if self._ext is not None:
            return None
        template = self._template
        if self.serialize_type == ROCKETMQ:
            remark = b"" if self.remark is None else self.remark.encode()
            return _fill_binary(
                template.binary, self.values, self.code, self.version, self.opaque, self.flag, remark, body
            )
        if self.serialize_type == JSON:
            remark = b"" if self.remark is None else b'"remark":%b,' % _encode_text(self.remark)
            values = (self.code, *self.values, self.flag, self.opaque, remark, self.version)
            return _fill_json(template.json, values, body)
        return None


def _text_with_length(text: str) -> bytes:
    data = text.encode()
    return _pack_short(len(data)) + data
