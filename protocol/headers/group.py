"""Subscription groups and their progress.

Field names and types: RocketMQ 4.9.7, classes of the same names.
"""

from __future__ import annotations

from triomq.protocol.bounds import GroupName, TopicName
from triomq.protocol.headers.base import Header


class DeleteSubscriptionGroupRequestHeader(Header, frozen=True, kw_only=True):
    """DELETE_SUBSCRIPTIONGROUP request."""

    group_name: GroupName
    remove_offset: bool = False


class GetSubscriptionGroupConfigRequestHeader(Header, frozen=True, kw_only=True):
    """GET_SUBSCRIPTIONGROUP_CONFIG request (RocketMQ 5)."""

    group: GroupName


class GetConsumeStatsRequestHeader(Header, frozen=True, kw_only=True):
    """GET_CONSUME_STATS request."""

    consumer_group: GroupName
    topic: TopicName | None = None  # blank: every topic of the group


class GetConsumeStatsInBrokerHeader(Header, frozen=True, kw_only=True):
    """GET_BROKER_CONSUME_STATS request."""

    is_order: bool = False  # only ordered topics
