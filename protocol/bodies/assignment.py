"""Which queues a client consumes, and how: QUERY_ASSIGNMENT, SET_MESSAGE_REQUEST_MODE (RocketMQ 5)."""

from __future__ import annotations

from typing import Final

from triomq.protocol.bodies.base import Body
from triomq.protocol.bodies.heartbeat import CLUSTERING
from triomq.protocol.bounds import ClientId, EnumName, GroupName, ShareCount, TopicName
from triomq.protocol.message_queue import MessageQueue

PULL: Final = "PULL"
POP: Final = "POP"
REQUEST_MODES: Final = (PULL, POP)


class RequestMode(Body, frozen=True, kw_only=True):
    """How a group requests the messages of a topic: the body of SET_MESSAGE_REQUEST_MODE, and an entry of
    messageRequestMode.json. `pop_share_queue_num`: how many clients share the queues of one, with POP; 0: all share
    all."""

    consumer_group: GroupName | None = None
    mode: EnumName | None = PULL
    pop_share_queue_num: ShareCount = 0
    topic: TopicName | None = None


class QueryAssignmentRequestBody(Body, frozen=True, kw_only=True):
    """QUERY_ASSIGNMENT request."""

    client_id: ClientId | None = None
    consumer_group: GroupName | None = None
    message_model: EnumName | None = CLUSTERING
    strategy_name: EnumName | None = None
    topic: TopicName | None = None


class MessageQueueAssignment(Body, frozen=True, kw_only=True):
    """A queue that the client consumes, in this mode. With POP the queue id may be -1: all of the broker."""

    attachments: dict[str, str] | None = None
    message_queue: MessageQueue | None = None
    mode: str = PULL


class QueryAssignmentResponseBody(Body, frozen=True, kw_only=True):
    """QUERY_ASSIGNMENT response. None, not an empty list: the client keeps what it has."""

    message_queue_assignments: list[MessageQueueAssignment] | None = None
