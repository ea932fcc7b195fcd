"""Monitoring: the pages of one daemon on its `metricsPort`, and what they show.

    /metrics        every family of every source
    /health/live    200 while the event loop responds; also /healthz
    /health/ready   200 if every check passes, else 503, with the reasons as JSON; also /readyz

The daemon adds sources and checks when its parts exist; the port is open before that, so that a long start is seen from
outside. A source yields families when a page is rendered; it reads what the daemon keeps anyway, and one that fails
costs its own families only.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Final

import structlog
import trio

from triomq.monitoring.exposition import Family, Page, counter, gauge, labels, one, wants_openmetrics
from triomq.monitoring.health import Check, FindOut, report
from triomq.monitoring.http_server import HttpServer, Request, Response, plain
from triomq.monitoring.loop_lag import LoopLag
from triomq.monitoring.process import process_families
from triomq.remoting.port_check import refusal

log = structlog.get_logger("triomq.monitoring")

Source = Callable[[], Iterable[Family]]

_JSON: Final = "application/json"
_PAGES: Final = "/metrics, /health/live and /health/ready"


class Monitoring:
    """See the module's docstring. `state` is the first check: a sentence about the start or the stop, None between.
    `refusal` says why the port could not be opened."""

    def __init__(self, address: str, port: int) -> None:
        self._address = address
        self._server = HttpServer(address, port, self._answer)
        self._sources: list[Source] = [process_families, self._own]
        self._checks: list[FindOut] = []
        self._left_out: Counter[str] = Counter()
        self._scrapes = 0
        self._scrape_seconds = 0.0
        self.lag = LoopLag()
        self.state: str | None = "the start is not finished"
        self.refusal: str | None = None
        self.port = port

    def open(self) -> bool:
        """Open the port. If it cannot be opened, log why and return False: no daemon stays down for that."""
        try:
            self.port = self._server.open()
        except OSError as error:
            self.refusal = refusal("metricsPort", self._address, self.port, error)
            log.error("metrics port not opened", port=self.port, error=error.strerror or str(error))
            return False
        log.info("metrics port opened", port=self.port)
        return True

    def add(self, source: Source) -> None:
        self._sources.append(source)

    def add_check(self, check: FindOut) -> None:
        self._checks.append(check)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Monitoring]:
        """Serve inside this context, or not, if the port is taken."""
        async with trio.open_nursery() as nursery:
            if self.open():
                nursery.start_soon(self.lag.run)
                nursery.start_soon(self._server.run)
            yield self
            nursery.cancel_scope.cancel()

    def checks(self) -> list[Check]:
        """Return what every check finds now."""
        found = [Check("state", self.state is None, self.state or "serving"), self.lag.check()]
        for check in self._checks:
            try:
                found.append(check())
            except Exception as error:
                log.exception("health check failed")
                found.append(Check(getattr(check, "__name__", "check"), False, f"the check itself failed: {error}"))
        return found

    def _answer(self, request: Request) -> Response:
        path = request.path
        if path == "/metrics":
            page = Page(is_openmetrics=wants_openmetrics(request.accept), on_failure=_failed)
            return Response(200, page.content_type, self._rendered(page))
        if path in ("/health/live", "/healthz"):
            return Response(200, _JSON, b'{"status": "live"}\n')
        if path in ("/health/ready", "/readyz"):
            is_ready, body = report(self.checks())
            return Response(200 if is_ready else 503, _JSON, body)
        if path == "/":
            return plain(200, f"TrioMQ: {_PAGES}")
        return plain(404, f"no such page; there are {_PAGES}")

    def _rendered(self, page: Page) -> Iterator[bytes]:
        """Yield a scrape in pieces, each of them one step; what it left out comes at its end."""
        clock = time.perf_counter
        pieces = page.text(self._families(page))
        while True:
            began = clock()
            piece = next(pieces, None)
            page.spent_seconds += clock() - began
            if piece is None:
                break
            yield piece.encode(errors="replace")
        self._scrapes += 1
        self._scrape_seconds += page.spent_seconds

    def _families(self, page: Page) -> Iterator[Family]:
        for source in list(self._sources):
            families = iter(source())
            while True:
                try:
                    family = next(families, None)
                except Exception as error:
                    _failed(getattr(source, "__qualname__", "a source"), error)
                    break
                if family is None:
                    break
                yield family
        self._left_out.update(page.left_out)
        left_out = [(labels(family=name), count) for name, count in self._left_out.items()]
        yield counter("triomq_series_dropped_total", "Series that scrapes left out because of the limit.", left_out)
        meaning = "Time that this scrape took of the event loop."
        yield gauge("triomq_scrape_duration_seconds", meaning, one(page.spent_seconds))

    def _own(self) -> Iterator[Family]:
        yield gauge(
            "triomq_ready",
            "1 if the check of /health/ready passes.",
            [(labels(check=check.name), int(check.is_ok)) for check in self.checks()],
        )
        yield Family(
            "triomq_event_loop_lag_seconds", "histogram", "How late the event loop calls a timer.", one(self.lag.times)
        )
        yield counter("triomq_scrapes_total", "Scrapes of this port.", one(self._scrapes))
        spent = self._scrape_seconds
        yield counter("triomq_scrape_seconds_total", "Time that scrapes took of the event loop.", one(spent))
        yield gauge("triomq_http_connections", "Open connections of this port.", one(self._server.connection_count))


def _failed(name: str, error: Exception) -> None:
    log.error("figures left out of a scrape", of=name, exc_info=error)
