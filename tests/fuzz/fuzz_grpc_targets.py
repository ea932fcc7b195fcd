"""The fuzz targets of grpcServerPort: what a client puts into calls, and the header of a load balancer before them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import trio

from triomq.broker.configuration import Configuration
from triomq.broker.grpc import consuming, producing, routes, telemetry
from triomq.broker.grpc import messages as grpc_messages
from triomq.broker.grpc.messages import to_ms
from triomq.broker.grpc.producing import Producing
from triomq.broker.grpc.results import Refused
from triomq.broker.grpc.routes import endpoints_of, legal_topic
from triomq.grpc_front import messages, schema
from triomq.grpc_front.messages import MessageReader
from triomq.grpc_front.schema import DecodeError
from triomq.grpc_front.status import CallFailed
from triomq.protocol import receipt_handle
from triomq.remoting import proxy_header
from triomq.remoting.proxy_header import ProxyHeaderError, read_proxy_header

Target = Callable[[bytes], None]

NOW_MS = 1_700_000_000_000
MAX_BYTES = 1000
_TABLES = SimpleNamespace(configuration=Configuration(), metadata=SimpleNamespace(topics={}), now_ms=lambda: NOW_MS)
_PRODUCING = Producing(cast(Any, SimpleNamespace(tables=_TABLES)), cast(Any, None))
_CLIENT = cast(Any, SimpleNamespace(client_id="c"))


def grpc_stream(data: bytes) -> None:
    """Size of the pieces @0, gzip if odd @1 | messages @2. How they are cut changes nothing."""
    if len(data) < 2:
        return
    encoding = messages.GZIP if data[1] & 1 else messages.IDENTITY
    whole = _read(data[2:], encoding, len(data))
    assert _read(data[2:], encoding, data[0] or 1)[: len(whole)] == whole


def _read(data: bytes, encoding: bytes, size: int) -> list[bytes]:
    """Return the messages before the first fault."""
    reader = MessageReader(MAX_BYTES, encoding)
    found: list[bytes] = []
    with contextlib.suppress(CallFailed):
        for at in range(0, len(data), size):
            found += reader.feed(data[at : at + size])
            assert reader.held_bytes <= MAX_BYTES + size + 5
    assert all(len(message) <= MAX_BYTES for message in found)
    return found


def grpc_bodies(data: bytes) -> None:
    """Which method @0 | the message of its request @1. A call is taken, or refused with a status."""
    if not data:
        return
    kinds: list[tuple[Any, Callable[[Any], object]]] = [
        (schema.SendMessageRequest, _sent),
        (schema.TelemetryCommand, lambda command: telemetry._heartbeat(_CLIENT, command.settings)),
        (schema.QueryRouteRequest, lambda request: legal_topic(request.topic.name)),
        (schema.ReceiveMessageRequest, lambda request: to_ms(request.invisible_duration)),
        (
            schema.AckMessageRequest,
            lambda request: [consuming._handle(each.receipt_handle) for each in request.entries],
        ),
        (schema.ChangeInvisibleDurationRequest, lambda request: consuming._handle(request.receipt_handle)),
    ]
    kind, function = kinds[data[0] % len(kinds)]
    with contextlib.suppress(DecodeError, Refused):
        function(kind.FromString(data[1:]))


def _sent(request: Any) -> None:
    for message in request.messages:
        fields, body = _PRODUCING._prepared("T", message)
        assert all(isinstance(value, str) for value in fields.values()) and body


def grpc_authority(data: bytes) -> None:
    """A header field becomes an endpoint, whatever it says."""
    endpoints = endpoints_of(data.decode("latin-1"))
    assert len(endpoints.SerializeToString()) < len(data) * 2 + 100


def proxy_headers(data: bytes) -> None:
    """What is read of a header is not left, and nothing behind it is read."""
    rest = data + b"behind"

    async def receive(size: int) -> bytes:
        nonlocal rest
        part, rest = rest[:size], rest[size:]
        return part

    with contextlib.suppress(ProxyHeaderError):
        trio.run(read_proxy_header, receive)
        assert (data + b"behind").endswith(rest)


def grpc_targets() -> dict[str, tuple[Target, tuple[ModuleType, ...]]]:
    """Return name -> target, and the modules whose lines count."""
    of_calls = (grpc_messages, producing, consuming, telemetry, routes, receipt_handle)
    return {
        "grpc_stream": (grpc_stream, (messages,)),
        "grpc_bodies": (grpc_bodies, of_calls),
        "grpc_authority": (grpc_authority, (routes,)),
        "proxy_headers": (proxy_headers, (proxy_header,)),
    }
