"""A pull that exceeds a quota: it is held for a time, whatever comes to its queue, and then runs again, as long as its
client allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from triomq.broker.pulls.long_polling import LongPolling, Parked
from triomq.broker.quotas.quotas import Excess, Quotas
from triomq.protocol.command import RemotingCommand

SHORTEST_DELAY_SECONDS: Final = 0.05
DELAYED_A_SECOND: Final = 1000
"""How many delayed pulls of one connection run again in a second, at most."""


class OverQuota:
    """`respond` makes a response that finds nothing, with a remark."""

    __slots__ = ("_excess", "_quotas", "_respond")

    def __init__(self, quotas: Quotas, excess: Excess, respond: Callable[[str], RemotingCommand]) -> None:
        self._quotas = quotas
        self._excess = excess
        self._respond = respond

    def hold(self, polling: LongPolling, pull: Parked) -> bool:
        """Hold a pull, unless its time is over. Return whether it is held. The pulls of one connection run one after
        the other: there may be room for one, and many that look for it at once would hold up the others."""
        now = trio.current_time()
        if pull.patience_end <= now:
            return False
        if not pull.is_delayed:
            pull.is_delayed = True
            self._quotas.delayed(self._excess)
        pull.waited_for = self
        delay_seconds = max(self._excess.wait_seconds, SHORTEST_DELAY_SECONDS)
        delay_seconds += polling.held_by(pull.connection) / DELAYED_A_SECOND
        polling.hold(pull, min(pull.patience_end, now + delay_seconds))
        return True

    def response(self, pull: Parked) -> RemotingCommand:
        """Return the response to a pull that is not held: its client pulls again."""
        return self._respond(self._excess.remark)
