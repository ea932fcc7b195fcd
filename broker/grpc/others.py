"""The queues of a topic at other brokers of the cluster, and where gRPC clients connect to these.

The NameServers say which master has which queues; the master itself says its endpoint (QUERY_GRPC_ENDPOINT). One that
is not TrioMQ's, has no gRPC port or does not respond is left out: clients could not use it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import trio

from triomq.broker.assembly.serving import Serving, account_of
from triomq.broker.nameservers.routes import MAX_QUEUES, Routes
from triomq.protocol.bodies.route import MASTER_ID, QueueData
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import new_request
from triomq.protocol.errors import HeaderFieldError, RequestRefused
from triomq.protocol.headers.grpc import QueryGrpcEndpointResponseHeader
from triomq.remoting.errors import RemotingError
from triomq.remoting.log import get_logger

log = get_logger("triomq.broker.grpc")

ASK_SECONDS: Final = 2.0
"""How long another broker has to say its endpoint: clients wait three seconds for a route."""
FRESH_SECONDS: Final = 30.0
RETRY_SECONDS: Final = 5.0
"""After this time a broker is asked again that has not said its endpoint."""
MAX_BROKERS: Final = 1000


class Part(NamedTuple):
    """The queues of a topic at one broker. `endpoint` is "host:port"."""

    broker_name: str
    endpoint: str
    read_queues: int
    write_queues: int
    perm: int


class OtherBrokers:
    """See the module's docstring."""

    def __init__(self, serving: Serving) -> None:
        tables = serving.tables
        self._configuration = tables.configuration
        self._nameservers = serving.nameservers.addresses
        self._own_address = serving.address
        self._invoke = serving.client.invoke
        self._sign = account_of(tables).sign
        self._routes = Routes(
            self._nameservers,
            self._invoke,
            lambda: self._configuration.broker.broker_name,
            lambda topic: None,
        )
        self._endpoints: dict[str, tuple[str | None, float]] = {}

    @property
    def may_exist(self) -> bool:
        return bool(self._nameservers())

    async def parts(self, topic: str) -> list[Part]:
        """Return the queues of a topic at the other masters, by names of brokers. Never raises."""
        try:
            data = await self._routes.whole(topic)
        except RequestRefused as error:
            log.debug("route for a gRPC client not found", topic=topic, error=str(error))
            return []
        if data is None:
            return []
        queues = {of_broker.broker_name: of_broker for of_broker in data.queue_datas}
        found: list[Part] = []
        async with trio.open_nursery() as nursery:
            for broker in data.broker_datas:
                of_broker, master = queues.get(broker.broker_name), broker.broker_addrs.get(MASTER_ID)
                if of_broker is not None and master is not None and master != self._own_address:
                    nursery.start_soon(self._add, found, of_broker, master)
        return sorted(found)

    async def _add(self, found: list[Part], queues: QueueData, master: str) -> None:
        endpoint = await self._endpoint(master)
        if endpoint is not None:
            read, write = min(queues.read_queue_nums, MAX_QUEUES), min(queues.write_queue_nums, MAX_QUEUES)
            found.append(Part(queues.broker_name, endpoint, read, write, queues.perm))

    async def _endpoint(self, master: str) -> str | None:
        """Return where gRPC clients connect to a master, None if it does not say."""
        known = self._endpoints.get(master)
        if known is not None and trio.current_time() < known[1]:
            return known[0]
        request = new_request(RequestCode.QUERY_GRPC_ENDPOINT)
        self._sign(request)
        endpoint: str | None = None
        try:
            response = await self._invoke(master, request, ASK_SECONDS)
            if response.code == ResponseCode.SUCCESS:
                endpoint = response.header(QueryGrpcEndpointResponseHeader).endpoint
            else:
                log.debug("gRPC endpoint of another broker refused", broker=master, error=response.remark)
        except (RemotingError, HeaderFieldError) as error:
            log.debug("gRPC endpoint of another broker not received", broker=master, error=str(error))
        if len(self._endpoints) >= MAX_BROKERS:
            self._endpoints.clear()
        fresh_seconds = FRESH_SECONDS if endpoint is not None else RETRY_SECONDS
        self._endpoints[master] = endpoint, trio.current_time() + fresh_seconds
        return endpoint
