"""BrokerController: the life cycle of one broker, from binding its ports to the last flush (RocketMQ:
BrokerController).

broker/assembly builds and wires the parts. `serve` runs until it is cancelled, then stops in order, innermost nursery
first:

    store         flusher, preallocation, retention       ends last: final flush, checkpoint, abort file removed
      background  delayed messages, checks, tasks         tables are written when it has ended
        clients   ports and connections                   held pulls end; ports close; responses get a moment to leave

A request that fails gets an error response; a part that fails ends the broker. Whatever fails, also during the stop,
the parts behind it stop in this order (daemon/stopping.py), and the store is closed properly.
"""

from __future__ import annotations

import socket
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TYPE_CHECKING, Any

import structlog
import trio
from msgspec import Struct
from msgspec.structs import replace

from triomq import __version__
from triomq.broker import optional
from triomq.broker.assembly.events import connect
from triomq.broker.assembly.processors import register
from triomq.broker.assembly.serving import Serving, build_serving
from triomq.broker.assembly.tables import (
    Surroundings,
    Tables,
    are_saved,
    build_tables,
    load_accounts,
    load_tables,
    persist_tables,
    warn_of_absent_tables,
)
from triomq.broker.assembly.timetable import add_tasks, follow_settings
from triomq.broker.configuration import FAST_PORT_DISTANCE, HA_PORT_DISTANCE, Configuration
from triomq.broker.extensions import Extensions
from triomq.broker.settings.networks import networks_of
from triomq.daemon.deadline import Deadline
from triomq.daemon.errors import ExitCode, StartError, listen_error
from triomq.daemon.stopping import Stopping
from triomq.protocol.clock import NowMs, OnJump
from triomq.protocol.command import ROCKETMQ
from triomq.protocol.settings import SettingError
from triomq.protocol.speedups import running_build
from triomq.remoting import network
from triomq.remoting.certificates import ClientCertificates, ServerCertificates
from triomq.remoting.client import RemotingClient, open_client
from triomq.remoting.connection import Connection
from triomq.remoting.memory import MemoryBudget, budget_of
from triomq.remoting.port_check import port_problems
from triomq.remoting.processor_table import ProcessorTable
from triomq.remoting.server import Connecting, RemotingServer
from triomq.remoting.tls import TlsError, TlsSettings
from triomq.remoting.turn import Turn
from triomq.store.disk.files import Files
from triomq.store.disk.worker_thread import Offload
from triomq.store.errors import StoreError

if TYPE_CHECKING:
    from triomq.broker.group.roles import GroupRoles
    from triomq.broker.spans.puts import Spans
    from triomq.dashboard.door import Door
    from triomq.monitoring.monitoring import Monitoring

log = structlog.get_logger("triomq.broker")

DRAIN_SECONDS = 2.0
FREE_PORT_TRIES = 50


class Work(Struct, frozen=True):
    """What the parts of a running broker share: its tables, its server for the requests of both ports, its stop."""

    tables: Tables
    server: RemotingServer
    memory: MemoryBudget
    table: ProcessorTable
    fast_table: ProcessorTable
    certificates: ServerCertificates
    stopping: Stopping


