"""Subscription groups as administrators see them (RocketMQ: AdminBrokerProcessor):
UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, DELETE_SUBSCRIPTIONGROUP, GET_ALL_SUBSCRIPTIONGROUP_CONFIG, and
GET_SUBSCRIPTIONGROUP_CONFIG of RocketMQ 5."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import structlog

from triomq.broker.audit import UNNAMED, Audit
from triomq.broker.configuration import Configuration
from triomq.broker.metrics.stats import BrokerStats
from triomq.broker.processors.topic_admin import refuse_on_slave, saved
from triomq.broker.tables.groups import GroupTable
from triomq.broker.tables.offsets import OffsetTable
from triomq.broker.tables.topics import MAX_QUEUES
from triomq.protocol.bodies.base import replace
from triomq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_response
from triomq.protocol.errors import RequestRefused
from triomq.protocol.headers.group import (
    DeleteSubscriptionGroupRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
)
from triomq.remoting.connection import Connection
from triomq.remoting.processor_table import Processor

log = structlog.get_logger("triomq.broker.group_admin")


class GroupAdminProcessor:
    """Creates, changes, deletes and lists subscription groups."""

    def __init__(
        self,
        configuration: Configuration,
        groups: GroupTable,
        offsets: OffsetTable,
        stats: BrokerStats,
        audit: Audit = UNNAMED,
    ) -> None:
        self._audit = audit
        self._configuration = configuration
        self._groups = groups
        self._offsets = offsets
        self._stats = stats

    def processors(self) -> dict[int, Processor]:
        """Return request code -> processor."""
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.update,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.all_groups,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.group_config,
        }

    def update(self, connection: Connection, request: RemotingCommand) -> Coroutine[Any, Any, RemotingCommand]:
        """Handle UPDATE_AND_CREATE_SUBSCRIPTIONGROUP."""
        config = checked_config(self._configuration, request.body)
        known = self._groups.get(config.group_name)
        if known is not None and config.consume_message_orderly is None:  # a tool of 4.9, which does not know it
            config = replace(config, consume_message_orderly=known.consume_message_orderly)
        self._groups.update(config)
        act = "group changed" if known is not None else "group created"
        self._audit.done(connection, request, act, group=config.group_name, before=known, after=config)
        return self._saved(request)

    async def _saved(self, request: RemotingCommand) -> RemotingCommand:
        await saved(self._groups)
        return new_response(request)

    def delete(self, connection: Connection, request: RemotingCommand) -> Coroutine[Any, Any, RemotingCommand]:
        """Handle DELETE_SUBSCRIPTIONGROUP: delete the group and, with removeOffset, its offsets."""
        refuse_on_slave(self._configuration)
        header = request.header(DeleteSubscriptionGroupRequestHeader)
        known = self._groups.get(header.group_name)
        self._groups.delete(header.group_name)
        if header.remove_offset:
            self._offsets.remove(header.group_name)
        self._audit.done(
            connection,
            request,
            "group deleted",
            group=header.group_name,
            offsets_removed=header.remove_offset,
            before=known,
        )
        self._stats.forget_next_offsets(group=header.group_name)
        if self._configuration.broker.auto_delete_unused_stats:
            self._stats.forget_group(header.group_name)
        return self._saved(request)

    def group_config(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle GET_SUBSCRIPTIONGROUP_CONFIG, with which tools of RocketMQ 5 ask for one group."""
        group = request.header(GetSubscriptionGroupConfigRequestHeader).group
        config = self._groups.get(group)
        if config is None:
            raise RequestRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {group}")
        return new_response(request, body=config.encode())

    def all_groups(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle GET_ALL_SUBSCRIPTIONGROUP_CONFIG, which slaves and export tools send."""
        if not self._groups.names():
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "No subscription group in this broker")
        return new_response(request, body=self._groups.encode())


def checked_config(configuration: Configuration, body: bytes) -> SubscriptionGroupConfig:
    """Return what an update would make of a group. Raises RequestRefused or BodyError if it would be refused."""
    refuse_on_slave(configuration)
    config = SubscriptionGroupConfig.decode_request(body)
    if not config.group_name:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, "the subscription group has no groupName")
    if config.retry_queue_nums > MAX_QUEUES:
        reason = f"retryQueueNums must be at most {MAX_QUEUES}, not {config.retry_queue_nums}"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, reason)
    return config
