"""Retries: CONSUMER_SEND_MSG_BACK (RocketMQ: SendMessageProcessor.asyncConsumerSendMsgBack).

A consumer returns a message that it could not handle. The broker stores it again in the retry topic of its group, with
a delay that grows with each try, or, after too many tries, in the group's dead letter topic.
"""

from __future__ import annotations

import random
from functools import partial

import structlog

from triomq.broker import redirection
from triomq.broker.acl.names import SUB, TopicCheck
from triomq.broker.configuration import Configuration
from triomq.broker.message_writer import MessageWriter, PendingPut
from triomq.broker.metrics.stats import BrokerStats
from triomq.broker.pending_put import DependentPut
from triomq.broker.processors.send import MAX_RECONSUME_VERSION
from triomq.broker.put_responses import FAQ, with_reason
from triomq.broker.record_border import topic_at
from triomq.broker.tables.metadata import Metadata
from triomq.broker.tables.topics import both_ways
from triomq.protocol import permission
from triomq.protocol import property_names as names
from triomq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from triomq.protocol.codes import ResponseCode
from triomq.protocol.command import RemotingCommand, new_response
from triomq.protocol.errors import RecordError, RequestRefused
from triomq.protocol.headers.send import ConsumerSendMsgBackRequestHeader
from triomq.protocol.record import RecordFields, read_fields
from triomq.protocol.system_topics import dlq_topic, retry_topic
from triomq.remoting.connection import Connection
from triomq.store.message_store import DefaultMessageStore
from triomq.store.results import MessageToStore, PutStatus

log = structlog.get_logger("triomq.broker.send_back")

FIRST_DELAY_LEVEL = 3
"""Delay level of the first retry: level 3 is 10 s, and each further retry uses the next level."""
UNIT_SUB = 2


class SendBackAnswer(PendingPut):
    """The pending response to one send-back."""

    __slots__ = ("_connection", "_group", "_origin", "_request", "_stats")

    def __init__(
        self, connection: Connection, request: RemotingCommand, stats: BrokerStats, group: str, origin: str
    ) -> None:
        super().__init__()
        self._connection = connection
        self._request = request
        self._stats = stats
        self._group = group
        self._origin = origin

    def finish(self) -> None:
        status = self.result.status
        if status is PutStatus.PUT_OK:
            self._stats.send_back(self._group, self._origin)
            response = new_response(self._request)
        else:
            remark = with_reason(status.name, self.result)
            response = new_response(self._request, ResponseCode.SYSTEM_ERROR, remark)
        self._connection.answer(self._request, response)


class SendBackProcessor:
    """Handles messages that consumers send back. `check_topic` is None without access control."""

    def __init__(
        self,
        configuration: Configuration,
        metadata: Metadata,
        store: DefaultMessageStore,
        writer: MessageWriter,
        stats: BrokerStats,
        check_topic: TopicCheck | None = None,
    ) -> None:
        self._check_topic = check_topic
        self._configuration = configuration
        self._topics = metadata.topics
        self._groups = metadata.groups
        self._store = store
        self._writer = writer
        self._stats = stats

    def __call__(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        header = request.header(ConsumerSendMsgBackRequestHeader)
        broker = self._configuration.broker
        group = self._groups.find(header.group)
        if group is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {header.group} \n{FAQ}"
            )
        if not permission.is_writeable(broker.broker_permission):
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, f"the broker[{broker.broker_ip1}] sending message is forbidden"
            )
        if group.retry_queue_nums <= 0:
            return new_response(request)
        topic = retry_topic(header.group)
        config = self._topics.create_on_send_back(
            topic, group.retry_queue_nums, permission.READ_WRITE, UNIT_SUB if header.unit_mode else 0
        )
        if config is not None and not permission.is_writeable(config.perm):
            raise RequestRefused(ResponseCode.NO_PERMISSION, f"the topic[{topic}] sending message is forbidden")
        record, body = self._read(connection, request, header.offset)
        message = self._message(header, record, body)
        if self._is_given_up(request, header, group, record):
            message.topic = dlq_topic(header.group)
            message.queue_id = 0
            self._topics.create_on_send_back(message.topic, 1, permission.READ_WRITE, 0)
            level = 0
        else:
            message.topic = topic
            message.queue_id = random.randrange(min(group.retry_queue_nums, both_ways(config)))
            level = header.delay_level or FIRST_DELAY_LEVEL + record.reconsume_times
        message.properties = message.properties.with_({names.DELAY: str(level)})
        redirection.delay(message, str(level), self._store.delay_levels)
        answer = SendBackAnswer(connection, request, self._stats, header.group, record.topic.decode("utf-8", "replace"))
        self._writer.put(message, False, self._dependent(answer, header.group))
        return None

    def _dependent(self, answer: PendingPut, group: str) -> PendingPut:
        """Let the response wait for the group, too, if that is new."""
        new_groups = self._groups.new_names
        if group not in new_groups.names:
            return answer
        return DependentPut(answer, partial(new_groups.when_kept, group))

    def _read(
        self, connection: Connection, request: RemotingCommand, physical_offset: int
    ) -> tuple[RecordFields, bytes]:
        """Return the message at this place of the log and its body. Raises RequestRefused."""
        data = self._store.reading.record_at(physical_offset)
        if data is not None:
            if self._check_topic is not None:
                self._check_topic(connection, request, topic_at(self._store.reading, physical_offset, data), SUB)
            try:
                record = read_fields(data, 0, len(data))
                return record, data[record.body_at : record.body_at + record.body_length]
            except RecordError as error:
                log.warning("returned message not read", physical_offset=physical_offset, error=str(error))
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {physical_offset}")

    def _message(self, header: ConsumerSendMsgBackRequestHeader, record: RecordFields, body: bytes) -> MessageToStore:
        """Return the message in the form that is stored again; hosts and times stay those of the first storage."""
        message = redirection.stored_again(record, body, header.offset, record.reconsume_times + 1)
        message.properties = message.properties.with_({names.WAIT: "false"})
        return message

    @staticmethod
    def _is_given_up(
        request: RemotingCommand,
        header: ConsumerSendMsgBackRequestHeader,
        group: SubscriptionGroupConfig,
        record: RecordFields,
    ) -> bool:
        limit = group.retry_max_times
        if request.version >= MAX_RECONSUME_VERSION and header.max_reconsume_times is not None:
            limit = header.max_reconsume_times
        return header.delay_level < 0 or record.reconsume_times >= limit
