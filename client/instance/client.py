"""One client instance: connections, routes and heartbeats, shared by the producers and consumers of one process
(RocketMQ: MQClientInstance).

It owns the remoting client, the route table, the name server list, and the tables of its members (one producer and one
consumer for each group). Its tasks refresh routes, send heartbeats to all brokers and store offsets, periodically and
after a lost connection; requests of brokers go to the members (inbound.py). Everything runs in one trio thread. May not
live here: what a producer or a consumer does with its queues.

Four layers, each a base class of the next: `Caller` sends requests, `Router` knows routes, `MasterSearch` finds new
masters, `Client` has members.

    async with Client(ClientConfig(name_server="127.0.0.1:9876")) as client:
        async with Producer("orders", client=client) as producer, PushConsumer("bill", client=client) as consumer: ...

Producers and consumers without a `client` create their own.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

import trio

from triomq.client.core import requests
from triomq.client.core.config import ClientConfig
from triomq.client.core.errors import ClientClosed, ConfigurationError, MQClientError
from triomq.client.core.log import get_logger, report
from triomq.client.core.routes import BrokerAddress
from triomq.client.instance import inbound
from triomq.client.instance.caller import tls_context, vip_address
from triomq.client.instance.event_loop import check_in_trio
from triomq.client.instance.inherited import INHERITED
from triomq.client.instance.master_search import MasterSearch
from triomq.client.instance.members import ConsumerMember, ProducerMember
from triomq.client.instance.pending_replies import PendingReplies
from triomq.protocol.bodies.heartbeat import HeartbeatData, ProducerData
from triomq.protocol.codes import LanguageCode
from triomq.protocol.outage import Outages
from triomq.remoting.client import open_client
from triomq.remoting.connection import Connection

log = get_logger("triomq.client.client")

MAX_HEARTBEATS_AT_ONCE = 16
FETCH_NAME_SERVERS_SECONDS = 120.0
FIRST_MEETING_SECONDS = 0.1
LONGEST_MEETING_SECONDS = 5.0
"""Pauses between attempts to reach a broker whose connection was lost; each is twice as long as the one before."""


class Client(MasterSearch):
    """One client instance, to be shared by producers and consumers (RocketMQ: MQClientInstance). Use it as
    `async with Client(config) as client`."""

    def __init__(self, config: ClientConfig) -> None:
        super().__init__(config)
        self.broker_versions: dict[str, int] = {}
        """Version ordinal of each broker address, from its response to a heartbeat."""
        self.replies = PendingReplies()
        self.producers: dict[str, ProducerMember] = {}
        self.consumers: dict[str, ConsumerMember] = {}
        self._greeted: set[tuple[str, bool]] = set()
        """Addresses, each with whether it was a master's: a slave that has become the master is greeted again."""
        self._nursery: trio.Nursery | None = None
        self._stack = AsyncExitStack()
        self._heartbeat_lock = trio.Lock()
        self._lost: set[str] = set()
        self._remarks = Outages()

    async def __aenter__(self) -> Self:
        check_in_trio(type(self).__name__)
        if os.getpid() != self._process_id:
            raise ClientClosed(INHERITED)  # its ids are the parent's
        if self._remoting is not None:
            raise ClientClosed("this client is already open")
        tls = tls_context(self.config)
        if self.config.address_server is not None:
            await self._fetch_name_servers()
        async with AsyncExitStack() as stack:
            self._remoting = await stack.enter_async_context(open_client(language=LanguageCode.PYTHON, tls_context=tls))
            self._remoting.on_connection_closed(self._connection_closed)
            for code, processor in inbound.processors(
                self.producers, self.consumers, self.replies, self.namespace
            ).items():
                self._remoting.register(code, processor)
            self._nursery = await stack.enter_async_context(trio.open_nursery())
            config = self.config
            if config.address_server is not None:
                self.start_soon(self._every, FETCH_NAME_SERVERS_SECONDS, self._fetch_name_servers)
            self.start_soon(self._every, config.route_interval_seconds, self.refresh_routes)
            self.start_soon(self._every, config.heartbeat_interval_seconds, self.heartbeat_all)
            self.start_soon(self._every, config.persist_interval_seconds, self._persist_offsets)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Our own nurseries never see the block's exception, so it is not wrapped in an exception group.
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()
        try:
            await self._stack.aclose()
        finally:
            self._remoting = None
            self._nursery = None

    def start_soon(self, function: Callable[..., Awaitable[None]], *args: object) -> None:
        """Run a background task for as long as this client is open. It must not raise."""
        if self._nursery is None:
            raise ClientClosed("not open: use it inside `async with`")
        self._nursery.start_soon(function, *args)

    # Members.

    def add_producer(self, member: ProducerMember) -> None:
        """Add a member. Raises ConfigurationError when the group is taken."""
        if member.group in self.producers:
            raise ConfigurationError(f"this client already has a producer of group {member.group!r}; share it")
        self.producers[member.group] = member
        self._greeted.clear()
        self.broker_versions.clear()

    def add_consumer(self, member: ConsumerMember) -> None:
        """Add a member. Raises ConfigurationError when the group is taken."""
        if member.group in self.consumers:
            raise ConfigurationError(
                f"this client already has a consumer of group {member.group!r}; a second member of a group needs a "
                "client of its own"
            )
        self.consumers[member.group] = member
        self._greeted.clear()
        self.broker_versions.clear()

    async def remove_producer(self, group: str) -> None:
        """Remove a member and unregister it at the brokers, as far as they can be reached."""
        if self.producers.pop(group, None) is not None:
            await self._unregister(producer_group=group)

    async def remove_consumer(self, group: str) -> None:
        """Remove a member and unregister it at the brokers, as far as they can be reached."""
        if self.consumers.pop(group, None) is not None:
            await self._unregister(consumer_group=group)

    async def _unregister(self, *, producer_group: str | None = None, consumer_group: str | None = None) -> None:
        async def one(address: str) -> None:
            try:
                call = requests.unregister(self.client_id, producer_group=producer_group, consumer_group=consumer_group)
                await self.call(address, call)
            except MQClientError as error:
                report(log, "not unregistered at a broker", error, address=address)

        await self._at_brokers(one, masters_only=consumer_group is None)

    def _route_changed(self, topic: str) -> None:
        self._greet_new_brokers()
        for address in self._note_masters():
            if self.consumers and self._open_remoting().connection(address) is not None:
                # pulls may wait there: a server that does not respond loses its connection
                self.start_soon(self.heartbeat_one, address)
        for member in self.consumers.values():
            if topic in member.topics():
                member.wake_rebalance()

    def _start_search(self, broker: BrokerAddress) -> bool:
        if self._nursery is None or self._nursery.cancel_scope.cancel_called:
            return False
        self._nursery.start_soon(self._search, broker)
        return True

    def _subscribed_topics(self) -> set[str]:
        return {topic for member in self.consumers.values() for topic in member.topics()}

    # Heartbeats.

    async def heartbeat_all(self) -> None:
        """Send a heartbeat to every known broker; failures are logged. One round at a time."""
        async with self._heartbeat_lock:
            data = self._heartbeat_data()
            if data is not None:
                await self._at_brokers(lambda address: self._heartbeat(address, data), masters_only=not self.consumers)

    def _greet_new_brokers(self) -> None:
        """Send offsets and a heartbeat to brokers that were not known before, or not of late, without waiting for the
        next round."""
        for broker in self.routes.brokers():
            role = (broker.address, broker.is_master)
            if role not in self._greeted and (broker.is_master or self.consumers):
                self._greeted.add(role)
                self.start_soon(self._greet, broker)
        self._greeted.intersection_update((broker.address, broker.is_master) for broker in self.routes.brokers())

    async def _greet(self, broker: BrokerAddress) -> None:
        try:
            await self._introduce(broker)
        except MQClientError as error:
            report(log, "heartbeat failed", error, address=broker.address)

    async def _introduce(self, broker: BrokerAddress) -> None:
        """Send the offsets, then the heartbeat: members that it lets join read the offsets. Raises MQClientError."""
        if broker.is_master:
            for member in list(self.consumers.values()):
                await member.store_offsets_again(broker.broker_name)
        data = self._heartbeat_data()
        if data is not None:
            await self._beat(broker.address, data)

    async def make_known(self, topic: str) -> None:
        """Make sure that the brokers of a topic know this client's producers; sends at most one heartbeat to each."""
        data = self._heartbeat_data()
        route = self.routes.get(topic)
        if data is None or route is None:
            return
        for broker in route.data.broker_datas:
            address = broker.broker_addrs.get(0)
            if address is not None and address not in self.broker_versions:
                await self._heartbeat(address, data)

    async def heartbeat_one(self, address: str) -> None:
        """Send a heartbeat to one broker, for instance one that has forgotten this client."""
        data = self._heartbeat_data()
        if data is not None:
            await self._heartbeat(address, data)

    async def _heartbeat(self, address: str, data: HeartbeatData) -> None:
        try:
            await self._beat(address, data)
        except MQClientError as error:
            report(log, "heartbeat failed", error, address=address)

    async def _beat(self, address: str, data: HeartbeatData) -> None:
        """Send a heartbeat. Warn of what the broker remarks, once and then once a minute. Raises MQClientError."""
        self.broker_versions[address], remark = await self.call(address, requests.heartbeat(data))
        if remark and self._remarks.failed(remark, trio.current_time()):
            log.warning("remark received from a broker", broker=address, remark=remark)

    def _heartbeat_data(self) -> HeartbeatData | None:
        if not self.producers and not self.consumers:
            return None
        return HeartbeatData(
            client_id=self.client_id,
            producer_data_set=[ProducerData(group_name=group) for group in sorted(self.producers)],
            consumer_data_set=[member.heartbeat_data() for _, member in sorted(self.consumers.items())],
        )

    # Lost connections.

    def _connection_closed(self, address: str, connection: Connection) -> None:
        """Note a lost connection to a master (called by the remoting client): that broker may have restarted, without
        the members and the offsets of the last seconds."""
        if self._nursery is None or self._nursery.cancel_scope.cancel_called or not self.consumers:
            return
        for broker in self.routes.brokers():
            is_it = broker.is_master and address in (broker.address, vip_address(broker.address))
            if is_it and broker.address not in self._lost:
                self._lost.add(broker.address)
                self.start_soon(self._meet_again, broker)

    async def _meet_again(self, broker: BrokerAddress) -> None:
        """Try until the broker takes offsets and heartbeat, or is no longer in a route."""
        pause_seconds = FIRST_MEETING_SECONDS
        try:
            while broker in self.routes.brokers():
                await trio.sleep(pause_seconds)
                pause_seconds = min(2 * pause_seconds, LONGEST_MEETING_SECONDS)
                try:
                    await self._introduce(broker)
                    return
                except MQClientError as error:
                    log.debug("broker not reached yet", address=broker.address, reason=str(error))
        except Exception:
            log.exception("offsets not stored again", address=broker.address)
        finally:
            self._lost.discard(broker.address)

    async def _at_brokers(self, action: Callable[[str], Awaitable[None]], *, masters_only: bool) -> None:
        limit = trio.CapacityLimiter(MAX_HEARTBEATS_AT_ONCE)

        async def limited(address: str) -> None:
            async with limit:
                await action(address)

        async with trio.open_nursery() as nursery:
            for broker in self.routes.brokers():
                if broker.is_master or not masters_only:
                    nursery.start_soon(limited, broker.address)

    # Background.

    async def _persist_offsets(self) -> None:
        for member in list(self.consumers.values()):
            await member.persist_offsets()
        self._ask_silent_masters()

    def _ask_silent_masters(self) -> None:
        """Send a heartbeat to masters from which nothing has come of late: pulls that wait there would notice after
        half a minute only that they hang."""
        since = trio.current_time() - self.config.persist_interval_seconds / 2
        for broker in self.routes.brokers() if self.consumers else ():
            connection = self._open_remoting().connection(broker.address) if broker.is_master else None
            if connection is not None and connection.last_active < since:
                self.start_soon(self.heartbeat_one, broker.address)

    async def _every(self, seconds: float, action: Callable[[], Awaitable[None]]) -> None:
        while True:
            await trio.sleep(seconds)
            try:
                await action()
            except MQClientError as error:
                report(log, "a periodic task failed; its next run tries again", error, task=action.__name__)
            except Exception:
                log.exception("periodic task failed; its next run tries again", task=action.__name__)
