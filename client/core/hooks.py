"""Hooks: where applications can observe what the client does. All hooks are plain calls on the event loop and must not
block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from triomq.client.core.results import SendResult
from triomq.protocol.command import RemotingCommand
from triomq.protocol.message import Message, MessageExt
from triomq.protocol.message_queue import MessageQueue


class RequestHook(Protocol):
    """Sees every request of a client (RocketMQ: RPCHook). An exception of `before_request` prevents the request."""

    def before_request(self, address: str, request: RemotingCommand) -> None:
        """Called before a request is sent. May change its extension fields."""

    def after_response(self, address: str, request: RemotingCommand, response: RemotingCommand | None) -> None:
        """Called after a response; `response` is None for one-way requests."""


@dataclass(slots=True)
class SendContext:
    """One attempt to send (RocketMQ: SendMessageContext). `notes` is free for the hooks."""

    group: str
    message: Message
    messages: Sequence[Message]
    """The messages of a batch, else the one."""
    queue: MessageQueue
    broker_address: str
    began_ms: int
    is_half: bool = False
    """The half message of a transaction."""
    result: SendResult | None = None
    error: BaseException | None = None
    cost_ms: int = 0
    notes: dict[str, Any] = field(default_factory=dict)


class SendHook(Protocol):
    """Around every attempt to send a message (RocketMQ: SendMessageHook)."""

    def before_send(self, context: SendContext) -> None: ...

    def after_send(self, context: SendContext) -> None: ...


@dataclass(frozen=True, slots=True)
class EndTransactionContext:
    """The outcome of a transaction, as it was sent to the broker (RocketMQ: EndTransactionContext).

    `state`: name of a LocalTransactionState. `from_check`: whether the broker had asked.
    """

    group: str
    message: Message
    message_id: str
    transaction_id: str
    broker_address: str
    state: str
    from_check: bool
    told_ms: int


class EndTransactionHook(Protocol):
    """Sees every outcome that is sent to a broker (RocketMQ: EndTransactionHook); any send hook may be one as well."""

    def after_end_transaction(self, context: EndTransactionContext) -> None: ...


@dataclass(slots=True)
class ConsumeContext:
    """One call of the listener (RocketMQ: ConsumeMessageContext). `status` is set afterwards."""

    group: str
    messages: Sequence[MessageExt]
    queue: MessageQueue
    began_ms: int
    success: bool = False
    status: str = ""
    cost_ms: int = 0
    notes: dict[str, Any] = field(default_factory=dict)


class ConsumeHook(Protocol):
    """Around every call of the listener (RocketMQ: ConsumeMessageHook)."""

    def before_consume(self, context: ConsumeContext) -> None: ...

    def after_consume(self, context: ConsumeContext) -> None: ...


class FilterHook(Protocol):
    """Sees the messages of a pull before the application does, and returns those to keep (RocketMQ:
    FilterMessageHook)."""

    def keep(self, group: str, queue: MessageQueue, messages: Sequence[MessageExt]) -> Sequence[MessageExt]: ...
