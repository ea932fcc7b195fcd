"""What a NameServer shows on its metricsPort: brokers, topics, connections, memory. Imported only if the port is open.

Everything is read from the tables during a scrape; only the brokers that were lost are counted, where that happens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import trio

from triomq.daemon.lines import LOST_LINES, lost_lines
from triomq.monitoring.exposition import Family, bounded, counter, gauge, labels, one
from triomq.monitoring.health import Check
from triomq.monitoring.monitoring import Monitoring
from triomq.monitoring.server_figures import TurnFigures, build_info, memory_families, server_families
from triomq.namesrv.routes import RouteTable
from triomq.remoting.memory import MemoryBudget
from triomq.remoting.server import RemotingServer
from triomq.remoting.turn import Turn


class NamesrvFigures:
    """`dropped` is reason -> brokers; `limit` the most series of one metric."""

    def __init__(self, routes: RouteTable, dropped: Counter[str], *, port: int, limit: int) -> None:
        self._routes = routes
        self._dropped = dropped
        self._port = port
        self._limit = limit

    def show(self, monitoring: Monitoring, server: RemotingServer, turn: Turn, memory: MemoryBudget) -> None:
        """Add all figures and checks to the pages, which are then ready."""
        turns = TurnFigures(turn)
        monitoring.add(turns.families)
        monitoring.add(lambda: build_info("namesrv"))
        monitoring.add(self.families)
        monitoring.add(lambda: server_families(server, {self._port: "main"}))
        monitoring.add(lambda: memory_families(memory))
        monitoring.add_check(lambda: Check("port", True, f"{self._port} is open"))
        monitoring.state = None

    def families(self) -> Iterator[Family]:
        """Yield what only NameServers have."""
        info = self._routes.brokers.cluster_info()
        now = trio.current_time()
        brokers = [
            (data.cluster or "", name, broker_id, address)
            for name, data in info.broker_addr_table.items()
            for broker_id, address in data.broker_addrs.items()
        ]
        by_cluster = Counter(cluster for cluster, *_ in brokers)
        yield gauge(
            "triomq_namesrv_brokers",
            "Live brokers.",
            bounded(by_cluster, self._limit, lambda cluster: (labels(cluster=cluster), by_cluster[cluster])),
        )

        def last_heard(broker: tuple[str, str, int, str]) -> tuple[str, float] | None:
            cluster, name, broker_id, address = broker
            seen = self._routes.brokers.last_seen(address)
            text = labels(cluster=cluster, broker=name, broker_id=str(broker_id))
            return None if seen is None else (text, now - seen)

        yield gauge(
            "triomq_namesrv_broker_last_heard_seconds",
            "Time since the last registration of a broker.",
            bounded(brokers, self._limit, last_heard),
        )
        yield counter(
            "triomq_namesrv_brokers_dropped_total",
            "Brokers that were lost: their connection closed, or they were silent for too long.",
            [(labels(reason=reason), self._dropped[reason]) for reason in ("closed", "timeout")],
        )
        yield counter("triomq_log_lines_lost_total", LOST_LINES, [(labels(to=to), n) for to, n in lost_lines().items()])
        yield gauge("triomq_namesrv_topics", "Topics with a route.", one(self._routes.sizes()["topics"]))
        yield gauge("triomq_namesrv_routes", "Pairs of a topic and a broker name.", one(self._routes.route_count))
