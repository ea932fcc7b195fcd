"""What this broker has of each topic and group, for the sums over all brokers: the rows of its lists, from memory.

Other brokers ask for it with QUERY_BROKER_TOTALS, which only TrioMQ has.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from triomq.broker.assembly.serving import Serving
from triomq.broker.figures.lag_history import snapshot_now
from triomq.broker.figures.snapshot import Snapshot
from triomq.broker.metrics import stats_names as names
from triomq.broker.views.groups import GroupRows
from triomq.broker.views.topics import Topics
from triomq.protocol.bodies.broker_totals import BrokerTotals, GroupTotals, TopicTotals
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import RemotingCommand, new_response
from triomq.remoting.connection import Connection
from triomq.remoting.processor_table import Processor

MOST_ROWS: Final = 20_000
"""Topics, and groups."""
MOST_CLIENT_IDS: Final = 256
"""Members of one group that are named."""
MOST_CLIENT_IDS_IN_ALL: Final = 20_000
TOPICS_IN_A_STEP: Final = 32
GROUPS_IN_A_STEP: Final = 8


class OwnTotals:
    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._topics = Topics(serving)
        self._groups = GroupRows(serving)

    def documents(self) -> Iterator[BrokerTotals]:
        """Yield the documents of a response; each is a step."""
        topics = list(self._serving.tables.metadata.topics.names())
        groups = self._groups.names()
        yield self._head(max(0, len(topics) - MOST_ROWS), max(0, len(groups) - MOST_ROWS))
        for begin in range(0, min(len(topics), MOST_ROWS), TOPICS_IN_A_STEP):
            chosen = topics[begin : min(begin + TOPICS_IN_A_STEP, MOST_ROWS)]
            yield BrokerTotals(topics=[row for topic in chosen if (row := self._topic(topic)) is not None])
        snapshot = snapshot_now(self._serving)
        ids_left = MOST_CLIENT_IDS_IN_ALL
        for begin in range(0, min(len(groups), MOST_ROWS), GROUPS_IN_A_STEP):
            rows = []
            for group in groups[begin : min(begin + GROUPS_IN_A_STEP, MOST_ROWS)]:
                said = self._group(group, snapshot, min(MOST_CLIENT_IDS, ids_left))
                ids_left -= len(said.client_ids)
                rows.append(said)
            yield BrokerTotals(groups=rows)

    def _head(self, topics_left_out: int, groups_left_out: int) -> BrokerTotals:
        tables = self._serving.tables
        server, stats = tables.configuration.server, tables.stats
        cluster = tables.configuration.broker.broker_cluster_name
        return BrokerTotals(
            dashboard={
                "dashboardPort": str(server.dashboard_port),
                "dashboardAddress": server.dashboard_address,
                "dashboardTls": str(server.dashboard_tls).lower(),
            },
            stored_per_second=round(stats.per_second(names.BROKER_PUT_NUMS, cluster), 2),
            read_per_second=round(stats.per_second(names.BROKER_GET_NUMS, cluster), 2),
            topics_left_out=topics_left_out,
            groups_left_out=groups_left_out,
        )

    def _topic(self, topic: str) -> TopicTotals | None:
        row = self._topics.row(topic)
        if row is None:
            return None
        return TopicTotals(
            name=row.name,
            kind=row.kind,
            messages=row.messages,
            per_second=row.per_second,
            bytes_per_second=row.bytes_per_second,
            read_queues=row.read_queues,
            write_queues=row.write_queues,
        )

    def _group(self, group: str, snapshot: Snapshot, most_ids: int) -> GroupTotals:
        row = self._groups.row(group, snapshot)
        online = self._serving.tables.metadata.consumers.get(group)
        ids = online.client_ids() if online is not None else []
        return GroupTotals(
            name=group,
            members=len(ids),
            client_ids=ids if len(ids) <= most_ids else [],
            lag=row.lag,
            in_flight=row.in_flight,
            age_ms=row.age_ms,
            per_second=row.per_second,
            dead_letters=self._groups.dead_letters(group),
        )


class TotalsProcessor:
    """Says what the lists of the dashboard's topics and groups say, whether there is a dashboard or not."""

    def __init__(self, serving: Serving) -> None:
        self._totals = OwnTotals(serving)

    def processors(self) -> dict[int, Processor]:
        """Return request code -> processor."""
        return {RequestCode.QUERY_BROKER_TOTALS: self.query}

    async def query(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle QUERY_BROKER_TOTALS. The numbers of two rows may be of two moments."""
        lines: list[bytes] = []
        for document in self._totals.documents():
            lines.append(document.line())
            await connection.steps.next()
        return new_response(request, body=b"\n".join(lines))
