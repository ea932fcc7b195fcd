"""Requests of administrators that the broker forwards to consumers (RocketMQ: AdminBrokerProcessor, Broker2Client):
INVOKE_BROKER_TO_RESET_OFFSET, INVOKE_BROKER_TO_GET_CONSUMER_STATUS, GET_CONSUMER_RUNNING_INFO,
CONSUME_MESSAGE_DIRECTLY. The broker calls the clients over their own connections."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

import structlog
import trio

from triomq.broker.audit import UNNAMED, Audit
from triomq.broker.configuration import Configuration
from triomq.broker.processors.steps import end_of_step
from triomq.broker.put_responses import NOT_SET
from triomq.broker.tables.client_channel import ClientChannel
from triomq.broker.tables.consumers import ConsumerTable
from triomq.broker.tables.offsets import OffsetTable
from triomq.broker.tables.topics import TopicTable
from triomq.protocol.bodies.offset import GetConsumerStatusBody, ResetOffsetBody, ResetOffsetBodyForC
from triomq.protocol.codes import LanguageCode, RequestCode, ResponseCode, version_name
from triomq.protocol.command import RemotingCommand, new_request, new_response
from triomq.protocol.errors import BodyError, ProtocolError, RequestRefused
from triomq.protocol.headers.client import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
)
from triomq.protocol.headers.offset import ResetOffsetRequestHeader
from triomq.protocol.message_id import parse_offset_message_id
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.signature import CREDENTIALS
from triomq.remoting.connection import Connection
from triomq.remoting.errors import RemotingError, RemotingTimeout
from triomq.remoting.processor_table import Processor
from triomq.remoting.scheduling.places import Place, Places
from triomq.store.message_store import DefaultMessageStore

if TYPE_CHECKING:
    from triomq.broker.pop.deliveries import Deliveries

log = structlog.get_logger("triomq.broker.reset")

V3_0_7_SNAPSHOT = 28
V3_1_8_SNAPSHOT = 62
STATUS_TIMEOUT_SECONDS = 5
CALL_TIMEOUT_SECONDS = 10


class ResetProcessor:
    """Forwards administrators' requests to consumers."""

    def __init__(
        self,
        configuration: Configuration,
        topics: TopicTable,
        consumers: ConsumerTable,
        offsets: OffsetTable,
        store: DefaultMessageStore,
        audit: Audit = UNNAMED,
        deliveries: Callable[[], Deliveries | None] = lambda: None,
    ) -> None:
        """`deliveries` returns None while nobody has received anything."""
        self._deliveries = deliveries
        self._audit = audit
        self._configuration = configuration
        self._topics = topics
        self._consumers = consumers
        self._offsets = offsets
        self._store = store
        self._places = Places()  # of resets, by their groups

    def processors(self) -> dict[int, Processor]:
        """Return request code -> processor."""
        return {
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self.reset_offsets,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.consumer_status,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
        }

    # -- offsets -------------------------------------------------------------------------------------------------------

    def reset_offsets(self, connection: Connection, request: RemotingCommand) -> Coroutine[Any, Any, RemotingCommand]:
        """Handle INVOKE_BROKER_TO_RESET_OFFSET: send the new offsets to the members of the group, which commit them. A
        group that receives (POP) begins there at once, since its clients know no offsets. Other tasks run while the
        offsets are looked up; the members are those of the moment after it. Resets of one group take effect in the
        order in which they arrived."""
        header = request.header(ResetOffsetRequestHeader)
        return self._reset(connection, request, header, self._places.take(header.group))

    async def _reset(
        self, connection: Connection, request: RemotingCommand, header: ResetOffsetRequestHeader, place: Place
    ) -> RemotingCommand:
        async with place:
            return await self._reset_now(connection, request, header)

    async def _reset_now(
        self, connection: Connection, request: RemotingCommand, header: ResetOffsetRequestHeader
    ) -> RemotingCommand:
        body = ResetOffsetBody(offset_table=await self._new_offsets(connection, header))
        before = {str(queue): offset for queue, offset in self._offsets.queues(header.group, header.topic).items()}
        receives = self._receives(header)
        if receives:
            await self._begin_again(connection, header, body.offset_table)
        group = self._consumers.get(header.group)
        if group is None and not receives:
            raise RequestRefused(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {header.group} Topic: {header.topic} "
                f"Timestamp: {header.timestamp}",
            )
        forwarded = ResetOffsetRequestHeader(topic=header.topic, group=header.group, timestamp=header.timestamp)
        if request.language == LanguageCode.CPP:
            data = ResetOffsetBodyForC.of(body).encode()
        else:
            data = body.encode()
        self._audit.done(
            connection,
            request,
            "offset reset sent to the consumers" if group is not None else "offsets reset",
            topic=header.topic,
            group=header.group,
            timestamp=header.timestamp,
            force=header.is_force,
            before=before,
            after={str(queue.queue_id): wanted for queue, wanted in body.offset_table.items()},
        )
        for member in group.members() if group is not None else ():
            if member.version < V3_0_7_SNAPSHOT:
                raise _too_old(member)
            command = new_request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, forwarded, body=data, oneway=True)
            if not member.connection.send_oneway(command):
                log.warning("offset reset not sent", group=header.group, client=member.client_id)
        return new_response(request, remark=NOT_SET, body=body.encode())

    async def _new_offsets(self, connection: Connection, header: ResetOffsetRequestHeader) -> dict[MessageQueue, int]:
        config = self._topics.get(header.topic)
        if config is None:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"[reset-offset] reset offset failed, no topic in this broker. topic={header.topic}",
            )
        table: dict[MessageQueue, int] = {}
        is_forced, receives = _is_forced(header), self._receives(header)
        for queue_id in _queues_of(header, config.write_queue_nums):
            consumed = self._offsets.query(header.group, header.topic, queue_id)
            if consumed == -1 and not receives:
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{header.group}> not exist")
            wanted = self._wanted(header, queue_id)
            queue = MessageQueue(header.topic, self._configuration.broker.broker_name, queue_id)
            table[queue] = wanted if is_forced or not 0 <= consumed <= wanted else consumed
            await end_of_step(connection, queue_id)
        return table

    def _wanted(self, header: ResetOffsetRequestHeader, queue_id: int) -> int:
        """Return the offset that a request names, or that of its time. Raises RequestRefused for one that the queue
        does not have."""
        reading, topic, named = self._store.reading, header.topic, _named_offset(header)
        if named is not None:
            first, end = reading.min_offset(topic, queue_id), reading.max_offset(topic, queue_id)
            if not first <= named <= end:
                reason = f"Target offset {named} not in consume queue range [{first}-{end}]"
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, reason)
            return named
        if header.timestamp == -1:
            return reading.max_offset(topic, queue_id)
        return reading.queue_offset_by_time(topic, queue_id, header.timestamp)

    def _receives(self, header: ResetOffsetRequestHeader) -> bool:
        """Return whether the group has received messages of the topic (POP)."""
        deliveries = self._deliveries()
        return deliveries is not None and bool(deliveries.keys(header.topic, header.group))

    async def _begin_again(
        self, connection: Connection, header: ResetOffsetRequestHeader, table: dict[MessageQueue, int]
    ) -> None:
        """Let a group that receives begin at these offsets. Raises RequestRefused, NotReplicated, OSError."""
        for place, (queue, wanted) in enumerate(table.items()):
            deliveries, reason = self._deliveries(), self._store.role_refusal
            if deliveries is None or reason is not None:
                raise RequestRefused(ResponseCode.SLAVE_NOT_AVAILABLE, f"{reason}: ask the master of the group")
            consumed = self._offsets.query(header.group, header.topic, queue.queue_id)
            if _is_forced(header) or wanted != consumed:
                deliveries.reset(header.topic, header.group, queue.queue_id, wanted)
            await end_of_step(connection, place)
        await self._offsets.settled()

    async def consumer_status(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle INVOKE_BROKER_TO_GET_CONSUMER_STATUS: collect the progress that one member or all members report."""
        header = request.header(GetConsumerStatusRequestHeader)
        group = self._consumers.get(header.group)
        if group is None:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"No Any Consumer online in the consumer group: [{header.group}]"
            )
        wanted = header.client_addr if header.client_addr and header.client_addr.strip() else None
        members = [member for member in group.members() if wanted is None or member.client_id == wanted]
        for member in members:
            if member.version < V3_0_7_SNAPSHOT:
                raise _too_old(member)
        table: dict[str, dict[MessageQueue, int]] = {}
        # Members may leave during these calls. Their connections are then closed, and the calls fail.
        async with trio.open_nursery() as nursery:
            for member in members:
                nursery.start_soon(self._ask_status, member, header, table)
        return new_response(request, remark=NOT_SET, body=GetConsumerStatusBody(consumer_table=table).encode())

    async def _ask_status(
        self, member: ClientChannel, header: GetConsumerStatusRequestHeader, table: dict[str, dict[MessageQueue, int]]
    ) -> None:
        question = GetConsumerStatusRequestHeader(topic=header.topic, group=header.group)
        command = new_request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, question)
        try:
            answer = await member.connection.invoke(command, STATUS_TIMEOUT_SECONDS)
            if answer.code == ResponseCode.SUCCESS and answer.body:
                table[member.client_id] = GetConsumerStatusBody.decode(answer.body).message_queue_table
        except (RemotingError, BodyError) as error:
            log.warning("consumer status not received", group=header.group, client=member.client_id, error=str(error))

    # -- calls that are passed on --------------------------------------------------------------------------------------

    async def running_info(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle GET_CONSUMER_RUNNING_INFO: forward it to the client and relay the response."""
        header = request.header(GetConsumerRunningInfoRequestHeader)
        return await self._call(request, header.consumer_group, header.client_id, _passed_on(request), b"")

    async def consume_directly(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle CONSUME_MESSAGE_DIRECTLY: have the client consume the message at once, and relay its response."""
        header = request.header(ConsumeMessageDirectlyResultRequestHeader)
        fields = _passed_on(request)
        fields["brokerName"] = self._configuration.broker.broker_name
        try:
            _, physical_offset = parse_offset_message_id(header.msg_id or "")
        except ProtocolError as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        record = self._store.reading.record_at(physical_offset)
        if record is None:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"there is no message at the offset {physical_offset} of {header.msg_id}"
            )
        self._audit.done(
            connection,
            request,
            "a message was handed to a consumer",
            message_id=header.msg_id,
            group=header.consumer_group,
            client=header.client_id,
        )
        return await self._call(request, header.consumer_group, header.client_id or "", fields, record)

    async def _call(
        self, request: RemotingCommand, group_name: str, client_id: str, fields: dict[str, str], body: bytes
    ) -> RemotingCommand:
        group = self._consumers.get(group_name)
        member = group.member(client_id) if group is not None else None
        if member is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group_name}> <{client_id}> not online")
        if member.version < V3_1_8_SNAPSHOT:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer <{client_id}> Version <{version_name(member.version)}> too low to finish, "
                f"please upgrade it to {version_name(V3_1_8_SNAPSHOT)}",
            )
        command = new_request(request.code, ext_fields=fields, body=body)
        try:
            answer = await member.connection.invoke(command, CALL_TIMEOUT_SECONDS)
        except RemotingTimeout as error:
            raise RequestRefused(
                ResponseCode.CONSUME_MSG_TIMEOUT, f"consumer <{group_name}> <{client_id}> Timeout: {error}"
            ) from None
        except RemotingError as error:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"invoke consumer <{group_name}> <{client_id}> Exception: {error}"
            ) from None
        return new_response(request, answer.code, answer.remark, body=answer.body, ext_fields=answer.ext_fields)


def _passed_on(request: RemotingCommand) -> dict[str, str]:
    """Return the fields of a forwarded request, without the administrator's credentials."""
    return {name: value for name, value in (request.ext_fields or {}).items() if name not in CREDENTIALS}


def _queues_of(header: ResetOffsetRequestHeader, queues: int) -> Sequence[int]:
    """Return the queues that a request resets; `queues` is the number that the topic has. Raises RequestRefused."""
    queue_id = header.queue_id
    if queue_id is None or queue_id < 0:
        return range(queues)
    if queue_id >= queues:
        reason = f"the topic {header.topic} has {queues} queues, and none with the id {queue_id}"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, reason)
    return (queue_id,)


def _named_offset(header: ResetOffsetRequestHeader) -> int | None:
    """Return the offset to which one queue is reset; None: a time decides."""
    queue_id, offset = header.queue_id, header.offset
    if queue_id is None or queue_id < 0 or offset is None or offset < 0:
        return None
    return offset


def _is_forced(header: ResetOffsetRequestHeader) -> bool:
    """Return whether a group is reset forwards, too."""
    return header.is_force or _named_offset(header) is not None


def _too_old(member: ClientChannel) -> RequestRefused:
    return RequestRefused(
        ResponseCode.SYSTEM_ERROR,
        f"the client does not support this feature. version={version_name(member.version)}",
    )
