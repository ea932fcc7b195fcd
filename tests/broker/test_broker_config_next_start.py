"""What a running broker, or a NameServer, takes as its configuration is what its next start takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from free_ports import free_port

from triomq.broker.config import BrokerSettings
from triomq.broker.configuration import Configuration
from triomq.broker.configuration_update import ConfigurationUpdate
from triomq.broker.lifecycle.configuration_check import configuration_problems
from triomq.namesrv.config import NamesrvSettings
from triomq.namesrv.configuration_check import configuration_problems as namesrv_problems
from triomq.namesrv.runtime_config import RuntimeConfig
from triomq.protocol import java_properties
from triomq.protocol.settings import SettingError, bind, declarations
from triomq.remoting.config import ClientSettings, ServerSettings
from triomq.remoting.tls import TlsSettings
from triomq.store.config import StoreSettings

ODD = (
    ["", " 5 ", "0", "-1", "1", "1.5", "1e3", "NaN", "inf", "99999999999999999999", "true", "x", "é", "a\nb", "\x00"]
    + ["n1", "n9", "n0;n1", "::", "a:b", "127.0.0.1:1;", "10.0.0.0/33", "1s 2s", "04;25", "bytes=1", "bytesIn=1"]
    + ["http://", "/nowhere"]
)
PORT = free_port()  # of this process alone: it is opened for a moment, also by others that run these tests
MEMBER = {
    "enableDLegerCommitLog": "true",
    "dLegerGroup": "g",
    "dLegerSelfId": "n0",
    "dLegerPeers": f"n0-127.0.0.1:{PORT};n1-127.0.0.1:{PORT + 1}",
}
BROKERS = {
    "master": {},
    "member": MEMBER,
    "member that prefers": {**MEMBER, "preferredLeaderId": "n1"},
    "with quotas": {"quotaPerAccount": "bytesIn=5"},
}
RECORDS = (BrokerSettings, ServerSettings, ClientSettings, StoreSettings)
FILE_KEYS = {one.shown_as: one.key for cls in RECORDS for one in declarations(cls)}
CHANGEABLE = sorted({one.key for cls in RECORDS for one in declarations(cls) if one.changeable and not one.retired})
OF_NAMESRV = sorted(
    {one.key for cls in (NamesrvSettings, ServerSettings) for one in declarations(cls) if one.changeable}
)


def problems_of_a_start(values: dict[str, str]) -> list[str]:
    """Return why a broker would not start with these values."""
    try:
        return list(configuration_problems(Configuration.from_values(values)))
    except SettingError as error:
        return [str(error)]


@pytest.mark.parametrize("key", CHANGEABLE)
@pytest.mark.parametrize("kind", BROKERS)
def test_an_update_that_is_taken_lets_the_next_start_begin(tmp_path: Path, kind: str, key: str) -> None:
    base = {"storePathRootDir": str(tmp_path), "listenPort": "0", **BROKERS[kind]}
    before = problems_of_a_start(base)
    for odd in ODD:
        update = ConfigurationUpdate(Configuration.from_values(base), now_ms=lambda: 1)
        try:
            keys = update.take({key: odd})
        except SettingError:
            continue
        # As the file has it: text of the record, written and read again.
        written = java_properties.format({FILE_KEYS[each]: update.values().get(each, "") for each in keys})
        assert problems_of_a_start({**base, **java_properties.parse(written)}) == before, odd


@pytest.mark.parametrize("key", OF_NAMESRV)
def test_an_update_that_a_nameserver_takes_lets_its_next_start_begin(tmp_path: Path, key: str) -> None:
    base = {"kvConfigPath": f"{tmp_path}/kv", "configStorePath": f"{tmp_path}/conf", "listenPort": "0"}

    def records(values: dict[str, str]) -> tuple[NamesrvSettings, ServerSettings]:
        return bind(NamesrvSettings, values, source="t")[0], bind(ServerSettings, values, source="t")[0]

    for odd in ODD:
        config = RuntimeConfig(*records(base))
        try:
            config.take({key: odd})
        except SettingError:
            continue
        again = records({**base, **java_properties.parse(java_properties.format(config.values()))})
        assert again == (config.namesrv, config.server), odd
        assert list(namesrv_problems(*again, TlsSettings.from_values({}))) == [], odd


def test_a_member_prefers_only_members_of_its_group_as_leader() -> None:
    configuration = Configuration.from_values(MEMBER)
    update = ConfigurationUpdate(configuration, now_ms=lambda: 1)
    with pytest.raises(SettingError, match="n9 is not in dLegerPeers"):
        update.take({"preferredLeaderId": "n9"})
    assert not configuration.store.preferred_leader_id
    assert update.take({"preferredLeaderId": "n1"}) == {"preferredLeaderId"}
    assert configuration.group is not None, "the group that runs is still this one"
    assert update.take({"preferredLeaderId": ""}) == {"preferredLeaderId"}
