"""What the families of a broker are made from: the parts of the broker, and names that are in every series."""

from __future__ import annotations

from dataclasses import dataclass

from triomq.broker.assembly.serving import Serving
from triomq.broker.figures.clients import ClientFigures
from triomq.broker.runtime_info import RuntimeInfo
from triomq.monitoring.exposition import labels


@dataclass(frozen=True, slots=True)
class Parts:
    """`limit` is metricsMaxSeries. `info` is what GET_BROKER_RUNTIME_INFO responds."""

    serving: Serving
    info: RuntimeInfo
    clients: ClientFigures
    limit: int

    @property
    def cluster(self) -> str:
        return self.serving.tables.configuration.broker.broker_cluster_name

    @property
    def name(self) -> str:
        return self.serving.tables.configuration.broker.broker_name

    def exporter_labels(self, **values: str) -> str:
        """Return labels as rocketmq-exporter has them."""
        return labels(cluster=self.cluster, broker=self.name, **values)

    def rocketmq5_labels(self, **values: str) -> str:
        """Return labels as RocketMQ 5 has them."""
        return labels(cluster=self.cluster, node_type="broker", node_id=self.name, **values)
