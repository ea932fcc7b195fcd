"""A NameServer without sockets: requests go directly to its processor table, responses come back as frames."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from math import inf
from typing import Any

import trio

from triomq.namesrv.config import NamesrvSettings
from triomq.namesrv.controller import BrokerConnections
from triomq.namesrv.kv_config import KvConfig
from triomq.namesrv.processor import AskProductEnvironment, NamesrvProcessor
from triomq.namesrv.routes import RouteTable
from triomq.namesrv.runtime_config import RuntimeConfig
from triomq.namesrv.upkeep import RouteUpkeep
from triomq.protocol.address import HostPort
from triomq.protocol.bodies.topic_config import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.frame import FrameDecoder, encode_frame
from triomq.remoting.config import ServerSettings
from triomq.remoting.connection import Connection
from triomq.remoting.processor_table import ProcessorTable
from triomq.remoting.scheduling.step_line import Steps
from triomq.remoting.table_memory import TableMemory
from triomq.remoting.turn import Turn


class FakeConnection(Connection):
    """A peer: records its responses, and whether it was closed. It is a connection, since compiled code takes nothing
    else, but has no socket."""

    def __init__(self, nursery: trio.Nursery, port: int = 40000) -> None:
        self.remote = HostPort("127.0.0.1", port)
        self.peer_names = frozenset()
        self.turn = Turn()
        self.steps = Steps()
        self.is_open = True
        self.close_reason = None
        self._nursery = nursery
        self._answers, self._receive = trio.open_memory_channel[RemotingCommand](100)

    def answer(self, request: RemotingCommand, response: RemotingCommand, since: float = inf) -> None:
        if not request.is_oneway:
            self._answers.send_nowait(response)

    def start_soon(self, function: Callable[..., Awaitable[None]], *args: Any) -> None:
        self._nursery.start_soon(function, *args)

    def hold(self, count: int) -> bool:
        return False

    def task_began(self, size_bytes: int) -> None:
        self.hold(size_bytes)

    def task_ended(self, size_bytes: int) -> None:
        self.hold(-size_bytes)

    def close(self, reason: str) -> None:
        self.is_open = False
        self.close_reason = reason

    async def next_answer(self) -> RemotingCommand:
        """Return the next response, decoded from its frame."""
        response = await self._receive.receive()
        (decoded,) = FrameDecoder().feed(encode_frame(response))
        return decoded


class FakeNamesrv:
    """The parts of one NameServer; `ask` sends it a request."""

    def __init__(
        self,
        nursery: trio.Nursery,
        *,
        settings: NamesrvSettings | None = None,
        kv_config: KvConfig | None = None,
        ask_product_environment: AskProductEnvironment | None = None,
        extra: dict[str, str] | None = None,
    ) -> None:
        self.nursery = nursery
        self.memory = TableMemory()
        self.in_progress = TableMemory()
        self.routes = RouteTable(incoming_account=self.in_progress.account("registrations in progress"))
        nursery.start_soon(RouteUpkeep(self.routes).run)
        self.kv_config = kv_config or KvConfig(None)
        self.config = RuntimeConfig(settings or NamesrvSettings(), ServerSettings(listen_port=9876), extra=extra)
        self.table = ProcessorTable()
        self.processor = NamesrvProcessor(
            self.routes,
            self.kv_config,
            self.config,
            ask_product_environment=ask_product_environment,
            account=self.memory.account("kept routes"),
        )
        self.processor.register_all(self.table)
        self.events = BrokerConnections(self.routes, Counter())
        self.peer = self.connect()

    def connect(self, port: int = 40000) -> FakeConnection:
        return FakeConnection(self.nursery, port)

    def disconnect(self, connection: FakeConnection) -> None:
        connection.close("the peer closed it")
        self.events.connection_closed(connection)

    async def send(self, request: RemotingCommand, connection: FakeConnection | None = None) -> RemotingCommand:
        (arrived,) = FrameDecoder().feed(encode_frame(request))
        peer = connection or self.peer
        self.table.handle(peer, arrived)
        return await peer.next_answer()

    async def ask(
        self,
        code: RequestCode,
        fields: dict[str, str] | None = None,
        body: bytes = b"",
        *,
        version: int = 407,
        connection: FakeConnection | None = None,
    ) -> RemotingCommand:
        request = new_request(code, body=body, ext_fields=fields)
        request.version = version
        return await self.send(request, connection)

    async def register(
        self,
        *topics: str | TopicConfig,
        cluster: str = "C",
        name: str = "b-a",
        broker_id: int = 0,
        address: str = "10.0.0.1:10911",
        version: int = 1,
        filter_servers: list[str] | None = None,
        connection: FakeConnection | None = None,
        **fields: str,
    ) -> RemotingCommand:
        return await self.ask(
            RequestCode.REGISTER_BROKER,
            {**broker_fields(cluster, name, broker_id, address), "haServerAddr": ha_address(address), **fields},
            registration(*topics, version=version, filter_servers=filter_servers).encode(),
            connection=connection,
        )


def broker_fields(
    cluster: str = "C", name: str = "b-a", broker_id: int = 0, address: str = "10.0.0.1:10911"
) -> dict[str, str]:
    return {"clusterName": cluster, "brokerName": name, "brokerId": str(broker_id), "brokerAddr": address}


def ha_address(address: str) -> str:
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) + 1}"


def registration(
    *topics: str | TopicConfig, version: int = 1, filter_servers: list[str] | None = None
) -> RegisterBrokerBody:
    configs = [TopicConfig(topic_name=topic) if isinstance(topic, str) else topic for topic in topics]
    return RegisterBrokerBody(
        filter_server_list=filter_servers or [],
        topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
            data_version=DataVersion(counter=version, timestamp=1_700_000_000_000),
            topic_config_table={config.topic_name: config for config in configs},
        ),
    )
