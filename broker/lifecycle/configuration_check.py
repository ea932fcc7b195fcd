"""What `mqbroker --check` looks at beyond the values themselves: directories, ports, access control files,
certificates, extensions.

Nothing is created or changed, and a running broker is not disturbed: its store and its ports are reported as in use.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from triomq.broker.acl.errors import AclFileError
from triomq.broker.assembly.serving import literal
from triomq.broker.assembly.tables import access_table
from triomq.broker.configuration import FAST_PORT_DISTANCE, HA_PORT_DISTANCE, Configuration
from triomq.broker.extensions import Extensions
from triomq.broker.replication.ha_tls import HaTls
from triomq.broker.settings.networks import networks_of
from triomq.broker.spans.export import check_traces
from triomq.daemon.clock import system_now_ms
from triomq.daemon.directory_check import directory_problem
from triomq.daemon.errors import StartError
from triomq.dashboard.exposure import objection
from triomq.protocol.settings import SettingError
from triomq.remoting.link_tls import LinkTlsMode, LinkTlsSettings
from triomq.remoting.port_check import WantedPort, port_problems
from triomq.remoting.tls import DISABLED, TlsError, TlsSettings, client_context, make_server_context
from triomq.store.disk.files import Files
from triomq.store.disk.layout import Layout, paths_in


def configuration_problems(configuration: Configuration) -> Iterator[str]:
    """Return one sentence for each reason why a broker would not start, or would not serve, with this configuration."""
    layout = Layout(configuration.store)
    named = [("storePathRootDir", layout.root), *(("storePathCommitLog", path) for path in layout.commit_logs)]
    if configuration.group is not None:
        data = paths_in(configuration.store.store_path_dledger_commit_log)
        named += [("storePathDLedgerCommitLog", path) for path in data]
    problems = [(key, directory_problem(Path(path))) for key, path in named]
    yield from dict.fromkeys(f"{key}: {problem}" for key, problem in problems if problem)
    yield from _lock_problems(layout)
    yield from _group_problems(configuration)
    yield from port_problems(_ports(configuration))
    if configuration.server.dashboard_port:
        text = objection(configuration.server, has_login=configuration.broker.acl_enable)
        yield from [text] if text is not None else []
    yield from _start_problems(configuration)
    if configuration.broker.acl_enable:
        try:
            access_table(configuration, system_now_ms).check()
        except AclFileError as error:
            yield str(error)
    for key, text in (
        ("haSlaveAddresses", configuration.store.ha_slave_addresses),
        ("grpcProxyProtocolFrom", configuration.broker.grpc_proxy_protocol_from),
    ):
        try:
            networks_of(key, text)
        except SettingError as error:
            yield str(error)
    yield from _tls_problems(configuration)


def _lock_problems(layout: Layout) -> Iterator[str]:
    """Take the locks of a store that is there, as a start does, and release them."""
    files = Files()
    held = []
    try:
        if Path(layout.lock).is_file():
            held.append(os.open(layout.lock, os.O_RDWR | os.O_CLOEXEC))
            if not files.lock(held[0]):
                yield f"storePathRootDir: {layout.root} is in use by another process: stop it, or set another directory"
                return
        for path in filter(os.path.isdir, layout.commit_logs):
            held.append(files.lock_directory(path))
            if held[-1] < 0:
                yield f"storePathCommitLog: {path} is in use by another process: stop it, or set another directory"
    except OSError as error:
        yield f"storePathRootDir: {error.filename or layout.root} cannot be locked: {error.strerror}"
    finally:
        for descriptor in filter(lambda each: each >= 0, held):
            os.close(descriptor)


def _ports(configuration: Configuration) -> list[WantedPort]:
    settings, group = configuration.server, configuration.group
    address, port = settings.bind_address, settings.listen_port
    wanted: list[WantedPort] = []
    if port:
        wanted += [
            ("listenPort", address, port),
            (f"listenPort={port} (its fast port)", address, port + FAST_PORT_DISTANCE),
        ]
        if group is None:
            wanted.append((f"listenPort={port} (its HA port)", address, port + HA_PORT_DISTANCE))
    if group is not None and group.port not in (port, port + FAST_PORT_DISTANCE):
        wanted.append(("dLegerPeers", address, group.port))
    if settings.metrics_port:
        wanted.append(("metricsPort", settings.metrics_address, settings.metrics_port))
    if settings.dashboard_port:
        wanted.append(("dashboardPort", settings.dashboard_address, settings.dashboard_port))
    grpc_port = configuration.broker.grpc_server_port
    if grpc_port and configuration.is_grpc_port_chosen:
        wanted.append(("grpcServerPort", address, grpc_port))
    return wanted


def _start_problems(configuration: Configuration) -> Iterator[str]:
    try:
        literal(configuration.broker.broker_ip1)
        Extensions.load(configuration)
    except StartError as error:
        yield str(error)
    try:
        check_traces(configuration)
    except StartError as error:
        yield str(error)


def _group_problems(configuration: Configuration) -> Iterator[str]:
    group, port = configuration.group, configuration.server.listen_port
    if group is not None and group.port in (port, port + FAST_PORT_DISTANCE):
        yield (
            f"dLegerPeers: {group.setup.self_id} has port {group.port}, which is "
            f"{'listenPort' if group.port == port else 'the fast port, listenPort - 2'}: give it a port of its own"
        )


def _tls_problems(configuration: Configuration) -> Iterator[str]:
    tls = TlsSettings.from_values(configuration.properties)
    try:
        if tls.mode != DISABLED and not tls.is_test_mode:
            make_server_context(tls)
        if tls.use_for_clients(configuration.client.use_tls):
            client_context(tls)
        HaTls(configuration.ha_tls, tls, is_slave=configuration.role.is_slave)
        links: list[LinkTlsSettings] = [configuration.ha_tls]
        if configuration.group is not None:
            configuration.member_tls.made(tls, accepts=True)
            links = [configuration.member_tls]
        for link in links:
            if link.mode is not LinkTlsMode.disabled and not tls.is_test_mode:
                make_server_context(tls, link.needs_certificate.verify_mode)
    except TlsError as error:
        yield str(error)
