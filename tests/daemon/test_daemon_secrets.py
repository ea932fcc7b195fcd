"""Secrets of the configuration: each may be in a file or in a variable, and in one place only."""

from __future__ import annotations

from pathlib import Path

import pytest

from triomq.broker.config import BrokerSettings
from triomq.broker.settings.ha_tls import HaTlsSettings
from triomq.daemon.configuration import load_configuration
from triomq.daemon.environment import read_environment
from triomq.daemon.errors import StartError
from triomq.daemon.secret_names import SECRET_KEYS, is_secret, variable_of
from triomq.namesrv.config import NamesrvSettings
from triomq.protocol.settings import declarations
from triomq.remoting.config import ClientSettings, ServerSettings
from triomq.remoting.member_tls import MemberTlsSettings
from triomq.remoting.tls import TlsSettings
from triomq.store.config import StoreSettings

RECORDS = (
    BrokerSettings,
    StoreSettings,
    ServerSettings,
    ClientSettings,
    NamesrvSettings,
    TlsSettings,
    HaTlsSettings,
    MemberTlsSettings,
)


def test_every_key_that_is_a_secret_has_a_file_and_a_variable() -> None:
    keys = {declared.key for record in RECORDS for declared in declarations(record)}
    secrets = {key for key in keys if is_secret(key) and not key.endswith("File")}
    assert secrets == set(SECRET_KEYS)
    assert {f"{key}File" for key in secrets} <= keys


@pytest.mark.parametrize("key", SECRET_KEYS)
def test_a_variable_holds_a_secret(key: str) -> None:
    assert variable_of("tls.server.keyPassword") == "TRIOMQ_TLS_SERVER_KEYPASSWORD"
    layers = load_configuration(read_environment({variable_of(key): "hush"}))
    assert layers.get(key) == "hush"
    assert layers.source(key) == variable_of(key)


@pytest.mark.parametrize("key", SECRET_KEYS)
@pytest.mark.parametrize(
    ("written", "variable"), [(("", "File"), False), (("",), True), (("File",), True)], ids=["both", "key", "file"]
)
def test_two_origins_of_a_secret_are_an_error_that_names_both(
    tmp_path: Path, key: str, written: tuple[str, ...], variable: bool
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{key}{ending}=hush\n" for ending in written))
    environment = read_environment({variable_of(key): "hush"} if variable else {})
    with pytest.raises(StartError) as caught:
        load_configuration(environment, file=conf)
    for ending in written:
        assert f"{key}{ending} ({conf})" in str(caught.value)
    assert (f"the variable {variable_of(key)}" in str(caught.value)) == variable
    assert "remove one" in str(caught.value)
    assert "hush" not in str(caught.value)
