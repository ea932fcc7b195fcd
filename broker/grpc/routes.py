"""QueryRoute: the queues of a topic, and where their broker is.

The endpoint is the one that the client came by, so that containers, NAT and forwarded ports need no setting:
grpcAdvertisedEndpoint if it is set, else what the client says that it has connected to, in the request or as
`:authority`.
"""

from __future__ import annotations

import ipaddress
from typing import Any, Final

from triomq.broker.assembly.serving import Serving
from triomq.broker.grpc.call import Call
from triomq.broker.grpc.results import Refused
from triomq.grpc_front import schema
from triomq.protocol import permission
from triomq.protocol.bodies.topic_config import TopicConfig
from triomq.protocol.system_topics import TopicRefused, check_not_system_topic, check_topic_name

Code: Final = schema.Code
DEFAULT_PORT: Final = 8081
ALL_QUEUES: Final = -1
# A topic has no type here, so it takes messages of all of them.
MESSAGE_TYPES: Final = tuple(schema.MessageType.Value(name) for name in ("NORMAL", "FIFO", "DELAY", "TRANSACTION"))


class Routes:
    """See the module's docstring."""

    def __init__(self, serving: Serving) -> None:
        self._configuration = serving.tables.configuration
        self._topics = serving.tables.metadata.topics

    def query(self, call: Call, request: Any) -> None:
        """QueryRoute. Raises Refused."""
        response = schema.QueryRouteResponse()
        response.message_queues.extend(self._queues(call, request.topic, request.endpoints))
        call.reply(response)

    def readable(self, call: Call, topic: Any, asked: Any, *, by_queue: bool) -> list[Any]:
        """Return the queues of a topic that may be read: each, or all as one with the id -1. Raises Refused."""
        permissions = schema.Permission
        readable = (permissions.READ, permissions.READ_WRITE)
        queues = [queue for queue in self._queues(call, topic, asked) if queue.permission in readable]
        if not queues:
            raise Refused(Code.FORBIDDEN, f"the topic {topic.name} has no queue to read")
        if not by_queue:
            del queues[1:]
            queues[0].id = ALL_QUEUES
        return queues

    def _queues(self, call: Call, topic: Any, asked: Any) -> list[Any]:
        """Return all queues of a topic. Raises Refused."""
        config = self._config(topic.name)
        perm = config.perm & self._configuration.broker.broker_permission
        queues = []
        for queue_id in range(max(config.read_queue_nums, config.write_queue_nums)):
            is_readable = queue_id < config.read_queue_nums and permission.is_readable(perm)
            is_writeable = queue_id < config.write_queue_nums and permission.is_writeable(perm)
            queue = self._queue(call, topic, asked)
            queue.id = queue_id
            queue.permission = _permission(is_readable, is_writeable)
            queues.append(queue)
        return queues

    def _config(self, name: str) -> TopicConfig:
        """Return the configuration of a topic. Raises Refused."""
        config = self._topics.get(legal_topic(name))
        if config is None:
            broker = self._configuration.broker.broker_name
            text = f"the broker {broker} has no topic {name}: make it with mqadmin updateTopic"
            raise Refused(Code.TOPIC_NOT_FOUND, text)
        return config

    def _queue(self, call: Call, topic: Any, asked: Any) -> Any:
        """Return a queue of a topic without its number and permission."""
        queue = schema.MessageQueue()
        queue.topic.CopyFrom(topic)
        queue.broker.name = self._configuration.broker.broker_name
        queue.broker.id = 0
        queue.broker.endpoints.CopyFrom(self._endpoints(call, asked))
        queue.accept_message_types.extend(MESSAGE_TYPES)
        return queue

    def _endpoints(self, call: Call, asked: Any) -> Any:
        advertised = self._configuration.broker.grpc_advertised_endpoint
        if not advertised and asked.addresses:
            return asked
        return endpoints_of(advertised or call.authority)


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


def endpoints_of(authority: str) -> Any:
    """Return the endpoints that "host:port" names; without a port it is 8081."""
    host, colon, port = authority.rpartition(":")
    if not colon or not port.isdigit():
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
