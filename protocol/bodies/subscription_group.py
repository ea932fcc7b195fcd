"""Consumer groups of a broker (subscriptionGroup.json, GET_ALL_SUBSCRIPTIONGROUP_CONFIG)."""

from __future__ import annotations

from triomq.protocol.bodies.base import Body, Int32, Int64
from triomq.protocol.bodies.topic_config import DataVersion


class SubscriptionGroupConfig(Body, frozen=True, kw_only=True, gc=False):
    """One group. Consumers pull from `broker_id`, slow ones from `which_broker_when_consume_slowly` (broker ids)."""

    broker_id: Int64 = 0
    consume_broadcast_enable: bool = True
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    group_name: str = ""
    notify_consumer_ids_changed_enable: bool = True
    retry_max_times: Int32 = 16
    retry_queue_nums: Int32 = 1
    which_broker_when_consume_slowly: Int64 = 1


class SubscriptionGroupWrapper(Body, frozen=True, kw_only=True):
    """All groups of a broker, by name."""

    data_version: DataVersion = DataVersion()
    subscription_group_table: dict[str, SubscriptionGroupConfig] = {}
