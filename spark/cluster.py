"""A cluster as sources and sink see it: routes, bounds of queues, and requests that are tried until a time limit.

Holds one connection per address, made on demand and dropped on the first error. One owner, one thread; it does not
travel between processes (its options do). Everything asked here may be asked again: reads, and offsets of a group.
Sending is not retried here (triomq.spark.sending).
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from triomq.protocol import permission
from triomq.protocol.bodies import fastjson
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.errors import FrameError
from triomq.protocol.headers.base import Header
from triomq.protocol.headers.offset import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    QueryConsumerOffsetRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from triomq.protocol.message_queue import MessageQueue
from triomq.spark.errors import BrokerError, OptionError
from triomq.spark.options import ConnectionOptions
from triomq.spark.wire import WireConnection, refused

T = TypeVar("T")

_CALLS_AT_ONCE: Final = 256
_PAUSE_SECONDS: Final = 0.5
_NOT_READY: Final = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE})
CONNECTION_ERRORS: Final = (OSError, FrameError)

_never = threading.Event()  # waiting for it is a pause


class TopicRoute:
    """Where one topic is: address of each broker name, and its queues that can be read and written."""

    __slots__ = ("addresses", "readable", "topic", "writable")

    def __init__(self, topic: str, body: dict[str, Any]) -> None:
        self.topic = topic
        self.addresses: dict[str, str] = {}
        for broker in body.get("brokerDatas") or []:
            by_id = {int(broker_id): address for broker_id, address in (broker.get("brokerAddrs") or {}).items()}
            if by_id:
                self.addresses[broker["brokerName"]] = by_id[min(by_id)]  # 0 is the master
        self.readable: list[MessageQueue] = []
        self.writable: list[MessageQueue] = []
        for data in sorted(body.get("queueDatas") or [], key=lambda data: str(data["brokerName"])):
            name, perm = data["brokerName"], data["perm"]
            if name not in self.addresses:
                continue
            if perm & permission.READ:
                self.readable += [MessageQueue(topic, name, number) for number in range(data["readQueueNums"])]
            if perm & permission.WRITE:
                self.writable += [MessageQueue(topic, name, number) for number in range(data["writeQueueNums"])]


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
        self._connections: dict[str, WireConnection] = {}
        self._routes: dict[str, TopicRoute] = {}
        self._first_name_server = 0

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def connection(self, address: str) -> WireConnection:
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = WireConnection(address, self.options)
        return connection

    def drop(self, address: str) -> None:
        """Close the connection after an error; forget routes, since brokers may have moved."""
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()
        self._routes.clear()

    def forget_routes(self) -> None:
        """Ask the name server anew: queues may have been added."""
        self._routes.clear()

    def pause(self, seconds: float = _PAUSE_SECONDS) -> None:
        """A moment, before something is asked again."""
        if seconds > 0:
            self._wait(seconds)

    def until_done(self, action: str, attempt: Callable[[], T]) -> T:
        """Run `attempt` again and again while connections fail or brokers are not ready, up to retryTimeoutMs. Raises
        BrokerError saying what was tried (`action`) and what happened last."""
        deadline = self.clock() + self.options.retry_timeout_ms / 1000
        while True:
            try:
                return attempt()
            except CONNECTION_ERRORS as error:
                failure = BrokerError(f"{action} failed: {type(error).__name__}: {error}")
            except BrokerError as error:
                if error.code not in _NOT_READY and error.code != NOT_REGISTERED:
                    raise
                failure = error
            if self.clock() + _PAUSE_SECONDS > deadline:
                raise BrokerError(f"{failure} (tried for {self.options.retry_timeout_ms} ms)", failure.code)
            self.pause()

    # -- name servers ------------------------------------------------------------------------------------------------

    def ask_name_servers(self, request: RemotingCommand, action: str) -> RemotingCommand:
        """The answer of the first name server that gives one."""

        def attempt() -> RemotingCommand:
            servers = self.options.name_servers
            errors = []
            for step in range(len(servers)):
                at = (self._first_name_server + step) % len(servers)
                try:
                    answer = self.connection(servers[at]).call(request)
                except CONNECTION_ERRORS as error:
                    self.drop(servers[at])
                    errors.append(f"{servers[at]}: {error}")
                else:
                    self._first_name_server = at
                    return answer
            raise ConnectionError(f"no name server answered ({'; '.join(errors)})")

        return self.until_done(action, attempt)

    def topics(self) -> list[str]:
        """All topics that the name server knows."""
        answer = self.ask_name_servers(new_request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER), "listing topics")
        if answer.code != ResponseCode.SUCCESS:
            raise refused(answer, self.options.name_servers[0], "listing topics")
        return sorted(fastjson.loads(answer.body).get("topicList") or [])

    def find_route(self, topic: str) -> TopicRoute | None:
        """None when the name server does not know the topic."""
        route = self._routes.get(topic)
        if route is None:
            request = new_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": topic})
            answer = self.ask_name_servers(request, f"asking for the route of topic {topic!r}")
            if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            if answer.code != ResponseCode.SUCCESS:
                raise refused(answer, self.options.name_servers[0], f"the route of topic {topic!r}")
            route = self._routes[topic] = TopicRoute(topic, fastjson.loads(answer.body))
        return route

    def settled_route(self, topic: str) -> TopicRoute | None:
        """The route, or None when the topic really is not there: while no broker is registered at all (the only one is
        being restarted), this waits."""

        def attempt() -> TopicRoute | None:
            route = self.find_route(topic)
            if route is None:
                if not self.brokers():
                    raise BrokerError("no broker is registered at the name server", NOT_REGISTERED)
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

    def address(self, topic: str, broker_name: str) -> str:
        """Of the master, or of the first slave while there is no master; also for a broker that does not have the topic
        yet, since the first message creates it there. Raises BrokerError when the broker is not registered."""
        route = self.find_route(topic)
        address = route.addresses.get(broker_name) if route is not None else None
        if address is None:
            self._routes.pop(topic, None)  # the broker may have created the topic meanwhile
            address = self.brokers().get(broker_name)
        if address is None:
            raise BrokerError(f"broker {broker_name!r} of topic {topic!r} is not registered", NOT_REGISTERED)
        return address

    def has_route(self, queue: MessageQueue) -> bool:
        """Whether the route of the queue's topic names its broker at the moment."""
        route = self.find_route(queue.topic)
        return route is not None and queue.broker_name in route.addresses

    def brokers(self) -> dict[str, str]:
        """Broker name -> address, of all brokers."""
        answer = self.ask_name_servers(new_request(RequestCode.GET_BROKER_CLUSTER_INFO), "listing brokers")
        if answer.code != ResponseCode.SUCCESS:
            raise refused(answer, self.options.name_servers[0], "listing brokers")
        table = fastjson.loads(answer.body).get("brokerAddrTable") or {}
        found = {}
        for name, data in sorted(table.items()):
            by_id = {int(broker_id): address for broker_id, address in data["brokerAddrs"].items()}
            found[name] = by_id[min(by_id)]
        return found

    def topics_matching(self, pattern: str) -> list[str]:
        """Topics whose whole name the regular expression matches; waits while no broker is registered."""

        def attempt() -> list[str]:
            found = [topic for topic in self.topics() if re.fullmatch(pattern, topic)]
            if not found and not self.brokers():
                raise BrokerError("no broker is registered at the name server", NOT_REGISTERED)
            return found

        return self.until_done("listing topics", attempt)

    # -- brokers ---------------------------------------------------------------------------------------------------

    def ask(self, topic: str, broker_name: str, request: RemotingCommand, action: str) -> RemotingCommand:
        """The answer of one broker to a request that may be repeated."""

        def attempt() -> RemotingCommand:
            address = self.address(topic, broker_name)
            try:
                return ready(self.connection(address).call(request), address, action)
            except CONNECTION_ERRORS:
                self.drop(address)
                raise

        return self.until_done(action, attempt)

    def call_all(
        self, queues: Sequence[MessageQueue], code: int, header: Callable[[MessageQueue], Header], action: str
    ) -> list[RemotingCommand]:
        """One request for each queue, many under way at a time; the answers in the order of the queues."""

        def attempt() -> list[RemotingCommand]:
            answers: dict[MessageQueue, RemotingCommand] = {}
            by_address: dict[str, list[MessageQueue]] = {}
            for queue in queues:
                by_address.setdefault(self.address(queue.topic, queue.broker_name), []).append(queue)
            for address, theirs in by_address.items():
                try:
                    connection = self.connection(address)
                    for first in range(0, len(theirs), _CALLS_AT_ONCE):
                        some = theirs[first : first + _CALLS_AT_ONCE]
                        numbers = connection.send(*[new_request(code, header(queue)) for queue in some])
                        for queue, number in zip(some, numbers, strict=True):
                            answers[queue] = ready(connection.receive(number), address, action)
                except (*CONNECTION_ERRORS, BrokerError):
                    self.drop(address)  # with the answers that are still under way
                    raise
            return [answers[queue] for queue in queues]

        return self.until_done(action, attempt)

    def _offsets(self, queues: Sequence[MessageQueue], code: int, header: Callable[[MessageQueue], Header],
                 action: str) -> dict[MessageQueue, int]:  # fmt: skip
        offsets = {}
        for queue, answer in zip(queues, self.call_all(queues, code, header, action), strict=True):
            if answer.code != ResponseCode.SUCCESS:
                raise refused(answer, queue.broker_name, f"{action} of {queue.topic}/{queue.queue_id}")
            offsets[queue] = answer.header(GetMaxOffsetResponseHeader).offset
        return offsets

    def max_offsets(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        """Queue offset of the next message of each queue; 0 for topics that the broker does not have."""

        def header(queue: MessageQueue) -> Header:
            return GetMaxOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id)

        return self._offsets(queues, RequestCode.GET_MAX_OFFSET, header, "asking for the max offset")

    def min_offsets(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        """Queue offset of the oldest message of each queue."""

        def header(queue: MessageQueue) -> Header:
            return GetMinOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id)

        return self._offsets(queues, RequestCode.GET_MIN_OFFSET, header, "asking for the min offset")

    def hinted_offsets(self, queues: Sequence[MessageQueue], timestamp_ms: int) -> dict[MessageQueue, int]:
        """Queue offset near that store time, as the broker finds it (one too early or too late is possible)."""

        def header(queue: MessageQueue) -> Header:
            return SearchOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms)

        return self._offsets(queues, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header, "searching by time")

    def group_offsets(self, group: str, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        """Stored offsets of a consumer group; queues without one are left out."""

        def header(queue: MessageQueue) -> Header:
            return QueryConsumerOffsetRequestHeader(consumer_group=group, topic=queue.topic, queue_id=queue.queue_id)

        action = f"asking for the offset of group {group!r}"
        found = {}
        for queue, answer in zip(
            queues, self.call_all(queues, RequestCode.QUERY_CONSUMER_OFFSET, header, action), strict=True
        ):
            if answer.code == ResponseCode.SUCCESS:
                found[queue] = answer.header(GetMaxOffsetResponseHeader).offset
            elif answer.code != ResponseCode.QUERY_NOT_FOUND:
                raise refused(answer, queue.broker_name, action)
        return found

    def store_group_offsets(self, group: str, offsets: dict[MessageQueue, int]) -> None:
        """Store offsets of a consumer group at the brokers."""

        def header(queue: MessageQueue) -> Header:
            return UpdateConsumerOffsetRequestHeader(
                consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offsets[queue]
            )

        action = f"storing the offset of group {group!r}"
        for queue, answer in zip(
            offsets, self.call_all(list(offsets), RequestCode.UPDATE_CONSUMER_OFFSET, header, action), strict=True
        ):
            if answer.code != ResponseCode.SUCCESS:
                raise refused(answer, queue.broker_name, action)


def ready(answer: RemotingCommand, address: str, action: str) -> RemotingCommand:
    """The answer, unless it says that the broker is busy or still starting: then raises BrokerError, so that it is
    asked again."""
    if answer.code in _NOT_READY:
        raise refused(answer, address, action)
    return answer


NOT_REGISTERED: Final = -1
"""`BrokerError.code` of a broker that no route mentions at the moment: it may come back."""
