"""HTTP/2 frames as bytes (RFC 9113, sections 4 and 6).

      3 bytes     1 byte   1 byte      4 bytes        length
    +----------+--------+--------+----------------+-----------+
    |  length  |  type  |  flags |    stream id   |  payload  |
    +----------+--------+--------+----------------+-----------+

`FrameReader` cuts the bytes of a connection into frames. It holds at most one incomplete frame, so its memory is
bounded by the longest one.
"""

from __future__ import annotations

import struct
from typing import Final

from triomq.http2.errors import ConnectionFault, ErrorCode

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""What a client sends first."""
HEAD_BYTES: Final = 9
MAX_FRAME_BYTES: Final = 16384
"""Longest payload that this server takes: the default of SETTINGS_MAX_FRAME_SIZE."""
MAX_WINDOW: Final = 2**31 - 1

DATA: Final = 0
HEADERS: Final = 1
PRIORITY: Final = 2
RST_STREAM: Final = 3
SETTINGS: Final = 4
PUSH_PROMISE: Final = 5
PING: Final = 6
GOAWAY: Final = 7
WINDOW_UPDATE: Final = 8
CONTINUATION: Final = 9
END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
HAS_PRIORITY: Final = 0x20

_HEAD: Final = struct.Struct(">HBBBI")

Frame = tuple[int, int, int, bytes]
"""Type, flags, stream id, payload."""


class FrameReader:
    """Cuts the bytes of one client into frames. They may arrive in pieces of any size."""

    def __init__(self) -> None:
        self._held = b""
        self._has_begun = False

    @property
    def held_bytes(self) -> int:
        """The number of bytes held of an incomplete frame."""
        return len(self._held)

    def feed(self, data: bytes) -> tuple[list[Frame], ConnectionFault | None]:
        """Return the complete frames, and the fault that follows them, if there is one. Call it no more after that."""
        frames: list[Frame] = []
        data = self._held + data if self._held else data
        self._held = b""
        position = 0
        end = len(data)
        if not self._has_begun:
            if data[: len(PREFACE)] != PREFACE[:end]:
                return frames, ConnectionFault(ErrorCode.PROTOCOL_ERROR, "the connection does not begin as HTTP/2 does")
            if end < len(PREFACE):
                self._held = data
                return frames, None
            self._has_begun = True
            position = len(PREFACE)
        while end - position >= HEAD_BYTES:
            high, low, kind, flags, stream_id = _HEAD.unpack_from(data, position)
            length = high << 8 | low
            if length > MAX_FRAME_BYTES:
                reason = f"a frame of {length} bytes; the limit is {MAX_FRAME_BYTES}"
                return frames, ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, reason)
            frame_end = position + HEAD_BYTES + length
            if frame_end > end:
                break
            frames.append((kind, flags, stream_id & MAX_WINDOW, data[position + HEAD_BYTES : frame_end]))
            position = frame_end
        self._held = data[position:]
        return frames, None


def frame_head(length: int, kind: int, flags: int, stream_id: int) -> bytes:
    """Return the nine bytes before a payload."""
    return _HEAD.pack(length >> 8, length & 0xFF, kind, flags, stream_id)


def encode_frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    return frame_head(len(payload), kind, flags, stream_id) + payload


def unpadded(flags: int, payload: bytes) -> bytes:
    """Return the payload of DATA or HEADERS without its padding."""
    if not flags & PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "the padding of a frame is longer than the frame")
    return payload[1 : len(payload) - payload[0]]
