"""Answers that always carry the same extFields: formatted in one go, where others are put together field by field.

An AnswerLayout knows the names and the constant ones of the values; a LaidOutAnswer is a RemotingCommand with the
other values as text in bytes. Its extFields become a mapping only when somebody asks for them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from protocol.command import JAVA, JSON, ROCKETMQ, RPC_RESPONSE, VERSION, RemotingCommand

_encode_text: Final = msgspec.json.Encoder().encode
_pack_lengths: Final = struct.Struct(">ii").pack
_pack_short: Final = struct.Struct(">h").pack
_pack_int: Final = struct.Struct(">i").pack
_pack_fixed: Final = struct.Struct(">hbhiii").pack


class AnswerLayout:
    """extFields of one kind of answer: `constants` with their values, then `names`, whose values come with each."""

    __slots__ = ("_binary", "_constants", "_json", "_names")

    def __init__(self, names: Sequence[str], constants: Mapping[str, str] | None = None) -> None:
        self._names = tuple(names)
        self._constants = dict(constants or {})
        pairs = [_encode_text(name) + b":" + _encode_text(value) for name, value in self._constants.items()]
        pairs = [pair.replace(b"%", b"%%") for pair in pairs] + [_encode_text(name) + b':"%b"' for name in self._names]
        self._json = (
            b'{"code":%d,"extFields":{' + b",".join(pairs) + b'},"flag":%d,"language":"JAVA","opaque":%d,%b'
            b'"serializeTypeCurrentRPC":"JSON","version":%d}'
        )
        entry = b""
        for name, value in self._constants.items():
            entry += _text_with_length(name) + _pack_int(len(value.encode())) + value.encode()
        self._binary: list[bytes] = []
        for name in self._names:
            self._binary.append(entry + _text_with_length(name))
            entry = b""

    def fields(self, values: Sequence[bytes]) -> dict[str, str]:
        """extFields as a mapping."""
        fields = dict(self._constants)
        for name, value in zip(self._names, values, strict=True):
            fields[name] = value.decode()
        return fields

    def json_header(self, answer: LaidOutAnswer) -> bytes:
        """The members in RocketMQ's own order (see protocol.frame)."""
        remark = b"" if answer.remark is None else b'"remark":%b,' % _encode_text(answer.remark)
        return self._json % (answer.code, *answer.values, answer.flag, answer.opaque, remark, answer.version)

    def binary_header(self, answer: LaidOutAnswer) -> bytes:
        """The ROCKETMQ codec's header (see protocol.frame)."""
        remark = b"" if answer.remark is None else answer.remark.encode()
        entries = b""
        values = answer.values
        for at, names in enumerate(self._binary):
            value = values[at]
            entries += names + _pack_int(len(value)) + value
        fixed = _pack_fixed(answer.code, JAVA, answer.version, answer.opaque, answer.flag, len(remark))
        return b"%b%b%b%b" % (fixed, remark, _pack_int(len(entries)), entries)


class LaidOutAnswer(RemotingCommand):
    """An answer of this layout to `request`. `values` belong to the names of the layout and need no escaping in JSON:
    decimal numbers, hex digits, comma-separated lists of them."""

    __slots__ = ("_layout", "values")

    def __init__(
        self,
        layout: AnswerLayout,
        request: RemotingCommand,
        code: int,
        values: tuple[bytes, ...],
        remark: str | None = None,
        body: bytes = b"",
    ) -> None:
        super().__init__(code, RPC_RESPONSE, request.opaque, remark, body, request.serialize_type, JAVA, VERSION)
        self._layout = layout
        self.values = values

    @property
    def ext_fields(self) -> dict[str, str] | None:
        """extFields as a mapping; once somebody has it, it is what counts."""
        if self._ext_fields is None:
            self._ext_fields = self._layout.fields(self.values)
        return self._ext_fields

    @ext_fields.setter
    def ext_fields(self, value: dict[str, str] | None) -> None:
        self._ext_fields = {} if value is None else value

    def frame(self) -> bytes | None:
        """The whole frame; None when it has to be put together field by field: for a codec that has no format here,
        and when extFields are out as a mapping, which may have been changed."""
        if self._ext_fields is not None:
            return None
        if self.serialize_type == JSON:
            header = self._layout.json_header(self)
        elif self.serialize_type == ROCKETMQ:
            header = self._layout.binary_header(self)
        else:
            return None
        size = len(header)
        return _pack_lengths(4 + size + len(self.body), self.serialize_type << 24 | size) + header + self.body


def _text_with_length(text: str) -> bytes:
    data = text.encode()
    return _pack_short(len(data)) + data
