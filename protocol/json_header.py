"""The members of a JSON header, as msgspec reads them.

A module of its own because msgspec makes its records from annotations when Python runs them, which compiled modules
(protocol.frame is one) do not keep.
"""

from __future__ import annotations

import msgspec

from triomq.protocol.errors import FrameError

NO_EXT_FIELDS = msgspec.Raw(b"")


class JsonHeader(msgspec.Struct, gc=False):
    """All members are optional; extFields stays text until somebody asks for it."""

    code: int = 0
    language: str | int | None = "JAVA"
    version: int = 0
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    extFields: msgspec.Raw = NO_EXT_FIELDS


_decoder = msgspec.json.Decoder(JsonHeader)
_lax_decoder = msgspec.json.Decoder(JsonHeader, strict=False)


def read_json_header(header: bytes) -> JsonHeader:
    """The members; raises FrameError for what is no JSON object of these types (numbers as text are taken).

    Nesting deeper than the interpreter's stack is a RecursionError, which a peer must not be able to raise here.
    """
    try:
        return _decoder.decode(header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            return _lax_decoder.decode(header)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise FrameError(f"the JSON header cannot be read: {error}") from None
