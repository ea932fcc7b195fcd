"""Headers of requests about gRPC (TrioMQ only)."""

from __future__ import annotations

from triomq.protocol.bounds import Address
from triomq.protocol.headers.base import Header


class QueryGrpcEndpointResponseHeader(Header, frozen=True, kw_only=True):
    """QUERY_GRPC_ENDPOINT response: where gRPC clients connect to this broker, "host:port"; None if they cannot."""

    endpoint: Address | None = None
