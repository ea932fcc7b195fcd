"""SECURITY.md names keys, files and commands; each of them exists, and each value is one that the key takes."""

from __future__ import annotations

import re
import ssl
from pathlib import Path

import pytest

from triomq.broker.acl.spelling import ACCOUNT_KEYS
from triomq.broker.config import BrokerSettings
from triomq.broker.settings.ha_tls import HaTlsSettings
from triomq.daemon.logs import BROKER_LOG_FILES
from triomq.namesrv.config import NamesrvSettings
from triomq.protocol.settings import bind, declarations
from triomq.remoting.config import ClientSettings, ServerSettings
from triomq.remoting.member_tls import MemberTlsSettings
from triomq.remoting.tls import TlsSettings, client_context
from triomq.store.config import StoreSettings

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "SECURITY.md").read_text()
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
KEYS = {declared.key: record for record in RECORDS for declared in declarations(record)}
NAMED = sorted(set(re.findall(r"`([^`]+)`", TEXT)))


def problem(named: str) -> str | None:
    """Return why nothing has this name, or None."""
    key, _, value = named.partition("=")
    if key in KEYS:
        if value:
            bind(KEYS[key], {key: value}, source="SECURITY.md")
        return None
    if key.partition(":")[0] in ACCOUNT_KEYS or (ROOT / named).exists():
        return None
    if named in {file.name for file in BROKER_LOG_FILES}:
        return None
    return f"{named} is neither a key, an account's key, a log file, nor a file of the project"


@pytest.mark.parametrize("named", NAMED)
def test_what_the_threat_model_names_exists(named: str) -> None:
    assert problem(named) is None


def test_the_test_sees_what_does_not_exist() -> None:
    assert problem("tls.ha.modus") is not None
    with pytest.raises(ValueError, match=r"tls\.ha\.mode"):
        problem("tls.ha.mode=enforced")


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#]+)[^)]*\)", TEXT))))
def test_links_lead_to_files(link: str) -> None:
    assert (ROOT / link).exists()


@pytest.mark.parametrize("record", RECORDS)
def test_every_key_that_opens_a_door_is_named(record: type) -> None:
    """Keys whose meaning says that they let everybody do something belong to the threat model."""
    opens = [one.key for one in declarations(record) if re.search(r"\beverybody\b|\bevery peer\b", one.meaning)]
    assert [key for key in opens if key not in TEXT] == []


def test_connections_use_tls_1_2_or_newer() -> None:
    assert client_context(TlsSettings()).minimum_version >= ssl.TLSVersion.TLSv1_2
