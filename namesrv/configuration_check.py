"""What `mqnamesrv --check` looks at beyond the values themselves. Nothing is created or changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from triomq.daemon.directory_check import directory_problem
from triomq.namesrv.config import NamesrvSettings
from triomq.remoting.tls import DISABLED, TlsError, TlsSettings, make_server_context


def configuration_problems(settings: NamesrvSettings, tls: TlsSettings) -> Iterator[str]:
    """Return one sentence for each reason why a NameServer would not serve with this configuration."""
    for key, text in (("kvConfigPath", settings.kv_config_path), ("configStorePath", settings.config_store_path)):
        problem = directory_problem(Path(text).absolute().parent) if text else None
        if problem:
            yield f"{key}: {problem}"
    if tls.mode != DISABLED and not tls.is_test_mode:
        try:
            make_server_context(tls)
        except TlsError as error:
            yield str(error)
