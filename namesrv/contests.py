"""Contests: addresses that take one broker name and id from each other, for those who ask what is wrong. Pure.

Two masters that were given one name displace each other at each registration. A master that is replaced by another
loses its place once, and one that comes back as a slave registers under another id; so only a name and id that two
addresses have lost within CONTEST_SECONDS is contested. At most MOST_CONTESTED_NAMES are kept, those of the last
losses, and none with a text longer than MOST_CHARACTERS: so they need not count in the memory of the tables.
"""

from __future__ import annotations

from typing import Final

from triomq.namesrv.departed import MOST_CHARACTERS

CONTEST_SECONDS: Final = 90.0
"""Three periods of registration."""
MOST_CONTESTED_NAMES: Final = 100
MOST_CONTESTANTS: Final = 8
"""Addresses that are remembered of one name and id."""

_Place = tuple[str, int]


class Contests:
    """See the module's docstring. Times are seconds of the same clock as those of BrokerTable."""

    def __init__(self) -> None:
        self._losses: dict[_Place, dict[str, float]] = {}  # address -> when it lost the place; the last loss is last

    def lost(self, name: str, broker_id: int, address: str, now: float) -> None:
        """Note that another address took this name and id from a live broker."""
        if max(len(name), len(address)) > MOST_CHARACTERS:
            return
        losses = self._losses.pop((name, broker_id), {})
        losses.pop(address, None)
        losses[address] = now
        if len(losses) > MOST_CONTESTANTS:
            del losses[next(iter(losses))]
        if len(self._losses) >= MOST_CONTESTED_NAMES:
            del self._losses[next(iter(self._losses))]
        self._losses[name, broker_id] = losses

    def gave_up(self, name: str, broker_id: int, address: str) -> None:
        """Forget the losses of an address that has unregistered, or registered under another id."""
        losses = self._losses.get((name, broker_id))
        if losses is not None and losses.pop(address, None) is not None and not losses:
            del self._losses[name, broker_id]

    def recent(self, now: float) -> dict[_Place, list[str]]:
        """Return the addresses, sorted, that contest a name and id; forget losses of more than CONTEST_SECONDS ago."""
        for (name, broker_id), losses in list(self._losses.items()):
            for address in [address for address, lost in losses.items() if now - lost > CONTEST_SECONDS]:
                self.gave_up(name, broker_id, address)
        return {place: sorted(losses) for place, losses in self._losses.items() if len(losses) > 1}

    def time_jumped(self, seconds: float) -> None:
        """Shift the times, as BrokerTable does."""
        for losses in self._losses.values():
            for address in losses:
                losses[address] += seconds
