"""The pages of messages that consumers do not get: dead letters by group, delayed messages by level, half messages."""

from __future__ import annotations

from dataclasses import dataclass

from triomq.broker.assembly.serving import Serving
from triomq.dashboard.listing import listed
from triomq.dashboard.views import Ask, Data, Steps
from triomq.protocol.system_topics import DLQ_PREFIX, SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from triomq.store.delay import DelayLevels

_STEP_QUEUES = 16


@dataclass(slots=True)
class DeadRow:
    """The dead letters of a group that are still stored, and when the newest was."""

    name: str
    topic: str
    messages: int
    last_ms: int


class Waiting:
    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._reading = serving.store.reading

    # -- dead letters --------------------------------------------------------------------------------------------------

    def _dead_row(self, group: str) -> DeadRow | None:
        topic = DLQ_PREFIX + group
        reading = self._reading
        count, last_ms = 0, -1
        for queue_id, end in reading.ends(topic).items():
            held = end - reading.min_offset(topic, queue_id)
            if held > 0:
                count += held
                last_ms = max(last_ms, reading.store_time_at(topic, queue_id, end - 1))
        return DeadRow(group, topic, count, last_ms) if count else None

    def dead_letters(self, ask: Ask) -> Steps:
        """Make the list of groups with dead letters."""
        topics = self._serving.tables.metadata.topics.names()
        page = yield from listed(
            [
                topic.removeprefix(DLQ_PREFIX)
                for topic in topics
                if topic.startswith(DLQ_PREFIX) and ask.may_read(topic)
            ],
            ask.query,
            self._dead_row,
            {"name": lambda row: row.name, "messages": lambda row: row.messages, "last": lambda row: row.last_ms},
            default="messages",
        )
        return {"list": page}

    # -- delayed and half messages -------------------------------------------------------------------------------------

    def waiting(self, ask: Ask) -> Steps:
        """Make the page of delayed messages by level and half messages by queue. Both are of all topics."""
        levels: list[Data] = []
        delays = DelayLevels(self._serving.tables.configuration.store.message_delay_level)
        for level, (done, end) in self._serving.delivery.every_level().items():
            queue_id = level - 1
            # the code of a delayed message's entry is the time of its delivery
            first = self._reading.queue_entries(SCHEDULE_TOPIC, queue_id, done, 1)
            levels.append(
                {
                    "level": level,
                    "delay_seconds": delays.delay_ms(level) / 1000 if level <= delays.max_level else None,
                    "waiting": max(0, end - done),
                    "queue": queue_id,
                    "next": done,
                    "due_ms": first[0][2] if first else None,
                }
            )
            if level % _STEP_QUEUES == 0:
                yield
        log = self._serving.transactions.log
        halves: list[Data] = []
        for queue_id in sorted(self._reading.ends(TRANS_HALF_TOPIC)):
            checked = log.half_offset(queue_id)
            end = self._reading.max_offset(TRANS_HALF_TOPIC, queue_id)
            first_ms = self._reading.store_time_at(TRANS_HALF_TOPIC, queue_id, checked) if checked < end else -1
            halves.append({"queue": queue_id, "waiting": max(0, end - checked), "next": checked, "oldest_ms": first_ms})
            yield
        return {"levels": levels, "halves": halves, "schedule_topic": SCHEDULE_TOPIC, "half_topic": TRANS_HALF_TOPIC}
