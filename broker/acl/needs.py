"""What each request needs of the account that sends it. One table; a code that is not in it needs an administrator.

    ADMIN       an administrator
    ACCOUNT     a valid account and nothing else
    the others  permissions for the topics and groups that the request names

Whatever concerns one topic or group and changes nothing needs the permission for it. What changes something, concerns
several groups, or shows the broker as a whole, needs an administrator. Three requests name a message by its place in
the log. Their processors check its topic once they know it (AccessControl.check_topic).

RocketMQ checks fewer: see resources.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from triomq.broker.acl.names import EITHER, PUB, SUB
from triomq.protocol import properties as property_text
from triomq.protocol import property_names as names
from triomq.protocol.bodies.assignment import QueryAssignmentRequestBody
from triomq.protocol.bodies.batch_ack import BatchAckMessageRequestBody
from triomq.protocol.bodies.heartbeat import HeartbeatData
from triomq.protocol.bodies.queue_lock import LockBatchRequestBody, UnlockBatchRequestBody
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import RemotingCommand
from triomq.protocol.errors import RecordError
from triomq.protocol.record import split_batch
from triomq.protocol.system_topics import is_retry_topic, retry_topic

REPLY: Final = 8
"""Like PUB, but free for the cluster's own reply topic: an account that may receive a request may answer it."""

Resource = tuple[str, int]
"""A topic, or %RETRY%<group>, and the wanted permission."""
Wanted = Callable[[RemotingCommand], list[Resource]]
Fields = Mapping[str, str]


class NameMissing(ValueError):
    """A request lacks the topic or group that would be checked."""

    def __init__(self, field: str) -> None:
        super().__init__(field)
        self.field = field


class Need(Struct, frozen=True):
    """What one request code needs. `wanted` returns the topics and groups; it raises NameMissing if one is not named,
    and BodyError. `binds_admins`: an administrator who lists permissions needs them, too."""

    text: str
    is_admin: bool = False
    wanted: Wanted | None = None
    binds_admins: bool = False


ADMIN: Final = Need("an administrator", is_admin=True)
ACCOUNT: Final = Need("a valid account")


def need_of(code: int) -> Need:
    """Return what a request code needs."""
    return NEEDS.get(code, ADMIN)


# -- topics and groups of a request ------------------------------------------------------------------------------------


def _group_resource(group: str) -> str:
    return group if is_retry_topic(group) else retry_topic(group)


def _required(fields: Fields, name: str) -> str:
    value = fields.get(name)
    if value is None or not value.strip():
        raise NameMissing(name)
    return value


def _named(*, topic: str = "", permission: int = SUB, group: str = "", optional_group: str = "") -> Wanted:
    """Return a function that reads the topic and the group from these fields."""

    def wanted(request: RemotingCommand) -> list[Resource]:
        fields = request.ext_fields or {}
        found: list[Resource] = []
        if topic:
            found.append((_required(fields, topic), permission))
        if group:
            found.append((_group_resource(_required(fields, group)), SUB))
        if optional_group and fields.get(optional_group):
            found.append((_group_resource(fields[optional_group]), SUB))
        return found

    return wanted


def _sent(topic: str, properties: str, batch: str, permission: int = PUB) -> Wanted:
    """Return a function that reads the topics that a message goes to from these fields."""

    def wanted(request: RemotingCommand) -> list[Resource]:
        fields = request.ext_fields or {}
        found = [_target(_required(fields, topic), permission)]
        text = fields.get(properties) or ""
        if names.INNER_MULTI_DISPATCH in text:
            found += _dispatched(property_text.parse(text))
        if fields.get(batch, "false") != "false" and names.INNER_MULTI_DISPATCH.encode() in request.body:
            try:
                units = split_batch(request.body)
            except RecordError:
                return found  # the processor refuses it
            for unit in units:
                found += _dispatched(property_text.parse_bytes(unit.properties))
        return found

    return wanted


def _target(topic: str, permission: int) -> Resource:
    """A message to a retry topic needs what its consumers need: they send there what they could not handle."""
    return (topic, SUB if is_retry_topic(topic) else permission)


def _dispatched(properties: Mapping[str, str]) -> list[Resource]:
    """The store puts the message into these queues, too (enableMultiDispatch)."""
    queues = properties.get(names.INNER_MULTI_DISPATCH, "")
    return [_target(queue, PUB) for queue in queues.split(",") if queue]


