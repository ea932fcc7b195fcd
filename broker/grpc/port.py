"""grpcServerPort: what makes its connections. It is imported when the first client connects."""

from __future__ import annotations

from functools import partial

from triomq.broker.assembly.serving import Serving
from triomq.broker.grpc.connection import GrpcConnection
from triomq.broker.grpc.methods import Methods
from triomq.remoting.server import Connecting


def connecting(serving: Serving) -> Connecting:
    """Return what makes the connections of grpcServerPort."""
    return partial(GrpcConnection, Methods(serving))
