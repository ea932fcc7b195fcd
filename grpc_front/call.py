"""The header fields of a call: which method, until when, how its messages are compressed, and what the client says of
itself (the other fields)."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from triomq.grpc_front.messages import IDENTITY
from triomq.grpc_front.status import CallFailed, GrpcStatus
from triomq.http2.hpack import Field

_MOST_DIGITS: Final = 8
_UNIT_SECONDS: Final = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_CONTENT: Final = b"application/grpc"
_CONTENT_TYPE: Final = re.compile(rb"application/grpc(?:[+;].*)?\Z")


class Call(NamedTuple):
    """`path` is `/service/method`. `fields` has each name once; values of one name are joined by a comma."""

    path: bytes
    timeout_seconds: float | None
    encoding: bytes
    fields: dict[bytes, bytes]


def read_call(request: list[Field]) -> Call:
    """Return the call that a request is. Raise CallFailed if it is not one, or if its time limit cannot be read."""
    fields: dict[bytes, bytes] = {}
    for name, value in request:
        fields[name] = fields[name] + b"," + value if name in fields else value
    if fields[b":method"] != b"POST":
        raise CallFailed(GrpcStatus.UNIMPLEMENTED, "a call of gRPC is a POST")
    kind = fields.get(b"content-type", b"")
    if kind != _CONTENT and _CONTENT_TYPE.match(kind) is None:
        raise CallFailed(GrpcStatus.INVALID_ARGUMENT, "the content type is not application/grpc")
    timeout = fields.get(b"grpc-timeout")
    return Call(
        fields[b":path"],
        None if timeout is None else read_timeout(timeout),
        fields.get(b"grpc-encoding", IDENTITY),
        fields,
    )


def read_timeout(text: bytes) -> float:
    """Return the seconds of a `grpc-timeout`: up to eight digits and a unit."""
    digits, unit = text[:-1], _UNIT_SECONDS.get(text[-1:])
    if unit is None or len(digits) > _MOST_DIGITS or not digits.isdigit():
        shown = text[:20].decode("latin-1")
        raise CallFailed(GrpcStatus.INVALID_ARGUMENT, f"grpc-timeout is {shown!r}; it is a number and a unit, as 500m")
    return int(digits) * unit
