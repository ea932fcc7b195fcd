"""One message that the application holds, and the ways to settle it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol

from triomq.client.consume.assigned import AssignedQueue
from triomq.client.core.errors import CLOSED, ClientClosed, NotSettled
from triomq.client.core.hooks import ConsumeContext
from triomq.client.core.results import DeadLetter, RetryLater
from triomq.client.core.spans import NO_PROCESS_SPAN
from triomq.protocol.message import MessageExt
from triomq.remoting.process_bound import ProcessBound

if TYPE_CHECKING:  # type checkers bring `typing_extensions` themselves
    from typing_extensions import TypeVar

    V = TypeVar("V", default=Any)
else:
    from typing import TypeVar

    V = TypeVar("V")


class Settler(Protocol):
    """Notified of what becomes of a delivery, on the event loop: once of how it ends."""

    def begin(self, delivery: Delivery) -> None:
        """The application has the message now. Without an effect when that is known."""

    def settled(self, delivery: Delivery, error: RetryLater | None) -> None:
        """The message is consumed, or (`error`) must be delivered again later."""

    def returned(self, delivery: Delivery) -> None:
        """The message was not consumed."""


SETTLED_ALREADY = "this message is settled already"


class _Settled:
    """What a settled message has, in place of the delivery that refers to it."""

    def ack(self) -> None:
        raise NotSettled(SETTLED_ALREADY)

    def retry_later(self, delay_level: int = 0) -> None:
        raise NotSettled(SETTLED_ALREADY)


SETTLED = _Settled()


class Holder(Protocol):
    """The consumer's table of messages that are not settled (unsettled.py)."""

    def remove(self, delivery: Delivery[Any]) -> None: ...

    def settle(self, delivery: Delivery[Any], error: RetryLater | None) -> None: ...


class Delivery(ProcessBound, Generic[V]):
    """One message that `receive` returned, with the ways to settle it, from any task or thread. Each raises NotSettled
    when the message is settled already, and ClientClosed when the consumer is closed."""

    _instead = "pass on its message, and settle the delivery here"

    __slots__ = (
        "_settler",
        "assigned",
        "began",
        "context",
        "holder",
        "is_abandoned",
        "is_withdrawn",
        "message",
        "span",
    )

    def __init__(self, message: MessageExt[V], settler: Settler, assigned: AssignedQueue | None = None) -> None:
        self.message = message
        self.assigned = assigned
        self.began: float | None = None
        self.context: ConsumeContext | None = None
        self.holder: Holder | None = None
        self.is_abandoned = False
        self.is_withdrawn = False
        """Whether nobody waits any more for the message of an ordered queue to be settled."""
        self.span = NO_PROCESS_SPAN
        """What a loop over the messages enters while it has this one."""
        self._settler: Settler | None = settler

    def ack(self) -> None:
        """Settle the message as consumed."""
        self._at_home(None)

    def retry_later(self, delay_level: int = 0) -> None:
        """Have the message delivered again later; see `RetryLater`."""
        self._at_home(RetryLater(delay_level))

    def dead_letter(self, reason: str) -> None:
        """Have the message stored in the dead letter topic at once; see `DeadLetter`."""
        self._at_home(DeadLetter(reason))

    def settle_unless_settled(self, error: RetryLater | None = None) -> None:
        """Settle the message, in the consumer's thread, unless that was done."""
        if self._settler is not None:
            self.settle_here(error)

    def begin(self) -> None:
        """The application has this message now; called in the consumer's thread."""
        if self._settler is not None:
            self._settler.begin(self)

    @property
    def is_lost(self) -> bool:
        """Whether the queue of the message is another member's by now, or was reset."""
        return self.is_withdrawn or (self.assigned is not None and self.assigned.window.dropped)

    def abandon(self) -> None:
        """Note that nobody settles the message any more, and end its span: the consumer closes."""
        self.is_abandoned = True
        self.span.leave()
        self.span.end("unsettled")

    def check_not_abandoned(self) -> None:
        """Raise ClientClosed if the consumer was closed while the application had the message."""
        if self.is_abandoned:
            raise ClientClosed(CLOSED)

    def give_back(self) -> None:
        """Return the message unconsumed, in the consumer's thread: the next `receive` returns it."""
        if self._settler is not None:
            self._take_settler().returned(self)

    def _at_home(self, error: RetryLater | None) -> None:
        if self.holder is None:
            self.settle_here(error)
        else:
            self.span.leave()
            self.holder.settle(self, error)

    def settle_here(self, error: RetryLater | None) -> None:
        """Settle the message, in the consumer's thread. `error`: have it delivered again."""
        self._take_settler().settled(self, error)

    def _take_settler(self) -> Settler:
        settler, self._settler = self._settler, None
        if settler is None:
            raise NotSettled(SETTLED_ALREADY)
        self.message._settlement = SETTLED
        if self.holder is not None:
            self.holder.remove(self)
        return settler
