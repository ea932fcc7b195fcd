"""The codec of programs that must start fast or have no event loop: requests out, responses in, with the JSON header
(RocketMQ: RemotingCommand).

    4  length of what follows
    4  1 byte header codec (0: JSON), 3 bytes header length
    h  header, UTF-8 JSON: code, language, version, opaque, flag, remark, extFields
    n  body

`frame.py` reads and writes every codec, both ways and in pieces, and decodes fields when they are asked for; msgspec,
which it needs, takes longer to import than a command may take as a whole. A test compares the two.
"""

from __future__ import annotations

import json

from triomq.protocol.errors import FrameError

MAX_FRAME_BYTES = 16 * 1024 * 1024
VERSION = 407  # V4_9_7
LANGUAGE = "PYTHON"

_RESPONSE = 1
_ONEWAY = 2
"""Bits of the flag."""


class Request:
    """`fields` are extFields, texts by name. Nobody responds to one that `is_oneway`."""

    __slots__ = ("body", "code", "fields", "is_oneway", "language")

    def __init__(
        self,
        code: int,
        fields: dict[str, str],
        body: bytes = b"",
        *,
        language: str = LANGUAGE,
        is_oneway: bool = False,
    ) -> None:
        self.code = code
        self.fields = fields
        self.body = body
        self.language = language
        self.is_oneway = is_oneway


class Response:
    """`fields` are extFields, texts by name; `remark` is empty if there is none. What a peer sends by itself is a
    request, not `is_response`. `version` is the peer's ordinal in RocketMQ's MQVersion, -1 if it does not say."""

    __slots__ = ("body", "code", "fields", "is_response", "opaque", "remark", "version")

    def __init__(
        self,
        code: int,
        opaque: int,
        remark: str,
        fields: dict[str, str],
        body: bytes,
        *,
        is_response: bool = True,
        version: int = -1,
    ) -> None:
        self.code = code
        self.opaque = opaque
        self.remark = remark
        self.fields = fields
        self.body = body
        self.is_response = is_response
        self.version = version


def encode_request(request: Request, opaque: int) -> bytes:
    """Return a whole frame."""
    header = {
        "code": request.code,
        "language": request.language,
        "version": VERSION,
        "opaque": opaque,
        "flag": _ONEWAY if request.is_oneway else 0,
        "extFields": request.fields,
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    size = 4 + len(text) + len(request.body)
    return b"".join((size.to_bytes(4, "big"), len(text).to_bytes(4, "big"), text, request.body))


def decode_response(frame: bytes) -> Response:
    """Decode a frame after its length field. Raises FrameError for bytes that are not a frame with a JSON header."""
    if len(frame) < 4 or frame[0] != 0:
        raise FrameError("the response has no JSON header")
    header_length = int.from_bytes(frame[1:4], "big")
    if header_length > len(frame) - 4:
        raise FrameError("the header of the response is longer than its frame")
    try:
        header = json.loads(frame[4 : 4 + header_length])
    except (ValueError, RecursionError) as error:
        raise FrameError(f"the header of the response is not JSON: {error}") from None
    if not isinstance(header, dict) or not isinstance(header.get("code"), int):
        raise FrameError("the header of the response has no code")
    opaque = header.get("opaque", 0)
    flag = header.get("flag", 0)
    version = header.get("version", -1)
    remark = header.get("remark") or ""
    fields = header.get("extFields") or {}
    are_numbers = isinstance(opaque, int) and isinstance(flag, int) and isinstance(version, int)
    if not (are_numbers and isinstance(remark, str) and isinstance(fields, dict)):
        raise FrameError("the header of the response has a field of another type")
    texts = {str(key): str(value) for key, value in fields.items() if value is not None}
    is_response = flag & _RESPONSE != 0
    body = frame[4 + header_length :]
    return Response(header["code"], opaque, remark, texts, body, is_response=is_response, version=version)
