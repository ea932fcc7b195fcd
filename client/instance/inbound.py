"""Requests that brokers send to this client (RocketMQ: ClientRemotingProcessor). Each goes to the member it names.

39  CHECK_TRANSACTION_STATE          one-way   the producer looks up its local transaction and sends 37
40  NOTIFY_CONSUMER_IDS_CHANGED      one-way   the consumers rebalance
220 RESET_CONSUMER_CLIENT_OFFSET     one-way   the consumer continues at other offsets
221 GET_CONSUMER_STATUS_FROM_CLIENT            the consumer's offsets in memory
307 GET_CONSUMER_RUNNING_INFO                  the internal state of a consumer
309 CONSUME_MESSAGE_DIRECTLY                   one message past its queue
326 PUSH_REPLY_MESSAGE_TO_CLIENT               a reply to one of our requests
"""

from __future__ import annotations

from collections.abc import Mapping

from triomq.client.core.log import get_logger
from triomq.client.core.namespace import Namespace
from triomq.client.instance.members import ConsumerMember, ProducerMember
from triomq.client.instance.pending_replies import PendingReplies
from triomq.protocol import properties as property_text
from triomq.protocol import property_names as names
from triomq.protocol import sys_flag
from triomq.protocol.address import HostPort
from triomq.protocol.bodies.offset import GetConsumerStatusBody, ResetOffsetBody, ResetOffsetBodyForC
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_response
from triomq.protocol.compression import decompress
from triomq.protocol.errors import BodyError, ProtocolError, RequestRefused
from triomq.protocol.headers.client import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
)
from triomq.protocol.headers.offset import ResetOffsetRequestHeader
from triomq.protocol.headers.send import ReplyMessageRequestHeader
from triomq.protocol.headers.transaction import CheckTransactionStateRequestHeader
from triomq.protocol.message import MessageExt
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.record import decode_record
from triomq.remoting.connection import Connection
from triomq.remoting.processor_table import Processor

log = get_logger("triomq.client.inbound")


def processors(
    producers: Mapping[str, ProducerMember],
    consumers: Mapping[str, ConsumerMember],
    replies: PendingReplies,
    namespace: Namespace,
) -> dict[int, Processor]:
    """Return request code -> processor for the members of one client. Both tables are those of the client, and change
    while it is open."""
    requests = _Requests(producers, consumers, replies, namespace)
    return {
        RequestCode.CHECK_TRANSACTION_STATE: requests.check_transaction,
        RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: requests.members_changed,
        RequestCode.RESET_CONSUMER_CLIENT_OFFSET: requests.reset_offset,
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: requests.consumer_status,
        RequestCode.GET_CONSUMER_RUNNING_INFO: requests.running_info,
        RequestCode.CONSUME_MESSAGE_DIRECTLY: requests.consume_directly,
        RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: requests.reply_arrived,
    }


class _Requests:
    def __init__(
        self,
        producers: Mapping[str, ProducerMember],
        consumers: Mapping[str, ConsumerMember],
        replies: PendingReplies,
        namespace: Namespace,
    ) -> None:
        self._producers = producers
        self._consumers = consumers
        self._replies = replies
        self._namespace = namespace

    def _consumer(self, group: str) -> ConsumerMember:
        member = self._consumers.get(group)
        if member is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"The Consumer Group <{group}> not exist in this consumer")
        return member

    async def check_transaction(self, connection: Connection, request: RemotingCommand) -> None:
        header = request.header(CheckTransactionStateRequestHeader)
        message = decode_record(request.body)
        group = message.properties.get(names.PRODUCER_GROUP, "")
        member = self._producers.get(group)
        if member is None:
            log.warning(
                "transaction check received for a group of another client", group=group, message_id=header.msg_id
            )
            return
        message.topic = self._namespace.unwrap(message.topic)
        message.transaction_id = message.uniq_key
        message.broker_name = header.broker_name
        await member.check_transaction(connection.remote.text, header, message)

    def members_changed(self, connection: Connection, request: RemotingCommand) -> None:
        header = request.header(NotifyConsumerIdsChangedRequestHeader)
        member = self._consumers.get(header.consumer_group)
        if member is not None:
            member.members_changed()

    async def reset_offset(self, connection: Connection, request: RemotingCommand) -> None:
        header = request.header(ResetOffsetRequestHeader)
        member = self._consumer(header.group)
        offsets: dict[MessageQueue, int]
        if _is_list_form(request.body):
            body = ResetOffsetBodyForC.decode(request.body)
            offsets = {MessageQueue(one.topic, one.broker_name, one.queue_id): one.offset for one in body.offset_table}
        else:
            offsets = dict(ResetOffsetBody.decode(request.body).offset_table)
        log.info("offsets reset", group=header.group, topic=header.topic, queues=len(offsets))
        await member.reset_offsets(header.topic, offsets)

    def consumer_status(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        header = request.header(GetConsumerStatusRequestHeader)
        offsets = self._consumer(header.group).consume_offsets(header.topic)
        return new_response(request, body=GetConsumerStatusBody(message_queue_table=offsets).encode())

    def running_info(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        header = request.header(GetConsumerRunningInfoRequestHeader)
        info = self._consumer(header.consumer_group).running_info(header.jstack_enable)
        return new_response(request, body=info.encode())

    async def consume_directly(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        header = request.header(ConsumeMessageDirectlyResultRequestHeader)
        member = self._consumer(header.consumer_group)
        message = decode_record(request.body)
        message.broker_name = header.broker_name
        result = await member.consume_directly(message, header.broker_name)
        return new_response(request, body=result.encode())

    def reply_arrived(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        try:
            message = reply_message(request, request.header(ReplyMessageRequestHeader))
        except ProtocolError as error:
            log.warning("reply not decoded", error=str(error))
            return new_response(request, ResponseCode.SYSTEM_ERROR, "process reply message fail")
        message.topic = self._namespace.unwrap(message.topic)
        correlation_id = message.properties.get(names.CORRELATION_ID, "")
        if not self._replies.resolve(correlation_id, message):
            log.warning(
                "reply dropped: no request waits for it",
                correlation_id=correlation_id,
                born_host=str(message.born_host),
            )
        return new_response(request)


def _is_list_form(body: bytes) -> bool:
    """Return whether a reset body has the form for C++ clients, {"offsetTable":[...]}."""
    return body.partition(b":")[2].lstrip()[:1] == b"["


def reply_message(request: RemotingCommand, header: ReplyMessageRequestHeader) -> MessageExt:
    """Return the message inside a PUSH_REPLY_MESSAGE_TO_CLIENT. Raises BodyError."""
    body = request.body
    if header.sys_flag & sys_flag.COMPRESSED:
        body = decompress(body, sys_flag.compression_type(header.sys_flag))
    message = MessageExt(header.topic, body, properties=property_text.parse(header.properties or ""))
    message.flag = header.flag
    message.sys_flag = header.sys_flag
    message.queue_id = header.queue_id
    message.born_timestamp = header.born_timestamp
    message.store_timestamp = header.store_timestamp
    message.reconsume_times = header.reconsume_times or 0
    try:
        message.born_host = HostPort.parse(header.born_host)
        message.store_host = HostPort.parse(header.store_host)
    except ValueError as error:
        raise BodyError(f"a host of the reply cannot be read: {error}") from None
    return message
