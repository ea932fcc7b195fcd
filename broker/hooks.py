"""Hooks: extension points that observe or refuse what the broker does (RocketMQ: RPCHook, SendMessageHook,
ConsumeMessageHook). docs/extending.md explains how to install one; without any, none of this runs.

    RequestHook    every request, before its processor, and every response
    SendHook       sends: before anything is stored, and with the result
    ConsumeHook    messages: when they are handed out to a consumer, and when it sends one back

All are plain calls on the event loop: they must not block, because every client waits for them. Requests pass access
control, access validators, request hooks and send hooks, in this order. A response may be produced long after its
processor returned, so hooks see it on its way into the connection (Connection.on_answer).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final, Protocol

import msgspec
import structlog
from msgspec import Struct

from triomq.protocol import properties as property_text
from triomq.protocol.address import HostPort
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand
from triomq.protocol.errors import RequestRefused
from triomq.protocol.headers.pull import PullMessageRequestHeader
from triomq.protocol.headers.send import (
    ConsumerSendMsgBackRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from triomq.protocol.message import MessageExt
from triomq.protocol.record import iterate_records
from triomq.remoting.connection import Connection

log = structlog.get_logger("triomq.broker.hooks")

MAX_OPEN_SENDS: Final = 100_000
"""Contexts of sends whose response is pending; beyond this number the oldest get their response without
`after_send`."""

_SENDS: Final = frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE})


class RequestHook(Protocol):
    """Sees every request (RocketMQ: RPCHook). An exception of `before_request` becomes the response: RequestRefused
    with its code and remark, any other as a system error."""

    def before_request(self, remote: HostPort, request: RemotingCommand) -> None: ...

    def after_response(self, remote: HostPort, request: RemotingCommand, response: RemotingCommand) -> None:
        """Observe a response; also called for one-way requests, whose response is never sent."""


class SendContext(Struct):
    """One send (RocketMQ: SendMessageContext). `notes` is free for the hooks' use. The fields from `code` on are set
    after the send."""

    producer_group: str
    topic: str
    queue_id: int
    remote: HostPort
    body_size_bytes: int
    is_batch: bool
    properties: dict[str, str]
    """The properties of the message, or those that all messages of a batch share; a copy."""
    code: int = -1
    remark: str | None = None
    message_id: str | None = None
    """The offset message id; comma-joined for a batch."""
    queue_offset: int = -1
    notes: dict[str, Any] = msgspec.field(default_factory=dict)


class SendHook(Protocol):
    """Wraps every send. RequestRefused in `before_send` becomes the response; other exceptions are logged."""

    def before_send(self, context: SendContext) -> None: ...

    def after_send(self, context: SendContext) -> None: ...


class ConsumeContext(Struct):
    """Messages that go to a consumer, or one that a consumer sends back (RocketMQ: ConsumeMessageContext)."""

    consumer_group: str
    topic: str
    queue_id: int
    """-1 for a message that was sent back."""
    remote: HostPort
    records: bytes
    """The records as stored and delivered; empty for a message that was sent back."""
    message_id: str | None = None
    """The id of a message that was sent back, as the consumer sent it."""

    def messages(self) -> list[MessageExt]:
        """Return the delivered messages, decoded."""
        return list(iterate_records(self.records))


class ConsumeHook(Protocol):
    """Observes consumption. Exceptions are logged."""

    def before_consume(self, context: ConsumeContext) -> None:
        """Observe messages before a consumer receives them."""

    def after_consume(self, context: ConsumeContext) -> None:
        """Observe a message that a consumer could not handle and sent back. (Brokers do not learn of success.)"""


class Hooks:
    """All hooks of a broker; `before` goes into the processor tables, `opened` hears of every connection."""

    def __init__(
        self, requests: Sequence[RequestHook], sends: Sequence[SendHook], consumes: Sequence[ConsumeHook]
    ) -> None:
        self._requests = list(requests)
        self._sends = list(sends)
        self._consumes = list(consumes)
        # The key is the identity of the request. The value holds the request, so that no other object can get this
        # identity.
        self._open: OrderedDict[int, tuple[RemotingCommand, SendContext]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._requests or self._sends or self._consumes)

    def opened(self, connection: Connection) -> None:
        """Hear the responses of a connection."""
        connection.on_answer = self.answered

    def before(self, connection: Connection, request: RemotingCommand) -> None:
        """Call the hooks for a request. Raises the exception that refuses it."""
        for hook in self._requests:
            hook.before_request(connection.remote, request)
        if self._sends and request.code in _SENDS:
            context = _send_context(connection, request)
            for send_hook in self._sends:
                try:
                    send_hook.before_send(context)
                except RequestRefused:
                    raise
                except Exception:
                    log.exception("send hook failed", hook=type(send_hook).__name__)
            self._open[id(request)] = (request, context)
            if len(self._open) > MAX_OPEN_SENDS:
                self._open.popitem(last=False)

    def answered(self, connection: Connection, request: RemotingCommand, response: RemotingCommand) -> None:
        """Call the hooks for a response. Never raises."""
        try:
            if self._sends and request.code in _SENDS:
                self._sent(request, response)
            if self._consumes:
                self._consumed(connection, request, response)
        except Exception:
            log.exception("response not shown to a hook", code=request.code)
        for hook in self._requests:
            try:
                hook.after_response(connection.remote, request, response)
            except Exception:
                log.exception("request hook failed", hook=type(hook).__name__)

    def _sent(self, request: RemotingCommand, response: RemotingCommand) -> None:
        _, context = self._open.pop(id(request), (None, None))
        if context is None:
            return
        fields = response.ext_fields or {}
        context.code = response.code
        context.remark = response.remark
        context.message_id = fields.get("msgId")
        context.queue_id = int(fields.get("queueId", context.queue_id))
        context.queue_offset = int(fields.get("queueOffset", -1))
        for hook in self._sends:
            try:
                hook.after_send(context)
            except Exception:
                log.exception("send hook failed", hook=type(hook).__name__)

    def _consumed(self, connection: Connection, request: RemotingCommand, response: RemotingCommand) -> None:
        if response.code != ResponseCode.SUCCESS:
            return
        if request.code == RequestCode.PULL_MESSAGE:
            pull = request.header(PullMessageRequestHeader)
            context = ConsumeContext(pull.consumer_group, pull.topic, pull.queue_id, connection.remote, response.body)
        elif request.code == RequestCode.CONSUMER_SEND_MSG_BACK:
            back = request.header(ConsumerSendMsgBackRequestHeader)
            context = ConsumeContext(
                back.group, back.origin_topic or "", -1, connection.remote, b"", back.origin_msg_id
            )
        else:
            return
        for hook in self._consumes:
            try:
                if request.code == RequestCode.PULL_MESSAGE:
                    hook.before_consume(context)
                else:
                    hook.after_consume(context)
            except Exception:
                log.exception("consume hook failed", hook=type(hook).__name__)


def _send_context(connection: Connection, request: RemotingCommand) -> SendContext:
    header: SendMessageRequestHeader | SendMessageRequestHeaderV2
    if request.code == RequestCode.SEND_MESSAGE:
        header = request.header(SendMessageRequestHeader)
    else:
        header = request.header(SendMessageRequestHeaderV2)
    return SendContext(
        producer_group=header.producer_group,
        topic=header.topic,
        queue_id=header.queue_id,
        remote=connection.remote,
        body_size_bytes=len(request.body),
        is_batch=header.batch,
        properties=property_text.parse(header.properties) if header.properties else {},
    )
