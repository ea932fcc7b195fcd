"""One request and one response as bytes (RocketMQ: RemotingCommand with the JSON header).

    4  length of what follows
    4  1 byte header codec (0: JSON), 3 bytes header length
    h  header, UTF-8 JSON: code, language, version, opaque, flag, remark, extFields
    n  body

`triomq.protocol.frame` reads and writes every codec and checks much more; it takes longer to import than a command
may take as a whole. A test compares the two.
"""

from __future__ import annotations

import json

MAX_FRAME_BYTES = 16 * 1024 * 1024
VERSION = 407  # V4_9_7
LANGUAGE = "PYTHON"


class Response:
    """`fields` are extFields, texts by name."""

    __slots__ = ("body", "code", "fields", "opaque", "remark")

    def __init__(self, code: int, opaque: int, remark: str, fields: dict[str, str], body: bytes) -> None:
        self.code = code
        self.opaque = opaque
        self.remark = remark
        self.fields = fields
        self.body = body


def encode_request(code: int, opaque: int, fields: dict[str, str], body: bytes, language: str = LANGUAGE) -> bytes:
    """Return a whole frame."""
    header = {"code": code, "language": language, "version": VERSION, "opaque": opaque, "flag": 0, "extFields": fields}
    text = json.dumps(header, separators=(",", ":")).encode()
    size = 4 + len(text) + len(body)
    return b"".join((size.to_bytes(4, "big"), len(text).to_bytes(4, "big"), text, body))


def decode_response(frame: bytes) -> Response:
    """Decode a frame after its length field. Raises ValueError for bytes that are not a frame with a JSON header."""
    if len(frame) < 4 or frame[0] != 0:
        raise ValueError("the response has no JSON header")
    header_length = int.from_bytes(frame[1:4], "big")
    if header_length > len(frame) - 4:
        raise ValueError("the header of the response is longer than its frame")
    header = json.loads(frame[4 : 4 + header_length])
    if not isinstance(header, dict) or not isinstance(header.get("code"), int):
        raise ValueError("the header of the response has no code")
    fields = {str(key): str(value) for key, value in (header.get("extFields") or {}).items() if value is not None}
    return Response(
        header["code"], header.get("opaque", 0), header.get("remark") or "", fields, frame[4 + header_length :]
    )
