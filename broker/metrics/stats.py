"""BrokerStats: what the broker stored and handed out, by topic, group and queue (RocketMQ: BrokerStatsManager,
BrokerStats).

Every stored message passes through here, so counting is one look-up and a few additions on the flow of its queue. The
rest is derived: a topic is the sum of its queues, computed when samples are taken (sampling.py) or on request. The
names of the statistics and the form of their keys are RocketMQ's.

Only the event loop touches it. Limit: `max_flows` flows; beyond it, flows idle for a day are dropped, and new ones are
not counted (with one warning). The broker's totals are always counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import structlog

from triomq.broker.metrics.backlogs import Backlogs
from triomq.broker.metrics.counters import Counters
from triomq.broker.metrics.read_latencies import ALL_QUEUES, ReadLatencies
from triomq.broker.metrics.sampling import (
    DAY,
    HOUR,
    MESSAGES,
    MIDDLE_BYTES,
    MINUTE,
    SIZE_BYTES,
    SMALL_BYTES,
    UNKNOWN_OFFSET,
    Flow,
    timelines,
)
from triomq.broker.metrics.stats_names import (
    BROKER_GET_NUMS,
    BROKER_PUT_NUMS,
    GROUP_GET_LATENCY,
    GROUP_GET_NUMS,
    GROUP_GET_SIZE,
    QUEUE_GET_NUMS,
    QUEUE_GET_SIZE,
    QUEUE_PUT_NUMS,
    QUEUE_PUT_SIZE,
    SNDBCK_PUT_NUMS,
    TOPIC_PUT_NUMS,
    TOPIC_PUT_SIZE,
)
from triomq.protocol.bodies.broker_stats import BrokerStatsData, BrokerStatsItem
from triomq.protocol.clock import NowMs

log = structlog.get_logger("triomq.broker.stats")

MAX_FLOWS: Final = 100_000

_Put: TypeAlias = tuple[str, int]
_Get: TypeAlias = tuple[str, str, int]
NamedFlow: TypeAlias = tuple[str, str, Flow, int]


class BrokerStats:
    """All statistics of a broker. `put_total` and `get_total` are messages that clients sent and got since the start,
    `stored_total` all that were stored: also retries, halves and what the broker wrote by itself, `read_total` all that
    were read: also by the broker's transaction checks.
    `backlogs` is how far each group is behind the end of the log."""

    def __init__(self, cluster: str, *, now_ms: NowMs, detail: bool = True, max_flows: int = MAX_FLOWS) -> None:
        """`cluster` is the key of the broker's own totals; `detail` counts queues too (enableDetailStat)."""
        self._cluster = cluster
        self._now_ms = now_ms
        self._detail = detail
        self._max_flows = max_flows
        self._warned = False
        self._swept_at_tick = -1
        self.spans = timelines()
        self._puts: dict[_Put, Flow] = {}
        self._topics: dict[str, Flow] = {}
        self._gets: dict[_Get, Flow] = {}
        self._groups: dict[tuple[str, str], Flow] = {}
        self._latencies = ReadLatencies(self.spans, self._has_room, self._reads, detail=detail)
        self._others = Counters(self.spans, self._has_room)
        self.backlogs = Backlogs(max_flows)
        self._overflow = Flow(self.spans)
        self._broker_put = Flow(self.spans)
        self._broker_get = Flow(self.spans)
        self.put_total = self.stored_total = self.stored_size_total_bytes = self.put_failed_times = 0
        self.get_total = self.internal_get_total = self.get_found_times = self.get_missed_times = 0
        self.put_total_yesterday_morning = self.put_total_today_morning = 0
        self.get_total_yesterday_morning = self.get_total_today_morning = 0

    # -- counting ----------------------------------------------------------------------------------------------------

    def topic_put(self, topic: str, queue_id: int, message_count: int, size_bytes: int) -> None:
        """Count one request's messages that were stored for a producer; `size_bytes` as stored."""
        flow = self._puts.get((topic, queue_id))
        if flow is None:
            flow = self._new_put(topic, queue_id)
        flow.messages += message_count
        flow.size_bytes += size_bytes
        flow.times += 1
        if size_bytes > SMALL_BYTES:
            if message_count == 1 and size_bytes <= MIDDLE_BYTES:
                flow.middle_messages += 1
            else:
                flow.count_size(message_count, size_bytes)
        self.put_total += message_count

    def topic_puts(self, topic: str, queue_id: int, sizes_bytes: list[int]) -> None:
        """Count requests with one message each, of these sizes, as `topic_put` does."""
        flow = self._puts.get((topic, queue_id))
        if flow is None:
            flow = self._new_put(topic, queue_id)
        count = len(sizes_bytes)
        flow.messages += count
        flow.size_bytes += sum(sizes_bytes)
        flow.times += count
        for size_bytes in sizes_bytes:
            if size_bytes > MIDDLE_BYTES:
                flow.count_size(1, size_bytes)
            elif size_bytes > SMALL_BYTES:
                flow.middle_messages += 1
        self.put_total += count

    def group_get(
        self, group: str, topic: str, queue_id: int, message_count: int, size_bytes: int, next_offset: int
    ) -> None:
        """Count one pull's messages that were delivered to a consumer, who will continue at `next_offset`."""
        flow = self._gets.get((group, topic, queue_id))
        if flow is None:
            flow = self._new_get(group, topic, queue_id)
        flow.messages += message_count
        flow.size_bytes += size_bytes
        flow.times += 1
        flow.next_offset = next_offset
        self.get_total += message_count
        self.get_found_times += 1

    def internal_get(self, message_count: int) -> None:
        """Count messages that the broker read from a queue for itself."""
        self.internal_get_total += message_count
        if message_count:
            self.get_found_times += 1
        else:
            self.get_missed_times += 1

    @property
    def read_total(self) -> int:
        """Return the messages read from queues, by clients and by the broker for itself."""
        return self.get_total + self.internal_get_total

    def get_missed(self, group: str, topic: str, queue_id: int, next_offset: int) -> None:
        """Count a pull that found nothing, and sends its consumer to `next_offset`."""
        self.get_missed_times += 1
        flow = self._gets.get((group, topic, queue_id))
        if flow is not None:
            flow.next_offset = next_offset

    def stored(self, message_count: int, size_bytes: int) -> None:
        """Count messages that the store accepted from any source."""
        self.stored_total += message_count
        self.stored_size_total_bytes += size_bytes

    def put_failed(self) -> None:
        """Count a message that the store refused."""
        self.put_failed_times += 1

    def get_latency(self, group: str, topic: str, queue_id: int, latency_ms: int) -> None:
        """Record how long the read of a pull took, if that was at least a millisecond; all others count as 0 ms."""
        self._latencies.add(group, topic, queue_id, latency_ms)

    def _reads(self, key: _Get) -> int | None:
        """Return how often a group received messages; None if nothing was counted."""
        group, topic, queue_id = key
        read = self._groups.get((topic, group)) if queue_id == ALL_QUEUES else self._gets.get(key)
        if read is None:
            return None
        read.gather()
        return read.times

    def send_back(self, group: str, topic: str) -> None:
        """Count a message that a consumer sent back."""
        self._others.add(SNDBCK_PUT_NUMS, f"{topic}@{group}", 1)

    def commercial(self, name: str, owner: str, topic: str, group: str, kind: str, amount: int) -> None:
        """Add to a counter of the COMMERCIAL_ family; hooks call this."""
        self._others.add(name, f"{owner}@{topic}@{group}@{kind}", amount)

    # -- reading -----------------------------------------------------------------------------------------------------

    def snapshot(self, name: str, key: str) -> BrokerStatsData | None:
        """Return the three windows of a statistic; None if nothing was ever counted under the key."""
        found = self._find(name, key)
        if found is None:
            return None
        minute, hour, day = (self._window(found, kind) for kind in (MINUTE, HOUR, DAY))
        return BrokerStatsData(stats_day=day, stats_hour=hour, stats_minute=minute)

    def per_second(self, name: str, key: str) -> float:
        """Return the rate over the last minute, 0 for an unknown statistic."""
        found = self._find(name, key)
        return self._window(found, MINUTE).tps if found is not None else 0.0

    def total(self, name: str, key: str) -> int:
        """Return the sum since the start, 0 for an unknown statistic."""
        found = self._find(name, key)
        if found is None:
            return 0
        flow, column = found
        self._gather_broker()
        flow.gather()
        return flow.messages if column == MESSAGES else flow.size_bytes

    def message_sizes(self, topic: str) -> list[int]:
        """Return the number of messages stored in a topic by size, as Flow.sizes does."""
        flow = self._topics.get(topic)
        return flow.sizes() if flow is not None else Flow(self.spans).sizes()

    def keys(self, name: str) -> list[str]:
        """Return the keys of TOPIC_PUT_NUMS, GROUP_GET_NUMS or SNDBCK_PUT_NUMS under which something was counted."""
        if name == TOPIC_PUT_NUMS:
            return list(self._topics)
        if name == GROUP_GET_NUMS:
            return [f"{topic}@{group}" for topic, group in self._groups]
        return self._others.keys(name)

    def next_offset(self, group: str, topic: str, queue_id: int) -> int:
        """Return where the group will pull next from a queue, as the last pull said; UNKNOWN_OFFSET (-1) if it was not
        counted yet."""
        flow = self._gets.get((group, topic, queue_id))
        return flow.next_offset if flow is not None else UNKNOWN_OFFSET

    def queues_read(self) -> list[tuple[str, str, int]]:
        """Return (group, topic, queue id) of each queue that a group pulled from."""
        return list(self._gets)

    def named(self) -> Iterator[NamedFlow]:
        """Return every flow with the name, the key and the column of each of its statistics."""
        yield BROKER_PUT_NUMS, self._cluster, self._broker_put, MESSAGES
        yield BROKER_GET_NUMS, self._cluster, self._broker_get, MESSAGES
        for topic, flow in self._topics.items():
            yield TOPIC_PUT_NUMS, topic, flow, MESSAGES
            yield TOPIC_PUT_SIZE, topic, flow, SIZE_BYTES
        for (topic, group), flow in self._groups.items():
            yield GROUP_GET_NUMS, f"{topic}@{group}", flow, MESSAGES
            yield GROUP_GET_SIZE, f"{topic}@{group}", flow, SIZE_BYTES
        for key, flow in self._latencies.named():
            yield GROUP_GET_LATENCY, key, flow, MESSAGES
        for name, key, flow in self._others.named():
            yield name, key, flow, MESSAGES
        if self._detail:
            for (topic, queue_id), flow in self._puts.items():
                yield QUEUE_PUT_NUMS, f"{topic}@{queue_id}", flow, MESSAGES
                yield QUEUE_PUT_SIZE, f"{topic}@{queue_id}", flow, SIZE_BYTES
            for (group, topic, queue_id), flow in self._gets.items():
                yield QUEUE_GET_NUMS, f"{topic}@{queue_id}@{group}", flow, MESSAGES
                yield QUEUE_GET_SIZE, f"{topic}@{queue_id}@{group}", flow, SIZE_BYTES

    # -- topics and groups that are gone -------------------------------------------------------------------------------

    def forget_next_offsets(self, *, topic: str | None = None, group: str | None = None) -> None:
        """Forget where groups will pull next, of a topic or group that is deleted: to the next one of that name it
        would mean nothing. The statistics stay, unless autoDeleteUnusedStats is set."""
        for (of_topic, of_group), total in self._groups.items():
            if topic in (None, of_topic) and group in (None, of_group):
                for flow in total.parts or ():
                    flow.next_offset = UNKNOWN_OFFSET

    def forget_topic(self, topic: str) -> None:
        """Drop the statistics of a deleted topic (autoDeleteUnusedStats)."""
        self._topics.pop(topic, None)
        self._puts = {key: flow for key, flow in self._puts.items() if key[0] != topic}
        self._groups = {key: flow for key, flow in self._groups.items() if key[0] != topic}
        self._forget_gets(lambda key: key[1] == topic)
        self._others.forget_topic(topic)

    def forget_group(self, group: str) -> None:
        """Drop the statistics of a deleted subscription group (autoDeleteUnusedStats)."""
        self._groups = {key: flow for key, flow in self._groups.items() if key[1] != group}
        self._forget_gets(lambda key: key[0] == group)
        self._others.forget_group(group)

    # -- sampling, called by tasks ------------------------------------------------------------------------

    def sample_minute(self) -> None:
        """Sample for the minute; called every 10 s."""
        self._sample(MINUTE)

    def sample_hour(self) -> None:
        """Sample for the hour; called every 10 min."""
        self._sample(HOUR)

    def sample_day(self) -> None:
        """Sample for the day; called every hour."""
        self._sample(DAY)

    def record(self) -> None:
        """Make today's morning totals yesterday's; called at every midnight (RocketMQ: BrokerStats.record)."""
        self.put_total_yesterday_morning = self.put_total_today_morning
        self.get_total_yesterday_morning = self.get_total_today_morning
        self.put_total_today_morning = self.stored_total
        self.get_total_today_morning = self.read_total

    def _sample(self, kind: int) -> None:
        span = self.spans[kind]
        span.take(self._now_ms())
        self._gather_broker()
        self._latencies.gather()
        for flow in self._flows():
            flow.sample(kind, span)

    def _gather_broker(self) -> None:
        self._broker_put.messages = self.put_total
        self._broker_get.messages = self.get_total

    def _flows(self) -> Iterator[Flow]:
        yield self._broker_put
        yield self._broker_get
        if self._detail:  # otherwise nobody reads the windows of these
            yield from self._puts.values()
            yield from self._gets.values()
        yield from self._topics.values()
        yield from self._groups.values()
        yield from self._latencies.flows()
        yield from self._others.flows()

    def _window(self, found: tuple[Flow, int], kind: int) -> BrokerStatsItem:
        flow, column = found
        return flow.window(kind, self.spans[kind], column)

    def _find(self, name: str, key: str) -> tuple[Flow, int] | None:
        """Return the flow of a statistic and the column that holds it."""
        column = SIZE_BYTES if name.endswith("_SIZE") and not name.startswith("COMMERCIAL") else MESSAGES
        flow: Flow | None = None
        if name in (TOPIC_PUT_NUMS, TOPIC_PUT_SIZE):
            flow = self._topics.get(key)
        elif name in (GROUP_GET_NUMS, GROUP_GET_SIZE):
            topic, _, group = key.partition("@")
            flow = self._groups.get((topic, group))
        elif name in (BROKER_PUT_NUMS, BROKER_GET_NUMS) and key == self._cluster:
            flow = self._broker_put if name == BROKER_PUT_NUMS else self._broker_get
        elif name == GROUP_GET_LATENCY:
            flow = self._latencies.find(key)
        elif name in (QUEUE_PUT_NUMS, QUEUE_PUT_SIZE):
            topic, _, queue = key.rpartition("@")
            if self._detail and queue.isdecimal():
                flow = self._puts.get((topic, int(queue)))
        elif name in (QUEUE_GET_NUMS, QUEUE_GET_SIZE):
            topic, queue, group = (*key.split("@"), "", "", "")[:3]
            if self._detail and queue.isdecimal():
                flow = self._gets.get((group, topic, int(queue)))
        else:
            flow = self._others.find(name, key)
        return (flow, column) if flow is not None else None

    def _new_put(self, topic: str, queue_id: int) -> Flow:
        total = self._topics.get(topic)
        if total is None and self._has_room():
            total = self._topics[topic] = Flow(self.spans, [] if self._detail else None)
        if total is None or not self._has_room():
            return self._overflow
        flow = self._puts[topic, queue_id] = self._part_of(total)
        return flow

    def _new_get(self, group: str, topic: str, queue_id: int) -> Flow:
        total = self._groups.get((topic, group))
        if total is None and self._has_room():
            total = self._groups[topic, group] = Flow(self.spans, [])  # also without detail, for `next_offset`
        if total is None or not self._has_room():
            return self._overflow
        flow = self._gets[group, topic, queue_id] = self._part_of(total)
        return flow

    def _part_of(self, total: Flow) -> Flow:
        """Return the flow of one queue; without detail that is the flow of all queues."""
        if total.parts is None:
            return total
        flow = Flow(self.spans)
        total.parts.append(flow)
        return flow

    def _has_room(self) -> bool:
        """Return whether there is room for one more flow; drop idle ones if that makes room."""
        if self.flow_count() < self._max_flows:
            return True
        if self._swept_at_tick != self.spans[MINUTE].tick:
            self._swept_at_tick = self.spans[MINUTE].tick
            self._sweep()
            if self.flow_count() < self._max_flows:
                return True
        if not self._warned:
            self._warned = True
            log.warning("statistics filled; new topics and groups are not counted", limit=self._max_flows)
        return False

    def flow_count(self) -> int:
        queues = len(self._puts) + len(self._gets) + len(self._latencies)
        return queues + len(self._topics) + len(self._groups) + len(self._others)

    def _sweep(self) -> None:
        """Drop idle flows; a topic or group only as a whole, since it is the sum of its queues."""
        for total in (*self._topics.values(), *self._groups.values()):
            total.gather()
        topics = {topic for topic, flow in self._topics.items() if flow.is_at_rest}
        groups = {key for key, flow in self._groups.items() if flow.is_at_rest}
        self._topics = {topic: flow for topic, flow in self._topics.items() if topic not in topics}
        self._groups = {key: flow for key, flow in self._groups.items() if key not in groups}
        self._puts = {key: flow for key, flow in self._puts.items() if key[0] not in topics}
        self._forget_gets(lambda key: (key[1], key[0]) in groups)
        self._others.sweep()

    def _forget_gets(self, is_gone: Callable[[_Get], bool]) -> None:
        self._gets = {key: flow for key, flow in self._gets.items() if not is_gone(key)}
        self._latencies.forget(is_gone)
        self.backlogs.forget(is_gone)
