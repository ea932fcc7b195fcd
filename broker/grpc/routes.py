"""QueryRoute and QueryAssignment: the queues of a topic, and where their brokers are.

A route through any broker has the queues of all masters (others.py). The endpoint of this one is that by which the
client came, so that containers, NAT and forwarded ports need no setting: grpcAdvertisedEndpoint if it is set, else what
the client says that it has connected to, in the request or as `:authority`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Any, Final

from triomq.broker.assembly.serving import Serving
from triomq.broker.grpc.call import Call
from triomq.broker.grpc.others import OtherBrokers, Part
from triomq.broker.grpc.results import Refused
from triomq.grpc_front import schema
from triomq.protocol import permission
from triomq.protocol.system_topics import (
    GroupTooLong,
    TopicRefused,
    check_group_length,
    check_not_system_topic,
    check_topic_name,
)

Code: Final = schema.Code
DEFAULT_PORT: Final = 8081
_PORT: Final = re.compile(r"\d{1,5}", re.ASCII)
ALL_QUEUES: Final = -1
# A topic has no type here, so it takes messages of all of them.
_READABLE: Final[tuple[int, ...]] = (schema.Permission.READ, schema.Permission.READ_WRITE)
MESSAGE_TYPES: Final = tuple(schema.MessageType.Value(name) for name in ("NORMAL", "FIFO", "DELAY", "TRANSACTION"))


class Routes:
    """See the module's docstring."""

    def __init__(self, serving: Serving) -> None:
        self._configuration = serving.tables.configuration
        self._topics = serving.tables.metadata.topics
        self._others = OtherBrokers(serving)

    def query(self, call: Call, request: Any) -> None:
        """QueryRoute. Raises Refused."""

        def reply(queues: list[Any]) -> None:
            response = schema.QueryRouteResponse()
            response.message_queues.extend(queues)
            call.reply(response)

        self._with_queues(call, request, reply)

    def assign(self, call: Call, request: Any, *, by_queue: bool) -> None:
        """QueryAssignment: the queues of a topic that may be read, each by itself, or those of a broker as one with the
        id -1. Raises Refused."""

        def reply(queues: list[Any]) -> None:
            readable = [queue for queue in queues if queue.permission in _READABLE]
            if not readable:
                raise Refused(Code.FORBIDDEN, f"the topic {request.topic.name} has no queue to read")
            if not by_queue:
                readable = list({queue.broker.name: queue for queue in readable}.values())
                for queue in readable:
                    queue.id = ALL_QUEUES
            response = schema.QueryAssignmentResponse()
            for queue in readable:
                response.assignments.add().message_queue.CopyFrom(queue)
            call.reply(response)

        self._with_queues(call, request, reply)

    def _with_queues(self, call: Call, request: Any, then: Callable[[list[Any]], None]) -> None:
        """Call `then` with all queues of the topic of a request, now or when the NameServers have said those of other
        brokers. Raises Refused."""
        legal_topic(request.topic.name)
        if self._others.may_exist:
            call.client.start_soon(self._find, call, request, then)
        else:
            then(self._queues(call, request, []))

    async def _find(self, call: Call, request: Any, then: Callable[[list[Any]], None]) -> None:
        others = await self._others.parts(request.topic.name)
        call.attempt(lambda: then(self._queues(call, request, others)))

    def _queues(self, call: Call, request: Any, others: list[Part]) -> list[Any]:
        """Return all queues of a topic, those of this broker first. Raises Refused."""
        name, broker = request.topic.name, self._configuration.broker
        config = self._topics.get(name)
        is_slave = self._configuration.role.is_slave
        found: list[Any] = []
        if config is not None and not is_slave:
            own = Part(
                broker.broker_name,
                self._own_endpoint(call),
                config.read_queue_nums,
                config.write_queue_nums,
                config.perm & broker.broker_permission,
            )
            asked = request.endpoints if not broker.grpc_advertised_endpoint and request.endpoints.addresses else None
            found += _queues_of(own, request.topic, asked)
        for part in others:
            found += _queues_of(part, request.topic)
        if not found and config is not None and is_slave:
            text = f"the broker {broker.broker_name} has no master now that gRPC clients could use"
            raise Refused(Code.HA_NOT_AVAILABLE, text)
        if not found:
            text = f"neither {broker.broker_name} nor another broker that gRPC clients could use has the topic {name}"
            raise Refused(Code.TOPIC_NOT_FOUND, f"{text}: make it with mqadmin updateTopic")
        return found

    def _own_endpoint(self, call: Call) -> str:
        return self._configuration.broker.grpc_advertised_endpoint or call.authority


def _queues_of(part: Part, topic: Any, endpoints: Any = None) -> list[Any]:
    """Return the queues at one broker (schema.MessageQueue). `endpoints` replace its own."""
    where = endpoints if endpoints is not None else endpoints_of(part.endpoint)
    queues = []
    for queue_id in range(max(part.read_queues, part.write_queues)):
        queue = schema.MessageQueue(id=queue_id)
        queue.topic.CopyFrom(topic)
        queue.broker.name = part.broker_name
        queue.broker.endpoints.CopyFrom(where)
        queue.accept_message_types.extend(MESSAGE_TYPES)
        is_readable = queue_id < part.read_queues and permission.is_readable(part.perm)
        is_writeable = queue_id < part.write_queues and permission.is_writeable(part.perm)
        queue.permission = _permission(is_readable, is_writeable)
        queues.append(queue)
    return queues


def _permission(is_readable: bool, is_writeable: bool) -> int:
    values = schema.Permission
    if is_readable and is_writeable:
        return int(values.READ_WRITE)
    return int(values.READ if is_readable else values.WRITE if is_writeable else values.NONE)


def legal_topic(name: str) -> str:
    """Return the name of a topic that clients may use. Raises Refused."""
    try:
        check_topic_name(name)
        check_not_system_topic(name)
    except TopicRefused as error:
        raise Refused(Code.ILLEGAL_TOPIC, str(error)) from None
    return name


def legal_group(name: str) -> str:
    """Return the name of a consumer group. Raises Refused."""
    try:
        check_group_length(name)
    except GroupTooLong as error:
        raise Refused(Code.ILLEGAL_CONSUMER_GROUP, str(error)) from None
    return name


def endpoints_of(authority: str) -> Any:
    """Return the endpoints that "host:port" names, which may be any text; without a port it is 8081."""
    host, _, port = authority.rpartition(":")
    if not _PORT.fullmatch(port) or int(port) > 0xFFFF:
        host, port = authority, str(DEFAULT_PORT)
    host = host.strip("[]")
    endpoints = schema.Endpoints()
    try:
        version = ipaddress.ip_address(host).version
        endpoints.scheme = schema.AddressScheme.IPv4 if version == 4 else schema.AddressScheme.IPv6
    except ValueError:
        endpoints.scheme = schema.AddressScheme.DOMAIN_NAME
    endpoints.addresses.add(host=host, port=int(port))
    return endpoints
