"""Consumer groups: settings, progress, members, offsets (mqadmin: updateSubGroup, consumerProgress,
resetOffsetByTime, ...)."""

from __future__ import annotations

from collections.abc import Sequence

from triomq.client.administer.base import AdminBase
from triomq.client.core import requests
from triomq.client.core.errors import BrokerRefused, MQClientError, NoRoute
from triomq.protocol import system_topics
from triomq.protocol.bodies.connection import Connection, ConsumerConnection, ProducerConnection, ProducerTableInfo
from triomq.protocol.bodies.consume_stats import ConsumeStats, ConsumeStatsList, OffsetWrapper, QueryConsumeTimeSpanBody
from triomq.protocol.bodies.offset import GetConsumerStatusBody, QueryCorrectionOffsetBody, ResetOffsetBody
from triomq.protocol.bodies.running_info import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from triomq.protocol.bodies.subscription_group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand
from triomq.protocol.headers.base import Header
from triomq.protocol.headers.client import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    GetProducerConnectionListRequestHeader,
)
from triomq.protocol.headers.group import (
    DeleteSubscriptionGroupRequestHeader,
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
)
from triomq.protocol.headers.offset import (
    CloneGroupOffsetRequestHeader,
    QueryCorrectionOffsetHeader,
    ResetOffsetRequestHeader,
)
from triomq.protocol.headers.topic import QueryConsumeTimeSpanRequestHeader
from triomq.protocol.message_queue import MessageQueue

CLIENT_ANSWER_SECONDS = 15.0
"""Time limit of a request that a broker forwards to a client; the broker itself waits 10 s."""


