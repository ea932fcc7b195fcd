"""Errors of the protocol layer, named by who is at fault and whether the connection survives.

ProtocolError
├── FrameError          the peer sent bytes that are no frame: the connection is closed
├── HeaderFieldError    a header field is missing or of the wrong type: answered, the connection survives
├── BodyError           a body cannot be read: answered, the connection survives
├── RecordError         bytes that should be a stored message record are not one
└── RequestRefused      a processor's deliberate "no", answered with its response code and sentence
"""

from __future__ import annotations


class ProtocolError(Exception):
    """Base of everything that `protocol` raises on purpose."""


class FrameError(ProtocolError):
    """The bytes on a connection are not a frame; nothing behind them can be trusted, so the connection closes.

    `decoded` holds the commands of whole frames that stood in front of the bad one in the same read.
    """

    def __init__(self, message: str, decoded: list[object] | None = None) -> None:
        super().__init__(message)
        self.decoded: list[object] = decoded or []


class HeaderFieldError(ProtocolError):
    """A header field is missing or does not parse. The text names the field; the peer gets it as remark."""


class BodyError(ProtocolError):
    """A request or response body cannot be read as what its code says it is."""


class RecordError(ProtocolError):
    """Bytes that should hold a stored message record (CommitLog layout) do not."""


class RequestRefused(ProtocolError):
    """A processor's answer other than success: response `code` (ResponseCode) and `remark`, sent to the peer as is."""

    def __init__(self, code: int, remark: str | None) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark
