"""Assignments: QUERY_ASSIGNMENT, SET_MESSAGE_REQUEST_MODE (RocketMQ: QueryAssignmentProcessor).

A consumer of RocketMQ 5 that leaves the choice of its queues to the broker asks for each topic which queues it has, and
whether it pulls or receives (POP) from them. A response without assignments lets it keep those that it has.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Coroutine, Iterable
from itertools import accumulate
from typing import Any

from triomq.broker.audit import UNNAMED, Audit
from triomq.broker.configuration import Configuration
from triomq.broker.nameservers.routes import Route, Routes
from triomq.broker.pop import sharing
from triomq.broker.processors.topic_admin import refuse_on_slave, saved
from triomq.broker.tables.metadata import Metadata
from triomq.broker.tables.request_modes import RequestModes
from triomq.protocol.bodies.assignment import (
    POP,
    PULL,
    REQUEST_MODES,
    MessageQueueAssignment,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    RequestMode,
)
from triomq.protocol.bodies.heartbeat import BROADCASTING
from triomq.protocol.codes import INVALID_PARAMETER, RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_response
from triomq.protocol.errors import RequestRefused
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.system_topics import check_group_length, check_topic_length, is_lmq, is_retry_topic
from triomq.remoting.connection import Connection
from triomq.remoting.processor_table import Processor

ALL_QUEUES = -1
"""The queue id that stands for all queues of a broker."""
QUEUES_IN_A_STEP = 256
"""Assignments that are made in half a millisecond."""

Later = Coroutine[Any, Any, RemotingCommand]


class AssignmentProcessor:
    """Assigns queues to the clients of a group."""

    def __init__(
        self,
        configuration: Configuration,
        metadata: Metadata,
        modes: RequestModes,
        routes: Routes,
        audit: Audit = UNNAMED,
    ) -> None:
        self._configuration = configuration
        self._metadata = metadata
        self._modes = modes
        self._routes = routes
        self._audit = audit

    def processors(self) -> dict[int, Processor]:
        """Return request code -> processor."""
        return {
            RequestCode.QUERY_ASSIGNMENT: self.query,
            RequestCode.SET_MESSAGE_REQUEST_MODE: self.set_mode,
        }

    def query(self, connection: Connection, request: RemotingCommand) -> Later:
        """Handle QUERY_ASSIGNMENT."""
        if self._configuration.role.is_slave:
            raise RequestRefused(ResponseCode.NO_PERMISSION, "this broker is a slave: its master assigns queues")
        body = QueryAssignmentRequestBody.decode_request(request.body)
        topic, group = _names(body.topic, body.consumer_group)
        if body.message_model != BROADCASTING and body.strategy_name not in sharing.STRATEGIES:
            raise RequestRefused(
                INVALID_PARAMETER,
                f"strategyName={body.strategy_name}: a broker assigns by {' or '.join(sharing.STRATEGIES)}",
            )
        return self._assign(connection, request, topic, group, body)

    async def _assign(
        self,
        connection: Connection,
        request: RemotingCommand,
        topic: str,
        group: str,
        body: QueryAssignmentRequestBody,
    ) -> RemotingCommand:
        if is_lmq(topic):
            route: Route | None = ((self._configuration.broker.broker_name, 1),)
        else:
            route = await self._routes.find(topic)
        mode = self._mode_of(topic, group)
        queues = self._queues_of(topic, group, route, body, mode) if route is not None else None
        if queues is None:
            return new_response(request, body=QueryAssignmentResponseBody().encode())
        assignments: list[MessageQueueAssignment] = []
        for begin in range(0, len(queues), QUEUES_IN_A_STEP):
            if begin:
                await connection.steps.next()
            some = queues[begin : begin + QUEUES_IN_A_STEP]
            assignments += [MessageQueueAssignment(message_queue=queue, mode=mode.mode or PULL) for queue in some]
        return new_response(request, body=QueryAssignmentResponseBody(message_queue_assignments=assignments).encode())

    def _mode_of(self, topic: str, group: str) -> RequestMode:
        """Return how a group requests a topic. Retry topics are always pulled: with POP nothing new comes to them."""
        mode = self._modes.get(topic, group) if not is_retry_topic(topic) else None
        return mode if mode is not None else RequestMode()

    def _queues_of(
        self, topic: str, group: str, route: Route, body: QueryAssignmentRequestBody, mode: RequestMode
    ) -> list[MessageQueue] | None:
        """Return the queues of a client; None if nothing is known of its group or of queues."""
        count = sum(queues for _, queues in route)
        if body.message_model == BROADCASTING:
            return _at(topic, route, range(count))
        known = self._metadata.consumers.get(group)
        if known is None:
            return None
        clients, client_id, strategy = sorted(known.client_ids()), body.client_id or "", body.strategy_name or ""
        if mode.mode != POP:
            return _at(topic, route, sharing.pulled(strategy, count, clients, client_id)) if count else None
        places = sharing.received(strategy, count, clients, client_id, mode.pop_share_queue_num)
        if places is None:
            return [MessageQueue(topic, broker_name, ALL_QUEUES) for broker_name, queues in route if queues]
        return _at(topic, route, places)

    def set_mode(self, connection: Connection, request: RemotingCommand) -> Later:
        """Handle SET_MESSAGE_REQUEST_MODE: the clients of the group learn it when they ask for assignments again."""
        refuse_on_slave(self._configuration)
        body = RequestMode.decode_request(request.body)
        topic, group = _names(body.topic, body.consumer_group)
        if is_retry_topic(topic):
            raise RequestRefused(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if body.mode not in REQUEST_MODES:
            raise RequestRefused(INVALID_PARAMETER, f"mode={body.mode}: {' or '.join(REQUEST_MODES)}")
        if self._metadata.topics.get(topic) is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        if self._metadata.groups.find(group) is None:
            raise RequestRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist")
        before = self._modes.get(topic, group)
        self._modes.set(topic, group, body)
        self._audit.done(
            connection, request, "request mode changed", topic=topic, group=group, before=before, after=body
        )
        return self._saved(request)

    async def _saved(self, request: RemotingCommand) -> RemotingCommand:
        await saved(self._metadata.groups)
        await saved(self._modes)
        return new_response(request)


def _names(topic: str | None, group: str | None) -> tuple[str, str]:
    if not topic or not group:
        raise RequestRefused(INVALID_PARAMETER, "the request needs topic and consumerGroup")
    check_topic_length(topic)
    check_group_length(group)
    return topic, group


def _at(topic: str, route: Route, places: Iterable[int]) -> list[MessageQueue]:
    """Return the queues at these positions of the list of all queues of a topic, sorted by brokers."""
    ends = list(accumulate(queues for _, queues in route))
    found: list[MessageQueue] = []
    for place in places:
        index = bisect_right(ends, place)
        broker_name, queues = route[index]
        found.append(MessageQueue(topic, broker_name, place - (ends[index] - queues)))
    return found
