"""Progress of consumer groups (RocketMQ: AdminBrokerProcessor): GET_CONSUME_STATS, GET_BROKER_CONSUME_STATS,
GET_CONSUMER_CONNECTION_LIST, QUERY_TOPIC_CONSUME_BY_WHO, QUERY_CONSUME_TIME_SPAN, QUERY_CORRECTION_OFFSET,
CLONE_GROUP_OFFSET, QUERY_CONSUME_QUEUE. Requests that walk over many queues yield to other tasks between topics."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Coroutine, Iterable
from datetime import datetime
from typing import Any

import structlog

from triomq.broker.audit import UNNAMED, Audit
from triomq.broker.configuration import Configuration
from triomq.broker.metrics.stats import BrokerStats
from triomq.broker.metrics.stats_names import GROUP_GET_NUMS
from triomq.broker.processors.steps import end_of_step
from triomq.broker.pulls.message_filter import message_filter
from triomq.broker.put_responses import NOT_SET
from triomq.broker.tables.client_channel import ClientChannel
from triomq.broker.tables.filters import ConsumerFilter
from triomq.broker.tables.metadata import Metadata
from triomq.protocol.bodies.base import replace
from triomq.protocol.bodies.connection import Connection as ConnectionBody
from triomq.protocol.bodies.connection import ConsumerConnection
from triomq.protocol.bodies.consume_queue import ConsumeQueueData, QueryConsumeQueueResponseBody
from triomq.protocol.bodies.consume_stats import (
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
)
from triomq.protocol.bodies.name_list import GroupList
from triomq.protocol.bodies.offset import QueryCorrectionOffsetBody
from triomq.protocol.clock import NowMs
from triomq.protocol.codes import LanguageCode, RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_response
from triomq.protocol.errors import RequestRefused
from triomq.protocol.headers.client import GetConsumerConnectionListRequestHeader
from triomq.protocol.headers.group import GetConsumeStatsInBrokerHeader, GetConsumeStatsRequestHeader
from triomq.protocol.headers.message_query import QueryConsumeQueueRequestHeader
from triomq.protocol.headers.offset import CloneGroupOffsetRequestHeader, QueryCorrectionOffsetHeader
from triomq.protocol.headers.topic import QueryConsumeTimeSpanRequestHeader, QueryTopicConsumeByWhoRequestHeader
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.subscription import SubscriptionData
from triomq.remoting.connection import Connection
from triomq.remoting.processor_table import Processor
from triomq.store.message_store import DefaultMessageStore
from triomq.store.results import EXT_UNIT_FIXED_BYTES, ExtUnit

log = structlog.get_logger("triomq.broker.consume_admin")

LONG_MAX = 2**63 - 1
MAX_QUEUE_ENTRIES = 16_000
"""Upper bound on the entries in one QUERY_CONSUME_QUEUE response."""


class ConsumeAdminProcessor:
    """Reports the progress and state of consumer groups."""

    def __init__(
        self,
        configuration: Configuration,
        metadata: Metadata,
        store: DefaultMessageStore,
        stats: BrokerStats,
        *,
        now_ms: NowMs,
        broker_addr: str,
        audit: Audit = UNNAMED,
    ) -> None:
        self._audit = audit
        self._configuration = configuration
        self._topics = metadata.topics
        self._groups = metadata.groups
        self._consumers = metadata.consumers
        self._offsets = metadata.offsets
        self._filters = metadata.filters
        self._store = store
        self._stats = stats
        self._now_ms = now_ms
        self._broker_addr = broker_addr

    def processors(self) -> dict[int, Processor]:
        """Return request code -> processor."""
        return {
            RequestCode.GET_CONSUME_STATS: self.consume_stats,
            RequestCode.GET_BROKER_CONSUME_STATS: self.broker_consume_stats,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.connections,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.groups_of_topic,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self.time_span,
            RequestCode.QUERY_CORRECTION_OFFSET: self.correction_offsets,
            RequestCode.CLONE_GROUP_OFFSET: self.clone_offsets,
            RequestCode.QUERY_CONSUME_QUEUE: self.queue_entries,
        }

    # -- progress ----------------------------------------------------------------------------------------------------

    async def consume_stats(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle GET_CONSUME_STATS for one group, with one topic or all of its topics."""
        header = request.header(GetConsumeStatsRequestHeader)
        group = header.consumer_group
        topics = [header.topic] if header.topic and header.topic.strip() else self._offsets.topics_of_group(group)
        table: dict[MessageQueue, OffsetWrapper] = {}
        tps = 0.0
        for topic in self._consumed_topics(group, topics):
            config = self._topics.get(topic)
            queue_count = config.read_queue_nums if config is not None else 0
            table.update(await self._progress(connection, group, topic, queue_count))
            tps += self._stats.per_second(GROUP_GET_NUMS, f"{topic}@{group}")
            # Other tasks run here. That is safe: the list of topics is a copy, and each topic is looked up in its own
            # iteration.
            await connection.steps.next()
        return new_response(request, body=ConsumeStats(consume_tps=tps, offset_table=table).encode())

    async def broker_consume_stats(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle GET_BROKER_CONSUME_STATS: report every group, with one entry for each of its topics."""
        ordered_only = request.header(GetConsumeStatsInBrokerHeader).is_order
        every: list[dict[str, list[ConsumeStats]]] = []
        total_diff = 0
        for group in list(self._groups.names()):
            stats: list[ConsumeStats] = []
            for topic in self._consumed_topics(group, self._offsets.topics_of_group(group)):
                config = self._topics.get(topic)
                if config is None or (ordered_only and not config.order):
                    continue
                entry = ConsumeStats(
                    consume_tps=self._stats.per_second(GROUP_GET_NUMS, f"{topic}@{group}"),
                    offset_table=await self._progress(connection, group, topic, config.write_queue_nums),
                )
                total_diff += entry.total_diff()
                stats.append(entry)
                await connection.steps.next()
            every.append({group: stats})
        body = ConsumeStatsList(broker_addr=self._broker_addr, consume_stats_list=every, total_diff=total_diff)
        return new_response(request, body=body.encode())

    def _consumed_topics(self, group: str, topics: Iterable[str]) -> list[str]:
        """Return the topics that exist and, if the group is online, that it still subscribes to."""
        online = self._consumers.get(group)
        return [
            topic
            for topic in topics
            if self._topics.get(topic) is not None
            and (online is None or not online.subscriptions or topic in online.subscriptions)
        ]

    async def _progress(
        self, connection: Connection, group: str, topic: str, queue_count: int
    ) -> dict[MessageQueue, OffsetWrapper]:
        broker_name = self._configuration.broker.broker_name
        table: dict[MessageQueue, OffsetWrapper] = {}
        for queue_id in range(queue_count):
            consumed = max(0, self._offsets.query(group, topic, queue_id))
            last_ms = self._store.reading.store_time_at(topic, queue_id, consumed - 1) if consumed > 0 else 0
            table[MessageQueue(topic, broker_name, queue_id)] = OffsetWrapper(
                broker_offset=max(0, self._store.reading.max_offset(topic, queue_id)),
                consumer_offset=consumed,
                last_timestamp=max(0, last_ms),
                pull_offset=max(consumed, self._stats.next_offset(group, topic, queue_id)),
            )
            await end_of_step(connection, queue_id)
        return table

    async def time_span(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle QUERY_CONSUME_TIME_SPAN: report the store times of the first, last and last consumed message of each
        queue."""
        header = request.header(QueryConsumeTimeSpanRequestHeader)
        config = self._topics.get(header.topic)
        if config is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")
        spans: list[QueueTimeSpan] = []
        for queue_id in range(config.write_queue_nums):
            spans.append(self._span(header.group, header.topic, queue_id))
            # Other tasks run here. That is safe: each queue is looked up in its own iteration, and one that is gone by
            # then counts as empty.
            await end_of_step(connection, queue_id)
        return new_response(request, body=QueryConsumeTimeSpanBody(consume_time_span_set=spans).encode())

    def _span(self, group: str, topic: str, queue_id: int) -> QueueTimeSpan:
        store = self._store
        first_ms = store.reading.earliest_store_time(topic, queue_id)
        end = store.reading.max_offset(topic, queue_id)
        last_ms = store.reading.store_time_at(topic, queue_id, end - 1)
        consumed = self._offsets.query(group, topic, queue_id)
        consumed_ms = store.reading.store_time_at(topic, queue_id, consumed - 1) if consumed > 0 else first_ms
        delay_ms = 0
        if consumed < end:
            waiting_ms = store.reading.store_time_at(topic, queue_id, consumed) if consumed >= 0 else first_ms
            delay_ms = self._now_ms() - waiting_ms if waiting_ms >= 0 else 0
        return QueueTimeSpan(
            consume_time_stamp=consumed_ms,
            consume_time_stamp_str=_time_text(consumed_ms),
            delay_time=delay_ms,
            max_time_stamp=last_ms,
            max_time_stamp_str=_time_text(last_ms),
            message_queue=MessageQueue(topic, self._configuration.broker.broker_name, queue_id),
            min_time_stamp=first_ms,
            min_time_stamp_str=_time_text(first_ms),
        )

    # -- who -----------------------------------------------------------------------------------------------------------

    def connections(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle GET_CONSUMER_CONNECTION_LIST for an online group."""
        name = request.header(GetConsumerConnectionListRequestHeader).consumer_group
        group = self._consumers.get(name)
        if group is None:
            raise RequestRefused(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
        body = ConsumerConnection(
            connection_set=connection_bodies(group.members()),
            consume_from_where=group.consumption.consume_from_where,
            consume_type=group.consumption.consume_type,
            message_model=group.consumption.message_model,
            subscription_table=group.subscriptions,
        )
        return new_response(request, body=body.encode())

    def groups_of_topic(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle QUERY_TOPIC_CONSUME_BY_WHO: list the groups that subscribe to the topic or have committed an offset
        for it."""
        topic = request.header(QueryTopicConsumeByWhoRequestHeader).topic
        groups = dict.fromkeys([*self._consumers.groups_of_topic(topic), *self._offsets.groups_of_topic(topic)])
        return new_response(request, body=GroupList(group_list=list(groups)).encode())

    # -- offsets -------------------------------------------------------------------------------------------------------

    def correction_offsets(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle QUERY_CORRECTION_OFFSET: compare the smallest offset of all groups of a topic with that of one group.

        RocketMQ also removes the groups named in filterGroups from its table. Here they are only left out of the
        result.
        """
        header = request.header(QueryCorrectionOffsetHeader)
        left_out = [group for group in (header.filter_groups or "").split(",") if group]
        smallest: dict[int, int] = {}
        for queue_id, offsets in self._offsets.smallest_of_all_groups(header.topic, without=left_out).items():
            first = self._store.reading.min_offset(header.topic, queue_id)
            usable = [queue_offset for queue_offset in offsets if queue_offset >= first]
            if usable:
                smallest[queue_id] = min(usable)
        for queue_id, queue_offset in self._offsets.queues(header.compare_group, header.topic).items():
            if queue_id in smallest and smallest[queue_id] > queue_offset:
                smallest[queue_id] = LONG_MAX
        return new_response(request, body=QueryCorrectionOffsetBody(correction_offsets=smallest).encode())

    def clone_offsets(self, connection: Connection, request: RemotingCommand) -> Coroutine[Any, Any, RemotingCommand]:
        """Handle CLONE_GROUP_OFFSET for one topic, or for all topics of the source group."""
        header = request.header(CloneGroupOffsetRequestHeader)
        if header.topic and header.topic.strip():
            topics = [header.topic]
        else:
            topics = self._offsets.topics_of_group(header.src_group)
        target = self._consumers.get(header.dest_group)
        for topic in topics:
            if self._topics.get(topic) is None:
                log.warning("offsets not cloned: topic unknown", topic=topic, group=header.src_group)
            elif not header.offline and target is not None and topic not in target.subscriptions:
                log.warning("offsets not cloned: not subscribed", topic=topic, group=header.dest_group)
            else:
                before = self._offsets.queues(header.dest_group, topic)
                self._offsets.clone(header.src_group, header.dest_group, topic)
                self._audit.done(
                    connection,
                    request,
                    "offsets cloned",
                    topic=topic,
                    group=header.dest_group,
                    source=header.src_group,
                    before=_by_text(before),
                    after=_by_text(self._offsets.queues(header.dest_group, topic)),
                )
        return self._settled(request)

    async def _settled(self, request: RemotingCommand) -> RemotingCommand:
        await self._offsets.settled()
        return new_response(request)

    # -- queues --------------------------------------------------------------------------------------------------------

    def queue_entries(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle QUERY_CONSUME_QUEUE: return entries of a queue and the subscription of a group."""
        header = request.header(QueryConsumeQueueRequestHeader)
        topic = header.topic or ""
        if not self._is_queue(topic, header.queue_id):
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"{header.queue_id}@{topic} is not exist!")
        count = max(0, min(header.count, MAX_QUEUE_ENTRIES))
        filter_data, subscription, registered = None, None, None
        if header.consumer_group is not None:
            subscription = self._consumers.subscription(header.consumer_group, topic)
            registered = self._filters.get(topic, header.consumer_group)
            if subscription is None:
                filter_data = f"{header.consumer_group}@{topic} is not online!"
            else:
                filter_data = registered.data().encode_pretty().decode() if registered is not None else "null"
        reading = self._store.reading
        first = reading.min_offset(topic, header.queue_id)
        end = reading.max_offset(topic, header.queue_id)
        if not first <= header.index < end:
            return new_response(request, remark=f"Index {header.index} of {header.queue_id}@{topic} is not exist!")
        body = QueryConsumeQueueResponseBody(
            filter_data=filter_data,
            max_queue_index=end,
            min_queue_index=first,
            queue_data=[
                self._queue_entry(topic, header.queue_id, entry, subscription, registered)
                for entry in self._store.reading.queue_entries(topic, header.queue_id, header.index, count)
            ],
            subscription_data=subscription,
        )
        return new_response(request, remark=NOT_SET, body=body.encode())

    def _queue_entry(
        self,
        topic: str,
        queue_id: int,
        entry: tuple[int, int, int],
        subscription: SubscriptionData | None,
        registered: ConsumerFilter | None,
    ) -> ConsumeQueueData:
        """Return one entry with the content of its ext unit, if it has one, and whether the group's filter matches."""
        physical_offset, size, tags_code = entry
        plain = ConsumeQueueData(physic_offset=physical_offset, physic_size=size, tags_code=tags_code)
        if not self._store.reading.leads_to_ext_unit(topic, queue_id, tags_code):
            return plain
        unit = self._store.reading.ext_unit(topic, queue_id, tags_code)
        if unit is None:
            return replace(plain, msg=f"there is no ext unit at {tags_code}")
        passes = False
        if subscription is not None:
            wanted = message_filter(subscription, registered)
            passes = wanted is None or wanted.matches_entry(unit.tags_code, unit)
        return replace(
            plain,
            bit_map=_bits_text(unit.bit_map) if unit.bit_map else None,
            eval=passes,
            extend_data_json=_ext_unit_json(unit),
        )

    def _is_queue(self, topic: str, queue_id: int) -> bool:
        """Return whether the queue exists; it need not hold messages."""
        config = self._topics.get(topic)
        if config is not None and 0 <= queue_id < max(config.read_queue_nums, config.write_queue_nums):
            return True
        return self._store.reading.max_offset(topic, queue_id) > 0


def _bits_text(bit_map: bytes) -> str:
    """Return the bits as text (0 and 1), highest bit first, with each group of 64 on a line of its own
    (BitsArray.toString)."""
    bits = f"{int.from_bytes(bit_map, 'little'):0{len(bit_map) * 8}b}"
    first = len(bits) % 64
    groups = [bits[:first]] if first else []
    groups += [bits[at : at + 64] for at in range(first, len(bits), 64)]
    return "".join(f"{group}\n" for group in groups)


def _ext_unit_json(unit: ExtUnit) -> str:
    """Return an ext unit as RocketMQ's JSON shows it."""
    shown: dict[str, object] = {"filterBitMap": b64encode(unit.bit_map).decode()} if unit.bit_map else {}
    shown["msgStoreTime"] = unit.store_timestamp
    shown["size"] = EXT_UNIT_FIXED_BYTES + len(unit.bit_map or b"")
    shown["tagsCode"] = unit.tags_code
    return json.dumps(shown, separators=(",", ":"))


def _by_text(offsets: dict[int, int]) -> dict[str, object]:
    return {str(queue_id): queue_offset for queue_id, queue_offset in offsets.items()}


def connection_bodies(members: Iterable[ClientChannel]) -> list[ConnectionBody]:
    """Return the members of a group as bodies list them."""
    return [
        ConnectionBody(
            client_addr=member.remote_text,
            client_id=member.client_id,
            language=language_name(member.language),
            version=member.version,
        )
        for member in members
    ]


def language_name(language: int) -> str | None:
    """Return the name of a language code as bodies contain it, None for an unknown code."""
    try:
        return LanguageCode(language).name
    except ValueError:
        return None


def _time_text(timestamp_ms: int) -> str:
    moment = datetime.fromtimestamp(timestamp_ms / 1000)
    return f"{moment:%Y-%m-%d#%H:%M:%S}:{timestamp_ms % 1000:03d}"
