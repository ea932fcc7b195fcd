"""One NameServer: builds its parts, listens, expires dead brokers (RocketMQ: NamesrvController).

    async with trio.open_nursery() as nursery:
        port = await nursery.start(partial(serve, NamesrvSettings(), ServerSettings(listen_port=0)))

`serve` runs until it is cancelled. Whatever fails, the parts behind it stop in order (daemon/stopping.py). Only the two
files of the settings (kvConfigPath, configStorePath) outlive it; without those paths everything is in memory, so that
many NameServers fit into one test process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
import trio

from triomq import __version__
from triomq.daemon.errors import StartError, listen_error
from triomq.daemon.stopping import Stopping
from triomq.namesrv.config import NamesrvSettings
from triomq.namesrv.kv_config import KvConfig
from triomq.namesrv.processor import AskProductEnvironment, NamesrvProcessor
from triomq.namesrv.product_environment import AddressServer, ProductEnvironment
from triomq.namesrv.routes import RouteTable
from triomq.namesrv.runtime_config import RuntimeConfig
from triomq.namesrv.upkeep import RouteUpkeep, log_kv_config, scan_silent_brokers
from triomq.protocol.clock import OnJump
from triomq.protocol.speedups import running_build
from triomq.remoting.certificates import ClientCertificates, ServerCertificates
from triomq.remoting.config import ServerSettings
from triomq.remoting.connection import Connection
from triomq.remoting.memory import MemoryBudget, budget_of
from triomq.remoting.port_check import port_problems
from triomq.remoting.processor_table import ProcessorTable
from triomq.remoting.server import RemotingServer
from triomq.remoting.table_memory import TableMemory
from triomq.remoting.tls import TlsError, TlsSettings
from triomq.remoting.turn import Turn

if TYPE_CHECKING:
    from triomq.monitoring.monitoring import Monitoring

log = structlog.get_logger("triomq.namesrv")

DRAIN_SECONDS = 2.0
MOST_SHOWN = 20
"""Addresses of one line of the log."""


class BrokerConnections:
    """Removes a broker from the route table as soon as its connection closes. `dropped` counts them."""

    def __init__(self, routes: RouteTable, dropped: Counter[str]) -> None:
        self.routes = routes
        self.dropped = dropped

    def connection_opened(self, connection: Connection) -> None:
        pass

    def connection_closed(self, connection: Connection) -> None:
        gone = self.routes.drop_owner(connection)
        if gone:
            self.dropped["closed"] += len(gone)
            reason = connection.close_reason
            shown = ",".join(gone[:MOST_SHOWN]) + (f" and {len(gone) - MOST_SHOWN} more" if gone[MOST_SHOWN:] else "")
            log.warning("brokers removed: their connection closed", addresses=shown, reason=reason)


async def serve(
    settings: NamesrvSettings,
    server_settings: ServerSettings,
    *,
    config: RuntimeConfig | None = None,
    address_server: AddressServer | None = None,
    tls: TlsSettings | None = None,
    on_jump: OnJump | None = None,
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run a NameServer until cancelled; `task_status` gets the port it listens on.

    config: holds both records, for a caller that changes them. on_jump: subscribes to the jumps of a clock that makes
    them. Raises StartError if it cannot start.
    """
    memory = budget_of(server_settings.max_request_bytes, server_settings.max_frame_bytes)
    routes = _make_routes(memory.tables)
    kv_config = _load_kv_config(settings, memory.tables)
    config = config or RuntimeConfig(settings, server_settings)
    tls = tls or TlsSettings()
    dialing = _client_certificates(settings, tls)
    dropped = Counter[str]()
    async with AsyncExitStack() as stack:
        monitoring = await _open_monitoring(server_settings, stack)
        ask = await _product_environment(settings, address_server or AddressServer(), dialing, stack)
        kept = memory.tables.account("kept routes")
        table = ProcessorTable()
        NamesrvProcessor(routes, kv_config, config, ask_product_environment=ask, account=kept).register_all(table)
        certificates = ServerCertificates(tls)
        turn = Turn()
        events = BrokerConnections(routes, dropped)
        server = _make_server(server_settings, turn, events, tls, certificates, memory)
        port = _bind(server, server_settings, table)
        if on_jump is not None:
            on_jump(routes.brokers.time_jumped)
            on_jump(server.time_jumped)
        tasks = _background_tasks(events, kv_config, certificates, dialing)
        asked = trio.Event()
        stopping = Stopping()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_tell_cancelled, asked)
            # Responses leave before connections close, so the cancellation must not reach them directly.
            with trio.CancelScope(shield=True), stopping.part("the connections"):
                async with trio.open_nursery() as connections:
                    await connections.start(server.serve)
                    log.info("NameServer started", port=port, version=__version__, build=running_build())
                    _show(monitoring, events, server, turn, memory, port, server_settings.metrics_max_series)
                    task_status.started(port)
                    with stopping.part("the background tasks"):
                        async with trio.open_nursery() as background:
                            for task in tasks:
                                background.start_soon(task)
                            _open_dashboard(routes, server_settings, certificates, port, background, monitoring)
                            await asked.wait()
                            background.cancel_scope.cancel()
                    log.info("NameServer shutdown begun", **routes.sizes())
                    await server.drain(DRAIN_SECONDS)
                    connections.cancel_scope.cancel()
            nursery.cancel_scope.cancel()
            stopping.finish()


