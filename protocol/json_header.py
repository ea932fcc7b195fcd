"""The members of a JSON header, as msgspec reads them.

A separate module because msgspec builds its records from annotations at run time, which compiled modules such as
protocol.frame do not keep.
"""

from __future__ import annotations

import msgspec

from triomq.protocol.errors import FrameError

NO_EXT_FIELDS = msgspec.Raw(b"")


class JsonHeader(msgspec.Struct, gc=False):
    """All members are optional; extFields stays JSON text until it is needed."""

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
    """Read the members. Raise FrameError for anything but a JSON object of these types (numbers may be text).

    Deep nesting raises RecursionError, which must not escape: peers control the nesting.
    """
    try:
        return _decoder.decode(header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            return _lax_decoder.decode(header)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise FrameError(f"the JSON header cannot be read: {error}") from None
