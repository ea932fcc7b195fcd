"""What can go wrong on an HTTP/2 connection, by whose fault and with what effect (RFC 9113, sections 5.4 and 7)."""

from __future__ import annotations

from enum import IntEnum


class ErrorCode(IntEnum):
    """The codes of RST_STREAM and GOAWAY."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


class ConnectionFault(Exception):
    """The peer broke the protocol in a way that ends its connection. `reason` is sent with the GOAWAY."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(f"{code.name}: {reason}")
        self.code = code
        self.reason = reason


class StreamFault(Exception):
    """The peer broke the protocol in one stream; the connection and its other streams continue."""

    def __init__(self, stream_id: int, code: ErrorCode, reason: str) -> None:
        super().__init__(f"stream {stream_id}: {code.name}: {reason}")
        self.stream_id = stream_id
        self.code = code
        self.reason = reason


class HeaderFault(Exception):
    """A header block that cannot be decoded. The table of both sides differs from now on, so the connection ends."""

    def __init__(self, reason: str, code: ErrorCode = ErrorCode.COMPRESSION_ERROR) -> None:
        super().__init__(reason)
        self.reason = reason
        self.code = code
