"""What one poll has taken, until the application has it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from triomq.client.consume.assigned import AssignedQueue
from triomq.protocol.message import MessageExt


class Polled:
    """The messages of one pull. A facade whose caller has gone gives them back."""

    __slots__ = ("_assigned", "_returned", "messages")

    def __init__(
        self,
        returned: Callable[[AssignedQueue, Sequence[MessageExt]], None],
        assigned: AssignedQueue,
        messages: list[MessageExt[Any]],
    ) -> None:
        self._returned = returned
        self._assigned = assigned
        self.messages = messages

    def give_back(self) -> None:
        """Have the next poll return the messages."""
        self._returned(self._assigned, self.messages)
