"""What push consumers have received and not acknowledged: it is ready again when its client ends or is lost."""

from __future__ import annotations

from triomq.broker.assembly.pop_on_demand import PopOnDemand
from triomq.broker.pop.group_queues import Key

Place = tuple[Key, int]
"""A queue of a group, and a queue offset."""


class Held:
    """What a push consumer has and has not acknowledged: place -> when it was received (Unix ms)."""

    def __init__(self, pop: PopOnDemand) -> None:
        self._pop = pop
        self._popped: dict[Place, int] = {}

    def add(self, place: Place, popped_ms: int) -> None:
        self._popped[place] = popped_ms

    def done(self, topic: str, group: str, queue_id: int, queue_offset: int) -> bool:
        """Forget a message. Return whether it was held."""
        if not self._popped:
            return False
        return self._popped.pop((Key(topic, group, queue_id), queue_offset), None) is not None

    def forget(self) -> None:
        """Leave all with the client: the broker stops, and the client may find it again (in_flight.HELD_MS)."""
        self._popped.clear()

    def give_back(self) -> None:
        """Let all be ready again soon."""
        popped, self._popped = self._popped, {}
        self._pop.give_back(popped)
