"""One client instance: connections, routes and heartbeats, shared by the producers and consumers of one process
(RocketMQ: MQClientInstance).

It owns the remoting client, the route table, the name server list, and the tables of its members (one producer and one
consumer for each group). Its tasks refresh routes, send heartbeats to all brokers, and have offsets stored; requests
of brokers are handed to the members (inbound.py). Everything runs in one trio thread. May not live here: what a
producer or a consumer does with its queues.

    async with Client(ClientConfig(name_server="127.0.0.1:9876")) as client:
        async with Producer("orders", client=client) as producer, PushConsumer("bill", client=client) as consumer: ...

Producers and consumers that get no `client` make one of their own.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Container
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import trio

from triomq.client import inbound, signing
from triomq.client.client_id import local_ip, make_client_id
from triomq.client.config import ClientConfig, parse_addresses
from triomq.client.errors import (
    BrokerRefused,
    BrokerUnknown,
    BrokerUnreachable,
    ClientClosed,
    ConfigurationError,
    MQClientError,
    NameServersUnreachable,
    NoRoute,
    OperationTimeout,
)
from triomq.client.hooks import RequestHook
from triomq.client.log import get_logger
from triomq.client.members import ConsumerMember, ProducerMember
from triomq.client.name_servers import NameServers
from triomq.client.namespace import Namespace
from triomq.client.pending_replies import PendingReplies
from triomq.client.routes import BrokerAddress, RouteTable, TopicRoute, template_route
from triomq.client.single_flight import SingleFlight
from triomq.protocol.bodies.heartbeat import HeartbeatData, ProducerData
from triomq.protocol.bodies.route import TopicRouteData
from triomq.protocol.codes import LanguageCode, RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.headers.client import UnregisterClientRequestHeader
from triomq.protocol.headers.namesrv import GetRouteInfoRequestHeader
from triomq.protocol.system_topics import AUTO_CREATE_TOPIC
from triomq.remoting.client import RemotingClient, open_client
from triomq.remoting.errors import ConnectFailed, RemotingError, RemotingTimeout
from triomq.remoting.http_get import HttpFailed, get_text

log = get_logger("triomq.client.client")

MAX_HEARTBEATS_AT_ONCE = 16
FETCH_NAME_SERVERS_SECONDS = 120.0


class Client:
    """See the module's text. Use it as `async with Client(config) as client`."""

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self.namespace = Namespace(config.namespace)
        self.name_servers = NameServers(config.name_servers)
        towards = config.name_servers[0] if config.name_servers else urlsplit(config.address_server or "").netloc
        ip = config.client_ip or local_ip(towards)
        self.client_id = make_client_id(ip, config.instance_name, config.unit_name)
        self.routes = RouteTable()
        self.broker_versions: dict[str, int] = {}
        """Version ordinal of each broker address, from its heartbeat answers."""
        self.replies = PendingReplies()
        self.producers: dict[str, ProducerMember] = {}
        self.consumers: dict[str, ConsumerMember] = {}
        self._publish_topics: set[str] = set()
        self._greeted: set[str] = set()
        self._hooks: list[RequestHook] = [*config.hooks]
        if config.credentials is not None:
            self._hooks.append(signing.SigningHook(config.credentials))
        self._remoting: RemotingClient | None = None
        self._nursery: trio.Nursery | None = None
        self._stack = AsyncExitStack()
        self._route_lock = trio.Lock()
        self._lookups = SingleFlight()
        self._heartbeat_lock = trio.Lock()

    async def __aenter__(self) -> Self:
        if self._remoting is not None:
            raise ClientClosed("this client is already open")
        tls_context = _tls_context(self.config)
        if self.config.address_server is not None:
            await self._fetch_name_servers()
        async with AsyncExitStack() as stack:
            self._remoting = await stack.enter_async_context(
                open_client(language=LanguageCode.PYTHON, tls_context=tls_context)
            )
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
        # Our own nurseries never see the block's exception, so it leaves as it is and not in an exception group.
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()
        try:
            await self._stack.aclose()
        finally:
            self._remoting = None
            self._nursery = None

    @property
    def is_open(self) -> bool:
        return self._remoting is not None

    def start_soon(self, function: Callable[..., Awaitable[None]], *args: object) -> None:
        """Run a background task for as long as this client is open. It must not raise."""
        if self._nursery is None:
            raise ClientClosed("not open: use it inside `async with`")
        self._nursery.start_soon(function, *args)

    # Calls.

    async def invoke(
        self, address: str, request: RemotingCommand, timeout_seconds: float | None = None, *, vip: bool = False
    ) -> RemotingCommand:
        """Send a request and wait for the answer, whatever its code. Raises RemotingError."""
        remoting = self._open_remoting()
        target = vip_address(address) if vip and self.config.vip_channel else address
        for hook in self._hooks:
            hook.before_request(target, request)
        limit = self.config.request_timeout_seconds if timeout_seconds is None else timeout_seconds
        response = await remoting.invoke(target, request, limit)
        for hook in self._hooks:
            hook.after_response(target, request, response)
        return response

    async def tell(self, address: str, request: RemotingCommand, *, vip: bool = False) -> None:
        """Send a request that gets no answer. Raises BrokerUnreachable."""
        remoting = self._open_remoting()
        target = vip_address(address) if vip and self.config.vip_channel else address
        for hook in self._hooks:
            hook.before_request(target, request)
        try:
            await remoting.invoke_oneway(target, request, self.config.request_timeout_seconds)
        except RemotingError as error:
            raise BrokerUnreachable(f"nothing could be sent to {target}: {error}") from error
        for hook in self._hooks:
            hook.after_response(target, request, None)

    async def ask(
        self,
        address: str,
        request: RemotingCommand,
        action: str,
        *,
        timeout_seconds: float | None = None,
        accept: Container[int] = (ResponseCode.SUCCESS,),
        vip: bool = True,
    ) -> RemotingCommand:
        """Send a request to a broker and return its answer when the code is in `accept`.

        `action` says what was wanted, for the error text. Raises BrokerRefused, BrokerUnreachable, OperationTimeout.
        """
        try:
            response = await self.invoke(address, request, timeout_seconds, vip=vip)
        except RemotingError as error:
            raise translated(error, f"{action} at {address}") from error
        if response.code not in accept:
            raise BrokerRefused(response.code, response.remark, address=address, action=action)
        return response

    async def ask_name_server(
        self,
        request: Callable[[], RemotingCommand],
        action: str,
        *,
        accept: Container[int] = (ResponseCode.SUCCESS,),
    ) -> RemotingCommand:
        """Ask the name servers, one after the other. Raises NameServersUnreachable, BrokerRefused."""
        address, response = await self.name_servers.ask(self.invoke, request, self.config.request_timeout_seconds)
        if response.code not in accept:
            raise BrokerRefused(response.code, response.remark, address=address, action=action)
        return response

    async def _fetch_name_servers(self) -> None:
        """Ask the address server. Raises NameServersUnreachable."""
        url = self.config.address_server or ""
        try:
            addresses = parse_addresses(await get_text(url, self.config.request_timeout_seconds))
        except (HttpFailed, ConfigurationError) as error:
            raise NameServersUnreachable({url: str(error)}) from error
        if not addresses:
            raise NameServersUnreachable({url: "the list is empty"})
        if addresses != self.name_servers.addresses:
            log.info("list of name servers fetched", addresses=";".join(addresses))
            self.name_servers.replace(addresses)

    def _open_remoting(self) -> RemotingClient:
        if self._remoting is None:
            raise ClientClosed("this client is closed: producers and consumers work inside `async with`")
        return self._remoting

    # Routes. Topics here are wire names (with namespace).

    async def route(self, topic: str) -> TopicRoute:
        """The route of an existing topic, from memory or a name server. Raises NoRoute, NameServersUnreachable."""
        known = self.routes.get(topic)
        if known is not None and not known.is_template:
            return known
        await self._lookups.run(topic, partial(self.update_route, topic))
        return self.routes.get(topic) or self._no_route(topic)

    def known_publish_route(self, topic: str) -> TopicRoute | None:
        """The route to send by, as far as it is known; it is kept fresh from now on."""
        self._publish_topics.add(topic)
        known = self.routes.get(topic)
        return known if known is not None and known.publish else None

    async def publish_route(self, topic: str, template: str = AUTO_CREATE_TOPIC, max_queues: int = 4) -> TopicRoute:
        """The route to send by; for an unknown topic that of the `template` topic, so that the first send creates it.

        Raises NoRoute when the template has no route either.
        """
        known = self.known_publish_route(topic)
        if known is not None:
            return known
        look_up = partial(self._look_up_to_publish, topic, template, max_queues)
        await self._lookups.run((topic, template, max_queues), look_up)
        route = self.routes.get(topic) or self._no_route(topic)
        if not route.publish:
            raise NoRoute(
                topic, self.name_servers.addresses, "none of its brokers takes messages (no master or no permission)"
            )
        return route

    async def _look_up_to_publish(self, topic: str, template: str, max_queues: int) -> None:
        try:
            await self.update_route(topic)
        except NoRoute as error:
            try:
                data = await self.fetch_route(template)
            except NoRoute:
                raise error from None
            self.routes.update(topic, template_route(data, max_queues), is_template=True)

    async def fetch_route(self, topic: str) -> TopicRouteData:
        """Ask a name server. Raises NoRoute, NameServersUnreachable."""
        header = GetRouteInfoRequestHeader(topic=topic)
        response = await self.ask_name_server(
            lambda: new_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header),
            f"asking for the route of topic {topic!r}",
            accept=(ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST),
        )
        if response.code == ResponseCode.TOPIC_NOT_EXIST or not response.body:
            raise NoRoute(topic, self.name_servers.addresses)
        return TopicRouteData.decode(response.body)

    async def update_route(self, topic: str) -> bool:
        """Ask a name server now; returns whether anything changed. Raises NoRoute, NameServersUnreachable."""
        async with self._route_lock:
            changed = self.routes.update(topic, await self.fetch_route(topic))
        if changed:
            log.info("route changed", topic=topic)
            self._greet_new_brokers()
            for member in self.consumers.values():
                if topic in member.topics():
                    member.wake_rebalance()
        return changed

    async def refresh_routes(self) -> None:
        """Ask for every topic that a member uses."""
        topics = set(self._publish_topics)
        for member in self.consumers.values():
            topics |= member.topics()
        for topic in sorted(topics):
            try:
                await self.update_route(topic)
            except NoRoute as error:
                log.debug("no route", topic=topic, reason=str(error))
            except MQClientError as error:
                log.warning("route not refreshed", topic=topic, error=str(error))
                return

    async def master_of(self, broker_name: str, topic: str | None = None) -> str:
        """Address of a master; an unknown one is looked up through the route of `topic`. Raises BrokerUnknown."""
        address = self.routes.master(broker_name)
        if address is None and topic is not None:
            await self.update_route(topic)
            address = self.routes.master(broker_name)
        if address is None:
            raise BrokerUnknown(f"no name server knows a master of broker {broker_name!r}; is it running?")
        return address

    async def readable_broker(self, broker_name: str, topic: str, preferred_id: int = 0) -> BrokerAddress:
        """Where to pull from. Raises BrokerUnknown."""
        found = self.routes.readable(broker_name, preferred_id)
        if found is None:
            await self.update_route(topic)
            found = self.routes.readable(broker_name, preferred_id)
        if found is None:
            raise BrokerUnknown(f"no name server knows broker {broker_name!r} (topic {topic!r}); is it running?")
        return found

    def _no_route(self, topic: str) -> TopicRoute:
        raise NoRoute(topic, self.name_servers.addresses)

    # Members.

    def add_producer(self, member: ProducerMember) -> None:
        """Raises ConfigurationError when the group is taken."""
        if member.group in self.producers:
            raise ConfigurationError(f"this client already has a producer of group {member.group!r}; share it")
        self.producers[member.group] = member
        self._greeted.clear()
        self.broker_versions.clear()

    def add_consumer(self, member: ConsumerMember) -> None:
        """Raises ConfigurationError when the group is taken."""
        if member.group in self.consumers:
            raise ConfigurationError(
                f"this client already has a consumer of group {member.group!r}; a second member of a group needs a "
                "client of its own"
            )
        self.consumers[member.group] = member
        self._greeted.clear()
        self.broker_versions.clear()

    async def remove_producer(self, group: str) -> None:
        """Forget it and tell the brokers; best effort."""
        if self.producers.pop(group, None) is not None:
            await self._unregister(producer_group=group)

    async def remove_consumer(self, group: str) -> None:
        """Forget it and tell the brokers; best effort."""
        if self.consumers.pop(group, None) is not None:
            await self._unregister(consumer_group=group)

    async def _unregister(self, *, producer_group: str | None = None, consumer_group: str | None = None) -> None:
        header = UnregisterClientRequestHeader(
            client_id=self.client_id, producer_group=producer_group, consumer_group=consumer_group
        )

        async def one(address: str) -> None:
            try:
                request = new_request(RequestCode.UNREGISTER_CLIENT, header)
                await self.ask(address, request, "unregistering this client", vip=False)
            except MQClientError as error:
                log.warning("broker not told that this client leaves", address=address, error=str(error))

        await self._at_brokers(one, masters_only=consumer_group is None)

    # Heartbeats.

    async def heartbeat_all(self) -> None:
        """Tell every known broker who is here; brokers that do not answer are logged. One round at a time."""
        async with self._heartbeat_lock:
            body = self._heartbeat_body()
            if body is not None:
                await self._at_brokers(lambda address: self._heartbeat(address, body), masters_only=not self.consumers)

    def _greet_new_brokers(self) -> None:
        """Tell brokers that were not known before who is here, without waiting for the next round."""
        for broker in self.routes.brokers():
            if broker.address not in self._greeted and (broker.is_master or self.consumers):
                self._greeted.add(broker.address)
                self.start_soon(self.heartbeat_one, broker.address)
        self._greeted.intersection_update(broker.address for broker in self.routes.brokers())

    async def make_known(self, topic: str) -> None:
        """Make sure that the brokers of a topic have heard of this client's producers; one heartbeat each at most."""
        body = self._heartbeat_body()
        route = self.routes.get(topic)
        if body is None or route is None:
            return
        for broker in route.data.broker_datas:
            address = broker.broker_addrs.get(0)
            if address is not None and address not in self.broker_versions:
                await self._heartbeat(address, body)

    async def heartbeat_one(self, address: str) -> None:
        """Tell one broker, for instance one that has forgotten us."""
        body = self._heartbeat_body()
        if body is not None:
            await self._heartbeat(address, body)

    async def _heartbeat(self, address: str, body: bytes) -> None:
        try:
            request = new_request(RequestCode.HEART_BEAT, None, body)
            response = await self.ask(address, request, "heartbeat", vip=False)
            self.broker_versions[address] = response.version
        except MQClientError as error:
            log.warning("heartbeat failed", address=address, error=str(error))

    def _heartbeat_body(self) -> bytes | None:
        if not self.producers and not self.consumers:
            return None
        return HeartbeatData(
            client_id=self.client_id,
            producer_data_set=[ProducerData(group_name=group) for group in sorted(self.producers)],
            consumer_data_set=[member.heartbeat_data() for _, member in sorted(self.consumers.items())],
        ).encode()

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

    async def _every(self, seconds: float, action: Callable[[], Awaitable[None]]) -> None:
        while True:
            await trio.sleep(seconds)
            try:
                await action()
            except MQClientError as error:
                log.warning("a periodic task failed and goes on", task=action.__name__, error=str(error))
            except Exception:
                log.exception("a periodic task failed and goes on", task=action.__name__)


def vip_address(address: str) -> str:
    """The broker's second port: listenPort - 2."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) - 2}"


def translated(error: RemotingError, action: str) -> MQClientError:
    """The error of a connection as one of ours."""
    if isinstance(error, RemotingTimeout):
        return OperationTimeout(f"{action}: {error}")
    if isinstance(error, ConnectFailed):
        return BrokerUnreachable(f"{action}: {error}")
    return BrokerUnreachable(f"{action}: {type(error).__name__}: {error}")


def _tls_context(config: ClientConfig) -> ssl.SSLContext | None:
    if not config.tls:
        return None
    if isinstance(config.tls, ssl.SSLContext):
        return config.tls
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
