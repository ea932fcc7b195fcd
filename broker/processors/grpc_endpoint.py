"""QUERY_GRPC_ENDPOINT: where gRPC clients connect to this broker. Other brokers ask, for routes. Only TrioMQ has it."""

from __future__ import annotations

from triomq.broker.configuration import Configuration
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import RemotingCommand, new_response
from triomq.protocol.headers.grpc import QueryGrpcEndpointResponseHeader
from triomq.remoting.connection import Connection
from triomq.remoting.processor_table import Processor


class GrpcEndpointProcessor:
    """Says what grpcAdvertisedEndpoint says, or else the address that remoting registers, with grpcServerPort."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    def processors(self) -> dict[int, Processor]:
        """Return request code -> processor."""
        return {RequestCode.QUERY_GRPC_ENDPOINT: self.query}

    def query(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle QUERY_GRPC_ENDPOINT."""
        broker = self._configuration.broker
        endpoint = broker.grpc_advertised_endpoint or f"{broker.broker_ip1}:{broker.grpc_server_port}"
        header = QueryGrpcEndpointResponseHeader(endpoint=endpoint if broker.grpc_server_port else None)
        return new_response(request, header=header)
