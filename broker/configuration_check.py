"""What `mqbroker --check` looks at beyond the values themselves: directories, access control files, certificates.

Nothing is created or changed, and a store that a running broker has open is not disturbed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from triomq.broker.acl.errors import AclFileError
from triomq.broker.assembly.tables import access_table
from triomq.broker.configuration import FAST_PORT_DISTANCE, Configuration
from triomq.broker.replication.ha_tls import HaTls, HaTlsMode
from triomq.broker.replication.slave_access import parse_networks
from triomq.daemon.clock import system_now_ms
from triomq.daemon.directory_check import directory_problem
from triomq.protocol.settings import SettingError
from triomq.remoting.tls import DISABLED, TlsError, TlsSettings, client_context, make_server_context
from triomq.store.config import BrokerRole
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
    yield from _group_problems(configuration)
    if configuration.broker.acl_enable:
        try:
            access_table(configuration, system_now_ms).check()
        except AclFileError as error:
            yield str(error)
    try:
        parse_networks(configuration.store.ha_slave_addresses)
    except SettingError as error:
        yield str(error)
    yield from _tls_problems(configuration)


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
        is_slave = configuration.store.broker_role is BrokerRole.SLAVE
        HaTls(configuration.ha_tls, tls, is_slave=is_slave)
        if configuration.ha_tls.mode is not HaTlsMode.disabled and not tls.is_test_mode:
            make_server_context(tls, configuration.ha_tls.needs_certificate.value)
    except TlsError as error:
        yield str(error)
