"""The pages of consumer groups: the list with backlog and members, and one group by queue. The figures of a group and a
topic are those of /metrics (figures/snapshot.py)."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from triomq.broker.assembly.serving import Serving
from triomq.broker.figures.lag_history import LagHistory, snapshot_now
from triomq.broker.figures.snapshot import Snapshot
from triomq.broker.metrics import stats_names as names
from triomq.broker.views.in_flight import received_queues
from triomq.broker.views.members import MOST_SUBSCRIPTIONS, Members, Waiting, subscriptions_of
from triomq.dashboard.listing import listed
from triomq.dashboard.views import Ask, Data, NotThere, Steps
from triomq.protocol.system_topics import dlq_topic, is_system_group

MOST_QUEUES = 2048
_STEP_QUEUES = 16


@dataclass(slots=True)
class GroupRow:
    """`lag` counts what the group lacks over all its topics, `age_ms` how long the oldest of it has been stored;
    `in_flight` and `ready` are parts of `lag`, as in PairFigures."""

    name: str
    members: int
    model: str
    consume_type: str
    topics: int
    lag: int
    in_flight: int
    ready: int
    age_ms: int
    per_second: float
    is_enabled: bool


class GroupRows:
    """What lists say of each group."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._metadata = serving.tables.metadata

    def row(self, group: str, snapshot: Snapshot) -> GroupRow:
        """Return the row of a group."""
        stats = self._serving.tables.stats
        online = self._metadata.consumers.get(group)
        config = self._metadata.groups.get(group)
        pairs = [pair for topic in snapshot.topics_of(group) if (pair := snapshot.pair(group, topic)) is not None]
        shared = [pair for pair in pairs if not pair.is_broadcasting]
        return GroupRow(
            group,
            len(online.channels) if online is not None else 0,
            online.consumption.message_model if online is not None else "",
            online.consumption.consume_type if online is not None else "",
            len([pair for pair in pairs if not pair.is_retry]),
            sum(pair.lag for pair in shared),
            sum(pair.inflight for pair in shared),
            sum(pair.ready for pair in shared),
            max((pair.age_ms for pair in shared), default=0),
            round(sum(stats.per_second(names.GROUP_GET_NUMS, f"{pair.topic}@{group}") for pair in pairs), 2),
            config is None or config.consume_enable,
        )

    def names(self) -> list[str]:
        """Return the groups that exist, have offsets, or are online."""
        metadata = self._metadata
        known = dict.fromkeys([*metadata.groups.names(), *metadata.offsets.groups()])
        known.update(dict.fromkeys([group.name for group in metadata.consumers.groups()]))
        return list(known)

    def dead_letters(self, group: str) -> int:
        """Return how many dead letters of a group are still stored."""
        dead, reading = dlq_topic(group), self._serving.store.reading
        return sum([end - reading.min_offset(dead, queue_id) for queue_id, end in reading.ends(dead).items()])


class Groups:
    def __init__(self, serving: Serving, lags: LagHistory) -> None:
        self._serving = serving
        self._metadata = serving.tables.metadata
        self._lags = lags
        self._members = Members(serving)
        self._rows = GroupRows(serving)

    def _snapshot(self) -> Snapshot:
        return snapshot_now(self._serving)

    def groups(self, ask: Ask) -> Steps:
        """Make the list of groups: those of users, or those of the broker and of tools."""
        snapshot = self._snapshot()
        are_system = ask.query.get("kind") == "system"
        page = yield from listed(
            [name for name in self._rows.names() if ask.may_read_group(name) and is_system_group(name) is are_system],
            ask.query,
            lambda group: self._rows.row(group, snapshot),
            {
                "name": lambda row: row.name,
                "members": lambda row: row.members,
                "lag": lambda row: row.lag,
                "in_flight": lambda row: row.in_flight,
                "age": lambda row: row.age_ms,
                "rate": lambda row: row.per_second,
            },
            default="lag",
        )
        return {"list": page, "kind": "system" if are_system else ""}

    def group(self, ask: Ask) -> Steps:
        """Make the page of one group."""
        group = ask.query.get("name", "")
        metadata, snapshot = self._metadata, self._snapshot()
        is_known = metadata.groups.get(group) is not None or metadata.consumers.get(group) is not None
        if not ask.may_read_group(group) or not (is_known or metadata.offsets.topics_of_group(group)):
            raise NotThere(f"there is no group {group!r} that you may see")
        online = metadata.consumers.get(group)
        waiting = yield from self._members.waiting(online)
        subscriptions = yield from subscriptions_of(online)
        queues: list[Data] = []
        topics: list[Data] = []
        left_out = 0
        for topic in snapshot.topics_of(group):
            pair = snapshot.pair(group, topic)
            yield
            if pair is None:
                continue
            topics.append({"topic": topic, "lag": pair.lag, "age_ms": pair.age_ms, "is_retry": pair.is_retry})
            left_out += yield from self._queues(group, topic, queues, waiting)
        received, received_left_out = yield from received_queues(
            self._serving, group, [topic["topic"] for topic in topics]
        )
        online = metadata.consumers.get(group)
        return {
            "group": self._rows.row(group, snapshot),
            "topics": topics,
            "lag_hour": self._lags.hour(group),
            "lag_day": self._lags.day(group),
            "queues": queues,
            "queues_left_out": left_out,
            "received": received,
            "received_left_out": received_left_out,
            "members": self._members.rows(online),
            "disagreement": online.disagreement_at(self._serving.tables.now_ms()) if online is not None else "",
            "subscriptions": subscriptions[:MOST_SUBSCRIPTIONS],
            "subscriptions_left_out": max(0, len(subscriptions) - MOST_SUBSCRIPTIONS),
            "dead_letters": self._rows.dead_letters(group),
            "dead_topic": dlq_topic(group),
        }

    def _queues(self, group: str, topic: str, queues: list[Data], waiting: Waiting) -> Generator[None, None, int]:
        """Add what the group has of each queue of a topic. Return the number left out."""
        reading, offsets = self._serving.store.reading, self._metadata.offsets
        ends = reading.ends(topic)
        room = MOST_QUEUES - len(queues)
        for number, queue_id in enumerate(sorted(ends)[:room]):
            committed = offsets.query(group, topic, queue_id)
            low = reading.min_offset(topic, queue_id)
            end = reading.max_offset(topic, queue_id)
            received = self._serving.pop.figures(topic, group, queue_id)
            begin = received.next_offset if received is not None else max(0, committed)
            last_ms = reading.store_time_at(topic, queue_id, committed - 1) if committed > 0 else -1
            queues.append(
                {
                    "topic": topic,
                    "queue": queue_id,
                    "min": low,
                    "max": end,
                    "committed": committed if committed >= 0 else None,
                    "lag": max(0, end - begin) + (received.count if received is not None else 0),
                    "last_ms": last_ms,
                    "reader": self._members.reader(group, topic, queue_id, waiting),
                }
            )
            if received is not None or number % _STEP_QUEUES == _STEP_QUEUES - 1:
                yield
        return max(0, len(ends) - room)
