"""The routes that one client uses: looked up at the name servers, kept in a `RouteTable`, refreshed in the background.

Tasks that look for the same topic at the same moment ask a name server once. Topics here are wire names (with
namespace).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from functools import partial

import trio

from triomq.client.core import cluster_requests, requests
from triomq.client.core.config import ClientConfig
from triomq.client.core.errors import BrokerRefused, BrokerUnknown, MQClientError, NoBroker, NoRoute
from triomq.client.core.log import get_logger, report
from triomq.client.core.routes import BrokerAddress, RouteTable, TopicRoute, template_route
from triomq.client.instance.caller import Caller
from triomq.client.instance.single_flight import SingleFlight
from triomq.protocol.bodies.route import TopicRouteData
from triomq.protocol.system_topics import AUTO_CREATE_TOPIC

log = get_logger("triomq.client.client")


class Router(Caller):
    """The part of a client that knows where topics and brokers are."""

    def __init__(self, config: ClientConfig) -> None:
        super().__init__(config)
        self.routes = RouteTable()
        self._publish_topics: set[str] = set()
        self._route_lock = trio.Lock()
        self._lookups = SingleFlight()

    @abstractmethod
    def _route_changed(self, topic: str) -> None:
        """Called when the queues or addresses of a topic have changed."""

    @abstractmethod
    def _subscribed_topics(self) -> Iterable[str]:
        """Return the topics of this client's consumers."""

    async def route(self, topic: str) -> TopicRoute:
        """Return the route of an existing topic, from memory or a name server. Raises NoRoute,
        NameServersUnreachable."""
        known = self.routes.get(topic)
        if known is not None and not known.is_template:
            return known
        await self.refresh_route(topic)
        return self.routes.get(topic) or self._no_route(topic)

    def known_publish_route(self, topic: str) -> TopicRoute | None:
        """Return the route to send by if it is known, and keep it fresh from now on."""
        self._publish_topics.add(topic)
        known = self.routes.get(topic)
        return known if known is not None and known.publish else None

    async def publish_route(self, topic: str, template: str = AUTO_CREATE_TOPIC, max_queues: int = 4) -> TopicRoute:
        """Return the route to send by; for an unknown topic that of the `template` topic, so that the first send
        creates it. Raises NoRoute when the template has no route either."""
        known = self.known_publish_route(topic)
        if known is not None:
            return known
        await self.refresh_publish_route(topic, template, max_queues)
        route = self.routes.get(topic) or self._no_route(topic)
        if not route.publish:
            raise NoRoute(
                topic, self.name_servers.addresses, "none of its brokers accepts messages (no master or no permission)"
            )
        return route

    async def refresh_publish_route(self, topic: str, template: str, max_queues: int) -> None:
        """Update the route to send by, once for all tasks that want it at the same moment. A topic that no name server
        knows follows the brokers of the template: otherwise a new master that lacks the topic never gets the send that
        creates it. Raises NoRoute, NameServersUnreachable."""
        look_up = partial(self._look_up_to_publish, topic, template, max_queues)
        await self._lookups.run((topic, template, max_queues), look_up)

    async def _look_up_to_publish(self, topic: str, template: str, max_queues: int) -> None:
        try:
            await self.update_route(topic)
        except NoRoute as error:
            try:
                data = await self.fetch_route(template)
            except NoRoute:
                if not await self._has_brokers():
                    raise NoBroker(topic, self.name_servers.addresses) from None
                raise error from None
            self.routes.update(topic, template_route(data, max_queues), is_template=True)

    async def _has_brokers(self) -> bool:
        """Return whether any broker is registered, True also if a name server does not say. Raises
        NameServersUnreachable."""
        address, response = await self._first_response(lambda: cluster_requests.cluster_info().request)
        try:
            return bool(cluster_requests.cluster_info().result(response, address).broker_addr_table)
        except BrokerRefused:
            return True

    async def fetch_route(self, topic: str) -> TopicRouteData:
        """Return the route that a name server knows. Raises NoRoute, NameServersUnreachable."""
        address, response = await self._first_response(lambda: requests.topic_route(topic).request)
        data = requests.topic_route(topic).result(response, address)
        if data is None:
            raise NoRoute(topic, self.name_servers.addresses)
        return data

    async def update_route(self, topic: str) -> bool:
        """Update the route from a name server; return whether anything changed. Raises NoRoute,
        NameServersUnreachable."""
        async with self._route_lock:
            changed = self.routes.update(topic, await self.fetch_route(topic))
        if changed:
            log.info("route changed", topic=topic)
            self._route_changed(topic)
        return changed

    async def refresh_route(self, topic: str) -> None:
        """Update the route from a name server, once for all tasks that want it at the same moment. Raises NoRoute,
        NameServersUnreachable."""
        await self._lookups.run(topic, partial(self.update_route, topic))

    async def refresh_routes(self) -> None:
        """Update the route of every topic that a member uses."""
        for topic in sorted(self._publish_topics.union(self._subscribed_topics())):
            try:
                await self.update_route(topic)
            except NoRoute as error:
                log.debug("route not found", topic=topic, reason=str(error))
            except MQClientError as error:
                report(log, "route not refreshed", error, topic=topic)
                return

    async def master_of(self, broker_name: str, topic: str | None = None) -> str:
        """Return the address of a master, looking up the route of `topic` when it is unknown. Raises BrokerUnknown."""
        address = self.routes.master(broker_name)
        if address is None and topic is not None:
            await self.refresh_route(topic)
            address = self.routes.master(broker_name)
        if address is None:
            raise self._unknown(broker_name, f"no name server knows a master of broker {broker_name!r}; is it running?")
        return address

    async def readable_broker(self, broker_name: str, topic: str, preferred_id: int = 0) -> BrokerAddress:
        """Return the broker to pull from. Raises BrokerUnknown."""
        found = self.routes.readable(broker_name, preferred_id)
        if found is None:
            await self.refresh_route(topic)
            found = self.routes.readable(broker_name, preferred_id)
        if found is None:
            raise self._unknown(
                broker_name, f"no name server knows broker {broker_name!r} (topic {topic!r}); is it running?"
            )
        return found

    def _unknown(self, broker_name: str, text: str) -> BrokerUnknown:
        error = BrokerUnknown(text)
        self._not_reached(broker_name, error)
        return error

    def _no_route(self, topic: str) -> TopicRoute:
        raise NoRoute(topic, self.name_servers.addresses)
