"""What a client did, as `ServerSide.receive` returns it."""

from __future__ import annotations

from dataclasses import dataclass

from triomq.http2.errors import ErrorCode
from triomq.http2.hpack import Field


@dataclass(slots=True)
class RequestStarted:
    """A stream is open. `fields` have been checked: pseudo fields first, each once, names and values as HTTP allows."""

    stream_id: int
    fields: list[Field]
    has_ended: bool
    """Whether the request has neither a body nor trailers."""


@dataclass(slots=True)
class DataArrived:
    """A piece of the body. Pass its length to `ServerSide.consumed` when it needs no memory any more."""

    stream_id: int
    data: bytes
    has_ended: bool


@dataclass(slots=True)
class TrailersArrived:
    """The body is followed by these fields, and the request has ended."""

    stream_id: int
    fields: list[Field]


@dataclass(slots=True)
class StreamReset:
    """A stream is gone: the peer gave it up, or broke the protocol in it (then `is_fault`). Nothing can be sent."""

    stream_id: int
    code: int
    reason: str
    is_fault: bool


@dataclass(slots=True)
class ConnectionFailed:
    """The peer broke the protocol. Send the output, which says so, and close; everything else is ignored."""

    code: ErrorCode
    reason: str


Event = RequestStarted | DataArrived | TrailersArrived | StreamReset | ConnectionFailed
