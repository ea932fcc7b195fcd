"""What a request needs in RocketMQ 4.9.7 (PlainAccessResource.parse). With aclLikeRocketMQ=true it replaces needs.py.

Requests that are not listed need valid credentials and nothing else, and so do those that lack the field.
"""

from __future__ import annotations

from triomq.broker.acl.names import PUB, SUB
from triomq.protocol.bodies.heartbeat import HeartbeatData
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import RemotingCommand
from triomq.protocol.system_topics import is_retry_topic, retry_topic

ADMIN_CODES: frozenset[int] = frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
    }
)
"""Codes that only admin accounts may use in RocketMQ 4.9.7."""


def needed_resources(request: RemotingCommand) -> dict[str, int]:
    """Return topic, or %RETRY%<group> -> permission bits. Raises BodyError for a heartbeat that cannot be decoded."""
    fields = request.ext_fields or {}
    code = request.code
    needed: dict[str, int] = {}
    if code == RequestCode.SEND_MESSAGE:
        _sending(needed, fields.get("topic"), fields.get("group"))
    elif code == RequestCode.SEND_MESSAGE_V2:
        _sending(needed, fields.get("b"), fields.get("a"))
    elif code == RequestCode.CONSUMER_SEND_MSG_BACK:
        _group(needed, fields.get("group"))
    elif code in (RequestCode.PULL_MESSAGE, RequestCode.UPDATE_CONSUMER_OFFSET):
        _topic(needed, fields.get("topic"))
        _group(needed, fields.get("consumerGroup"))
    elif code == RequestCode.QUERY_MESSAGE:
        _topic(needed, fields.get("topic"))
    elif code in (RequestCode.UNREGISTER_CLIENT, RequestCode.GET_CONSUMER_LIST_BY_GROUP):
        _group(needed, fields.get("consumerGroup"))
    elif code == RequestCode.HEART_BEAT:
        _heartbeat(needed, request)
    return needed


def _sending(needed: dict[str, int], topic: str | None, group: str | None) -> None:
    if topic is not None and is_retry_topic(topic):
        _group(needed, group)
    elif topic is not None:
        needed[topic] = PUB


def _topic(needed: dict[str, int], topic: str | None) -> None:
    if topic is not None:
        needed[topic] = SUB


def _group(needed: dict[str, int], group: str | None) -> None:
    if group is not None:
        needed[group if is_retry_topic(group) else retry_topic(group)] = SUB


def _heartbeat(needed: dict[str, int], request: RemotingCommand) -> None:
    for consumer in HeartbeatData.decode_request(request.body).consumer_data_set:
        _group(needed, consumer.group_name)
        for subscription in consumer.subscription_data_set:
            _topic(needed, subscription.topic)
