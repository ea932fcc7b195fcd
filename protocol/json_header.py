"""The members of a JSON header, as msgspec reads them.

This is a separate, uncompiled module: msgspec builds records from annotations at run time, and compiled modules such as
protocol.frame do not keep annotations.
"""

from __future__ import annotations

import msgspec

from triomq.protocol.errors import FrameError

NO_EXT_FIELDS = msgspec.Raw(b"")


class JsonHeader(msgspec.Struct, gc=False):
    """The members, all optional. extFields stays JSON text until a handler needs it."""

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
    """Decode the members. Raise FrameError for anything but a JSON object of these types (numbers may be text).

    Deep nesting, which a peer controls, makes msgspec raise RecursionError; it, too, becomes a FrameError.
    """
    try:
        return _decoder.decode(header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            return _lax_decoder.decode(header)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise FrameError(f"the JSON header cannot be read: {error}") from None
