"""The pages of topics: the list, and one topic with its queues and who consumes it."""

from __future__ import annotations

from collections.abc import Container, Generator
from dataclasses import dataclass

from triomq.broker.assembly.serving import Serving
from triomq.broker.figures.lag_history import snapshot_now
from triomq.broker.metrics import stats_names as names
from triomq.dashboard.listing import listed
from triomq.dashboard.views import Ask, NotThere, Steps
from triomq.protocol.system_topics import DLQ_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC, TRANS_HALF_TOPIC, is_system_topic

KINDS = ("normal", "ordered", "retry", "dead", "delay", "transaction", "system")
SYSTEM_KINDS = ("delay", "transaction", "system")
"""Kinds of the broker's own topics. A list without a chosen kind leaves them out; with ALL it has them, too."""
USER_KINDS = tuple([kind for kind in KINDS if kind not in SYSTEM_KINDS])
ALL = "all"
MOST_QUEUES = 1024
MOST_SAMPLED_QUEUES = 64
SAMPLES = 16
"""Messages of a queue whose sizes stand for all."""
_STEP_QUEUES = 16
_STEP_TOPICS = 256


@dataclass(slots=True)
class TopicRow:
    """`messages` are those that are still stored. `per_second` counts what was stored in the last minute."""

    name: str
    kind: str
    read_queues: int
    write_queues: int
    permission: int
    messages: int
    end: int
    per_second: float
    bytes_per_second: float


class Topics:
    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._topics = serving.tables.metadata.topics

    def kind(self, topic: str) -> str:
        """Return one of KINDS."""
        if topic.startswith(RETRY_PREFIX):
            return "retry"
        if topic.startswith(DLQ_PREFIX):
            return "dead"
        if topic == SCHEDULE_TOPIC:
            return "delay"
        if topic == TRANS_HALF_TOPIC:
            return "transaction"
        if is_system_topic(topic, self._topics.system_topics):
            return "system"
        return "ordered" if self._topics.is_ordered(topic) else "normal"

    def row(self, topic: str) -> TopicRow | None:
        """Return the row of a topic; None if it is gone."""
        config = self._topics.get(topic)
        if config is None:
            return None
        reading, stats = self._serving.store.reading, self._serving.tables.stats
        ends = reading.ends(topic)
        end = sum(ends.values())
        return TopicRow(
            topic,
            self.kind(topic),
            config.read_queue_nums,
            config.write_queue_nums,
            config.perm,
            end - sum([reading.min_offset(topic, queue_id) for queue_id in ends]),
            end,
            round(stats.per_second(names.TOPIC_PUT_NUMS, topic), 2),
            round(stats.per_second(names.TOPIC_PUT_SIZE, topic), 2),
        )

    def readable(self, ask: Ask, kinds: Container[str]) -> Generator[None, None, list[str]]:
        """Return the topics of these kinds that the viewer may read; an item ends a step."""
        found: list[str] = []
        names = list(self._topics.names())
        for begin in range(0, len(names), _STEP_TOPICS):
            step = names[begin : begin + _STEP_TOPICS]
            found += [topic for topic in step if self.kind(topic) in kinds and ask.may_read(topic)]
            yield
        return found

    def topics(self, ask: Ask) -> Steps:
        """Make the list of topics."""
        chosen = ask.query.get("kind", "")
        kinds = (chosen,) if chosen in KINDS else KINDS if chosen == ALL else USER_KINDS
        known = yield from self.readable(ask, kinds)
        page = yield from listed(
            known,
            ask.query,
            self.row,
            {
                "name": lambda row: row.name,
                "messages": lambda row: row.messages,
                "rate": lambda row: row.per_second,
            },
            default="name",
        )
        return {"list": page, "kinds": list(KINDS), "kind": chosen if chosen in (*KINDS, ALL) else ""}

    def topic(self, ask: Ask) -> Steps:
        """Make the page of one topic."""
        topic = ask.query.get("name", "")
        row = self.row(topic) if ask.may_read(topic) else None
        if row is None:
            raise NotThere(f"there is no topic {topic!r} that you may see")
        reading = self._serving.store.reading
        metadata = self._serving.tables.metadata
        queues = []
        sizes: list[int] = []
        count = max(row.read_queues, row.write_queues, 1 + max(reading.ends(topic), default=-1))
        for queue_id in range(min(count, MOST_QUEUES)):
            low = reading.min_offset(topic, queue_id)
            end = reading.max_offset(topic, queue_id)
            last_ms = reading.store_time_at(topic, queue_id, end - 1) if end > low else -1
            queues.append({"id": queue_id, "min": low, "max": end, "messages": end - low, "last_ms": last_ms})
            sizes += self._sampled(topic, queue_id, low, end) if queue_id < MOST_SAMPLED_QUEUES else []
            if queue_id % _STEP_QUEUES == _STEP_QUEUES - 1:
                yield
        tables = self._serving.tables
        snapshot = snapshot_now(self._serving)
        consumers = []
        lags: list[int] = []
        groups = dict.fromkeys([*metadata.consumers.groups_of_topic(topic), *metadata.offsets.groups_of_topic(topic)])
        for group in groups:
            pair = snapshot.pair(group, topic) if ask.may_read_group(group) else None
            if pair is not None:
                lags.append(pair.lag)
                consumers.append({"group": group, "lag": pair.lag, "age_ms": pair.age_ms, "members": pair.members})
            yield
        reads = [tables.stats.per_second(names.GROUP_GET_NUMS, f"{topic}@{group}") for group in groups]
        return {
            "topic": row,
            "stored_bytes": row.messages * sum(sizes) // len(sizes) if sizes else 0,
            "read_per_second": round(sum(reads), 2),
            "backlog": max(lags, default=0),
            "queues": queues,
            "queues_left_out": max(0, count - MOST_QUEUES),
            "consumers": consumers,
        }

    def _sampled(self, topic: str, queue_id: int, low: int, end: int) -> list[int]:
        """Return the sizes in the log of some messages, evenly spread over a queue: no broker counts them by topic."""
        stride = max(1, (end - low) // SAMPLES)
        offsets = range(low, end, stride)[:SAMPLES]
        entries = [self._serving.store.reading.queue_entries(topic, queue_id, offset, 1) for offset in offsets]
        return [size for found in entries for _, size, _ in found]
