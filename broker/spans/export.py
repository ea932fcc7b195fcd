"""Where the broker's spans go: to the OTLP/HTTP collector of tracesEndpoint, by OpenTelemetry's own exporter.

Its BatchSpanProcessor exports in a thread of its own, holds at most OTEL_BSP_MAX_QUEUE_SIZE spans (2048) and drops
others. A collector that is away is logged by the broker, once and then once a minute; what the SDK logs about each
batch is silenced.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import structlog
import trio

from triomq.broker import optional
from triomq.broker.configuration import Configuration
from triomq.daemon.errors import StartError
from triomq.protocol.extras import install_hint
from triomq.protocol.outage import Outage

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

log = structlog.get_logger("triomq.broker.spans")

LAST_SPANS_SECONDS: Final = 2.0
"""A stop waits that long for the last spans to reach the collector."""


def check_traces(configuration: Configuration) -> None:
    """Raise StartError if tracesEndpoint is set and spans cannot be exported."""
    endpoint = configuration.broker.traces_endpoint
    if not endpoint:
        return
    try:
        url = urlsplit(endpoint)
        is_address = url.scheme in ("http", "https") and bool(url.hostname) and (url.port is None or url.port > 0)
    except ValueError:
        is_address = False
    if not is_address:
        raise StartError(
            f"tracesEndpoint={endpoint}: it must be the address of an OTLP/HTTP collector, "
            "such as http://127.0.0.1:4318/v1/traces"
        )
    _provider_of()


def _provider_of() -> Callable[[Configuration, Callable[[Any], Any]], TracerProvider]:
    """Return `otlp.provider_of`. Raises StartError if a package is missing."""
    try:
        return optional.otlp.provider_of
    except ImportError as error:
        raise StartError(
            f"tracesEndpoint needs OpenTelemetry's packages, {error.name} is missing: {install_hint('otel')}"
        ) from None


@asynccontextmanager
async def exporting(configuration: Configuration) -> AsyncIterator[TracerProvider]:
    """Return the provider whose spans go to tracesEndpoint. Raises StartError."""
    check_traces(configuration)
    provider = _provider_of()(configuration, partial(Watched, endpoint=configuration.broker.traces_endpoint))
    try:
        yield provider
    finally:
        with trio.move_on_after(LAST_SPANS_SECONDS):
            await trio.to_thread.run_sync(provider.shutdown, abandon_on_cancel=True)


class Watched:
    """A span exporter that logs when the other begins and ceases to fail. Runs in the thread of the span processor."""

    def __init__(self, exporter: Any, endpoint: str) -> None:
        self._exporter = exporter
        self._endpoint = endpoint
        self._outage = Outage()

    def export(self, spans: Any) -> Any:
        result = self._exporter.export(spans)
        now = time.monotonic()
        if result.name != "SUCCESS":
            if self._outage.failed(now):
                log.warning("spans not exported; they are lost", endpoint=self._endpoint, spans=len(spans))
        elif self._outage.is_on and self._outage.worked(now):
            log.info("spans exported again", endpoint=self._endpoint)
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return bool(self._exporter.force_flush(timeout_millis))
