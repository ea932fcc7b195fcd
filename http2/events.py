"""What a client did, as `ServerSide.receive` returns it."""

from __future__ import annotations

from typing import NamedTuple

from triomq.http2.errors import ErrorCode
from triomq.http2.hpack import Field


class RequestStarted(NamedTuple):
    """A stream is open. `fields` have been checked: pseudo fields first, each once, names and values as HTTP allows."""

    stream_id: int
    fields: list[Field]
    has_ended: bool
    """Whether the request has neither a body nor trailers."""


class DataArrived(NamedTuple):
    """A piece of the body. Pass its length to `ServerSide.consumed` when it needs no memory any more."""

    stream_id: int
    data: bytes
    has_ended: bool


class TrailersArrived(NamedTuple):
    """The body is followed by these fields, and the request has ended."""

    stream_id: int
    fields: list[Field]


class StreamReset(NamedTuple):
    """A stream is gone: the peer gave it up, or broke the protocol in it (then `is_fault`). Nothing can be sent."""

    stream_id: int
    code: int
    reason: str
    is_fault: bool


class ConnectionFailed(NamedTuple):
    """The peer broke the protocol. Send the output, which says so, and close; everything else is ignored."""

    code: ErrorCode
    reason: str


Event = RequestStarted | DataArrived | TrailersArrived | StreamReset | ConnectionFailed
