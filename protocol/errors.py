"""Errors of the protocol layer. The type says who is at fault and whether the connection survives.

ProtocolError
├── FrameError          the peer sent bytes that are not a frame: the connection is closed
├── HeaderFieldError    a header field is missing or malformed: that request or response is refused
├── BodyError           a body cannot be read: that request or response is refused
├── RecordError         bytes that should be a stored message record are not one
└── RequestRefused      a processor refuses a request with a response code and a remark
"""

from __future__ import annotations


class ProtocolError(Exception):
    """Base of the errors that `protocol` raises."""


class FrameError(ProtocolError):
    """The bytes on a connection are not a frame. Nothing after them can be trusted, so the connection closes.

    `decoded` holds the commands of the whole frames that preceded the bad one in the same read.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.decoded: list[object] = []


class HeaderFieldError(ProtocolError):
    """A header field is missing or does not parse. The message names the field and becomes the response's remark."""


class BodyError(ProtocolError):
    """A request or response body does not have the form that its code requires."""


class RecordError(ProtocolError):
    """The bytes are not a stored message record (RocketMQ: CommitLog)."""


class RequestRefused(ProtocolError):
    """A processor refuses a request: `code` (ResponseCode) and `remark` go to the peer unchanged."""

    def __init__(self, code: int, remark: str | None) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark
