"""One message that the application holds, and the ways to settle it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol

from triomq.client.consume.assigned import AssignedQueue
from triomq.client.core.hooks import ConsumeContext
from triomq.client.core.results import DeadLetter, RetryLater
from triomq.client.core.spans import NO_PROCESS_SPAN
from triomq.protocol.message import MessageExt

if TYPE_CHECKING:  # type checkers bring `typing_extensions` themselves
    from typing_extensions import TypeVar

    V = TypeVar("V", default=Any)
else:
    from typing import TypeVar

    V = TypeVar("V")


class Settler(Protocol):
    """Notified of what became of a delivery; called once, on the event loop."""

    def settled(self, delivery: Delivery, error: RetryLater | None) -> None:
        """The message is consumed, or (`error`) must be delivered again later."""

    def returned(self, delivery: Delivery) -> None:
        """The message was not consumed."""


class Delivery(Generic[V]):
    """One message that `receive` returned, with the ways to settle it. Only the first call counts."""

    __slots__ = ("_settler", "assigned", "began", "context", "message", "span")

    def __init__(self, message: MessageExt[V], settler: Settler, assigned: AssignedQueue | None = None) -> None:
        self.message = message
        self.assigned = assigned
        self.began = 0.0
        self.context: ConsumeContext | None = None
        self.span = NO_PROCESS_SPAN
        """What a loop over the messages enters while it has this one."""
        self._settler: Settler | None = settler

    def ack(self) -> None:
        """Settle the message as consumed."""
        settler = self._settler
        if settler is not None:
            self._settler = None
            settler.settled(self, None)

    def retry_later(self, delay_level: int = 0) -> None:
        """Have the message delivered again later; see `RetryLater`."""
        settler = self._settler
        if settler is not None:
            self._settler = None
            settler.settled(self, RetryLater(delay_level))

    def dead_letter(self, reason: str) -> None:
        """Have the message stored in the dead letter topic at once; see `DeadLetter`."""
        settler = self._settler
        if settler is not None:
            self._settler = None
            settler.settled(self, DeadLetter(reason))

    def abandon(self) -> None:
        """End the span of a message that a loop has left and nobody settles: the consumer closes."""
        self.span.leave()
        self.span.end("unsettled")

    def give_back(self) -> None:
        """Return the message unconsumed: the next `receive` returns it."""
        settler = self._settler
        if settler is not None:
            self._settler = None
            settler.returned(self)
