"""The parts that assign queues to clients (processors/assignments.py). They come with the first request."""

from __future__ import annotations

from collections.abc import Mapping

from triomq.broker.assembly.serving import Serving
from triomq.broker.audit import Audit
from triomq.broker.nameservers.routes import Routes
from triomq.broker.processors.assignments import AssignmentProcessor
from triomq.protocol import permission
from triomq.remoting.processor_table import Processor


def build_assignments(serving: Serving, audit: Audit) -> Mapping[int, Processor]:
    """Return request code -> processor."""
    tables = serving.tables
    configuration, topics = tables.configuration, tables.metadata.topics

    def own(topic: str) -> int | None:
        config = topics.get(topic)
        if config is None:
            return None
        return config.read_queue_nums if permission.is_readable(config.perm) else 0

    routes = Routes(
        serving.nameservers.addresses,
        serving.client.invoke,
        lambda: configuration.broker.broker_name,
        own,
    )
    return AssignmentProcessor(configuration, tables.metadata, tables.request_modes, routes, audit).processors()
