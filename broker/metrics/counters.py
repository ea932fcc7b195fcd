"""Counters by name and key: what is counted too rarely for a table of its own (SNDBCK_PUT_NUMS and the COMMERCIAL_
family of RocketMQ's BrokerStatsManager). BrokerStats has them, and their limit; only the event loop touches them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from triomq.broker.metrics.sampling import Flow, Timeline
from triomq.broker.metrics.stats_names import SNDBCK_PUT_NUMS


class Counters:
    """`has_room` returns whether there is room for one more."""

    def __init__(self, spans: Sequence[Timeline], has_room: Callable[[], bool]) -> None:
        self._spans = spans
        self._has_room = has_room
        self._flows: dict[tuple[str, str], Flow] = {}

    def __len__(self) -> int:
        return len(self._flows)

    def add(self, name: str, key: str, amount: int) -> None:
        """Add to a counter. A new one is not counted if there is no room."""
        flow = self._flows.get((name, key))
        if flow is None:
            if not self._has_room():
                return
            flow = self._flows[name, key] = Flow(self._spans)
        flow.messages += amount
        flow.times += 1

    def find(self, name: str, key: str) -> Flow | None:
        return self._flows.get((name, key))

    def keys(self, name: str) -> list[str]:
        """Return the keys that were counted under this name."""
        return [key for counted, key in self._flows if counted == name]

    def named(self) -> Iterator[tuple[str, str, Flow]]:
        """Return every counter with its name and key."""
        return ((name, key, flow) for (name, key), flow in self._flows.items())

    def flows(self) -> Iterator[Flow]:
        return iter(self._flows.values())

    def sweep(self) -> None:
        """Drop what has not been counted for a day."""
        self._flows = {key: flow for key, flow in self._flows.items() if not flow.is_at_rest}

    def forget_topic(self, topic: str) -> None:
        """Drop the counters of a deleted topic."""
        self._forget(lambda name, parts: parts[0 if name == SNDBCK_PUT_NUMS else 1] == topic)

    def forget_group(self, group: str) -> None:
        """Drop the counters of a deleted subscription group."""
        self._forget(lambda name, parts: parts[1 if name == SNDBCK_PUT_NUMS else 2] == group)

    def _forget(self, is_gone: Callable[[str, list[str]], bool]) -> None:
        self._flows = {
            (name, key): flow
            for (name, key), flow in self._flows.items()
            if not is_gone(name, [*key.split("@"), "", "", ""])
        }
