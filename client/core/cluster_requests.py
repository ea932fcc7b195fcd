"""Requests about a cluster as a whole, in the form of `requests`: which brokers and topics there are, what all groups
have consumed, whether a broker compiles an expression. Pure: no clock, no connection."""

from __future__ import annotations

from triomq.client.core.requests import Call
from triomq.protocol.bodies.heartbeat import CheckClientRequestBody
from triomq.protocol.bodies.name_list import TopicList
from triomq.protocol.bodies.route import ClusterInfo
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.subscription import SubscriptionData


def cluster_info() -> Call[ClusterInfo]:
    """Ask a name server for all registered brokers."""
    return Call(
        new_request(RequestCode.GET_BROKER_CLUSTER_INFO),
        "listing brokers",
        lambda response: ClusterInfo.decode(response.body),
    )


def topic_names() -> Call[list[str]]:
    """Ask a name server for the names of all topics, sorted."""

    def read(response: RemotingCommand) -> list[str]:
        return sorted(TopicList.decode(response.body).topic_list) if response.body else []

    return Call(new_request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER), "listing topics", read)


def check_subscription(client_id: str, group: str, subscription: SubscriptionData) -> Call[None]:
    """Have a broker compile a SQL92 expression; it refuses one that does not compile, and says why."""
    body = CheckClientRequestBody(client_id=client_id, group=group, subscription_data=subscription)
    request = new_request(RequestCode.CHECK_CLIENT_CONFIG, None, body.encode())
    return Call(request, f"checking the subscription to {subscription.topic!r}", lambda response: None)
