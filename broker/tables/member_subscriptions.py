"""What each member of a group subscribed to with its last heartbeat, for those who look. The broker filters by the
subscriptions of the group (consumers.py), so nothing here decides which messages a member gets.

Members mostly agree: what they subscribe to is kept once for all of them, with a count.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from triomq.broker.tables import entry_costs
from triomq.protocol.subscription import TAG, SubscriptionData

MOST_KEPT: Final = 64
"""Subscriptions of one member that are kept, the first by topic."""

Wanted: TypeAlias = tuple[tuple[str, str, str], ...]
"""Topic, kind and expression of each subscription, by topic."""


def wanted_of(subscriptions: Iterable[SubscriptionData]) -> Wanted:
    """Return what a heartbeat subscribes to; MOST_KEPT + 1 entries say that there were more."""
    found = sorted([(one.topic, one.expression_type or TAG, one.sub_string) for one in subscriptions])
    return tuple(found[: MOST_KEPT + 1])


def kind_of(subscription: SubscriptionData) -> str:
    """Return the type of a subscription's expression; an absent or empty one counts as TAG."""
    return subscription.expression_type or TAG


def cost_of(wanted: Wanted) -> int:
    """Return the bytes that an entry of `Shared` takes."""
    texts = sum([len(topic) + len(kind) + len(expression) for topic, kind, expression in wanted])
    return entry_costs.SUBSCRIPTION * (1 + len(wanted)) + entry_costs.TEXT * texts


class Shared:
    """What the members of one group subscribe to, each thing once, with the number of members that do."""

    __slots__ = ("_known", "held_bytes")

    def __init__(self) -> None:
        self._known: dict[Wanted, tuple[Wanted, int]] = {}
        self.held_bytes = 0

    def take(self, wanted: Wanted) -> Wanted:
        """Count a member. Return what it keeps: the same object as the other members that want this."""
        kept, count = self._known.get(wanted, (wanted, 0))
        if not count:
            self.held_bytes += cost_of(wanted)
        self._known[kept] = kept, count + 1
        return kept

    def release(self, wanted: Wanted) -> None:
        """Count one member less."""
        kept, count = self._known[wanted]
        if count > 1:
            self._known[kept] = kept, count - 1
        else:
            del self._known[kept]
            self.held_bytes -= cost_of(kept)
