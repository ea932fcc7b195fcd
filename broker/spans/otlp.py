"""OpenTelemetry's exporter. This module needs the packages of the extra `otel`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from triomq.broker.configuration import Configuration

NOISY: Final = ("opentelemetry.exporter.otlp.proto.http", "opentelemetry.sdk._shared_internal")


def provider_of(configuration: Configuration, watched: Callable[[Any], Any]) -> TracerProvider:
    """Return the provider whose spans go to tracesEndpoint by the exporter that `watched` makes of OpenTelemetry's."""
    for name in NOISY:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    broker, role = configuration.broker, configuration.role
    resource = Resource.create(
        {"service.name": "triomq-broker", "service.instance.id": f"{broker.broker_name}/{role.broker_id}"}
    )
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(watched(OTLPSpanExporter(endpoint=broker.traces_endpoint))))
    return provider
