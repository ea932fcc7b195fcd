"""Sending: SEND_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE (RocketMQ: SendMessageProcessor).

The path of a message: header, topic, stored properties, MessageToStore, MessageWriter. All of it runs inline, in order
of arrival. The response is a `SendAnswer`, which the writer finishes when the message is safe enough. This is the
broker's hottest path: no needless objects, no await.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

import structlog
import trio

from triomq.broker import redirection
from triomq.broker.configuration import Configuration
from triomq.broker.message_writer import MessageWriter, PendingPut
from triomq.broker.metrics.stats import BrokerStats
from triomq.broker.processors.long_batch import LONG_BATCH, LONG_BATCHES_AT_A_TIME, ids_in_steps, put_in_steps
from triomq.broker.put_responses import FAQ, SEND_CODES, STORED, send_remark
from triomq.broker.tables.metadata import Metadata
from triomq.broker.tables.topics import both_ways
from triomq.protocol import permission, stored_properties, sys_flag
from triomq.protocol import property_names as names
from triomq.protocol.bodies.topic_config import TopicConfig
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_response
from triomq.protocol.errors import RecordError, RequestRefused
from triomq.protocol.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from triomq.protocol.message_id import offset_message_id_bytes_reference
from triomq.protocol.record import BATCH_FIXED_BYTES, end_of_units, split_batch
from triomq.protocol.response_template import ResponseTemplate
from triomq.protocol.speedups import accelerated
from triomq.protocol.system_topics import (
    NOT_ALLOWED_SEND_TOPICS,
    RETRY_PREFIX,
    TOPIC_MAX_LENGTH,
    check_may_send,
    check_topic_name,
    dlq_topic,
)
from triomq.remoting.connection import Connection
from triomq.remoting.processor_table import Pool
from triomq.remoting.scheduling.step_line import Steps
from triomq.store.delay import DelayLevels
from triomq.store.results import MessageToStore, PutResult, PutStatus

log = structlog.get_logger("triomq.broker.send")

# Module-level plain ints, because accessing an enum member takes three times as long.
_SEND_MESSAGE: Final = int(RequestCode.SEND_MESSAGE)
_FIRST_VERSION: Final = frozenset((_SEND_MESSAGE, int(RequestCode.SEND_REPLY_MESSAGE)))
_SUCCESS: Final = int(ResponseCode.SUCCESS)
_PUT_OK: Final = PutStatus.PUT_OK
_FLUSH_DISK_TIMEOUT: Final = PutStatus.FLUSH_DISK_TIMEOUT
_offset_message_id: Final = accelerated(offset_message_id_bytes_reference)

_HEADER: Final = SendMessageRequestHeader
_HEADER_V2: Final = SendMessageRequestHeaderV2

MAX_RECONSUME_VERSION: Final = 121
"""MQVersion ordinal (V3_4_9) from which the client's own limit of reconsumptions applies."""

SendHeader = SendMessageRequestHeader | SendMessageRequestHeaderV2


class SendAnswer(PendingPut):
    """The pending response to one send (`finish` sends it)."""

    __slots__ = ("_processor", "connection", "ids", "queue_id", "request", "topic")

    def __init__(
        self, processor: SendProcessor, connection: Connection, request: RemotingCommand, topic: str, queue_id: int
    ) -> None:
        # Sets the members of its base itself: each send would pay for the call.
        self.is_finished = False
        self.is_stored = False
        self.replica_deadline = 0.0
        self.late_status = _FLUSH_DISK_TIMEOUT
        self.replica_status = _PUT_OK
        self._processor = processor
        self.connection = connection
        self.request = request
        self.topic = topic
        self.queue_id = queue_id
        self.ids = b""  # of a long batch, made in steps

    def release_body(self) -> None:
        if self.connection.on_answer is None:  # hooks see the whole request
            self.request.body = b""

    def finish(self) -> None:
        """Send the response."""
        processor = self._processor
        since = processor.pool.left(self)
        request, result = self.request, self.result
        code = _SUCCESS
        if result.status is not _PUT_OK:
            code = SEND_CODES.get(result.status, ResponseCode.SYSTEM_ERROR)
            if result.status not in STORED:
                self.connection.answer(request, processor.refusal(request, result, code), since)
                return
        processor.stats.topic_put(self.topic, self.queue_id, result.message_count, result.size_bytes)
        if self.ids:
            ids = self.ids
        elif result.physical_offsets:
            host = processor.store_host_hex
            ids = b",".join([_offset_message_id(host, offset) for offset in result.physical_offsets])
        else:
            ids = _offset_message_id(processor.store_host_hex, result.physical_offset)
        values = ids, self.queue_id, result.queue_offset
        self.connection.answer_filled(request, processor.template, code, values, since)


