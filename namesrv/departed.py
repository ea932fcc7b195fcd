"""Departed: brokers that were registered within a day and are not now, for those who ask what is wrong. Pure.

A broker is back when its address registers again, or another address takes its name and id. At most MOST are kept, the
newest, and none with a text that is longer than MOST_CHARACTERS: so they need not count in the memory of the tables.
Nothing survives a restart.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

KEPT_SECONDS: Final = 24 * 3600.0
MOST: Final = 1000
MOST_CHARACTERS: Final = 255
MOST_TOPICS: Final = 5
"""Topics that are remembered of a name that left with its last broker."""


class DepartedBroker(Struct, frozen=True):
    """`last_seen`: when it registered last. `is_orderly`: it unregistered, as a broker does that is stopped. `topics`:
    some of those that its name had, if it was the last of its name."""

    cluster: str
    name: str
    id: int
    address: str
    last_seen: float
    is_orderly: bool
    topics: tuple[str, ...] = ()


class Departed:
    """See the module's docstring. Times are seconds of the same clock as those of BrokerTable."""

    def __init__(self) -> None:
        self._by_address: dict[str, DepartedBroker] = {}  # those that left first come first
        self._by_place: dict[tuple[str, int], str] = {}

    def left(self, broker: DepartedBroker) -> None:
        """Remember a broker that has left."""
        self.came(broker.address, broker.name, broker.id)
        if max(map(len, (broker.cluster, broker.name, broker.address, *broker.topics))) > MOST_CHARACTERS:
            return
        if len(self._by_address) >= MOST:
            self._forget(next(iter(self._by_address)))
        self._by_address[broker.address] = broker
        self._by_place[broker.name, broker.id] = broker.address

    def came(self, address: str, name: str, broker_id: int) -> None:
        """Forget those that are back with a registration."""
        for known in (address, self._by_place.get((name, broker_id))):
            if known in self._by_address:
                self._forget(known)

    def recent(self, now: float) -> list[DepartedBroker]:
        """Return those that left within a day, those that left first first; forget the others."""
        for broker in list(self._by_address.values()):
            if now - broker.last_seen > KEPT_SECONDS:
                self._forget(broker.address)
        return list(self._by_address.values())

    def time_jumped(self, seconds: float) -> None:
        """Shift the times, as BrokerTable does."""
        for address, broker in self._by_address.items():
            self._by_address[address] = replace(broker, last_seen=broker.last_seen + seconds)

    def _forget(self, address: str) -> None:
        broker = self._by_address.pop(address)
        del self._by_place[broker.name, broker.id]
