"""Which queues of a topic the broker assigns to one client of a group (RocketMQ: QueryAssignmentProcessor).

It does what clients of RocketMQ otherwise do themselves, by the strategy that the client names. Queues and clients are
sorted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from triomq.protocol.sharing import evenly, in_a_circle

STRATEGIES: Final[Mapping[str, Callable[[int, int, int], range]]] = {"AVG": evenly, "AVG_BY_CIRCLE": in_a_circle}
"""By the names that clients of RocketMQ send."""


def pulled(strategy: str, queues: int, clients: Sequence[str], client_id: str) -> range:
    """Return the queues from which a client pulls; none if it is not a member."""
    if client_id not in clients:
        return range(0)
    return STRATEGIES[strategy](queues, len(clients), clients.index(client_id))


def received(strategy: str, queues: int, clients: Sequence[str], client_id: str, shared_by: int) -> list[int] | None:
    """Return the queues from which a client receives (POP), in order; None: all.

    Each client receives from its own queues and from those of the `shared_by` clients behind it, so that those of a
    client that is stuck have others. 0, or as many as there are others: all receive from all."""
    if shared_by <= 0 or shared_by >= len(clients) - 1:
        return None
    if client_id not in clients or not queues:
        return []
    own = clients.index(client_id)
    if len(clients) > queues:
        return [own % queues]
    turns = [(own + behind) % len(clients) for behind in range(shared_by + 1)]
    return sorted({queue for turn in turns for queue in STRATEGIES[strategy](queues, len(clients), turn)})
