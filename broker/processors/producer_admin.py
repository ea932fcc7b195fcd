"""Connected producers: GET_PRODUCER_CONNECTION_LIST, GET_ALL_PRODUCER_INFO (RocketMQ: AdminBrokerProcessor)."""

from __future__ import annotations

from triomq.broker.processors.consume_admin import connection_bodies, language_name
from triomq.broker.tables.producers import ProducerTable
from triomq.protocol.bodies.connection import ProducerConnection, ProducerInfo, ProducerTableInfo
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_response
from triomq.protocol.errors import RequestRefused
from triomq.protocol.headers.client import GetProducerConnectionListRequestHeader
from triomq.remoting.connection import Connection
from triomq.remoting.processor_table import Processor


class ProducerAdminProcessor:
    """Lists connected producers."""

    def __init__(self, producers: ProducerTable) -> None:
        self._producers = producers

    def processors(self) -> dict[int, Processor]:
        """Return request code -> processor."""
        return {
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.connections,
            RequestCode.GET_ALL_PRODUCER_INFO: self.all_producers,
        }

    def connections(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle GET_PRODUCER_CONNECTION_LIST for one group."""
        group = request.header(GetProducerConnectionListRequestHeader).producer_group
        members = self._producers.channels(group)
        if members is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the producer group[{group}] not exist")
        body = ProducerConnection(connection_set=connection_bodies(members))
        return new_response(request, body=body.encode())

    def all_producers(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle GET_ALL_PRODUCER_INFO."""
        data = {
            group: [
                ProducerInfo(
                    client_id=member.client_id,
                    language=language_name(member.language),
                    last_update_timestamp=member.last_update_ms,
                    remote_ip=f"/{member.remote_text}",
                    version=member.version,
                )
                for member in members
            ]
            for group, members in self._producers.items()
        }
        return new_response(request, body=ProducerTableInfo(data=data).encode())
