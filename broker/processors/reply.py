"""Replies: SEND_REPLY_MESSAGE and its V2 (RocketMQ: ReplyMessageProcessor).

A reply is the second half of a request-reply exchange. The broker pushes it to the client that sent the request, over
the connection that client has as a producer (PUSH_REPLY_MESSAGE_TO_CLIENT), and then stores it in the reply topic,
whether the push succeeded or not. The stored copy serves diagnosis.
"""

from __future__ import annotations

import random
from collections.abc import Coroutine
from typing import Any

import structlog

from triomq.broker import redirection
from triomq.broker.configuration import Configuration
from triomq.broker.message_writer import AwaitedPut, MessageWriter
from triomq.broker.metrics.stats import BrokerStats
from triomq.broker.processors.send import SendHeader, SendProcessor, send_header
from triomq.broker.put_responses import STORED
from triomq.broker.tables.producers import ProducerTable
from triomq.broker.tables.topics import both_ways
from triomq.protocol import properties as property_text
from triomq.protocol import property_names as names
from triomq.protocol import stored_properties, sys_flag
from triomq.protocol.address import HostPort
from triomq.protocol.clock import NowMs
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_request, new_response
from triomq.protocol.errors import RequestRefused
from triomq.protocol.headers.send import ReplyMessageRequestHeader
from triomq.protocol.message_id import offset_message_id
from triomq.remoting.connection import Connection
from triomq.remoting.errors import RemotingError
from triomq.remoting.processor_table import Processor
from triomq.store.delay import DelayLevels
from triomq.store.results import MessageToStore

log = structlog.get_logger("triomq.broker.reply")

PUSH_TIMEOUT_SECONDS = 10.0


class ReplyProcessor:
    """Handles replies of consumers to producers. `send` provides the checks that all sends share; `store_host` is the
    broker's address."""

    def __init__(
        self,
        configuration: Configuration,
        send: SendProcessor,
        producers: ProducerTable,
        writer: MessageWriter,
        stats: BrokerStats,
        *,
        store_host: HostPort,
        now_ms: NowMs,
    ) -> None:
        self._configuration = configuration
        self._send = send
        self._producers = producers
        self._writer = writer
        self._stats = stats
        self._store_host = store_host
        self._delay_levels = DelayLevels(configuration.store.message_delay_level)
        self._now_ms = now_ms

    def processors(self) -> dict[int, Processor]:
        """Return request code -> processor."""
        return dict.fromkeys((int(RequestCode.SEND_REPLY_MESSAGE), int(RequestCode.SEND_REPLY_MESSAGE_V2)), self)

    def __call__(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | Coroutine[Any, Any, RemotingCommand]:
        """Check the reply, which may create its topic, and return what pushes and stores it."""
        header = send_header(request)
        fields = self._send.standing_fields()
        try:
            self._send.check_time()
            config = self._send.topic_for_send(connection, request, header.topic, header.queue_id)
        except RequestRefused as refusal:
            return new_response(request, refusal.code, refusal.remark, ext_fields=fields)
        queue_id = header.queue_id
        if queue_id < 0:
            queue_id = random.randrange(both_ways(config))
        return self._push_and_store(connection, request, header, queue_id, fields)

    async def _push_and_store(
        self,
        connection: Connection,
        request: RemotingCommand,
        header: SendHeader,
        queue_id: int,
        fields: dict[str, str],
    ) -> RemotingCommand:
        failure = await self._push(connection, request, header)
        if failure is None:
            fields.update(msgId="0", queueId=str(queue_id), queueOffset="0")
        if self._configuration.broker.store_reply_message_enable:
            fields.update(await self._store(connection, request, header, queue_id))
        code = ResponseCode.SUCCESS if failure is None else ResponseCode.SYSTEM_ERROR
        return new_response(request, code, failure, ext_fields=fields)

    async def _push(self, connection: Connection, request: RemotingCommand, header: SendHeader) -> str | None:
        """Push the reply to the waiting client. Return None, or the reason for the failure."""
        now_ms = self._now_ms()
        properties = property_text.parse(header.properties or "")
        client_id = properties.get(names.REPLY_TO_CLIENT)
        if client_id is None:
            log.warning("reply dropped: it names no receiver", group=header.producer_group)
            return f"reply message properties[{names.REPLY_TO_CLIENT}] is null"
        requester = self._producers.connection_of_client(client_id)
        if requester is None or not requester.is_open:
            log.warning("reply not pushed: its receiver is not connected", client_id=client_id)
            return f"push reply message fail, channel of <{client_id}> not found."
        properties[names.PUSH_REPLY_TIME] = str(now_ms)
        push = ReplyMessageRequestHeader(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            properties=property_text.format(properties),
            reconsume_times=header.reconsume_times,
            unit_mode=header.unit_mode,
            born_host=connection.remote.text,
            store_host=self._store_host.text,
            store_timestamp=now_ms,
        )
        command = new_request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, push, request.body)
        try:
            answer = await requester.invoke(command, PUSH_TIMEOUT_SECONDS)
            reason = None if answer.code == ResponseCode.SUCCESS else f"code {answer.code}: {answer.remark}"
        except RemotingError as error:
            reason = str(error)
        if reason is None:
            return None
        log.warning("reply not accepted by its receiver", client_id=client_id, reason=reason)
        return f"push reply message to {client_id}fail."

    async def _store(
        self, connection: Connection, request: RemotingCommand, header: SendHeader, queue_id: int
    ) -> dict[str, str]:
        """Store the reply as sent. Return the response fields that say where it is stored, none if it was not
        stored."""
        try:
            # The push awaited, so the topic may have been deleted or closed since the first check.
            self._send.topic_for_send(connection, request, header.topic, header.queue_id)
        except RequestRefused as refusal:
            log.warning("reply not stored", topic=header.topic, status="refused", reason=refusal.remark)
            return {}
        text = header.properties or ""
        message = MessageToStore(
            header.topic,
            queue_id,
            request.body,
            stored_properties.read(text.encode("utf-8", "replace")),
            born_timestamp=header.born_timestamp,
            born_host=connection.remote.packed,
            store_host=self._store_host.packed,
            flag=header.flag,
            sys_flag=self._sys_flag(connection, header),
            reconsume_times=header.reconsume_times or 0,
        )
        wait = message.properties.get(names.WAIT) != "false"
        level = message.properties.get(names.DELAY)
        if level is not None:
            redirection.delay(message, level, self._delay_levels)
        put = AwaitedPut()
        self._writer.put(message, wait, put)
        result = await put.wait()
        if result.status not in STORED:
            log.warning("reply not stored", topic=header.topic, status=result.status.name, reason=result.reason)
            return {}
        self._stats.topic_put(header.topic, queue_id, result.message_count, result.size_bytes)
        return {
            "msgId": offset_message_id(self._store_host.packed, result.physical_offset),
            "queueId": str(queue_id),
            "queueOffset": str(result.queue_offset),
        }

    def _sys_flag(self, connection: Connection, header: SendHeader) -> int:
        flags = header.sys_flag
        if self._store_host.is_ipv6:
            flags |= sys_flag.STORE_HOST_V6
        if connection.remote.is_ipv6:
            flags |= sys_flag.BORN_HOST_V6
        return flags