def _heartbeat(request: RemotingCommand) -> list[Resource]:
    found: list[Resource] = []
    for consumer in HeartbeatData.decode_request(request.body).consumer_data_set:
        found.append((_group_resource(consumer.group_name), SUB))
        found += [(subscription.topic, SUB) for subscription in consumer.subscription_data_set]
    return found


def _locked(body: type[LockBatchRequestBody] | type[UnlockBatchRequestBody]) -> Wanted:
    def wanted(request: RemotingCommand) -> list[Resource]:
        decoded = body.decode_request(request.body)
        if not decoded.consumer_group:
            raise NameMissing("consumerGroup")
        topics = {queue.topic for queue in decoded.mq_set}
        return [(_group_resource(decoded.consumer_group), SUB), *((topic, SUB) for topic in sorted(topics))]

    return wanted


def _acknowledged(request: RemotingCommand) -> list[Resource]:
    found: list[Resource] = []
    for ack in BatchAckMessageRequestBody.decode_request(request.body).acks:
        if not ack.consumer_group or not ack.topic:
            raise NameMissing("c or t")
        found += [(_group_resource(ack.consumer_group), SUB), (ack.topic, SUB)]
    return found


def _assigned(request: RemotingCommand) -> list[Resource]:
    body = QueryAssignmentRequestBody.decode_request(request.body)
    if not body.consumer_group or not body.topic:
        raise NameMissing("consumerGroup or topic")
    return [(_group_resource(body.consumer_group), SUB), (body.topic, SUB)]


# -- the table ---------------------------------------------------------------------------------------------------------

_SENT_V1 = ("topic", "properties", "batch")
_SENT_V2 = ("b", "i", "m")


def _bound(text: str, wanted: Wanted) -> Need:
    return Need(text, wanted=wanted, binds_admins=True)


