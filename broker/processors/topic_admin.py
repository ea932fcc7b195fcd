"""Topics as administrators see them (RocketMQ: AdminBrokerProcessor): UPDATE_AND_CREATE_TOPIC, DELETE_TOPIC_IN_BROKER,
GET_ALL_TOPIC_CONFIG, GET_TOPIC_STATS_INFO, GET_SYSTEM_TOPIC_LIST_FROM_BROKER, CLEAN_EXPIRED_CONSUMEQUEUE,
CLEAN_UNUSED_TOPIC, and GET_TOPIC_CONFIG of RocketMQ 5."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol

import structlog

from triomq.broker.audit import UNNAMED, Audit
from triomq.broker.configuration import Configuration
from triomq.broker.metrics.stats import BrokerStats
from triomq.broker.processors.steps import end_of_step
from triomq.broker.put_responses import NOT_SET
from triomq.broker.tables.offsets import OffsetTable
from triomq.broker.tables.topics import MAX_QUEUES, TopicTable
from triomq.broker.topic_deletion import TopicDeletion
from triomq.protocol import permission
from triomq.protocol.bodies.consume_stats import TopicOffset, TopicStatsTable
from triomq.protocol.bodies.name_list import TopicList
from triomq.protocol.bodies.topic_config import MULTI_TAG, SINGLE_TAG, TopicConfig
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_response
from triomq.protocol.errors import RequestRefused
from triomq.protocol.headers.topic import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
)
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.system_topics import UNDELIVERABLE_TOPIC, check_not_system_topic, check_topic_name
from triomq.remoting.connection import Connection
from triomq.remoting.processor_table import Processor
from triomq.store.errors import StoreError
from triomq.store.message_store import DefaultMessageStore

log = structlog.get_logger("triomq.broker.topic_admin")

Later = Coroutine[Any, Any, RemotingCommand]

MAX_PERM = permission.READ_WRITE | permission.INHERIT


class TopicRegistration(Protocol):
    """The registration with the NameServers (broker.nameservers.registration)."""

    async def registered(self) -> None:
        """Wait until every responding NameServer has accepted all changes made so far."""


class TopicAdminProcessor:
    """Creates, changes, deletes and lists topics."""

    def __init__(
        self,
        configuration: Configuration,
        topics: TopicTable,
        offsets: OffsetTable,
        store: DefaultMessageStore,
        stats: BrokerStats,
        registration: TopicRegistration,
        audit: Audit = UNNAMED,
    ) -> None:
        self._audit = audit
        self._configuration = configuration
        self._topics = topics
        self._offsets = offsets
        self._deletion = TopicDeletion(topics, offsets, store)
        self._store = store
        self._stats = stats
        self._registration = registration

    def processors(self) -> dict[int, Processor]:
        """Return request code -> processor."""
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.update,
            RequestCode.DELETE_TOPIC_IN_BROKER: self.delete,
            RequestCode.GET_ALL_TOPIC_CONFIG: self.all_topics,
            RequestCode.GET_TOPIC_CONFIG: self.topic_config,
            RequestCode.GET_TOPIC_STATS_INFO: self.topic_stats,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.system_topics,
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self.clean_expired_queues,
            RequestCode.CLEAN_UNUSED_TOPIC: self.clean_unused_topics,
        }

    def update(self, connection: Connection, request: RemotingCommand) -> Later:
        """Handle UPDATE_AND_CREATE_TOPIC: change the table now, and respond when the NameServers know the topic. While
        that waits for the disk and for them, other requests may change or delete the topic. That is safe: a
        registration carries the table's content at the time it is sent."""
        header = request.header(CreateTopicRequestHeader)
        config = checked_config(self._configuration, self._topics, header)
        known = self._topics.get(header.topic)
        self._topics.update(config)
        act = "topic changed" if known is not None else "topic created"
        self._audit.done(connection, request, act, topic=header.topic, before=known, after=config)
        return self._updated(request)

    async def _updated(self, request: RemotingCommand) -> RemotingCommand:
        await saved(self._topics)
        await self._registration.registered()
        return new_response(request, remark=NOT_SET)

    def delete(self, connection: Connection, request: RemotingCommand) -> Later:
        """Handle DELETE_TOPIC_IN_BROKER: delete the configuration, the consume queues and the consumer offsets, which
        would mean nothing to a topic of the same name, and respond when that is on disk. The messages stay until their
        log files are deleted."""
        topic = request.header(DeleteTopicRequestHeader).topic
        check_deletion(self._configuration, self._topics, topic)
        known = self._topics.get(topic)
        return self._delete(connection, request, topic, known, self._deletion.begin(topic))

    async def _delete(
        self,
        connection: Connection,
        request: RemotingCommand,
        topic: str,
        known: TopicConfig | None,
        deletion: Coroutine[Any, Any, None],
    ) -> RemotingCommand:
        await deletion
        self._audit.done(connection, request, "topic deleted", topic=topic, before=known)
        if self._configuration.broker.auto_delete_unused_stats:
            self._stats.forget_topic(topic)
        return new_response(request)

    def all_topics(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle GET_ALL_TOPIC_CONFIG, which slaves and export tools send."""
        if not self._topics.names():
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "No topic in this broker")
        return new_response(request, body=self._topics.encode())

    def topic_config(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle GET_TOPIC_CONFIG, with which tools of RocketMQ 5 ask for one topic."""
        topic = request.header(GetTopicConfigRequestHeader).topic
        config = self._topics.get(topic)
        if config is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        return new_response(request, body=config.encode())

    async def topic_stats(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle GET_TOPIC_STATS_INFO: return the bounds and last store time (ms) of each write queue. Other tasks run
        between queues; one that is gone by then counts as empty."""
        topic = request.header(GetTopicStatsInfoRequestHeader).topic
        config = self._topics.get(topic)
        if config is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        table: dict[MessageQueue, TopicOffset] = {}
        for queue_id in range(config.write_queue_nums):
            end = max(0, self._store.reading.max_offset(topic, queue_id))
            last_ms = self._store.reading.store_time_at(topic, queue_id, end - 1) if end > 0 else 0
            table[MessageQueue(topic, self._configuration.broker.broker_name, queue_id)] = TopicOffset(
                last_update_timestamp=max(0, last_ms),
                max_offset=end,
                min_offset=max(0, self._store.reading.min_offset(topic, queue_id)),
            )
            await end_of_step(connection, queue_id)
        return new_response(request, body=TopicStatsTable(offset_table=table).encode())

    def system_topics(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle GET_SYSTEM_TOPIC_LIST_FROM_BROKER. The dead letter topic of our own is left out: operators read it."""
        topics = sorted(self._topics.system_topics - {UNDELIVERABLE_TOPIC})
        return new_response(request, body=TopicList(topic_list=topics).encode())

    def clean_expired_queues(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle CLEAN_EXPIRED_CONSUMEQUEUE. A queue that gets messages again, or of which a group has an offset, must
        not begin at 0: the group would wait behind its end."""
        topics, offsets = self._topics, self._offsets
        removed = self._store.upkeep.delete_expired_queues(
            lambda topic: topics.get(topic) is not None or bool(offsets.groups_of_topic(topic))
        )
        self._audit.done(connection, request, "expired queues removed", queues=removed)
        return new_response(request)

    def clean_unused_topics(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle CLEAN_UNUSED_TOPIC: delete the consume queues of topics that are not in the table, and what groups
        have consumed of them: if use makes such a topic again, it begins at 0."""
        before = self._store.reading.queues()
        try:
            removed = self._store.upkeep.delete_unused_topics(self._topics.names())
        except StoreError as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        for topic in before.keys() - self._topics.names() - self._store.reading.queues().keys():
            self._offsets.remove_outlived(topic, self._store.reading.max_offset)
        self._audit.done(connection, request, "queues of unused topics removed", queues=removed)
        return new_response(request)


def checked_config(configuration: Configuration, topics: TopicTable, header: CreateTopicRequestHeader) -> TopicConfig:
    """Return what an update would make of a topic. Raises RequestRefused if the update would be refused."""
    refuse_on_slave(configuration)
    check_topic_name(header.topic)
    check_not_system_topic(header.topic, topics.system_topics)
    if header.topic_filter_type not in (SINGLE_TAG, MULTI_TAG):
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"topicFilterType = [{header.topic_filter_type}] value invalid")
    for name, count in (("readQueueNums", header.read_queue_nums), ("writeQueueNums", header.write_queue_nums)):
        if not 0 <= count <= MAX_QUEUES:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"{name} must be within 0..{MAX_QUEUES}, not {count}")
    if not 0 <= header.perm <= MAX_PERM:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"perm must be within 0..{MAX_PERM}, not {header.perm}")
    known = topics.get(header.topic)
    return TopicConfig(
        topic_name=header.topic,
        read_queue_nums=header.read_queue_nums,
        write_queue_nums=header.write_queue_nums,
        perm=header.perm,
        topic_filter_type=header.topic_filter_type,
        topic_sys_flag=header.topic_sys_flag or 0,
        order=known.order if known is not None else False,
    )


def check_deletion(configuration: Configuration, topics: TopicTable, topic: str) -> None:
    """Raise RequestRefused if the deletion of a topic would be refused."""
    refuse_on_slave(configuration)
    check_topic_name(topic)
    check_not_system_topic(topic, topics.system_topics)


class SavedTable(Protocol):
    """A table that is persisted in a file."""

    async def wait_saved(self) -> None: ...


async def saved(table: SavedTable) -> None:
    """Wait until an administrator's change is on disk. Raises RequestRefused if it cannot be written."""
    try:
        await table.wait_saved()
    except OSError as error:
        reason = f"the change is in force but could not be written; the broker tries again: {error}"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, reason) from None


def refuse_on_slave(configuration: Configuration) -> None:
    """Raise RequestRefused on a slave, whose tables follow those of its master."""
    if configuration.role.is_slave:
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR,
            "Can't modify topic or subscription group from slave broker, please execute it from master broker.",
        )
