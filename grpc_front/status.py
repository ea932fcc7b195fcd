"""How a call of gRPC ends: a code and a message, in header fields behind the answer.

The message is text in percent-encoding: what is not printable ASCII, and `%`, is written as %XX of its UTF-8.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from triomq.http2.hpack import Field, encode_fields

MAX_MESSAGE_BYTES: Final = 1024
"""Longest message that is sent. Some clients refuse long header fields."""


class GrpcStatus(IntEnum):
    """The codes of `grpc-status`."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class CallFailed(Exception):
    """A call ends with this status."""

    def __init__(self, status: GrpcStatus, message: str) -> None:
        super().__init__(f"{status.name}: {message}")
        self.status = status
        self.message = message

    def trailers(self, *, is_whole_answer: bool = True) -> bytes:
        """Return the header block that ends the answer. `is_whole_answer`: nothing was sent before."""
        return trailers(self.status, self.message, is_whole_answer=is_whole_answer)


ANSWER_FIELDS: Final[tuple[Field, ...]] = ((b":status", b"200"), (b"content-type", b"application/grpc"))
ANSWER_HEADERS: Final = encode_fields(ANSWER_FIELDS)
"""The header block before the messages of an answer."""
OK_TRAILERS: Final = encode_fields([(b"grpc-status", b"0")])
"""The header block behind them."""


def trailers(status: GrpcStatus, message: str = "", *, is_whole_answer: bool = False) -> bytes:
    """Return the header block that ends an answer. `is_whole_answer`: nothing was sent before."""
    fields = [*ANSWER_FIELDS] if is_whole_answer else []
    fields.append((b"grpc-status", b"%d" % status))
    if message:
        fields.append((b"grpc-message", percent_encoded(message)))
    return encode_fields(fields)


def percent_encoded(message: str) -> bytes:
    """Return the message as a header value of at most MAX_MESSAGE_BYTES."""
    found = bytearray()
    for character in message:
        piece = bytearray()
        for byte in character.encode("utf-8", "replace"):
            piece += bytes((byte,)) if 0x20 <= byte <= 0x7E and byte != 0x25 else b"%%%02X" % byte
        if len(found) + len(piece) > MAX_MESSAGE_BYTES:
            break
        found += piece
    return bytes(found.strip(b" "))  # a header value neither begins nor ends with a blank
