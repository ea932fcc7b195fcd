"""A message that a `SimpleConsumer` has received, with what it takes to acknowledge it."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from triomq.protocol.message import Message, MessageExt, V
from triomq.protocol.receipt_handle import ReceiptHandle

_COPIED = [name for kind in (Message, MessageExt) for name in kind.__slots__ if name != "_settlement"]


class Receipt(Struct, frozen=True):
    """One delivery of a message to a group. `group` and `topic` are wire names; `stored_in` is the topic that has the
    message, a retry topic if a broker of RocketMQ delivers it again. `held_until_ms` is when the invisible time may be
    over at the earliest, by the client's clock (Unix ms): counted from the request."""

    group: str
    topic: str
    stored_in: str
    handle: ReceiptHandle
    held_until_ms: int


class ReceivedMessage(MessageExt[V]):
    """A message that a `SimpleConsumer` has received. It is hidden from the other members of the group until it is
    acknowledged, or its invisible time is over."""

    __slots__ = ("_receipt",)

    _receipt: Receipt

    @property
    def delivery_attempt(self) -> int:
        """How often the group has received this message, from 1."""
        return self.reconsume_times + 1

    @property
    def invisible_until_ms(self) -> int:
        """When the message is delivered again, unless it is acknowledged before: Unix ms by the broker's clock."""
        handle = self._receipt.handle
        return handle.popped_ms + handle.invisible_ms

    def __getstate__(self) -> tuple[None, dict[str, Any]]:
        """Return what copies and pickles carry; each can be acknowledged."""
        _, state = super().__getstate__()
        return None, {**state, "_receipt": self._receipt}


def with_receipt(message: MessageExt[V], receipt: Receipt) -> ReceivedMessage[V]:
    """Return a decoded message with its receipt."""
    made: ReceivedMessage[V] = ReceivedMessage.__new__(ReceivedMessage)
    for name in _COPIED:
        if hasattr(message, name):
            setattr(made, name, getattr(message, name))
    made._receipt = receipt
    return made
