"""A header block: one HEADERS frame and the CONTINUATION frames that follow it at once."""

from __future__ import annotations

from typing import Final

from triomq.http2.control import PRIORITY_BYTES
from triomq.http2.errors import ConnectionFault, ErrorCode
from triomq.http2.frames import END_STREAM, HAS_PRIORITY, unpadded

MAX_HEADER_BLOCK_BYTES: Final = 64 * 1024
"""Bytes of one header block, encoded, in all of its frames."""
MAX_HEADER_FRAMES: Final = 16
"""HEADERS and CONTINUATION frames of one header block."""


class HeaderBlock:
    """The pieces of a block as they arrive. `ends_stream`: nothing follows it in the request."""

    __slots__ = ("_pieces", "ends_stream", "size_bytes", "stream_id")

    def __init__(self, flags: int, stream_id: int, payload: bytes) -> None:
        fragment = unpadded(flags, payload)
        if flags & HAS_PRIORITY:
            if len(fragment) < PRIORITY_BYTES:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "HEADERS too short for its priority")
            fragment = fragment[PRIORITY_BYTES:]
        self.stream_id = stream_id
        self.ends_stream = bool(flags & END_STREAM)
        self._pieces = [fragment]
        self.size_bytes = len(fragment)

    def add(self, fragment: bytes) -> None:
        self._pieces.append(fragment)
        self.size_bytes += len(fragment)
        if self.size_bytes > MAX_HEADER_BLOCK_BYTES or len(self._pieces) > MAX_HEADER_FRAMES:
            limits = f"the limits are {MAX_HEADER_BLOCK_BYTES} bytes in {MAX_HEADER_FRAMES} frames"
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, f"a header block without end; {limits}")

    def whole(self) -> bytes:
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