class SendProcessor:
    """Handles sends of producers. `store_host` is the broker's packed address."""

    def __init__(
        self,
        configuration: Configuration,
        metadata: Metadata,
        writer: MessageWriter,
        stats: BrokerStats,
        *,
        store_host: bytes,
        now_ms: Callable[[], int],
        pool: Pool,
    ) -> None:
        self._configuration = configuration
        self._topics = metadata.topics
        self._groups = metadata.groups
        self._writer = writer
        self.stats = stats
        self._store_host = store_host
        self.store_host_hex = store_host.hex().upper().encode()
        self._store_host_v6 = sys_flag.STORE_HOST_V6 if len(store_host) == 20 else 0
        self._now_ms = now_ms
        self.pool = pool
        self._cluster = configuration.broker.broker_cluster_name
        self._delay_levels = DelayLevels(configuration.store.message_delay_level)
        self._long_batches = trio.CapacityLimiter(LONG_BATCHES_AT_A_TIME)
        self._take_settings()

    def _take_settings(self) -> None:
        """Copy the settings that every send needs. A change at run time replaces the settings record, so this runs
        again."""
        broker = self._settings = self._configuration.broker
        self.template = ResponseTemplate(("msgId", "queueId", "queueOffset"), self.standing_fields())
        self._accept_from_ms = broker.start_accept_send_request_time_stamp
        self._is_writeable = permission.is_writeable(broker.broker_permission)

    def __call__(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | Coroutine[Any, Any, RemotingCommand | None] | None:
        """Handle a send. The response comes from a SendAnswer, or from a raised RequestRefused or HeaderFieldError. A
        long batch is a task."""
        if request.code == _SEND_MESSAGE:
            values = _in_order_of_v2(request.header_values(_HEADER))
        else:
            values = request.header_values(_HEADER_V2)
        try:
            return self._send(connection, request, values)
        except RequestRefused as refusal:
            return new_response(request, refusal.code, refusal.remark, ext_fields=self.standing_fields())

    def _send(
        self, connection: Connection, request: RemotingCommand, values: tuple[Any, ...]
    ) -> Coroutine[Any, Any, RemotingCommand | None] | None:
        """Handle a send; `values` are those of SendMessageRequestHeaderV2."""
        if self._configuration.broker is not self._settings or self._accept_from_ms:
            self.check_time()
        topic: str
        queue_id: int
        flags: int
        text: str | None
        (_, topic, _, _, queue_id, flags, born_timestamp, flag, text, retries, _, most_retries, is_batch, _) = values
        config = self.topic_for_send(connection, request, topic, queue_id)
        if queue_id < 0:
            queue_id = random.randrange(both_ways(config))
        answer = SendAnswer(self, connection, request, topic, queue_id)
        remote = connection.remote
        flags |= self._store_host_v6
        if remote.is_ipv6:
            flags |= sys_flag.BORN_HOST_V6
        if config.topic_filter_type == "MULTI_TAG":
            flags |= sys_flag.MULTI_TAGS
        properties, wait_text = stored_properties.sent(text or "", self._cluster)
        body, born_host, store_host = request.body, remote.packed, self._store_host
        message = MessageToStore(
            topic, queue_id, body, properties, born_timestamp, born_host, store_host, flag, flags, retries or 0
        )
        if is_batch:
            return self._send_batch(connection, request, message, wait_text, answer)
        if topic.startswith(RETRY_PREFIX):
            self._divert_to_dlq(request, message, most_retries)
        if message.properties.special is not None:
            self._redirect(message, wait_text)
        self.pool.entered(answer, connection.turn.now)
        self._writer.put(message, wait_text != "false", answer)
        return None

    def _redirect(self, message: MessageToStore, wait: str | None) -> None:
        """Let a half message or a delayed message wait where such messages do. Raises RequestRefused."""
        prepared = message.properties.get(names.TRANSACTION_PREPARED)
        if prepared is not None and prepared.lower() == "true":
            self._check_transactions()
            redirection.hold(message, wait)
            return
        level = message.properties.get(names.DELAY)
        if level is not None:
            _check_delay_level(level)
            redirection.delay(message, level, self._delay_levels, wait)

    def _check_transactions(self) -> None:
        """Refuse half messages with rejectTransactionMessage. Raises RequestRefused."""
        broker = self._configuration.broker
        if broker.reject_transaction_message:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, f"the broker[{broker.broker_ip1}] sending transaction message is forbidden"
            )

    def _send_batch(
        self,
        connection: Connection,
        request: RemotingCommand,
        message: MessageToStore,
        wait_text: str | None,
        answer: SendAnswer,
    ) -> Coroutine[Any, Any, RemotingCommand | None] | None:
        """Store a batch. Each message keeps its own properties, followed by those of the batch and its WAIT."""
        if len(message.topic) > TOPIC_MAX_LENGTH:
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, f"message topic length too long {len(message.topic)}")
        wait = wait_text != "false"
        if wait_text is not None:
            message.properties = message.properties.with_({names.WAIT: wait_text})
        body = message.body
        if len(body) > LONG_BATCH * BATCH_FIXED_BYTES and end_of_units(body, 0, LONG_BATCH) < len(body):
            return self._send_long_batch(connection.steps, request, message, wait, answer)
        try:
            units = split_batch(body, self._settings.max_messages_per_batch)
        except RecordError as error:
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, f"the batch cannot be read: {error}") from None
        if not units:
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, "the batch contains no message")
        self.pool.entered(answer)
        self._writer.put_batch(message, units, wait, answer)
        return None

    async def _send_long_batch(
        self,
        steps: Steps,
        request: RemotingCommand,
        message: MessageToStore,
        wait: bool,
        answer: SendAnswer,
    ) -> RemotingCommand | None:
        limits = self._settings.max_messages_per_batch, self._configuration.store.max_message_size_bytes
        try:
            async with self._long_batches:
                result = answer.result = await put_in_steps(self._writer, message, wait, limits, steps)
                if result.status is _PUT_OK:
                    answer.ids = await ids_in_steps(self.store_host_hex, result.physical_offsets or (), steps)
        except RequestRefused as refusal:
            return new_response(request, refusal.code, refusal.remark, ext_fields=self.standing_fields())
        answer.finish()
        return None

    def refusal(self, request: RemotingCommand, result: PutResult, code: int) -> RemotingCommand:
        """Count a put that the store refused, and return its response."""
        if result.status is not PutStatus.MESSAGE_ILLEGAL:  # that is the sender's fault
            self.stats.put_failed()
        remark = send_remark(result, self._configuration.store.max_message_size_bytes)
        return new_response(request, code, remark, ext_fields=self.standing_fields())

    # Checks shared with other ways of sending (replies).

    def standing_fields(self) -> dict[str, str]:
        """Return the fields of every send response, refusals included."""
        broker = self._configuration.broker
        return {"MSG_REGION": broker.region_id, "TRACE_ON": "true" if broker.trace_on else "false"}

    def check_time(self) -> None:
        """Refuse sends before startAcceptSendRequestTimeStamp. Raises RequestRefused."""
        if self._configuration.broker is not self._settings:
            self._take_settings()
        begin_ms = self._accept_from_ms
        if begin_ms and self._now_ms() < begin_ms:
            text = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(begin_ms / 1000))
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {text},{begin_ms % 1000:03d}"
            )

    def topic_for_send(
        self, connection: Connection, request: RemotingCommand, topic: str, queue_id: int
    ) -> TopicConfig:
        """Return the configuration of the topic that a request sends to, creating it if that is allowed. Raises
        RequestRefused."""
        config = self._topics.get(topic)
        if not self._is_writeable and config is not None and config.order:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, f"the broker[{self._settings.broker_ip1}] sending message is forbidden"
            )
        if config is None:
            check_topic_name(topic)
        if topic in NOT_ALLOWED_SEND_TOPICS:
            check_may_send(topic)
        if config is None:
            config = self._create_topic(connection, send_header(request))
        if queue_id >= config.write_queue_nums and queue_id >= config.read_queue_nums:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"request queueId[{queue_id}] is illegal, {config} Producer: {connection.remote.text}",
            )
        return config

    def _create_topic(self, connection: Connection, header: SendHeader) -> TopicConfig:
        topic = header.topic
        is_retry = topic.startswith(RETRY_PREFIX)
        topic_sys_flag = (2 if is_retry else 1) if header.unit_mode else 0
        config = self._topics.create_on_send(
            topic, header.default_topic, connection.remote.text, header.default_topic_queue_nums, topic_sys_flag
        )
        if config is None and is_retry:
            config = self._topics.create_on_send_back(topic, 1, permission.READ_WRITE, topic_sys_flag)
        if config is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!\n{FAQ}")
        return config

    def _divert_to_dlq(self, request: RemotingCommand, message: MessageToStore, most_retries: int | None) -> None:
        """Divert a message that was retried too often to the dead letter topic of its group."""
        group = message.topic[len(RETRY_PREFIX) :]
        config = self._groups.find(group)
        if config is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {group} \n{FAQ}"
            )
        limit = config.retry_max_times
        if request.version >= MAX_RECONSUME_VERSION and most_retries is not None:
            limit = most_retries
        if message.reconsume_times >= limit:
            message.topic = dlq_topic(group)
            message.queue_id = 0
            self._topics.create_on_send_back(message.topic, 1, permission.READ_WRITE, 0)
            message.properties = message.properties.without(names.DELAY)


def send_header(request: RemotingCommand) -> SendHeader:
    """Return the header of a send or a reply, in either version."""
    if request.code in _FIRST_VERSION:
        return request.header(SendMessageRequestHeader)
    return request.header(SendMessageRequestHeaderV2)


def _in_order_of_v2(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the values of SendMessageRequestHeader in the order of SendMessageRequestHeaderV2."""
    *first, is_batch, most_retries, broker_name = values
    return (*first, most_retries, is_batch, broker_name)


def _check_delay_level(text: str) -> None:
    try:
        int(text)
    except ValueError:
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR, f"the property DELAY must be the number of a delay level, not {text!r}"
        ) from None
