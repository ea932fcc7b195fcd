"""The dashboard's port, and the history that its pages show. The pages are made when somebody comes (program.py)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from triomq.broker import optional
from triomq.broker.assembly.readiness import Readiness
from triomq.broker.assembly.serving import Serving
from triomq.broker.configuration import Configuration
from triomq.broker.figures.lag_history import LagHistory
from triomq.dashboard.door import Door
from triomq.dashboard.exposure import objection
from triomq.dashboard.history import History, Series
from triomq.monitoring.health import Check
from triomq.remoting import network
from triomq.remoting.certificates import ServerCertificates
from triomq.remoting.processor_table import ProcessorTable
from triomq.remoting.server import RemotingServer

if TYPE_CHECKING:
    from triomq.monitoring.http_server import HttpServer


def objection_to(configuration: Configuration) -> str | None:
    """Return why the dashboard must not listen as it is set, and what to do; None if it may."""
    return objection(configuration.server, has_login=configuration.broker.acl_enable)


def open_dashboard(
    serving: Serving,
    server: RemotingServer,
    table: ProcessorTable,
    certificates: ServerCertificates,
    background: trio.Nursery,
    checks: Callable[[], list[Check]] | None,
) -> Door | None:
    """Open the port and begin the history; None if the port is taken. Actions are requests to `table`; `checks` are
    those of /health/ready, None without metricsPort."""
    began = time.monotonic()  # with the broker; the pages are made for the first visitor
    settings = serving.tables.configuration.server
    stats = serving.tables.stats
    lags = LagHistory(serving)
    history = History(
        [
            Series("Messages stored", "/s", lambda: stats.stored_total),
            Series("Messages read", "/s", lambda: stats.read_total),
            Series("Bytes stored", "B/s", lambda: stats.stored_size_total_bytes),
            Series("Connections", "", lambda: len(server.connections), is_counter=False),
        ]
    )

    def load(port: int) -> Callable[[network.Listening], HttpServer]:
        get_context = certificates.context if settings.dashboard_tls else None
        program = optional.program.build_program(
            serving, server, table, history, lags, began, checks or Readiness(serving).checks
        )
        return optional.site.prepare(program, settings, get_context, port)

    door = Door(settings.dashboard_address, settings.dashboard_port, load).serve(background, history)
    if door is not None:
        background.start_soon(lags.run)
    return door
