"""A pull that finds nothing new: it waits for news of its queue, as long as its client allows."""

from __future__ import annotations

from collections.abc import Callable

import trio

from triomq.broker.pulls.long_polling import LongPolling, ParkedPull
from triomq.protocol.command import RemotingCommand
from triomq.store.results import MessageFilter


class NothingNew:
    """`respond` makes the response that says so."""

    __slots__ = ("_message_filter", "_respond")

    def __init__(self, message_filter: MessageFilter | None, respond: Callable[[], RemotingCommand]) -> None:
        self._message_filter = message_filter
        self._respond = respond

    def hold(self, polling: LongPolling, pull: ParkedPull) -> bool:
        """Hold a pull, unless its time is over, or it has just waited for the same: news that are none, such as a queue
        that was restarted, would come again at once. Return whether it is held."""
        if pull.patience_end <= trio.current_time() or isinstance(pull.waited_for, NothingNew):
            return False
        pull.waited_for = self
        polling.hold_for_news(pull, self._message_filter)
        return True

    def response(self, pull: ParkedPull) -> RemotingCommand:
        """Return the response to a pull that is not held."""
        return self._respond()