class BrokerController:
    """One broker.

    `now_ms` is its wall clock; `files` and `offload` are the store's seams to the operating system and to threads.
    `extensions` are those of a program that embeds the broker; by default those that the configuration names.
    `on_jump` subscribes to the jumps of a clock that makes them. `disk_deadline` bounds the part of the stop that waits
    for nothing but the disk; without it the stop waits as long as the disk takes.
    `port` is the port it listens on, `serving` holds its parts; both are known once `serve` has started.
    """

    def __init__(
        self,
        configuration: Configuration,
        *,
        now_ms: NowMs,
        files: Files | None = None,
        offload: Offload | None = None,
        extensions: Extensions | None = None,
        on_jump: OnJump | None = None,
        disk_deadline: Deadline | None = None,
    ) -> None:
        self._disk_deadline = disk_deadline
        self.configuration = configuration
        self.serving: Serving | None = None
        self._on_jump = on_jump
        self._extensions = extensions
        self.port = configuration.server.listen_port
        self._now_ms = now_ms
        self._files = files or Files()
        self._offload = offload
        self._ha_port: network.Listening | None = None
        self._monitoring: Monitoring | None = None
        self._connecting_grpc: Connecting | None = None
        self.dashboard: Door | None = None

    @property
    def address(self) -> str:
        """Return the address that the broker registers, "ip:port"."""
        return f"{self.configuration.broker.broker_ip1}:{self.port}"

    def boot_line(self) -> str:
        """Return RocketMQ's line for standard output, word for word."""
        broker = self.configuration.broker
        serialize_type = "ROCKETMQ" if self.configuration.serialize_type == ROCKETMQ else "JSON"
        text = f"The broker[{broker.broker_name}, {self.address}] boot success. serializeType={serialize_type}"
        return f"{text} and name server is {broker.namesrv_addr}" if broker.namesrv_addr else text

    async def serve(self, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled; `task_status` gets the address. Raises StartError when it cannot start."""
        stop = trio.Event()
        async with trio.open_nursery() as outer:
            outer.start_soon(self._live, stop, task_status)
            try:
                await trio.sleep_forever()
            finally:
                stop.set()  # the nursery waits for _live, which is shielded and ends by itself

    async def _live(self, stop: trio.Event, task_status: trio.TaskStatus[str]) -> None:
        """Run the broker's whole life, shielded from the cancellation that ends it, so that it stops in order."""
        self._check_dashboard()
        with trio.CancelScope(shield=True):
            async with AsyncExitStack() as stack:
                await self._open_monitoring(stack)
                await self._live_on(stop, task_status, await self._open_spans(stack))

    async def _live_on(self, stop: trio.Event, task_status: trio.TaskStatus[str], spans: Spans | None) -> None:
        turn = Turn()
        table = ProcessorTable()
        fast_table = ProcessorTable()
        extensions = self._extensions or Extensions.load(self.configuration)
        settings = self.configuration.server
        memory = budget_of(settings.max_request_bytes, settings.max_frame_bytes)
        outside = self.configuration, turn, self._now_ms, self._files, self._offload, extensions, memory.tables, spans
        tables = build_tables(Surroundings(*outside))
        tls = TlsSettings.from_values(self.configuration.properties)
        certificates = ServerCertificates(tls)
        server = RemotingServer(
            settings,
            turn,
            events=tables.listeners,
            tls_mode=tls.mode,
            tls_context=certificates.context,
            serialize_type=self.configuration.serialize_type,
            memory=memory,
        )
        self._bind(server, table, fast_table)
        self._bind_grpc(server, table)
        stopping = Stopping()
        work = Work(tables, server, memory, table, fast_table, certificates, stopping)
        try:
            refusal = await self._load(tables, stop)
            if refusal is None and not stop.is_set():
                with stopping.part("the broker"):
                    load_accounts(tables)
                    warn_of_absent_tables(tables)
                    await self._work(work, tls, stop, task_status)
        finally:  # whatever ends this process, even an exception that no part may keep, lets go of ports and store
            with stopping.part("the ports"):
                server.stop_listening()
                self._close_ha_port()
            _fail_with_turn(tables)
            self._await_disk()
            with stopping.part("the store"):
                await tables.store.close()
            if self._disk_deadline is not None:
                self._disk_deadline.cancel()
        if refusal is not None:
            raise StartError(str(refusal), ExitCode.REFUSED)
        log.info("broker stopped", address=self.address)
        stopping.finish()

    async def _work(self, work: Work, tls: TlsSettings, stop: trio.Event, task_status: trio.TaskStatus[str]) -> None:
        """Run all parts of the broker beside its store, until they have stopped."""
        tables = work.tables
        server = work.server
        certificates = work.certificates
        stopping = work.stopping
        dialing = self._client_certificates(tls)
        async with trio.open_nursery() as store_nursery, self._open_client(dialing) as client:
            await store_nursery.start(tables.store.run)
            self.serving = serving = build_serving(tables, self.port, client)
            connect(serving)
            register(serving, work.table, work.fast_table, lambda: optional.own_totals.TotalsProcessor(serving))
            await serving.prepare()
            add_tasks(serving)
            follow_settings(serving)
            if self._on_jump is not None:
                for heard in (tables.listeners.time_jumped, server.time_jumped, client.time_jumped):
                    self._on_jump(heard)
            with stopping.part("the background tasks"):
                async with trio.open_nursery() as background:
                    for watched in (certificates, *filter(None, [dialing])):
                        background.start_soon(watched.watch)
                    self._show(work, serving, background)
                    try:
                        await self._run(work, serving, background, stop, task_status)
                    finally:
                        self._await_disk()
                    background.cancel_scope.cancel()
            _fail_with_turn(tables)
            await persist_tables(tables, stopping)
            if serving.group is not None:
                with stopping.part("the position of the tables"):
                    await serving.group.end(are_saved(tables))
            store_nursery.cancel_scope.cancel()

    @staticmethod
    async def _load(tables: Tables, stop: trio.Event) -> StoreError | None:
        """Open the store; return the error that prevents it. A recovery may take minutes: `stop` ends it at its next
        step, and the next start begins it again."""
        refusal = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_when, stop, nursery.cancel_scope)
            try:
                if tables.group is not None:
                    tables.group.check()  # before anything is made
                tables.store.lock()  # first: the tables are read from its directory
                try:
                    load_tables(tables)
                except BaseException:
                    tables.store.unlock()
                    raise
                await tables.store.load()
                if tables.group is not None:
                    tables.group.note()
            except StoreError as error:
                refusal = error
            nursery.cancel_scope.cancel()
        return refusal

    async def _run(
        self,
        work: Work,
        serving: Serving,
        background: trio.Nursery,
        stop: trio.Event,
        task_status: trio.TaskStatus[str],
    ) -> None:
        """Serve from the first request to the last, then stop what needs the background tasks."""
        stopping = work.stopping
        with stopping.part("the clients"):
            async with trio.open_nursery() as clients:
                await clients.start(work.server.serve)
                serving.start(background, self._ha_port)
                if serving.group is not None:
                    await self._join_group(serving.group, background)
                await serving.registration.start()
                log.info("broker started", address=self.address, version=__version__, build=running_build())
                self._tell(None)
                task_status.started(self.address)
                await stop.wait()
                log.info("broker shutdown begun", address=self.address)
                self._tell("the broker stops")
                if serving.group is not None:
                    with stopping.part("the leadership"):
                        await serving.group.hand_over()
                with stopping.part("the held pulls"):
                    await self._end_pulls(serving)
                await work.server.drain(DRAIN_SECONDS)
                clients.cancel_scope.cancel()
        with stopping.part("the last messages"):
            serving.store.commit()
        with stopping.part("the slaves"):
            await serving.replication.log_server.drain(DRAIN_SECONDS)
        with stopping.part("the registration"):
            await serving.registration.stop()

    @staticmethod
    async def _end_pulls(serving: Serving) -> None:
        """Respond to held pulls while their connections are open; in a group, when another member leads."""
        await serving.pull.long_polling.end()

    async def _join_group(self, group: GroupRoles, background: trio.Nursery) -> None:
        bind_address = self.configuration.server.bind_address
        try:
            await background.start(group.run, bind_address)
        except OSError as error:
            assert self.configuration.group is not None
            raise listen_error(bind_address, self.configuration.group.port, error, key="dLegerPeers") from error

    async def _open_monitoring(self, stack: AsyncExitStack) -> None:
        """Open metricsPort until the stack is closed; without it nothing of it is imported."""
        settings = self.configuration.server
        if settings.metrics_port:
            monitoring = optional.monitoring.Monitoring(settings.metrics_address, settings.metrics_port)
            self._monitoring = await stack.enter_async_context(monitoring.serving())

    async def _open_spans(self, stack: AsyncExitStack) -> Spans | None:
        """Return what makes the broker's own spans, until the stack is closed; without tracesEndpoint nothing of it is
        imported."""
        provider = self._extensions.tracer_provider if self._extensions is not None else None
        broker = self.configuration.broker
        if provider is None and not broker.traces_endpoint:
            return None
        if provider is None:
            provider = await stack.enter_async_context(optional.span_export.exporting(self.configuration))
        return optional.span_recorder.Recorder(provider, self._now_ms, broker.broker_name)

    def _show(self, work: Work, serving: Serving, background: trio.Nursery) -> None:
        """Fill the pages of metricsPort, and open dashboardPort; without them nothing of it is imported."""
        settings = self.configuration.server
        if self._monitoring is not None:
            if self._monitoring.refusal is not None:
                serving.closed_ports.append(self._monitoring.refusal)
            tables = [work.table, work.fast_table]
            optional.watching.watch(self._monitoring, serving, work.server, work.memory, tables, background)
        if settings.dashboard_port:
            checks = self._monitoring.checks if self._monitoring is not None else None
            self.dashboard = optional.dashboard.open_dashboard(
                serving, work.server, work.table, work.certificates, background, checks
            )
            if self.dashboard is None:
                wanted = [("dashboardPort", settings.dashboard_address, settings.dashboard_port)]
                reason = "; ".join(port_problems(wanted)) or "dashboardPort could not be opened at the start"
                serving.closed_ports.append(reason)

    def _check_dashboard(self) -> None:
        if self.configuration.server.dashboard_port:
            text = optional.dashboard.objection_to(self.configuration)
            if text is not None:
                raise StartError(text)

    def _await_disk(self) -> None:
        """From here on the stop waits for nothing but the disk."""
        if self._disk_deadline is not None:
            self._disk_deadline.start()

    def _tell(self, state: str | None) -> None:
        """Tell probes why the broker is not ready; None: it is, as far as its start and stop are concerned."""
        if self._monitoring is not None:
            self._monitoring.state = state

    def _client_certificates(self, tls: TlsSettings) -> ClientCertificates | None:
        """Return what the client presents and trusts, or None if it does not use TLS."""
        if not tls.use_for_clients(self.configuration.client.use_tls):
            return None
        try:
            return ClientCertificates(tls)
        except TlsError as error:
            raise StartError(str(error)) from None

    def _open_client(self, certificates: ClientCertificates | None) -> AbstractAsyncContextManager[RemotingClient]:
        """Open the client for calls to NameServers and to the master."""
        return open_client(
            self.configuration.client,
            serialize_type=self.configuration.serialize_type,
            tls_context=certificates.current if certificates is not None else None,
        )

    def _bind_grpc(self, server: RemotingServer, table: ProcessorTable) -> None:
        """Bind grpcServerPort. What serves it is imported when the first client connects."""
        port = self.configuration.broker.grpc_server_port
        if not port:
            return
        try:
            proxies = networks_of("grpcProxyProtocolFrom", self.configuration.broker.grpc_proxy_protocol_from)
            server.bind(port, table, self._connect_grpc, proxies)
        except SettingError:
            server.release()
            raise
        except OSError as error:
            failure = listen_error(self.configuration.server.bind_address, port, error, key="grpcServerPort")
            if not self.configuration.is_grpc_port_chosen:
                log.warning("gRPC port not opened", error=f"{failure} (0: no port)")
                self.configuration.broker = replace(self.configuration.broker, grpc_server_port=0)
                return
            server.release()
            raise failure from error

    def _connect_grpc(self, *arguments: Any, **options: Any) -> Connection:
        """Return a new connection of grpcServerPort."""
        if self._connecting_grpc is None:
            assert self.serving is not None
            self._connecting_grpc = optional.grpc.connecting(self.serving)
        connection: Connection = self._connecting_grpc(*arguments, **options)
        return connection

    def _close_ha_port(self) -> None:
        if self._ha_port is not None:
            self._ha_port.close()

    def _bind(self, server: RemotingServer, table: ProcessorTable, fast_table: ProcessorTable) -> None:
        """Bind the port, the fast port two below it and the HA port one above it; with port 0 bind free ones."""
        wanted = self.configuration.server.listen_port
        settings = self.configuration.server
        for _ in range(FREE_PORT_TRIES):
            port = wanted or _free_port()
            try:
                server.bind(port, table)
                server.bind(port + FAST_PORT_DISTANCE, fast_table)
                if self.configuration.group is None:
                    self._ha_port = network.listen(settings.bind_address, port + HA_PORT_DISTANCE, settings.backlog)
            except OSError as error:
                server.release()
                if wanted:
                    raise StartError(
                        f"cannot listen on port {port}, its fast port {port + FAST_PORT_DISTANCE} and its HA port "
                        f"{port + HA_PORT_DISTANCE}: "
                        f"{error.strerror}; stop what holds them, or set listenPort",
                        ExitCode.FAILED,
                    ) from None
                continue
            self.port = port
            return
        raise StartError(f"no free ports found in {FREE_PORT_TRIES} tries", ExitCode.FAILED)


def _fail_with_turn(tables: Tables) -> None:
    """Fail the store if the end of a turn failed: work for messages of that turn is unfinished."""
    failure = tables.surroundings.turn.failure
    if failure is not None:
        tables.store.fail("the end of a turn", failure)


async def _cancel_when(asked: trio.Event, scope: trio.CancelScope) -> None:
    await asked.wait()
    scope.cancel()


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("", 0))
        port: int = sock.getsockname()[1]
        return port