class GroupAdmin(AdminBase):
    """Groups, as part of `Admin`."""

    # Settings.

    async def create_group(
        self,
        group: str | SubscriptionGroupConfig,
        *,
        cluster: str | None = None,
        broker_address: str | None = None,
    ) -> list[str]:
        """Create or change a consumer group, at one broker, or at the masters of a cluster or of all clusters. Return
        the addresses."""
        config = SubscriptionGroupConfig(group_name=group) if isinstance(group, str) else group
        targets = await self._targets(cluster, broker_address)
        for address in targets:
            await self._broker(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, config.encode())
        return targets

    async def delete_group(
        self,
        group: str,
        *,
        remove_offsets: bool = False,
        cluster: str | None = None,
        broker_address: str | None = None,
    ) -> list[str]:
        """Delete the settings of a group, and with `remove_offsets` its offsets. Return the addresses."""
        targets = await self._targets(cluster, broker_address)
        header = DeleteSubscriptionGroupRequestHeader(group_name=group, remove_offset=remove_offsets)
        for address in targets:
            await self._broker(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
        return targets

    async def group_configs(self, broker_address: str) -> SubscriptionGroupWrapper:
        """Return all groups of one broker with their settings."""
        response = await self._broker(broker_address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        return SubscriptionGroupWrapper.decode(response.body)

    async def group_config(self, broker_address: str, group: str) -> SubscriptionGroupConfig | None:
        """Return the configuration of a group at one broker; None when it does not have it."""
        return (await self.group_configs(broker_address)).subscription_group_table.get(group)

    # Progress.

    async def consume_stats(self, group: str, topic: str | None = None) -> ConsumeStats:
        """Return the offsets of a group beside the ends of its queues, over all brokers. Raises NoRoute when the group
        never consumed anything."""
        table: dict[MessageQueue, OffsetWrapper] = {}
        tps = 0.0
        for address in (await self._masters_of_group(group, topic)).values():
            stats = await self.consume_stats_at(address, group, topic)
            table.update(stats.offset_table)
            tps += stats.consume_tps
        return ConsumeStats(offset_table=table, consume_tps=tps)

    async def consume_stats_at(self, broker_address: str, group: str, topic: str | None = None) -> ConsumeStats:
        """Return the offsets of a group at one broker, of one topic or of all that it consumes."""
        header = GetConsumeStatsRequestHeader(consumer_group=group, topic=topic)
        response = await self._broker(
            broker_address, RequestCode.GET_CONSUME_STATS, header, timeout_seconds=CLIENT_ANSWER_SECONDS
        )
        return ConsumeStats.decode(response.body)

    async def broker_consume_stats(self, broker_address: str, *, ordered_only: bool = False) -> ConsumeStatsList:
        """Return the offsets of all groups of one broker."""
        header = GetConsumeStatsInBrokerHeader(is_order=ordered_only)
        response = await self._broker(
            broker_address, RequestCode.GET_BROKER_CONSUME_STATS, header, timeout_seconds=CLIENT_ANSWER_SECONDS
        )
        return ConsumeStatsList.decode(response.body)

    async def consume_time_span(self, topic: str, group: str) -> QueryConsumeTimeSpanBody:
        """Return the store times of the first, the last and the consumed messages of each queue."""
        spans = []
        header = QueryConsumeTimeSpanRequestHeader(topic=topic, group=group)
        for address in (await self._masters_of_topic(topic)).values():
            response = await self._broker(address, RequestCode.QUERY_CONSUME_TIME_SPAN, header)
            spans += QueryConsumeTimeSpanBody.decode(response.body).consume_time_span_set
        return QueryConsumeTimeSpanBody(consume_time_span_set=spans)

    # Members.

    async def consumer_connection(self, group: str, broker_address: str | None = None) -> ConsumerConnection:
        """Return the members of a group and their subscriptions, as one broker sees them. Raises BrokerRefused when no
        member is online, NoRoute when the group never existed."""
        header = GetConsumerConnectionListRequestHeader(consumer_group=group)
        addresses = [broker_address] if broker_address else list((await self._masters_of_group(group)).values())
        return ConsumerConnection.decode(
            (await self._first(addresses, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)).body
        )

    async def producer_connection(self, group: str, topic: str) -> ProducerConnection:
        """Return the producers of a group, as the brokers of a topic see them."""
        header = GetProducerConnectionListRequestHeader(producer_group=group)
        addresses = list((await self._masters_of_topic(topic)).values())
        return ProducerConnection.decode(
            (await self._first(addresses, RequestCode.GET_PRODUCER_CONNECTION_LIST, header)).body
        )

    async def producers(self, broker_address: str) -> ProducerTableInfo:
        """Return all producers of one broker, by group."""
        response = await self._broker(broker_address, RequestCode.GET_ALL_PRODUCER_INFO)
        return ProducerTableInfo.decode(response.body)

    async def consumer_running_info(
        self, group: str, client_id: str, *, with_stacks: bool = False, broker_address: str | None = None
    ) -> ConsumerRunningInfo:
        """Return the internal state of one member."""
        header = GetConsumerRunningInfoRequestHeader(
            consumer_group=group, client_id=client_id, jstack_enable=with_stacks
        )
        addresses = [broker_address] if broker_address else list((await self._masters_of_group(group)).values())
        response = await self._first(
            addresses, RequestCode.GET_CONSUMER_RUNNING_INFO, header, timeout_seconds=CLIENT_ANSWER_SECONDS
        )
        return ConsumerRunningInfo.decode(response.body)

    async def members(self, group: str) -> list[Connection]:
        """Return the members of a group, by client id; an empty list when none is online."""
        try:
            connection = await self.consumer_connection(group)
        except (BrokerRefused, NoRoute):
            return []
        return sorted(connection.connection_set, key=lambda one: one.client_id or "")

    async def consume_message_directly(
        self, group: str, client_id: str, offset_message_id: str, broker_address: str
    ) -> ConsumeMessageDirectlyResult:
        """Have one member consume one message now. `broker_address`: the broker that stores the message."""
        header = ConsumeMessageDirectlyResultRequestHeader(
            consumer_group=group, client_id=client_id, msg_id=offset_message_id
        )
        response = await self._broker(
            broker_address,
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            header,
            timeout_seconds=CLIENT_ANSWER_SECONDS,
        )
        return ConsumeMessageDirectlyResult.decode(response.body)

    # Offsets.

    async def reset_offset(
        self, group: str, topic: str, timestamp_ms: int, *, force: bool = True
    ) -> dict[MessageQueue, int]:
        """Move a group to the messages stored at `timestamp_ms` (-1: behind the newest), whether its members are online
        or not; return the new offsets. Without `force` only queues move that would go backwards. Members that are
        online continue there at once."""
        moved: dict[MessageQueue, int] = {}
        for name, address in (await self._masters_of_topic(topic)).items():
            try:
                moved.update(await self.reset_offset_at(address, group, topic, timestamp_ms, force=force))
            except BrokerRefused as error:
                if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                    raise
                moved.update(await self._reset_offline(name, address, group, topic, timestamp_ms, force))
        return moved

    async def reset_offset_at(
        self, broker_address: str, group: str, topic: str, timestamp_ms: int, *, force: bool
    ) -> dict[MessageQueue, int]:
        """Move a group whose members are online at one broker, which notifies them; return the new offsets. Raises
        BrokerRefused with CONSUMER_NOT_ONLINE when there are none."""
        header = ResetOffsetRequestHeader(topic=topic, group=group, timestamp=timestamp_ms, is_force=force)
        response = await self._broker(broker_address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        return dict(ResetOffsetBody.decode(response.body).offset_table) if response.body else {}

    async def _reset_offline(
        self, broker_name: str, address: str, group: str, topic: str, timestamp_ms: int, force: bool
    ) -> dict[MessageQueue, int]:
        moved: dict[MessageQueue, int] = {}
        for queue in await self.topic_queues_at(topic, broker_name):
            if timestamp_ms == -1:
                target = await self._client.call(address, requests.max_offset(queue))
            else:
                target = await self._client.call(address, requests.search_offset(queue, timestamp_ms))
            known = await self._client.call(address, requests.query_consumer_offset(group, queue))
            if force or known is None or target < known:
                await self._client.call(address, requests.update_consumer_offset(group, queue, target))
                moved[queue] = target
            else:
                moved[queue] = known
        return moved

    async def topic_queues_at(self, topic: str, broker_name: str) -> list[MessageQueue]:
        """Return the readable queues of a topic at one broker."""
        for data in (await self.route(topic)).queue_datas:
            if data.broker_name == broker_name:
                return [MessageQueue(topic, broker_name, number) for number in range(data.read_queue_nums)]
        return []

    async def set_offset(self, group: str, queue: MessageQueue, queue_offset: int) -> None:
        """Store one offset. Members that are online overwrite it; `reset_offset` notifies them."""
        address = await self._client.master_of(queue.broker_name, queue.topic)
        await self._client.call(address, requests.update_consumer_offset(group, queue, queue_offset))

    async def offset(self, group: str, queue: MessageQueue) -> int | None:
        """Return one stored offset; None when there is none."""
        address = await self._client.master_of(queue.broker_name, queue.topic)
        return await self._client.call(address, requests.query_consumer_offset(group, queue))

    async def clone_offsets(self, source_group: str, target_group: str, topic: str, *, offline: bool = False) -> None:
        """Copy the offsets of one group to another."""
        header = CloneGroupOffsetRequestHeader(
            src_group=source_group, dest_group=target_group, topic=topic, offline=offline
        )
        for address in (await self._masters_of_topic(topic)).values():
            await self._broker(address, RequestCode.CLONE_GROUP_OFFSET, header)

    async def member_offsets(
        self, group: str, topic: str, client_id: str | None = None
    ) -> dict[str, dict[MessageQueue, int]]:
        """Return the offsets that members hold in memory: client id -> queue -> offset."""
        header = GetConsumerStatusRequestHeader(topic=topic, group=group, client_addr=client_id)
        found: dict[str, dict[MessageQueue, int]] = {}
        for address in (await self._masters_of_topic(topic)).values():
            response = await self._broker(
                address,
                RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
                header,
                timeout_seconds=CLIENT_ANSWER_SECONDS,
            )
            for client, offsets in GetConsumerStatusBody.decode(response.body).consumer_table.items():
                found.setdefault(client, {}).update(offsets)
        return found

    async def correction_offsets(
        self, broker_address: str, topic: str, group: str, filter_groups: str | None = None
    ) -> dict[int, int]:
        """Send QUERY_CORRECTION_OFFSET to one broker. Careful: a 4.9.7 broker forgets the groups in `filter_groups`."""
        header = QueryCorrectionOffsetHeader(filter_groups=filter_groups, compare_group=group, topic=topic)
        response = await self._broker(broker_address, RequestCode.QUERY_CORRECTION_OFFSET, header)
        return dict(QueryCorrectionOffsetBody.decode(response.body).correction_offsets)

    # Inside.

    async def _masters_of_group(self, group: str, topic: str | None = None) -> dict[str, str]:
        """Return the brokers that know a group: those of its retry topic, or of the topic for a group without one
        (broadcasting)."""
        try:
            return await self._masters_of_topic(system_topics.retry_topic(group))
        except NoRoute:
            if topic is None:
                raise
            return await self._masters_of_topic(topic)

    async def _first(
        self, addresses: Sequence[str], code: RequestCode, header: Header, *, timeout_seconds: float | None = None
    ) -> RemotingCommand:
        """Return the first successful response of these brokers. Raises the last failure when there is none."""
        failure: MQClientError | None = None
        for address in addresses:
            try:
                return await self._broker(address, code, header, timeout_seconds=timeout_seconds)
            except MQClientError as error:
                failure = error
        raise failure or MQClientError(f"{code.name}: no broker to ask")
