"""Routes: the brokers of the cluster that have a topic, as the NameServers say (RocketMQ: TopicRouteInfoManager). A
broker that assigns queues to clients, or tells them where to go, has to know those of the other brokers.

A route is asked for when it is needed, and kept for `FRESH_SECONDS`. One that cannot be renewed stays in use: a client
that was assigned less than before would stop consuming the rest. Without NameServers the broker knows its own queues.
Limit: `MAX_ROUTES` topics, those that were used last.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

import structlog
import trio
from msgspec import Struct

from triomq.protocol import permission
from triomq.protocol.bodies.route import TopicRouteData
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.errors import BodyError, RequestRefused
from triomq.protocol.headers.namesrv import GetRouteInfoRequestHeader
from triomq.remoting.errors import RemotingError

log = structlog.get_logger("triomq.broker.nameservers.routes")

FRESH_SECONDS: Final = 10.0
"""Half the time after which Java's consumers ask again."""
RETRY_SECONDS: Final = 1.0
"""After this time NameServers are asked again that did not respond."""
ASK_SECONDS: Final = 2.0
"""How long all NameServers have: Java's consumers wait three seconds."""
MAX_ROUTES: Final = 1000
MAX_QUEUES: Final = 65_536
"""Queues of a topic at one broker."""

Route = tuple[tuple[str, int], ...]
"""Broker name and number of queues to read, sorted by names."""
Send = Callable[[str, RemotingCommand, float], Awaitable[RemotingCommand]]


class _Known(Struct):
    """What was learned of a topic; `route` None: no NameServer knows it. `failure` is "" if they responded."""

    route: TopicRouteData | None
    failure: str
    until: float


class Routes:
    """`own` returns the number of queues that this broker has of a topic, None for an unknown one."""

    def __init__(
        self,
        nameservers: Callable[[], list[str]],
        send: Send,
        broker_name: Callable[[], str],
        own: Callable[[str], int | None],
    ) -> None:
        self._nameservers = nameservers
        self._send = send
        self._broker_name = broker_name
        self._own = own
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._asking: dict[str, trio.Event] = {}

    async def find(self, topic: str) -> Route | None:
        """Return the queues to read of a topic, None if there is no such topic. Raises RequestRefused if no NameServer
        responds and the route was never known."""
        if not self._nameservers():
            count = self._own(topic)
            return ((self._broker_name(), count),) if count is not None else None
        data = await self.whole(topic)
        return _queues_to_read(data) if data is not None else None

    async def whole(self, topic: str) -> TopicRouteData | None:
        """Return the route of a topic, None if no NameServer knows it. Raises RequestRefused like `find`."""
        while not self._is_fresh(topic):
            asking = self._asking.get(topic)
            if asking is None:
                await self._renew(topic)
            else:
                await asking.wait()
        known = self._known[topic]
        self._known.move_to_end(topic)
        if known.failure and known.route is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the route of topic {topic} is not known: {known.failure}")
        return known.route

    def _is_fresh(self, topic: str) -> bool:
        known = self._known.get(topic)
        return known is not None and trio.current_time() < known.until

    async def _renew(self, topic: str) -> None:
        """Ask for a route; others that want it meanwhile wait for the same question."""
        done = self._asking[topic] = trio.Event()
        try:
            found = await self._ask(topic)
        finally:
            del self._asking[topic]
            done.set()
        before = self._known.get(topic)
        if found.failure and before is not None:
            found.route = before.route
        self._known[topic] = found
        while len(self._known) > MAX_ROUTES:
            self._known.popitem(last=False)

    async def _ask(self, topic: str) -> _Known:
        """Return what the first NameServer says that knows the topic."""
        failure = f"no NameServer responded within {ASK_SECONDS:g} s"
        request = GetRouteInfoRequestHeader(topic=topic)
        has_responded = False
        with trio.move_on_after(ASK_SECONDS):
            for address in self._nameservers():
                try:
                    command = new_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, request)
                    response = await self._send(address, command, ASK_SECONDS / 2)
                    route = _route_of(response)
                except (RemotingError, BodyError) as error:
                    failure = str(error)
                    continue
                if route is not None:
                    return _Known(route, "", trio.current_time() + FRESH_SECONDS)
                has_responded = has_responded or response.code == ResponseCode.TOPIC_NOT_EXIST
        if has_responded:
            return _Known(None, "", trio.current_time() + FRESH_SECONDS)
        log.warning("route not returned by any NameServer", topic=topic, error=failure)
        return _Known(None, failure, trio.current_time() + RETRY_SECONDS)


def _route_of(response: RemotingCommand) -> TopicRouteData | None:
    if response.code != ResponseCode.SUCCESS or not response.body:
        return None
    return TopicRouteData.decode(response.body)


def _queues_to_read(data: TopicRouteData) -> Route:
    queues = {
        of_broker.broker_name: max(0, min(of_broker.read_queue_nums, MAX_QUEUES))
        for of_broker in data.queue_datas
        if permission.is_readable(of_broker.perm)
    }
    return tuple(sorted(queues.items()))
