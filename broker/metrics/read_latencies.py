"""How long the reads of pulls took, by group, topic and queue (GROUP_GET_LATENCY of RocketMQ's BrokerStatsManager).

Nearly all take less than a millisecond and cost nothing here: only the others are added up, and the number of reads
comes from the statistics of the queue. BrokerStats has these, and their limit; only the event loop touches them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from triomq.broker.metrics.backlogs import Key
from triomq.broker.metrics.sampling import Flow, Timeline

ALL_QUEUES: Final = -1
"""The queue id of the sum over all queues, which is counted without detail."""


class ReadLatencies:
    """`reads` returns how often a group received messages from a queue, or with ALL_QUEUES from a topic; None if
    nothing was ever counted. `has_room` returns whether there is room for one more. `detail` counts by queue."""

    def __init__(
        self,
        spans: Sequence[Timeline],
        has_room: Callable[[], bool],
        reads: Callable[[Key], int | None],
        *,
        detail: bool,
    ) -> None:
        self._spans = spans
        self._has_room = has_room
        self._reads = reads
        self._detail = detail
        self._flows: dict[Key, Flow] = {}

    def __len__(self) -> int:
        return len(self._flows)

    def add(self, group: str, topic: str, queue_id: int, latency_ms: int) -> None:
        """Record a read that took at least a millisecond. A new queue is not recorded if there is no room."""
        key = (group, topic, queue_id if self._detail else ALL_QUEUES)
        flow = self._flows.get(key)
        if flow is None:
            if not self._has_room():
                return
            flow = self._flows[key] = Flow(self._spans)
            flow.begin_with(self._reads(key) or 0)
        flow.messages += latency_ms
        flow.times += 1

    def find(self, key: str) -> Flow | None:
        """Return the flow under RocketMQ's key, an empty one if all reads took 0 ms; None if there was no read."""
        queue, topic, group = ["", *key.split("@")][-3:] if "@" in key else ("", "", "")
        if self._detail and queue.isdecimal():
            wanted = (group, topic, int(queue))
        elif not self._detail and not queue:
            wanted = (group, topic, ALL_QUEUES)
        else:
            return None
        known = self._flows.get(wanted)
        return Flow(self._spans) if known is None and self._reads(wanted) is not None else known

    def gather(self) -> None:
        """Count the reads that took 0 ms, too; called before samples are taken."""
        for key, flow in self._flows.items():
            flow.times = max(flow.times, self._reads(key) or 0)

    def named(self) -> Iterator[tuple[str, Flow]]:
        """Return every flow with RocketMQ's key."""
        return ((f"{queue_id}@{topic}@{group}", flow) for (group, topic, queue_id), flow in self._flows.items())

    def flows(self) -> Iterator[Flow]:
        return iter(self._flows.values())

    def forget(self, is_gone: Callable[[Key], bool]) -> None:
        """Drop the queues of deleted groups and topics."""
        self._flows = {key: flow for key, flow in self._flows.items() if not is_gone(key)}
