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

    def give_back(self) -> None:
        """Let all be ready again now."""
        popped, self._popped = self._popped, {}
        for place, popped_ms in popped.items():
            give_back(self._pop, place, popped_ms)


def give_back(pop: PopOnDemand, place: Place, popped_ms: int) -> None:
    """Let a message be ready again now, if the handle of that receive is still valid."""
    if pop.parts is not None:
        topic, group, queue_id, queue_offset = place
        pop.parts.deliveries.change_invisible_time(Key(topic, group, queue_id), queue_offset, popped_ms, 0)
