"""Which queues of a topic one member of a consumer group consumes. Pure functions of the sorted queues and members.

There is no coordinator: every member computes its own share from the same two lists. So all members of a group MUST use
the same strategy, and the results MUST equal those of RocketMQ's Java classes of the same meaning, because a group may
mix both. A strategy is any callable with the signature of `Strategy`; the ones here are objects only to carry their
parameters.
"""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from triomq.client.core.by_arguments import ByArguments
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.sharing import evenly, in_a_circle


class Strategy(Protocol):
    """Decides which queues of a topic one member of a group consumes (RocketMQ: AllocateMessageQueueStrategy). `queues`
    and `members` (client ids) are sorted and free of duplicates. Returns the share of `member`."""

    @property
    def name(self) -> str: ...

    def __call__(
        self, group: str, member: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]: ...


class Averagely(ByArguments):
    """Contiguous blocks; when the division leaves a rest, the first blocks are one larger
    (AllocateMessageQueueAveragely). The default."""

    name = "AVG"

    def __call__(
        self, group: str, member: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        if member not in members:
            return []
        return [queues[at] for at in evenly(len(queues), len(members), members.index(member))]


class AveragelyByCircle(ByArguments):
    """Round robin: member i consumes the queues i, i+n, i+2n, ... (AllocateMessageQueueAveragelyByCircle)."""

    name = "AVG_BY_CIRCLE"

    def __call__(
        self, group: str, member: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        if member not in members:
            return []
        return [queues[at] for at in in_a_circle(len(queues), len(members), members.index(member))]


def md5_ring_position(text: str) -> int:
    """Return the first four bytes of MD5, big endian and unsigned: the position of a key on Java's default hash
    ring."""
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4], "big")


class ConsistentHash(ByArguments):
    """A hash ring with virtual nodes: few queues move when a member comes or goes (AllocateMessageQueueConsistentHash).

    `virtual_nodes`: places of each member on the ring (10 in Java). `position`: text to a place on the ring.
    """

    name = "CONSISTENT_HASH"

    def __init__(self, virtual_nodes: int = 10, position: Callable[[str], int] = md5_ring_position) -> None:
        if virtual_nodes < 1:
            raise ValueError(f"virtual_nodes must be at least 1, not {virtual_nodes}")
        self.virtual_nodes = virtual_nodes
        self._position = position

    def _arguments(self) -> tuple[Any, ...]:
        return self.virtual_nodes, self._position

    def __call__(
        self, group: str, member: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        if member not in members:
            return []
        # Later members win a shared position, as in a map that is filled in order.
        owners = {self._position(f"{one}-{number}"): one for one in members for number in range(self.virtual_nodes)}
        places = sorted(owners)

        def owner(queue: MessageQueue) -> str:
            # The text form is that of the Java class: every client must hash the same text.
            at = bisect.bisect_left(places, self._position(str(queue)))
            return owners[places[at % len(places)]]

        return [queue for queue in queues if owner(queue) == member]


class ByMachineRoom(ByArguments):
    """Only brokers named `<room>@<name>` whose room is one of `rooms`, in contiguous blocks of equal size; the first
    members share the rest one by one (AllocateMessageQueueByMachineRoom)."""

    name = "MACHINE_ROOM"

    def __init__(self, rooms: Collection[str]) -> None:
        self.rooms = frozenset(rooms)

    def _arguments(self) -> tuple[Any, ...]:
        return (self.rooms,)

    def __call__(
        self, group: str, member: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        if member not in members:
            return []
        here = [queue for queue in queues if self._room(queue.broker_name) in self.rooms]
        index = members.index(member)
        size, rest = divmod(len(here), len(members))
        share = here[index * size : (index + 1) * size]
        if index < rest:
            share.append(here[size * len(members) + index])
        return share

    @staticmethod
    def _room(broker_name: str) -> str | None:
        room, at, name = broker_name.partition("@")
        return room if at and name and "@" not in name else None


class MachineRoomNearby(ByArguments):
    """Queues of a room go to the members of that room; all members share rooms without a member
    (AllocateMachineRoomNearby). `room_of_broker` takes a queue, `room_of_member` a client id; `inner` divides."""

    def __init__(
        self,
        inner: Strategy,
        room_of_broker: Callable[[MessageQueue], str],
        room_of_member: Callable[[str], str],
    ) -> None:
        self.inner = inner
        self._room_of_broker = room_of_broker
        self._room_of_member = room_of_member

    def _arguments(self) -> tuple[Any, ...]:
        return self.inner, self._room_of_broker, self._room_of_member

    @property
    def name(self) -> str:
        return f"MACHINE_ROOM_NEARBY-{self.inner.name}"

    def __call__(
        self, group: str, member: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        if member not in members:
            return []
        queues_of: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            queues_of.setdefault(self._room_of_broker(queue), []).append(queue)
        members_of: dict[str, list[str]] = {}
        for one in members:
            members_of.setdefault(self._room_of_member(one), []).append(one)
        own = self._room_of_member(member)
        share = self.inner(group, member, queues_of.pop(own, []), members_of[own])
        for room in sorted(queues_of):
            if room not in members_of:
                share.extend(self.inner(group, member, queues_of[room], members))
        return share


class ByConfig(ByArguments):
    """Exactly the configured queues, whatever other members there are (AllocateMessageQueueByConfig).

    `queues`: the same for every topic, or a mapping from topic to its queues.
    """

    name = "CONFIG"

    def __init__(self, queues: Sequence[MessageQueue] | Mapping[str, Sequence[MessageQueue]]) -> None:
        self._queues = queues

    def _arguments(self) -> tuple[Any, ...]:
        return (self._queues,)

    def __call__(
        self, group: str, member: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        if not isinstance(self._queues, Mapping):
            wanted: Sequence[MessageQueue] = self._queues
        else:
            wanted = self._queues.get(queues[0].topic, ()) if queues else ()
        return [queue for queue in wanted if queue in queues]
