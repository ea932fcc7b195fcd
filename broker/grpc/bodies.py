"""Compressed bodies between clients of both generations. Those of gRPC compress with gzip, those of remoting with zlib,
LZ4 or Zstandard, and few of either read the other's. So a body is stored as zlib, which all clients of remoting read,
and delivered plain to those of gRPC.

A body that would become longer than messages may be is left as it is: a few KiB may unfold to gigabytes. So is one that
is not gzip although its producer says so, as at RocketMQ: clients of remoting get it as it was sent, and those of gRPC
with the encoding that its producer named, which a property keeps.
"""

from __future__ import annotations

import zlib
from typing import Final

from triomq.broker.grpc.results import Refused
from triomq.grpc_front import schema
from triomq.protocol import sys_flag
from triomq.protocol.compression import compress, decompress_begin
from triomq.protocol.errors import BodyError
from triomq.protocol.message import MessageExt

Code: Final = schema.Code
MAX_PLAIN_BYTES: Final = 4 * 1024 * 1024
"""RocketMQ's clients send no body that is longer before they compress it."""
IDENTITY: Final = int(schema.Encoding.IDENTITY)
GZIP: Final = int(schema.Encoding.GZIP)
BODY_ENCODING: Final = "__BODY_ENCODING"
"""The property of a message whose body is not in the encoding that its producer named; its value is that name."""
GZIP_NAME: Final = "GZIP"
_GZIP_BEGIN: Final = b"\x1f\x8b"
_GZIP_FORMAT: Final = 16 + zlib.MAX_WBITS


def body_to_store(body: bytes, limit: int) -> bytes | None:
    """Return the zlib form of a body in gzip; None if it is none. Raises Refused if it has more than `limit` bytes."""
    inflater = zlib.decompressobj(_GZIP_FORMAT)
    try:
        plain = inflater.decompress(body, limit + 1)
    except zlib.error:
        return None
    if len(plain) > limit:
        raise Refused(Code.MESSAGE_BODY_TOO_LARGE, f"the body has more than {limit} bytes when it is inflated")
    return compress(plain) if inflater.eof else None


def body_to_deliver(stored: MessageExt) -> tuple[bytes, int]:
    """Return the body that a client gets, and how it is encoded (schema.Encoding)."""
    body = stored.body
    if not stored.sys_flag & sys_flag.COMPRESSED:
        return body, GZIP if stored.properties.get(BODY_ENCODING) == GZIP_NAME else IDENTITY
    if not body.startswith(_GZIP_BEGIN):
        try:
            plain = decompress_begin(body, sys_flag.compression_type(stored.sys_flag), MAX_PLAIN_BYTES + 1)
        except BodyError:
            plain = b""
        if 0 < len(plain) <= MAX_PLAIN_BYTES:
            return plain, IDENTITY
    return body, GZIP