def _make_routes(memory: TableMemory) -> RouteTable:
    return RouteTable(account=memory.account("routes"), incoming_account=memory.account("registrations in progress"))


def _load_kv_config(settings: NamesrvSettings, memory: TableMemory) -> KvConfig:
    path = Path(settings.kv_config_path) if settings.kv_config_path else None
    kv_config = KvConfig(path, account=memory.account("key-value entries"))
    kv_config.load()
    return kv_config


def _make_server(
    settings: ServerSettings,
    turn: Turn,
    events: BrokerConnections,
    tls: TlsSettings,
    certificates: ServerCertificates,
    memory: MemoryBudget,
) -> RemotingServer:
    context = certificates.context
    return RemotingServer(settings, turn, events=events, tls_mode=tls.mode, tls_context=context, memory=memory)


def _background_tasks(
    brokers: BrokerConnections,
    kv_config: KvConfig,
    certificates: ServerCertificates,
    dialing: ClientCertificates | None,
) -> list[Callable[[], Awaitable[None]]]:
    tasks: list[Callable[[], Awaitable[None]]] = [
        RouteUpkeep(brokers.routes).run,
        certificates.watch,
        partial(scan_silent_brokers, brokers.routes, brokers.dropped),
        partial(log_kv_config, kv_config),
    ]
    if dialing is not None:
        tasks.append(dialing.watch)
    return tasks


async def _open_monitoring(settings: ServerSettings, stack: AsyncExitStack) -> Monitoring | None:
    """Open metricsPort until the stack is closed; without it nothing of it is imported. Raises StartError if the
    dashboard must not listen as it is set."""
    _check_dashboard(settings)
    if not settings.metrics_port:
        return None
    from triomq.monitoring.monitoring import Monitoring

    return await stack.enter_async_context(Monitoring(settings.metrics_address, settings.metrics_port).serving())


def _check_dashboard(settings: ServerSettings) -> None:
    if settings.dashboard_port:
        from triomq.dashboard.exposure import objection

        text = objection(settings, has_login=False)
        if text is not None:
            raise StartError(text)


def _open_dashboard(
    routes: RouteTable,
    settings: ServerSettings,
    certificates: ServerCertificates,
    port: int,
    background: trio.Nursery,
    monitoring: Monitoring | None,
) -> None:
    """Open dashboardPort; without it nothing of it is imported. If it cannot be opened, the NameServer is not ready."""
    if settings.dashboard_port:
        from triomq.namesrv.views import open_dashboard

        door = open_dashboard(routes, settings, certificates, port, background)
        if door is None and monitoring is not None:
            from triomq.monitoring.health import Check

            wanted = [("dashboardPort", settings.dashboard_address, settings.dashboard_port)]
            reason = "; ".join(port_problems(wanted)) or "dashboardPort could not be opened at the start"
            monitoring.add_check(lambda: Check("ports", False, reason))


def _show(
    monitoring: Monitoring | None,
    brokers: BrokerConnections,
    server: RemotingServer,
    turn: Turn,
    memory: MemoryBudget,
    port: int,
    limit: int,
) -> None:
    """Fill the pages of metricsPort."""
    if monitoring is not None:
        from triomq.namesrv.figures import NamesrvFigures

        figures = NamesrvFigures(brokers.routes, brokers.dropped, port=port, limit=limit)
        figures.show(monitoring, server, turn, memory)


async def _tell_cancelled(stopping: trio.Event) -> None:
    try:
        await trio.sleep_forever()
    finally:
        stopping.set()


def _bind(server: RemotingServer, settings: ServerSettings, table: ProcessorTable) -> int:
    try:
        return server.bind(settings.listen_port, table)
    except OSError as error:
        raise listen_error(settings.bind_address, settings.listen_port, error) from None


def _client_certificates(settings: NamesrvSettings, tls: TlsSettings) -> ClientCertificates | None:
    """Return what the client of the product environment presents and trusts; None if it does not use TLS."""
    if not settings.cluster_test or not tls.client_enabled_text or not tls.use_for_clients():
        return None
    try:
        return ClientCertificates(tls)
    except TlsError as error:
        raise StartError(str(error)) from None


async def _product_environment(
    settings: NamesrvSettings,
    address_server: AddressServer,
    certificates: ClientCertificates | None,
    stack: AsyncExitStack,
) -> AskProductEnvironment | None:
    if not settings.cluster_test:
        return None
    from triomq.remoting.client import open_client

    context = certificates.current if certificates is not None else None
    client = await stack.enter_async_context(open_client(tls_context=context))
    url = address_server.url(settings.product_env_name)
    return ProductEnvironment(client, settings.namesrv_addr, url).ask
