"""Message trace: who sent and who consumed each message, as messages of a trace topic (RocketMQ: AsyncTraceDispatcher).

    async with TraceSender(client) as trace:
        async with Producer("orders", client=client, send_hooks=[trace]) as producer, \\
                   PushConsumer("billing", client=client, consume_hooks=[trace]) as consumer: ...

Each event becomes a line of a trace message (protocol/trace_records.py). Lines are collected and sent in the
background; at most `MAX_WAITING` wait, and further ones are dropped and counted, because tracing must never slow down
or fail the application. `mqadmin queryMsgTraceById` and RocketMQ's dashboard read them.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

import trio

from triomq.client.core.errors import ClientClosed, MQClientError
from triomq.client.core.hooks import ConsumeContext, EndTransactionContext, SendContext
from triomq.client.core.log import get_logger
from triomq.client.core.outgoing import SendRules
from triomq.client.core.results import SendStatus
from triomq.client.instance.client import Client
from triomq.client.produce.sender import Sender
from triomq.protocol import property_names as names
from triomq.protocol import system_topics
from triomq.protocol.message import Message
from triomq.protocol.trace_records import (
    COMMITTED_MESSAGE,
    CONTEXT_CODES,
    DEFAULT_REGION,
    DELAYED_MESSAGE,
    END_TRANSACTION,
    HALF_MESSAGE,
    MAX_BODY_BYTES,
    NORMAL_MESSAGE,
    PUB,
    SUB_AFTER,
    SUB_BEFORE,
    TraceLine,
    keys_of,
    line,
    pack,
)
from triomq.remoting.process_bound import ProcessBound

log = get_logger("triomq.client.trace")

TRACE_GROUP = "_INNER_TRACE_PRODUCER"
MAX_WAITING = 2048
MAX_LINES = 100
SEND_INTERVAL_SECONDS = 0.5


def publish_lines(context: SendContext) -> list[TraceLine]:
    """Return the trace of a finished attempt to send."""
    lines: list[TraceLine] = []
    result = context.result
    ids = result.message_id.split(",") if result is not None else [None] * len(context.messages)
    offset_ids = result.offset_message_id.split(",") if result is not None else [None] * len(context.messages)
    success = result is not None and result.status is SendStatus.SEND_OK
    for message, message_id, offset_id in zip(context.messages, ids, offset_ids, strict=False):
        lines.append(
            TraceLine(
                line(
                    PUB,
                    context.began_ms,
                    (result.region_id if result is not None else None) or DEFAULT_REGION,
                    context.group,
                    message.topic,
                    message_id,
                    message.tags or "",
                    message.keys or "",
                    context.broker_address,
                    len(message.body),
                    context.cost_ms,
                    HALF_MESSAGE if context.is_half else _message_type(message),
                    offset_id,
                    success,
                ),
                keys_of(message_id, message.keys),
            )
        )
    return lines


def _message_type(message: Message) -> int:
    return DELAYED_MESSAGE if message.delay_level > 0 else NORMAL_MESSAGE


def end_transaction_line(context: EndTransactionContext) -> TraceLine:
    """Return the trace of a transaction's outcome."""
    message = context.message
    text = line(
        END_TRANSACTION,
        context.told_ms,
        message.properties.get(names.MSG_REGION) or DEFAULT_REGION,
        context.group,
        message.topic,
        context.message_id,
        message.tags or "",
        message.keys or "",
        context.broker_address,
        COMMITTED_MESSAGE,
        context.transaction_id,
        context.state,
        context.from_check,
    )
    return TraceLine(text, keys_of(context.message_id, message.keys))


def consume_before_lines(context: ConsumeContext, request_id: str) -> list[TraceLine]:
    """Return the trace of a listener call that begins, without messages whose producer switched tracing off."""
    return [
        TraceLine(
            line(
                SUB_BEFORE,
                context.began_ms,
                message.properties.get(names.MSG_REGION),
                context.group,
                request_id,
                message.msg_id,
                message.reconsume_times,
                message.keys or "",
            ),
            keys_of(message.msg_id, message.keys),
        )
        for message in context.messages
        if message.properties.get(names.TRACE_ON) != "false"
    ]


def consume_after_lines(context: ConsumeContext, request_id: str, now_ms: int) -> list[TraceLine]:
    """Return the trace of a listener call that has ended."""
    code = CONTEXT_CODES["SUCCESS" if context.success else "FAILED"]
    cost_ms = context.cost_ms // max(1, len(context.messages))
    return [
        TraceLine(
            line(
                SUB_AFTER,
                request_id,
                message.msg_id,
                cost_ms,
                context.success,
                message.keys or "",
                code,
                now_ms,
                context.group,
            ),
            keys_of(message.msg_id, message.keys),
        )
        for message in context.messages
        if message.properties.get(names.TRACE_ON) != "false"
    ]


class TraceSender(ProcessBound):
    """A send hook and a consume hook that sends what it sees to the trace topic, while its `async with` block is open
    (RocketMQ: AsyncTraceDispatcher).

    `dropped`: number of events that were not sent because too many waited, or because sending failed.
    """

    def __init__(self, client: Client, topic: str = system_topics.TRACE_TOPIC) -> None:
        self.topic = topic
        self.dropped = 0
        self._client = client
        self._waiting: deque[TraceLine] = deque()
        self._sender = Sender(
            client,
            client.namespace.wrap(f"{TRACE_GROUP}-{uuid.uuid4().hex[:8]}"),
            rules=SendRules(max_message_bytes=MAX_BODY_BYTES * 2),
        )
        self._stack = AsyncExitStack()
        self._open = False

    async def __aenter__(self) -> Self:
        if not self._client.is_open:
            raise ClientClosed("the client of the trace is not open")
        async with AsyncExitStack() as stack:
            nursery = await stack.enter_async_context(trio.open_nursery())
            nursery.start_soon(self._run)
            stack.push_async_callback(self._finish, nursery)
            self._stack = stack.pop_all()
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open = False
        await self._stack.aclose()

    async def _finish(self, nursery: trio.Nursery) -> None:
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 3):
            await self.flush()

    # SendHook and ConsumeHook.

    def before_send(self, context: SendContext) -> None:
        """Do nothing: an attempt is traced when it has ended."""

    def after_send(self, context: SendContext) -> None:
        if context.result is not None and not context.result.trace_on:
            return
        self._add(publish_lines(context))

    def after_end_transaction(self, context: EndTransactionContext) -> None:
        self._add([end_transaction_line(context)])

    def before_consume(self, context: ConsumeContext) -> None:
        context.notes["trace"] = uuid.uuid4().hex
        self._add(consume_before_lines(context, context.notes["trace"]))

    def after_consume(self, context: ConsumeContext) -> None:
        request_id = context.notes.get("trace")
        if isinstance(request_id, str):
            self._add(consume_after_lines(context, request_id, self._client.config.now_ms()))

    def _add(self, lines: Sequence[TraceLine]) -> None:
        room = MAX_WAITING - len(self._waiting) if self._open else 0
        self._waiting.extend(lines[:room])
        self.dropped += max(0, len(lines) - room)

    # Sending.

    async def _run(self) -> None:
        while True:
            await trio.sleep(SEND_INTERVAL_SECONDS)
            await self.flush()

    async def flush(self) -> None:
        """Send the events that wait now."""
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(MAX_LINES, len(self._waiting)))]
            for body, keys in pack(batch):
                try:
                    await self._sender.send(Message(self.topic, body.encode(), keys=sorted(keys)))
                except MQClientError as error:
                    self.dropped += len(batch)
                    log.warning("trace not sent", topic=self.topic, error=str(error))
