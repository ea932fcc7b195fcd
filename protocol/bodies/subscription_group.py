"""Consumer groups of a broker (subscriptionGroup.json, GET_ALL_SUBSCRIPTIONGROUP_CONFIG)."""

from __future__ import annotations

from typing import Annotated

from triomq.protocol.bodies.base import Body
from triomq.protocol.bodies.topic_config import DataVersion
from triomq.protocol.bounds import BrokerId, GroupName, ReconsumeTimes, RetryQueueCount, in_frame


class SubscriptionGroupConfig(Body, frozen=True, kw_only=True, gc=False):
    """One group. Consumers pull from `broker_id`, slow ones from `which_broker_when_consume_slowly` (broker ids).

    `consume_message_orderly` is RocketMQ 5's: its gRPC clients get the messages of a queue one batch after the other.
    None, which says nothing, is false in a table, and in an update what the group has."""

    broker_id: BrokerId = 0
    consume_broadcast_enable: bool = True
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_message_orderly: bool | None = None
    group_name: GroupName = ""
    notify_consumer_ids_changed_enable: bool = True
    retry_max_times: ReconsumeTimes = 16
    retry_queue_nums: RetryQueueCount = 1
    which_broker_when_consume_slowly: BrokerId = 1


class SubscriptionGroupWrapper(Body, frozen=True, kw_only=True):
    """All groups of a broker, by name."""

    data_version: DataVersion = DataVersion()
    subscription_group_table: Annotated[dict[GroupName, SubscriptionGroupConfig], in_frame("groups of a master")] = {}
