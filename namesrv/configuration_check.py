"""What `mqnamesrv --check` looks at beyond the values themselves. Nothing is created or changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from triomq.daemon.directory_check import directory_problem
from triomq.daemon.errors import StartError
from triomq.dashboard.exposure import objection
from triomq.namesrv.config import NamesrvSettings
from triomq.namesrv.kv_config import KvConfig
from triomq.remoting.config import ServerSettings
from triomq.remoting.port_check import port_problems
from triomq.remoting.tls import DISABLED, TlsError, TlsSettings, make_server_context


def configuration_problems(settings: NamesrvSettings, server: ServerSettings, tls: TlsSettings) -> Iterator[str]:
    """Return one sentence for each reason why a NameServer would not serve with this configuration."""
    for key, text in (("kvConfigPath", settings.kv_config_path), ("configStorePath", settings.config_store_path)):
        problem = directory_problem(Path(text).absolute().parent) if text else None
        if problem:
            yield f"{key}: {problem}"
    if settings.kv_config_path:
        try:
            KvConfig(Path(settings.kv_config_path)).load()
        except StartError as error:
            yield str(error)
    wanted = [
        ("listenPort", server.bind_address, server.listen_port),
        ("metricsPort", server.metrics_address, server.metrics_port),
        ("dashboardPort", server.dashboard_address, server.dashboard_port),
    ]
    yield from port_problems(each for each in wanted if each[2])
    if server.dashboard_port:
        refused = objection(server, has_login=False)
        yield from [refused] if refused is not None else []
    if tls.mode != DISABLED and not tls.is_test_mode:
        try:
            make_server_context(tls)
        except TlsError as error:
            yield str(error)
