"""Registrations of brokers: REGISTER_BROKER and UNREGISTER_BROKER.

A short registration takes effect at once. A long or a compressed one is a task: it is read and applied in steps, other
requests are handled between them, and its change becomes visible in one step, the last one. Registrations of one
broker name, and those of one connection, take effect in the order in which they came; so do unregistrations. A
registration whose connection closes before its last step changes nothing.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final

import structlog
import trio

from triomq.namesrv.brokers import BrokerKey, MasterAddress
from triomq.namesrv.displaced import close_displaced
from triomq.namesrv.kv_config import KvConfig
from triomq.namesrv.routes import RouteTable
from triomq.protocol.bodies.kv_table import ORDER_TOPIC_CONFIG
from triomq.protocol.bodies.registration import (
    Parts,
    RestOfRegistration,
    read_compressed_registration,
    read_old_registration,
    read_registration,
)
from triomq.protocol.bodies.topic_config import DataVersion
from triomq.protocol.codes import V3_0_11, ResponseCode
from triomq.protocol.command import RemotingCommand, new_response
from triomq.protocol.errors import RequestRefused
from triomq.protocol.headers.namesrv import (
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
)
from triomq.remoting.connection import Connection
from triomq.remoting.scheduling.places import Place, Places

log = structlog.get_logger("triomq.namesrv.processor")

MAX_FILTER_SERVERS = 64
"""Filter servers of one broker."""

SHORT_BYTES: Final = 16 * 1024
"""A body up to this size is read at once: as many topics as a step of a longer one has."""

CHECKSUM_BYTES: Final = 256 * 1024
"""Bytes that one step adds to the checksum of a body."""

Later = Coroutine[Any, Any, RemotingCommand]


class Registrar:
    """See the module's docstring."""

    def __init__(self, routes: RouteTable, kv_config: KvConfig) -> None:
        self._routes = routes
        self._kv_config = kv_config
        self.places = Places()  # by connections and by names of brokers

    def register(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | Later:
        header = request.header(RegisterBrokerRequestHeader)
        broker = _broker_key(connection, header)
        is_short = len(request.body) <= SHORT_BYTES and not header.compressed
        registration = _Registration(self._routes, connection, request, header, broker)
        if is_short and self.places.is_free(connection, broker.name):
            registration.check_sum_at_once()
            return self._registered(request, registration.finish())
        place = self.places.take(connection, broker.name)
        return self._register_in_steps(place, registration, request)

    async def _register_in_steps(
        self, place: Place, registration: _Registration, request: RemotingCommand
    ) -> RemotingCommand:
        async with place:
            steps = registration.connection.steps
            await steps.run(registration.checking(), are_short=True)
            return self._registered(request, await steps.run(registration.in_steps(), are_short=True))

    def _registered(self, request: RemotingCommand, master: MasterAddress) -> RemotingCommand:
        return new_response(
            request,
            header=RegisterBrokerResponseHeader(ha_server_addr=master.ha_address, master_addr=master.address),
            body=self._kv_config.encoded(ORDER_TOPIC_CONFIG) or b"",
        )

    def unregister(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | Later:
        header = request.header(UnRegisterBrokerRequestHeader)
        broker = _broker_key(connection, header)
        if self.places.is_free(connection, broker.name):
            return self._unregister(connection, request, broker)
        place = self.places.take(connection, broker.name)
        return self._unregister_later(place, connection, request, broker)

    async def _unregister_later(
        self, place: Place, connection: Connection, request: RemotingCommand, broker: BrokerKey
    ) -> RemotingCommand:
        async with place:
            return self._unregister(connection, request, broker)

    def _unregister(self, connection: Connection, request: RemotingCommand, broker: BrokerKey) -> RemotingCommand:
        owners = self._routes.brokers.owners(broker)
        self._routes.unregister(broker)
        log.info("broker unregistered", name=broker.name, id=broker.id, address=broker.address)
        close_displaced(owners, self._routes.brokers.owners(broker), connection, broker)
        return new_response(request)


class _Registration:
    """One REGISTER_BROKER."""

    def __init__(
        self,
        routes: RouteTable,
        connection: Connection,
        request: RemotingCommand,
        header: RegisterBrokerRequestHeader,
        broker: BrokerKey,
    ) -> None:
        self._routes = routes
        self.connection = connection
        self._body = request.body
        self._crc32 = header.body_crc32
        self._broker = broker
        self._reader = _reader_of(request, is_compressed=header.compressed)
        self._steps = routes.registering(
            broker, self._read, ha_address=header.ha_server_addr, owner=connection, now=trio.current_time
        )
        self._topic_count = 0

    def check_sum_at_once(self) -> None:
        self._check_sum(zlib.crc32(self._body) if self._crc32 else 0)

    def checking(self) -> Generator[None, None, None]:
        """Compare the checksum of the body, in steps. Raises RequestRefused."""
        crc = 0
        if self._crc32:
            for at in range(0, len(self._body), CHECKSUM_BYTES):
                crc = zlib.crc32(self._body[at : at + CHECKSUM_BYTES], crc)
                yield
        self._check_sum(crc)

    def _check_sum(self, crc: int) -> None:
        if self._crc32 and self._crc32 != crc & 0x7FFFFFFF:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "crc32 not match")

    def _read(self) -> Parts:
        self._topic_count = 0
        parts = self._reader(self._body)
        while True:
            try:
                topics = next(parts)
            except StopIteration as stop:
                rest: RestOfRegistration = stop.value
                break
            self._topic_count += len(topics)
            yield topics
        if len(rest.filter_servers) > MAX_FILTER_SERVERS:
            reason = f"{len(rest.filter_servers)} filter servers, the limit is {MAX_FILTER_SERVERS}"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, reason)
        return rest

    def finish(self) -> MasterAddress:
        """Do all at once."""
        while True:
            master = self._step()
            if master is not None:
                return master

    def in_steps(self) -> Generator[None, None, MasterAddress]:
        """Do all in steps."""
        try:
            # What a connection registers after its close would stay until it counts as silent.
            while self.connection.is_open:
                master = self._step()
                if master is not None:
                    return master
                yield
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "the connection closed before the registration took effect")
        finally:
            self._steps.close()  # what was prepared goes, if this was cancelled

    def _step(self) -> MasterAddress | None:
        """Do a step. The last one enters the broker, and returns what it learns of its master."""
        brokers = self._routes.brokers
        broker = self._broker
        is_new = not brokers.is_live(broker.address)
        owners = brokers.owners(broker)
        try:
            next(self._steps)
            return None
        except StopIteration as stop:
            master: MasterAddress = stop.value
        if is_new:
            log.info(
                "broker registered",
                name=broker.name,
                id=broker.id,
                address=broker.address,
                cluster=broker.cluster,
                topics=self._topic_count,
            )
        close_displaced(owners, brokers.owners(broker), self.connection, broker)
        return master


def _broker_key(
    connection: Connection, header: RegisterBrokerRequestHeader | UnRegisterBrokerRequestHeader
) -> BrokerKey:
    names = connection.peer_names
    origin = f"certificate {','.join(sorted(names))}" if names else connection.remote.ip
    return BrokerKey(header.cluster_name, header.broker_name, header.broker_id, header.broker_addr, origin)


def _reader_of(request: RemotingCommand, *, is_compressed: bool) -> Callable[[bytes], Parts]:
    if not request.body:
        return _read_nothing
    if request.version < V3_0_11:
        return read_old_registration
    return read_compressed_registration if is_compressed else read_registration


def _read_nothing(_: bytes) -> Parts:
    yield {}
    return RestOfRegistration(DataVersion(), [])
