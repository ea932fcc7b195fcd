"""Alarms of the overview: what `mqadmin doctor` would say of this broker's groups, without asking anybody."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from triomq.broker.assembly.serving import Serving
from triomq.broker.figures.lag_history import snapshot_now
from triomq.broker.figures.snapshot import Snapshot
from triomq.broker.views.letters import Letters
from triomq.dashboard.views import Ask
from triomq.protocol import findings
from triomq.protocol.findings import Finding
from triomq.protocol.system_topics import dlq_topic, is_system_group

MOST_GROUPS: Final = 256
"""Groups that are examined for one page; mqadmin doctor examines all of them."""
MOST_ALARMS: Final = 20


class Alarms:
    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._metadata = serving.tables.metadata
        self._letters = Letters(serving)

    def found(self, ask: Ask) -> Generator[None, None, list[Finding]]:
        """Return the findings, critical ones first; an item ends a step."""
        metadata, snapshot = self._metadata, snapshot_now(self._serving)
        names = dict.fromkeys([*[one.name for one in metadata.consumers.groups()], *metadata.offsets.groups()])
        groups = [group for group in names if not is_system_group(group) and ask.may_read_group(group)]
        alarms: list[Finding] = []
        for group in groups[:MOST_GROUPS]:
            alarms += self._of_group(group, snapshot)
            yield
        alarms.sort(key=lambda finding: finding.severity != findings.CRITICAL)
        return alarms[:MOST_ALARMS]

    def _of_group(self, group: str, snapshot: Snapshot) -> list[Finding]:
        online = self._metadata.consumers.get(group)
        pairs = [pair for topic in snapshot.topics_of(group) if (pair := snapshot.pair(group, topic)) is not None]
        alarms = []
        disagreement = online.disagreement_at(self._serving.tables.now_ms()) if online is not None else ""
        if disagreement:
            alarms.append(findings.subscriptions_differ(group, disagreement))
        waiting = sum([pair.lag for pair in pairs])
        if waiting and (online is None or not online.channels):
            cluster = self._serving.tables.configuration.broker.broker_cluster_name
            alarms.append(findings.nobody_reads(group, waiting, cluster))
        alarms += [self._beyond(group, pair.topic) for pair in pairs if pair.beyond]
        return alarms + self._dead_letters(group)

    def _beyond(self, group: str, topic: str) -> Finding:
        name = self._serving.tables.configuration.broker.broker_name
        ends = self._serving.store.reading.ends(topic)
        offsets = self._metadata.offsets.queues(group, topic)
        queues = [
            (name, queue_id, offset, ends.get(queue_id, 0))
            for queue_id, offset in sorted(offsets.items())
            if offset > ends.get(queue_id, 0)
        ]
        return findings.beyond_end(group, topic, queues)

    def _dead_letters(self, group: str) -> list[Finding]:
        topic, reading = dlq_topic(group), self._serving.store.reading
        count, last_ms = 0, 0
        for queue_id, end in reading.ends(topic).items():
            held = end - reading.min_offset(topic, queue_id)
            if held > 0:
                count += held
                last_ms = max(last_ms, reading.store_time_at(topic, queue_id, end - 1))
        if not count or self._serving.tables.now_ms() - last_ms >= findings.RECENT_MS:
            return []
        waiting = self._letters.count_waiting(group)
        return [findings.dead_letters(group, waiting)] if waiting else []
