"""What push consumers have received and not acknowledged: it is ready again when its client ends or is lost."""

from __future__ import annotations

from triomq.broker.assembly.pop_on_demand import PopOnDemand
from triomq.broker.pop.group_queues import Key

Place = tuple[str, str, int, int]
"""Topic, group, queue id, queue offset."""


class Held:
    """What a push consumer has and has not acknowledged: place -> when it was received (Unix ms)."""

    def __init__(self, pop: PopOnDemand) -> None:
        self._pop = pop
        self._popped: dict[Place, int] = {}

    def add(self, place: Place, popped_ms: int) -> None:
        self._popped[place] = popped_ms

    def done(self, place: Place) -> None:
        self._popped.pop(place, None)

    def forget(self) -> None:
        """Leave all with the client: the broker stops, and the client may find it again (in_flight.HELD_MS)."""
        self._popped.clear()

    def give_back(self) -> None:
        """Let all be ready again soon."""
        popped, self._popped = self._popped, {}
        give_back(self._pop, popped)


def give_back(pop: PopOnDemand, popped: dict[Place, int]) -> None:
    """Let messages be ready again, whose handles of those receives are still valid."""
    if popped:
        pop.give_back([(Key(place[0], place[1], place[2]), place[3], popped_ms) for place, popped_ms in popped.items()])
