"""One message in the application's hands, and the ways to settle it."""

from __future__ import annotations

from typing import Protocol

from triomq.client.consume.assigned import AssignedQueue
from triomq.client.core.hooks import ConsumeContext
from triomq.client.core.results import RetryLater
from triomq.protocol.message import MessageExt


class Settler(Protocol):
    """Who wants to know what became of a delivery; called once, on the event loop."""

    def settled(self, delivery: Delivery, error: RetryLater | None) -> None:
        """It is consumed, or (`error`) shall come again later."""

    def returned(self, delivery: Delivery) -> None:
        """It was not looked at."""


class Delivery:
    """One message handed out by `receive`, with the ways to settle it. The first one counts."""

    __slots__ = ("_settler", "assigned", "began", "context", "message")

    def __init__(self, message: MessageExt, settler: Settler, assigned: AssignedQueue | None = None) -> None:
        self.message = message
        self.assigned = assigned
        self.began = 0.0
        self.context: ConsumeContext | None = None
        self._settler: Settler | None = settler

    def ack(self) -> None:
        """It is consumed."""
        settler = self._settler
        if settler is not None:
            self._settler = None
            settler.settled(self, None)

    def retry_later(self, delay_level: int = 0) -> None:
        """Deliver it again later; see `RetryLater`."""
        settler = self._settler
        if settler is not None:
            self._settler = None
            settler.settled(self, RetryLater(delay_level))

    def give_back(self) -> None:
        """It was not looked at: hand it to whoever asks next."""
        settler = self._settler
        if settler is not None:
            self._settler = None
            settler.returned(self)
