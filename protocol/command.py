"""RemotingCommand: the request or response that a frame carries (RocketMQ: RemotingCommand).

It is plain data. Its extFields arrive as JSON text, as entries of the ROCKETMQ codec or as a mapping, and are decoded
on demand: `header(Class)` reads them into a typed record in one step, `ext_fields` into a mapping of text. A request
that this process makes and handles itself has the record at once.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from triomq.protocol.entries import decode_entries
from triomq.protocol.headers.base import (
    Columns,
    Header,
    HeaderReader,
    decode_ext_json,
    decode_header,
    decode_header_json,
    encode_header,
    schema_columns,
)
from triomq.protocol.speedups import fast_path

JSON: Final = 0
ROCKETMQ: Final = 1
MSGPACK: Final = 2
"""Serialize types (RocketMQ: SerializeType). MSGPACK is TrioMQ's own and is used only with peers that use it first."""

RPC_RESPONSE: Final = 1
RPC_ONEWAY: Final = 2
"""Bits of `flag`."""

JAVA: Final = 0
VERSION: Final = 407
"""The `language` and `version` that TrioMQ sends; the version is the ordinal of V4_9_7 (RocketMQ: MQVersion)."""

HELD_BYTES: Final = 1024
HELD_FIELD_BYTES: Final = 200
"""About the memory that a command takes beside its body and its fields, and a decoded field beside its texts."""

ExtFields: TypeAlias = dict[str, str] | msgspec.Raw | bytes | Header | None
"""extFields as a mapping, as JSON text, as entries of the ROCKETMQ codec, as a record whose values are within their
bounds, or None if the frame has none."""

H = TypeVar("H", bound=Header)

_read_header: Final[HeaderReader | None] = fast_path("read_header")
_columns: Final[dict[type[Header], Columns]] = {}


class RemotingCommand:
    """One request or response.

    code: request or response code. language: LanguageCode number, -1 when unknown. version: MQVersion ordinal,
    VERSION unless a decoder sets it. opaque: the sender's request number, copied into the response. flag: bit 0
    response, bit 1 one-way. remark: a sentence for humans, or None. body: bytes, empty if there is none.
    serialize_type: header codec.
    """

    __slots__ = (
        "_ext",
        "body",
        "code",
        "flag",
        "language",
        "opaque",
        "remark",
        "serialize_type",
        "version",
    )

    def __init__(
        self,
        code: int,
        ext_fields: ExtFields = None,
        body: bytes = b"",
        flag: int = 0,
        opaque: int = 0,
        remark: str | None = None,
        serialize_type: int = JSON,
        language: int = JAVA,
        version: int = VERSION,
    ) -> None:
        self.code = code
        self.flag = flag
        self.opaque = opaque
        self.remark = remark
        self.body = body
        self.serialize_type = serialize_type
        self.language = language
        self.version = version
        self._ext: ExtFields = ext_fields

    @property
    def is_response(self) -> bool:
        return self.flag & RPC_RESPONSE != 0

    @property
    def is_oneway(self) -> bool:
        return self.flag & RPC_ONEWAY != 0

    @property
    def ext_fields(self) -> dict[str, str] | None:
        """extFields as a mapping of text, None if the frame has none. Raise HeaderFieldError if they are malformed."""
        ext = self._ext
        if ext is None or isinstance(ext, dict):
            return ext
        if isinstance(ext, msgspec.Raw):  # tested first: type checkers treat it as a subtype of bytes
            fields = decode_ext_json(ext)
        elif isinstance(ext, Header):
            fields = encode_header(ext)
        else:
            fields = decode_entries(ext, 0, len(ext))
        self._ext = fields
        return fields

    @ext_fields.setter
    def ext_fields(self, value: dict[str, str] | None) -> None:
        self._ext = value

    @property
    def held_bytes(self) -> int:
        """About the memory that the command takes."""
        ext = self._ext
        count = HELD_BYTES + len(self.body)
        if self.remark is not None:
            count += len(self.remark)
        if isinstance(ext, dict):
            count += sum([HELD_FIELD_BYTES + len(name) + len(value) for name, value in ext.items()])
        elif isinstance(ext, msgspec.Raw):
            count += memoryview(ext).nbytes
        elif isinstance(ext, Header):
            count += HELD_BYTES
        elif ext is not None:
            count += len(ext)
        return count

    def header(self, cls: type[H]) -> H:
        """Decode the typed header. Raise HeaderFieldError naming the first field that is missing or does not parse."""
        ext = self._ext
        if isinstance(ext, msgspec.Raw):
            return decode_header_json(cls, ext)
        header: H | None = self._usual_header(cls, cls)
        if header is not None:
            return header
        return ext if isinstance(ext, cls) else decode_header(cls, self.ext_fields or {})

    def header_values(self, cls: type[Header]) -> tuple[Any, ...]:
        """Return the values of the typed header in the order of its fields, for the most frequent requests: to make a
        record and read it field by field takes longer than to decode it. Raise HeaderFieldError as `header` does."""
        ext = self._ext
        columns = _columns.get(cls)
        values: tuple[Any, ...] | None
        if columns is not None and isinstance(ext, bytes):  # what `_usual_header` does, without the call
            assert _read_header is not None
            values = _read_header(ext, None, columns)
        else:
            values = self._usual_header(cls, None)
        return values if values is not None else msgspec.structs.astuple(self.header(cls))

    def _usual_header(self, cls: type[Header], record: type[Header] | None) -> Any:
        """Return the usual header of a frame as `record`, or its values if that is None; None for any other header."""
        ext = self._ext
        if _read_header is None or not isinstance(ext, bytes):
            return None
        columns = _columns.get(cls)
        if columns is None:
            columns = _columns[cls] = schema_columns(cls)
        return _read_header(ext, record, columns)

    def __repr__(self) -> str:
        kind = "response" if self.is_response else "oneway" if self.is_oneway else "request"
        try:
            fields = self.ext_fields
        except Exception as error:
            fields = {"unreadable": str(error)}
        hidden = {
            key: "***" if key in ("Signature", "SecurityToken", "BoundSignature") else value
            for key, value in (fields or {}).items()
        }
        return (
            f"<RemotingCommand {kind} code={self.code} opaque={self.opaque} remark={self.remark!r} "
            f"ext_fields={hidden} body={len(self.body)} B>"
        )


def new_request(
    code: int,
    header: Header | None = None,
    body: bytes = b"",
    *,
    ext_fields: dict[str, str] | None = None,
    oneway: bool = False,
    language: int = JAVA,
) -> RemotingCommand:
    """Return a request. The connection that sends it assigns `opaque` and the header codec."""
    fields = _merge(header, ext_fields)
    return RemotingCommand(code, fields, body, flag=RPC_ONEWAY if oneway else 0, language=language)


def new_response(
    request: RemotingCommand,
    code: int = 0,
    remark: str | None = None,
    *,
    header: Header | None = None,
    body: bytes = b"",
    ext_fields: dict[str, str] | None = None,
) -> RemotingCommand:
    """Return a response to `request`, with its opaque and header codec. `ext_fields` are added to those of `header`."""
    fields = _merge(header, ext_fields)
    # Without keywords: see protocol.frame.FrameDecoder._read.
    return RemotingCommand(code, fields, body, RPC_RESPONSE, request.opaque, remark, request.serialize_type)


def _merge(header: Header | None, ext_fields: dict[str, str] | None) -> dict[str, str] | None:
    if header is None:
        return ext_fields
    fields = encode_header(header)
    if ext_fields:
        fields.update(ext_fields)
    return fields
