"""Requests that send messages, and the results in their responses. Pure: no clock, no connection.

A send request repeats thirteen header fields of which most depend only on the queue, so `SendRequests` keeps those of
each queue and copies them. Owned by one sender; bounded by `MAX_QUEUE_FIELDS`.
"""

from __future__ import annotations

import msgspec

from triomq.client.core.errors import BrokerRefused
from triomq.client.core.outgoing import Outgoing
from triomq.client.core.results import SendResult, SendStatus
from triomq.protocol import property_names as names
from triomq.protocol.codes import ResponseCode
from triomq.protocol.command import RemotingCommand
from triomq.protocol.headers.base import encode_header
from triomq.protocol.headers.send import SendMessageRequestHeaderV2, SendMessageResponseHeader
from triomq.protocol.message_queue import MessageQueue

MAX_QUEUE_FIELDS = 4096

SEND_STATUS: dict[int, SendStatus] = {
    ResponseCode.SUCCESS: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}
"""Response codes of messages that are stored. Any other code is a refusal."""

_WIRE_NAMES = {field.name: field.encode_name for field in msgspec.structs.fields(SendMessageRequestHeaderV2)}
_SYS_FLAG, _BORN_TIMESTAMP, _FLAG, _PROPERTIES, _RECONSUME_TIMES, _MAX_RECONSUME_TIMES, _BATCH = (
    _WIRE_NAMES[name]
    for name in (
        "sys_flag",
        "born_timestamp",
        "flag",
        "properties",
        "reconsume_times",
        "max_reconsume_times",
        "batch",
    )
)
"""The wire names of these fields, one letter each."""


class _SendResponseHeader(SendMessageResponseHeader, frozen=True, kw_only=True):
    """The response header with the fields that brokers add: traceOn is true unless it is the text "false"."""

    region_id: str | None = msgspec.field(default=None, name=names.MSG_REGION)
    trace_on: str | None = msgspec.field(default=None, name=names.TRACE_ON)


class SendRequests:
    """Builds the send requests of one producer group. Names are wire names (with namespace)."""

    def __init__(
        self, group: str, *, template_topic: str, default_topic_queues: int = 4, unit_mode: bool = False
    ) -> None:
        """`template_topic`, `default_topic_queues`: what a broker uses to create a topic that does not exist yet."""
        self._group = group
        self._template_topic = template_topic
        self._default_topic_queues = default_topic_queues
        self._unit_mode = unit_mode
        self._queue_fields: dict[tuple[str, str, int], dict[str, str]] = {}

    def request(self, outgoing: Outgoing, queue: MessageQueue, now_ms: int) -> RemotingCommand:
        """Return the request that stores `outgoing` in `queue`. `now_ms`: wall clock, the message's born time."""
        key = (outgoing.topic, queue.broker_name, queue.queue_id)
        common = self._queue_fields.get(key)
        if common is None:
            common = self._fields_of_queue(outgoing.topic, queue)
            if len(self._queue_fields) >= MAX_QUEUE_FIELDS:
                self._queue_fields.clear()
            self._queue_fields[key] = common
        fields = common.copy()
        fields[_SYS_FLAG] = str(outgoing.sys_flag)
        fields[_BORN_TIMESTAMP] = str(now_ms)
        fields[_PROPERTIES] = outgoing.properties
        if outgoing.flag:
            fields[_FLAG] = str(outgoing.flag)
        if outgoing.is_batch:
            fields[_BATCH] = "true"
        if outgoing.reconsume_times:
            fields[_RECONSUME_TIMES] = str(outgoing.reconsume_times)
        if outgoing.max_reconsume_times is not None:
            fields[_MAX_RECONSUME_TIMES] = str(outgoing.max_reconsume_times)
        return RemotingCommand(outgoing.code, body=outgoing.body, ext_fields=fields)

    def _fields_of_queue(self, topic: str, queue: MessageQueue) -> dict[str, str]:
        return encode_header(
            SendMessageRequestHeaderV2(
                producer_group=self._group,
                topic=topic,
                default_topic=self._template_topic,
                default_topic_queue_nums=self._default_topic_queues,
                queue_id=queue.queue_id,
                sys_flag=0,
                born_timestamp=0,
                flag=0,
                properties="",
                reconsume_times=0,
                unit_mode=self._unit_mode,
                batch=False,
                broker_name=queue.broker_name,
            )
        )


def send_result(
    outgoing: Outgoing, queue: MessageQueue, response: RemotingCommand, *, topic: str, address: str = ""
) -> SendResult:
    """Read the response to a send. `topic`: the application's name of it. Raises BrokerRefused."""
    status = SEND_STATUS.get(response.code)
    if status is None:
        raise BrokerRefused(
            response.code, response.remark, address=address, action=f"sending to topic {outgoing.topic!r}"
        )
    header = response.header(_SendResponseHeader)
    if header.queue_id != queue.queue_id or topic != queue.topic:
        queue = MessageQueue(topic, queue.broker_name, header.queue_id)
    return SendResult(
        status=status,
        message_id=outgoing.message_id,
        queue=queue,
        queue_offset=header.queue_offset,
        offset_message_id=header.msg_id,
        transaction_id=header.transaction_id,
        region_id=header.region_id,
        trace_on=header.trace_on != "false",
    )
