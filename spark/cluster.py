"""A cluster as sources and sink see it: routes, bounds of queues, and requests that are repeated up to a time limit.

The requests and the readers of responses come from the client's core (triomq.client.core); this is its driver over
blocking sockets. Holds one connection for each address, made on demand and dropped on the first error, and the routes
learned so far. One owner, one thread; it does not travel between processes (its options do). Everything asked here may
be asked again: reads, and offsets of a group. Sending has its own rules (triomq.spark.sending).
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from triomq.client.core import cluster_requests, requests
from triomq.client.core.errors import BrokerRefused, NameServersUnreachable
from triomq.client.core.name_server_list import NameServerList
from triomq.client.core.requests import Call
from triomq.client.core.retry import NOT_READY
from triomq.client.core.routes import RouteTable, TopicRoute, template_route
from triomq.protocol.command import RemotingCommand
from triomq.protocol.errors import FrameError, ProtocolError
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.system_topics import AUTO_CREATE_TOPIC
from triomq.spark.connection import CommandConnection
from triomq.spark.errors import BrokerError, OptionError, Unreachable
from triomq.spark.options import ConnectionOptions

T = TypeVar("T")

NEW_TOPIC_QUEUES: Final = 4
"""Queues at each broker of a topic that the first message creates (RocketMQ: defaultTopicQueueNums of a producer)."""

CONNECTION_ERRORS: Final = (OSError, FrameError)

_CALLS_AT_ONCE: Final = 256
_PAUSE_SECONDS: Final = 0.5
_PATIENCE_SECONDS: Final = 3.0
"""After this time a warning says what is waited for."""
_log: Final = logging.getLogger("triomq.spark")  # without any configuration its warnings are on standard error
_never = threading.Event()  # waiting for it is a pause


class Cluster:
    """Use as a context manager, or call `close`. `clock`: seconds, monotonic; `wait`: pauses for some seconds."""

    def __init__(
        self,
        options: ConnectionOptions,
        *,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] = _never.wait,
    ) -> None:
        self.options = options
        self.clock = clock
        self._wait = wait
        self._connections: dict[str, CommandConnection] = {}
        self._routes = RouteTable()
        self._name_servers = NameServerList(options.name_servers)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def connection(self, address: str) -> CommandConnection:
        """The open connection to an address, or a new one. Raises OSError."""
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = CommandConnection(address, self.options)
        return connection

    def drop(self, address: str) -> None:
        """Close the connection after an error; forget routes, since brokers may have moved."""
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()
        self.forget_routes()

    def forget_routes(self) -> None:
        """Query the name server again: queues may have been added."""
        self._routes = RouteTable()

    def pause(self, seconds: float = _PAUSE_SECONDS) -> None:
        """Wait for a moment before a retry."""
        if seconds > 0:
            self._wait(seconds)

    def until_done(self, action: str, attempt: Callable[[], T]) -> T:
        """Repeat `attempt` while connections fail or brokers are not ready, up to retryTimeoutMs. Raises
        BrokerError saying what was tried (`action`) and what happened last."""
        began, has_told = self.clock(), False
        deadline = began + self.options.retry_timeout_ms / 1000
        while True:
            try:
                return attempt()
            except CONNECTION_ERRORS as error:
                failure = BrokerError(f"{action} failed: {type(error).__name__}: {error}")
            except BrokerError as error:
                if not isinstance(error, Unreachable) and error.code not in NOT_READY:
                    raise
                failure = error
            now = self.clock()
            if now + _PAUSE_SECONDS > deadline:
                raise BrokerError(f"{failure} (tried for {self.options.retry_timeout_ms} ms)", failure.code)
            if not has_told and now - began >= _PATIENCE_SECONDS:
                has_told = True
                _log.warning("%s; trying for another %d s (retryTimeoutMs)", failure, deadline - now)
            self.pause()

    # -- name servers ------------------------------------------------------------------------------------------------

    def ask_name_servers(self, make: Callable[[], Call[T]]) -> T:
        """Return the result of the first name server that responds. `make` returns a new call for each attempt."""

        def attempt() -> T:
            failures: dict[str, str] = {}
            for address in self._name_servers.in_turn():
                call = make()
                try:
                    response = self.connection(address).call(call.request)
                except CONNECTION_ERRORS as error:
                    self.drop(address)
                    failures[address] = f"{type(error).__name__}: {error}"
                    continue
                self._name_servers.responded(address)
                return result(call, response, address)
            raise Unreachable(str(NameServersUnreachable(failures)))

        return self.until_done("asking the name servers", attempt)

    def find_route(self, topic: str) -> TopicRoute | None:
        """None when the name server does not know the topic."""
        route = self._routes.get(topic)
        if route is None or route.is_template:
            data = self.ask_name_servers(partial(requests.topic_route, topic))
            if data is None:
                return None
            self._routes.update(topic, data)
            route = self._routes.get(topic)
        return route

    def settled_route(self, topic: str) -> TopicRoute | None:
        """The route, or None when the topic really is not there: while no broker is registered at all (the only one is
        being restarted), this waits."""

        def attempt() -> TopicRoute | None:
            route = self.find_route(topic)
            if route is None:
                if not self.brokers():
                    raise Unreachable("no broker is registered at the name server")
                route = self.find_route(topic)
            return route

        return self.until_done(f"asking for the route of topic {topic!r}", attempt)

    def route(self, topic: str) -> TopicRoute:
        """Raises OptionError when the topic does not exist."""
        route = self.settled_route(topic)
        if route is None:
            known = ";".join(self.options.name_servers)
            raise OptionError(f"option subscribe: topic {topic!r} does not exist (name server {known})")
        return route

    def publish_route(self, topic: str) -> TopicRoute | None:
        """The route to send by. For a topic that does not exist it has the queues that the first message will create,
        and `is_template` is True; None when no broker creates topics."""
        route = self.settled_route(topic)
        if route is None:
            template = self.find_route(AUTO_CREATE_TOPIC)
            if template is None:
                return None
            self._routes.update(topic, template_route(template.data, NEW_TOPIC_QUEUES), is_template=True)
            route = self._routes.get(topic)
        return route

    def address(self, topic: str, broker_name: str) -> str:
        """Of the master, or of the first slave while there is no master; also for a broker that does not have the topic
        yet, since the first message creates it there. Raises Unreachable when the broker is not registered."""
        self.find_route(topic)
        known = self._routes.readable(broker_name)
        if known is not None:
            return known.address
        self._routes.forget(topic)  # the broker may have created the topic meanwhile
        address = self.brokers().get(broker_name)
        if address is None:
            raise Unreachable(f"broker {broker_name!r} of topic {topic!r} is not registered")
        return address

    def has_route(self, queue: MessageQueue) -> bool:
        """Whether the route of the queue's topic names its broker at the moment."""
        route = self.find_route(queue.topic)
        return route is not None and any(
            broker.broker_name == queue.broker_name and broker.broker_addrs for broker in route.data.broker_datas
        )

    def brokers(self) -> dict[str, str]:
        """Broker name -> address, of all brokers: the master's, or the first slave's."""
        table = self.ask_name_servers(cluster_requests.cluster_info).broker_addr_table
        return {
            name: data.broker_addrs[min(data.broker_addrs)] for name, data in sorted(table.items()) if data.broker_addrs
        }

    def topics_matching(self, pattern: str) -> list[str]:
        """Topics whose whole name the regular expression matches; waits while no broker is registered."""

        def attempt() -> list[str]:
            names = self.ask_name_servers(cluster_requests.topic_names)
            found = [topic for topic in names if re.fullmatch(pattern, topic)]
            if not found and not self.brokers():
                raise Unreachable("no broker is registered at the name server")
            return found

        return self.until_done("listing topics", attempt)

    # -- brokers ---------------------------------------------------------------------------------------------------

    def call(self, address: str, call: Call[T]) -> T:
        """Ask at one address, once. Raises BrokerError for a refusal, and what the connection raises."""
        try:
            response = self.connection(address).call(call.request)
        except CONNECTION_ERRORS:
            self.drop(address)
            raise
        return result(call, response, address)

    def ask(self, topic: str, broker_name: str, make: Callable[[], Call[T]]) -> T:
        """Ask one broker. `make` returns a new call for each attempt. Raises BrokerError."""
        return self.until_done(make().action, lambda: self.call(self.address(topic, broker_name), make()))

    def ask_each(
        self, queues: Sequence[MessageQueue], make: Callable[[MessageQueue], Call[T]]
    ) -> dict[MessageQueue, T]:
        """One call for each queue, many in flight at a time; the results in the order of the queues. Raises
        BrokerError."""
        if not queues:
            return {}

        def attempt() -> dict[MessageQueue, T]:
            found: dict[MessageQueue, T] = {}
            by_address: dict[str, list[MessageQueue]] = {}
            for queue in queues:
                by_address.setdefault(self.address(queue.topic, queue.broker_name), []).append(queue)
            for address, theirs in by_address.items():
                for first in range(0, len(theirs), _CALLS_AT_ONCE):
                    found |= self._ask_at_once(address, theirs[first : first + _CALLS_AT_ONCE], make)
            return {queue: found[queue] for queue in queues}

        return self.until_done(make(queues[0]).action, attempt)

    def _ask_at_once(
        self, address: str, queues: Sequence[MessageQueue], make: Callable[[MessageQueue], Call[T]]
    ) -> dict[MessageQueue, T]:
        calls = [make(queue) for queue in queues]
        try:
            connection = self.connection(address)
            numbers = connection.send(*[call.request for call in calls])
            responses = [connection.receive(number) for number in numbers]
        except CONNECTION_ERRORS:
            self.drop(address)
            raise
        results = [result(call, response, address) for call, response in zip(calls, responses, strict=True)]
        return dict(zip(queues, results, strict=True))

    def max_offsets(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        """Queue offset of the next message of each queue; 0 for topics that the broker does not have."""
        return self.ask_each(queues, requests.max_offset)

    def min_offsets(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        """Queue offset of the oldest message of each queue."""
        return self.ask_each(queues, requests.min_offset)

    def hinted_offsets(self, queues: Sequence[MessageQueue], timestamp_ms: int) -> dict[MessageQueue, int]:
        """Queue offset near that store time, as the broker finds it (one too early or too late is possible)."""
        return self.ask_each(queues, lambda queue: requests.search_offset(queue, timestamp_ms))

    def group_offsets(self, group: str, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        """Stored offsets of a consumer group; queues without one are left out."""
        found = self.ask_each(queues, partial(requests.query_consumer_offset, group))
        return {queue: offset for queue, offset in found.items() if offset is not None}

    def store_group_offsets(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Store offsets of a consumer group at the brokers."""
        self.ask_each(list(offsets), lambda queue: requests.update_consumer_offset(group, queue, offsets[queue]))


def result(call: Call[T], response: RemotingCommand, address: str) -> T:
    """Read a response. Raises BrokerError for a refusal, and for a response that cannot be read."""
    if response.code not in call.accept:
        raise refused(response, address, call.action)
    try:
        return call.read(response)
    except ProtocolError as error:
        raise BrokerError(f"{call.action} at {address} failed: {error}") from None


def refused(response: RemotingCommand, address: str, action: str) -> BrokerError:
    """The error for a response code that is no result; `action` says what was wanted."""
    refusal = BrokerRefused(response.code, response.remark, address=address, action=action)
    return BrokerError(str(refusal), response.code)
