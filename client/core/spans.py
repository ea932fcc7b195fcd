"""Spans of sends and of listener calls, as the rest of the client sees them; the ones here do nothing.

`Spans` is what a client has when nobody asks for traces. `open_telemetry.py` has those that make spans of
OpenTelemetry; it is imported only when a client is created with `otel`. None of these methods raises, so a trace costs
no message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from triomq.client.core.results import SendResult
from triomq.protocol.message import Message, MessageExt
from triomq.protocol.message_queue import MessageQueue

NOTHING: Mapping[str, str] = {}


class SendSpan:
    """One send with all its attempts, as a `with` block; `carried`: the properties that a message takes along."""

    __slots__ = ()

    carried: Mapping[str, str] = NOTHING

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the span; `error` is why nothing is stored."""

    def stored(self, result: SendResult) -> None:
        """Note the response of the broker."""


class ProcessSpan:
    """One call of the listener, or one message in the hands of the application.

    `enter` makes it the current span of this task or thread, `leave` undoes that there. As a `with` block it enters and
    leaves, and ends when an exception passes. Only the first `end` counts.
    """

    __slots__ = ()

    def enter(self) -> None:
        """Make this the current span."""

    def leave(self) -> None:
        """Make the span current again that was so before; called by the task or thread that entered."""

    def end(self, error_type: str | None = None, reason: str = "") -> None:
        """End the span; `error_type` names why the messages are not consumed."""

    def __enter__(self) -> Self:
        self.enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.leave()
        if error is not None:
            self.end(type(error).__name__, str(error))


NO_SEND_SPAN = SendSpan()
NO_PROCESS_SPAN = ProcessSpan()


class Spans:
    """What a client asks for spans."""

    def sending(self, messages: Sequence[Message], *, is_transaction: bool = False) -> SendSpan:
        """Return the span of one request that sends these messages of one topic."""
        return NO_SEND_SPAN

    def settling(self, message: Message, state: str, *, is_check: bool) -> SendSpan:
        """Return the span of the request with a transaction's outcome; `is_check`: the broker asked."""
        return NO_SEND_SPAN

    def processing(
        self, group: str, queue: MessageQueue, messages: Sequence[MessageExt], *, is_broadcasting: bool
    ) -> ProcessSpan:
        """Return the span of one call of the listener, or of one message that a task takes."""
        return NO_PROCESS_SPAN

    def current(self) -> ProcessSpan:
        """Return what lets another task or thread enter the span that is current here, and which others end."""
        return NO_PROCESS_SPAN

    def carried_bytes(self) -> int:
        """Return how many bytes of properties each message of a batch takes along."""
        return 0


NO_SPANS = Spans()
