"""The messages of a call in the body of its request or answer, each with a prefix:

      1 byte        4 bytes       length
    +------------+-----------+-----------+
    | compressed |  length   |  message  |
    +------------+-----------+-----------+

`MessageReader` holds at most one incomplete message, so its memory is bounded by the longest one. A compressed message
is inflated up to that length, too. Messages of answers are never compressed: bodies of RocketMQ's messages are already,
if their producers wish so.
"""

from __future__ import annotations

import zlib
from typing import Final

from triomq.grpc_front.status import CallFailed, GrpcStatus

MAX_MESSAGES_AT_ONCE: Final = 4096
"""Messages in the pieces of one read; the shortest has five bytes."""
GZIP: Final = b"gzip"
IDENTITY: Final = b"identity"

_PREFIX_BYTES: Final = 5
_GZIP_FORMAT: Final = 16 + zlib.MAX_WBITS


class MessageReader:
    """Cuts the body of one call into messages. `encoding` is the `grpc-encoding` of the request."""

    def __init__(self, max_message_bytes: int, encoding: bytes = IDENTITY) -> None:
        if encoding not in (GZIP, IDENTITY):
            name = encoding.decode("latin-1")
            raise CallFailed(GrpcStatus.UNIMPLEMENTED, f"messages are compressed as {name}; known are gzip, identity")
        self._max_message_bytes = max_message_bytes
        self._is_gzip = encoding == GZIP
        self._held = bytearray()

    @property
    def held_bytes(self) -> int:
        """The number of bytes held of an incomplete message."""
        return len(self._held)

    @property
    def needed_bytes(self) -> int:
        """The number of bytes that the incomplete message will have with its prefix; 0 if that is unknown."""
        held = self._held
        return _PREFIX_BYTES + int.from_bytes(held[1:_PREFIX_BYTES], "big") if len(held) >= _PREFIX_BYTES else 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the complete messages and keep the rest. Raise CallFailed for what is not a message, or too long."""
        if not self._held:
            found, position = self._messages(data)
            if position < len(data):
                self._held += memoryview(data)[position:]
            return found
        self._held += data
        found, position = self._messages(self._held)
        del self._held[:position]
        return found

    def _messages(self, data: bytes | bytearray) -> tuple[list[bytes], int]:
        """Return the complete messages, and where they end. Raises CallFailed."""
        found: list[bytes] = []
        position = 0
        size = len(data)
        while size - position >= _PREFIX_BYTES:
            begin = position + _PREFIX_BYTES
            flag = data[position]
            length = int.from_bytes(data[position + 1 : begin], "big")
            if flag > 1:
                raise CallFailed(GrpcStatus.INTERNAL, f"a message has the flag {flag}; known are 0 and 1")
            if length > self._max_message_bytes:
                raise self._too_long(length)
            end = begin + length
            if end > size:
                break
            if len(found) == MAX_MESSAGES_AT_ONCE:
                raise CallFailed(GrpcStatus.RESOURCE_EXHAUSTED, f"more than {MAX_MESSAGES_AT_ONCE} messages at once")
            message = bytes(memoryview(data)[begin:end])
            found.append(self._inflated(message) if flag else message)
            position = end
        return found, position

    def check_ended(self) -> None:
        """Raise CallFailed if the body ends in the middle of a message."""
        if self._held:
            raise CallFailed(GrpcStatus.INTERNAL, f"the request ends {len(self._held)} bytes after its last message")

    def _inflated(self, message: bytes) -> bytes:
        if not self._is_gzip:
            raise CallFailed(GrpcStatus.INTERNAL, "a message is compressed, but grpc-encoding does not say how")
        inflater = zlib.decompressobj(_GZIP_FORMAT)
        try:
            found = inflater.decompress(message, self._max_message_bytes + 1)
        except zlib.error as error:
            raise CallFailed(GrpcStatus.INTERNAL, f"a message is not gzip: {error}") from None
        if len(found) > self._max_message_bytes:
            raise self._too_long(len(found))
        if not inflater.eof or inflater.unused_data:
            raise CallFailed(GrpcStatus.INTERNAL, "a gzip message does not end where its stream ends")
        return found

    def _too_long(self, length: int) -> CallFailed:
        reason = f"a message of {length} bytes or more; the limit is {self._max_message_bytes}"
        return CallFailed(GrpcStatus.RESOURCE_EXHAUSTED, reason)


def encode_message(message: bytes) -> bytes:
    """Return a message with its prefix, not compressed."""
    return b"\0" + len(message).to_bytes(4, "big") + message
