"""The SETTINGS of both sides (RFC 9113, section 6.5): pairs of a number i16 and a value i32."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Final

from triomq.http2.errors import ConnectionFault, ErrorCode
from triomq.http2.frames import MAX_WINDOW


class Setting(IntEnum):
    """The numbers of the settings that either side looks at."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


_PAIR: Final = struct.Struct(">HI")
_FRAME_SIZES: Final = range(2**14, 2**24)


def encode_settings(values: dict[int, int]) -> bytes:
    return b"".join(_PAIR.pack(number, value) for number, value in values.items())


def read_settings(payload: bytes) -> Iterator[tuple[int, int]]:
    """Yield the peer's settings in their order. Raise ConnectionFault at a value that is not allowed."""
    if len(payload) % _PAIR.size:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"SETTINGS of {len(payload)} bytes")
    for number, value in _PAIR.iter_unpack(payload):
        if number == Setting.ENABLE_PUSH and value > 1:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"SETTINGS_ENABLE_PUSH is {value}; it is 0 or 1")
        if number == Setting.INITIAL_WINDOW_SIZE and value > MAX_WINDOW:
            reason = f"SETTINGS_INITIAL_WINDOW_SIZE is {value}; the limit is {MAX_WINDOW}"
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, reason)
        if number == Setting.MAX_FRAME_SIZE and value not in _FRAME_SIZES:
            reason = f"SETTINGS_MAX_FRAME_SIZE is {value}; it is between 2^14 and 2^24 - 1"
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, reason)
        yield number, value
