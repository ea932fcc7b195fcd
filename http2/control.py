"""The payloads of short control frames, checked: RST_STREAM, WINDOW_UPDATE, PING, GOAWAY, PRIORITY."""

from __future__ import annotations

from typing import Final

from triomq.http2.errors import ConnectionFault, ErrorCode, StreamFault
from triomq.http2.frames import GOAWAY, MAX_WINDOW, PRIORITY

PRIORITY_BYTES: Final = 5
_PING_BYTES: Final = 8
_NUMBER_BYTES: Final = 4


def read_number(payload: bytes, what: str) -> int:
    """Return the number that is the whole payload of RST_STREAM or WINDOW_UPDATE."""
    if len(payload) != _NUMBER_BYTES:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"{what} of {len(payload)} bytes")
    return int.from_bytes(payload, "big")


def read_increment(payload: bytes) -> int:
    """Return the increment of a WINDOW_UPDATE."""
    return read_number(payload, "WINDOW_UPDATE") & MAX_WINDOW


def check_ping(stream_id: int, payload: bytes) -> None:
    if stream_id:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "PING in a stream")
    if len(payload) != _PING_BYTES:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"PING of {len(payload)} bytes")


def check_other(kind: int, stream_id: int, payload: bytes) -> None:
    """Check a frame that has no effect: GOAWAY (its sender closes when its streams have ended) and PRIORITY. Those of
    extensions may have any form."""
    if kind == GOAWAY and stream_id:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "GOAWAY in a stream")
    if kind == PRIORITY and stream_id == 0:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "PRIORITY outside of a stream")
    if kind == PRIORITY and len(payload) != PRIORITY_BYTES:
        raise StreamFault(stream_id, ErrorCode.FRAME_SIZE_ERROR, f"PRIORITY of {len(payload)} bytes")
