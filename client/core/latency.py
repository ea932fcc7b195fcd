"""Which brokers to avoid for a while after slow or failed sends (RocketMQ: MQFaultStrategy, LatencyFaultTolerance).

Holds one entry for each broker name that responded slowly; entries of brokers that left the routes stay until
`forget`, so the table is bounded by the number of broker names a process ever meets. Owned by one producer, touched
only from its sends. May not live here: routes, clocks (the caller passes milliseconds of one monotonic clock), the
choice of queues.
"""

from __future__ import annotations

from dataclasses import dataclass

# A send that took at least the first number of milliseconds keeps its broker out of use for the second.
LATENCY_STEPS_MS: tuple[tuple[int, int], ...] = (
    (15_000, 30_000),
    (5_000, 10_000),
    (3_000, 6_000),
    (1_800, 5_000),
    (550, 2_000),
)
ISOLATION_LATENCY_MS = 30_000
"""The latency a failed send counts as, so that its broker is avoided for the longest step."""


@dataclass(slots=True)
class _Fault:
    latency_ms: int
    available_from_ms: int


def avoidance_ms(latency_ms: int) -> int:
    """Return for how many milliseconds a broker with this latency is avoided."""
    for latency, avoid in LATENCY_STEPS_MS:
        if latency_ms >= latency:
            return avoid
    return 0


class LatencyFaults:
    """The brokers to avoid. `enabled=False` (RocketMQ's default) makes every broker available at all times."""

    def __init__(self, enabled: bool = False) -> None:
        self.enabled = enabled
        self._faults: dict[str, _Fault] = {}

    def record(self, broker_name: str, latency_ms: int, now_ms: int, *, failed: bool = False) -> None:
        """Record that a send to this broker took `latency_ms`; `failed` counts as the longest latency."""
        if not self.enabled:
            return
        counted = ISOLATION_LATENCY_MS if failed else latency_ms
        self._faults[broker_name] = _Fault(latency_ms, now_ms + avoidance_ms(counted))

    def is_available(self, broker_name: str, now_ms: int) -> bool:
        fault = self._faults.get(broker_name)
        return fault is None or now_ms >= fault.available_from_ms

    def forget(self, broker_name: str) -> None:
        self._faults.pop(broker_name, None)

    def least_bad(self, broker_names: list[str], now_ms: int) -> str | None:
        """Return the broker to try first when all are avoided: soonest available, then fastest. None for an empty
        list."""

        def badness(name: str) -> tuple[int, int]:
            fault = self._faults.get(name)
            return (0, 0) if fault is None else (max(0, fault.available_from_ms - now_ms), fault.latency_ms)

        return min(broker_names, key=badness, default=None)