_GROUP_TEXT = "SUB for the group"
_BOTH_TEXT = "SUB for the topic and the group"
_SEND_TEXT = "PUB for the topic; for a retry topic SUB for its group"
_REPLY_TEXT = "a valid account; PUB for a topic other than the cluster's reply topic"
_EITHER = Need("PUB or SUB for the topic", wanted=_named(topic="topic", permission=EITHER))
NEEDS: dict[int, Need] = {
    RequestCode.SEND_MESSAGE: _bound(_SEND_TEXT, _sent(*_SENT_V1)),
    RequestCode.SEND_MESSAGE_V2: _bound(_SEND_TEXT, _sent(*_SENT_V2)),
    RequestCode.SEND_BATCH_MESSAGE: _bound(_SEND_TEXT, _sent(*_SENT_V2)),
    RequestCode.SEND_REPLY_MESSAGE: Need(_REPLY_TEXT, wanted=_sent(*_SENT_V1, REPLY)),
    RequestCode.SEND_REPLY_MESSAGE_V2: Need(_REPLY_TEXT, wanted=_sent(*_SENT_V2, REPLY)),
    RequestCode.CONSUMER_SEND_MSG_BACK: _bound("SUB for the group and the message's topic", _named(group="group")),
    RequestCode.END_TRANSACTION: Need("PUB for the message's topic", wanted=None),
    RequestCode.PULL_MESSAGE: _bound(_BOTH_TEXT, _named(topic="topic", group="consumerGroup")),
    RequestCode.QUERY_MESSAGE: _bound("SUB for the topic", _named(topic="topic")),
    RequestCode.VIEW_MESSAGE_BY_ID: Need("SUB for the message's topic", wanted=None),
    RequestCode.HEART_BEAT: _bound("SUB for all groups and topics that it subscribes to", _heartbeat),
    RequestCode.UNREGISTER_CLIENT: _bound(_GROUP_TEXT, _named(optional_group="consumerGroup")),
    RequestCode.CHECK_CLIENT_CONFIG: ACCOUNT,
    RequestCode.QUERY_GRPC_ENDPOINT: ACCOUNT,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _bound(_GROUP_TEXT, _named(group="consumerGroup")),
    RequestCode.LOCK_BATCH_MQ: Need("SUB for the group and the topics", wanted=_locked(LockBatchRequestBody)),
    RequestCode.UNLOCK_BATCH_MQ: Need("SUB for the group and the topics", wanted=_locked(UnlockBatchRequestBody)),
    RequestCode.QUERY_CONSUMER_OFFSET: Need(_BOTH_TEXT, wanted=_named(topic="topic", group="consumerGroup")),
    RequestCode.UPDATE_CONSUMER_OFFSET: _bound(_BOTH_TEXT, _named(topic="topic", group="consumerGroup")),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: _EITHER,
    RequestCode.GET_MAX_OFFSET: _EITHER,
    RequestCode.GET_MIN_OFFSET: _EITHER,
    RequestCode.GET_EARLIEST_MSG_STORETIME: _EITHER,
    RequestCode.GET_TOPIC_STATS_INFO: _EITHER,
    RequestCode.GET_TOPIC_CONFIG: _EITHER,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: Need(_GROUP_TEXT, wanted=_named(group="group")),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: Need(_GROUP_TEXT, wanted=_named(group="consumerGroup")),
    RequestCode.GET_CONSUME_STATS: Need(
        "SUB for the topic and the group; an administrator for all topics of a group",
        wanted=_named(topic="topic", group="consumerGroup"),
    ),
    RequestCode.QUERY_CONSUME_TIME_SPAN: Need(_BOTH_TEXT, wanted=_named(topic="topic", group="group")),
    RequestCode.QUERY_CONSUME_QUEUE: Need(
        "SUB for the topic, and for the group if one is named",
        wanted=_named(topic="topic", optional_group="consumerGroup"),
    ),
    RequestCode.QUERY_ASSIGNMENT: Need(_BOTH_TEXT, wanted=_assigned),
    RequestCode.POP_MESSAGE: _bound(_BOTH_TEXT, _named(topic="topic", group="consumerGroup")),
    RequestCode.PEEK_MESSAGE: _bound(_BOTH_TEXT, _named(topic="topic", group="consumerGroup")),
    RequestCode.NOTIFICATION: _bound(_BOTH_TEXT, _named(topic="topic", group="consumerGroup")),
    RequestCode.POLLING_INFO: _bound(_BOTH_TEXT, _named(topic="topic", group="consumerGroup")),
    RequestCode.ACK_MESSAGE: _bound(_BOTH_TEXT, _named(topic="topic", group="consumerGroup")),
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _bound(_BOTH_TEXT, _named(topic="topic", group="consumerGroup")),
    RequestCode.BATCH_ACK_MESSAGE: _bound("SUB for the topics and groups", _acknowledged),
    RequestCode.UPDATE_AND_CREATE_TOPIC: ADMIN,
    RequestCode.DELETE_TOPIC_IN_BROKER: ADMIN,
    RequestCode.GET_ALL_TOPIC_CONFIG: ADMIN,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: ADMIN,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: ADMIN,
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: ADMIN,
    RequestCode.CLEAN_UNUSED_TOPIC: ADMIN,
    RequestCode.DELETE_EXPIRED_COMMITLOG: ADMIN,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: ADMIN,
    RequestCode.SET_MESSAGE_REQUEST_MODE: ADMIN,
    RequestCode.QUERY_IN_FLIGHT: ADMIN,
    RequestCode.RELEASE_IN_FLIGHT: ADMIN,
    RequestCode.QUERY_BROKER_TOTALS: ADMIN,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: ADMIN,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: ADMIN,
    RequestCode.GET_ALL_CONSUMER_OFFSET: ADMIN,
    RequestCode.GET_ALL_DELAY_OFFSET: ADMIN,
    RequestCode.QUERY_CORRECTION_OFFSET: ADMIN,
    RequestCode.CLONE_GROUP_OFFSET: ADMIN,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: ADMIN,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: ADMIN,
    RequestCode.GET_CONSUMER_RUNNING_INFO: ADMIN,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: ADMIN,
    RequestCode.GET_BROKER_CONSUME_STATS: ADMIN,
    RequestCode.GET_PRODUCER_CONNECTION_LIST: ADMIN,
    RequestCode.GET_ALL_PRODUCER_INFO: ADMIN,
    RequestCode.RESUME_CHECK_HALF_MESSAGE: ADMIN,
    RequestCode.UPDATE_BROKER_CONFIG: ADMIN,
    RequestCode.GET_BROKER_CONFIG: ADMIN,
    RequestCode.GET_BROKER_RUNTIME_INFO: ADMIN,
    RequestCode.VIEW_BROKER_STATS_DATA: ADMIN,
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: ADMIN,
    RequestCode.DELETE_ACL_CONFIG: ADMIN,
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO: ADMIN,
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: ADMIN,
    RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: ADMIN,
}
