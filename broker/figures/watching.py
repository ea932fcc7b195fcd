"""What a broker shows on its metricsPort. Imported only if the port is open.

`watch` connects the pages with the parts: from then on turns, commits and syncs are put into histograms, and push
consumers are asked once a minute. Without it, nothing of this costs the broker anything.
"""

from __future__ import annotations

from collections.abc import Iterator

import trio

from triomq.broker.assembly.readiness import Readiness
from triomq.broker.assembly.serving import Serving
from triomq.broker.configuration import FAST_PORT_DISTANCE
from triomq.broker.figures.clients import ClientFigures
from triomq.broker.figures.exporter import ExporterFigures
from triomq.broker.figures.own import Observed, OwnFigures
from triomq.broker.figures.parts import Parts
from triomq.broker.figures.rocketmq5 import RocketMq5Figures
from triomq.broker.figures.snapshot import Ages, Snapshot
from triomq.broker.runtime_info import RuntimeInfo
from triomq.monitoring.answers import Answers
from triomq.monitoring.exposition import Family
from triomq.monitoring.monitoring import Monitoring
from triomq.monitoring.server_figures import TurnFigures, build_info, memory_families, server_families
from triomq.remoting.memory import MemoryBudget
from triomq.remoting.processor_table import ProcessorTable
from triomq.remoting.server import RemotingServer


class Figures:
    """All families of a broker. `ages` of one scrape serve the next."""

    def __init__(
        self, parts: Parts, observed: Observed, processor_tables: list[ProcessorTable], answers: Answers
    ) -> None:
        self._parts = parts
        self._exporter = ExporterFigures(parts)
        self._rocketmq5 = RocketMq5Figures(parts, answers)
        self._own = OwnFigures(parts, observed, processor_tables)
        self._ages: Ages = {}

    def families(self) -> Iterator[Family]:
        """Yield everything for one scrape."""
        tables = self._parts.serving.tables
        snapshot = Snapshot(
            tables.metadata,
            tables.store.reading,
            tables.stats.next_offset,
            self._parts.serving.pop.figures,
            now_ms=tables.now_ms,
            limit=self._parts.limit,
            ages=self._ages,
        )
        yield from self._exporter.families(snapshot)
        yield from self._rocketmq5.families(snapshot)
        yield from self._own.families(snapshot)
        self._ages = snapshot.ages


def watch(
    monitoring: Monitoring,
    serving: Serving,
    server: RemotingServer,
    memory: MemoryBudget,
    processor_tables: list[ProcessorTable],
    background: trio.Nursery,
) -> None:
    """Add all figures and checks of a broker to its pages."""
    tables = serving.tables
    configuration = tables.configuration
    port = int(serving.address.rpartition(":")[2])
    info = RuntimeInfo(
        configuration, tables.store, tables.stats, tables.store_metrics, tables.pools, serving.delivery.progress
    )
    clients = ClientFigures(tables.metadata.consumers, is_on=configuration.broker.metrics_ask_clients)
    parts = Parts(serving, info, clients, configuration.server.metrics_max_series)
    turns = TurnFigures(tables.surroundings.turn)
    figures = Figures(parts, Observed(parts), processor_tables, turns.answers)
    monitoring.lag.observe(tables.latencies.woke_late)
    ports = {port: "main", port + FAST_PORT_DISTANCE: "fast"}
    role = configuration.role.broker_role.name.lower()
    for source in (
        lambda: build_info(role),
        turns.families,
        lambda: server_families(server, ports),
        lambda: memory_families(memory),
        figures.families,
    ):
        monitoring.add(source)
    for check in Readiness(serving).all():
        monitoring.add_check(check)
    background.start_soon(clients.run)
