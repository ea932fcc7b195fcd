"""The rules between the broker's settings records, checked when they are bound."""

from __future__ import annotations

import pytest

from triomq.broker.configuration import Configuration
from triomq.broker.configuration_update import ConfigurationUpdate
from triomq.protocol.settings import SettingError, to_text
from triomq.store.config import BrokerRole


@pytest.mark.parametrize(
    ("values", "properties", "shown"),
    [
        ({}, {}, "false"),
        ({}, {"tls.enable": "true"}, "true"),
        ({}, {"tls.server.mode": "enforcing"}, "true"),
        ({"useTLS": "false"}, {"tls.enable": "true"}, "false"),
        ({"useTLS": "true"}, {}, "true"),
    ],
)
def test_the_listing_says_whether_calls_use_tls(values: dict[str, str], properties: dict[str, str], shown: str) -> None:
    configuration = Configuration(client=Configuration.from_values(values).client if values else Configuration().client)
    configuration.properties = properties
    configuration.check()
    assert to_text(configuration.client)["useTLS"] == shown


@pytest.mark.parametrize("key", ["duplicationEnable"])
def test_what_would_lose_messages_silently_is_refused(key: str) -> None:
    with pytest.raises(SettingError, match=key):
        Configuration.from_values({key: "true"}).check()


GROUP = {
    "enableDLegerCommitLog": "true",
    "dLegerGroup": "G",
    "dLegerPeers": "n0-127.0.0.1:40911;n1-127.0.0.1:40912;n2-127.0.0.1:40913",
    "dLegerSelfId": "n1",
}


def test_a_member_of_a_group_begins_as_a_slave_with_its_number_plus_one() -> None:
    others = {"transientStorePoolEnable": "true", "brokerRole": "SYNC_MASTER"}
    configuration = Configuration.from_values({**GROUP, **others})
    assert configuration.role.is_slave and configuration.role.broker_id == 2
    assert not configuration.store.transient_store_pool_enable, "the buffer would hold back what a quorum waits for"
    assert configuration.group is not None and configuration.group.port == 40912


def test_an_election_changes_what_is_listed_and_nothing_of_what_was_configured() -> None:
    configuration = Configuration.from_values({**GROUP, "brokerRole": "ASYNC_MASTER"})
    update = ConfigurationUpdate(configuration, now_ms=lambda: 5)
    for role, broker_id in ((BrokerRole.SYNC_MASTER, 0), (BrokerRole.SLAVE, 2)):
        configuration.role.take(role, broker_id)
        listed = update.values()
        assert (listed["brokerRole"], listed["brokerId"]) == (role.name, str(broker_id))
        assert configuration.store_in_role().broker_role is role
        assert configuration.store.broker_role is BrokerRole.ASYNC_MASTER
        assert configuration.broker.broker_id == 0


@pytest.mark.parametrize("port", [1, 2, 65535])
def test_a_port_whose_neighbours_are_no_ports_is_refused(port: int) -> None:
    text = rf"listenPort: {port} is outside of 3\.\.65534: {port - 2} is the fast port and {port + 1} the HA port"
    with pytest.raises(SettingError, match=text):
        Configuration.from_values({"listenPort": str(port)})


@pytest.mark.parametrize("port", [0, 3, 65534])
def test_the_first_and_the_last_port_are_accepted(port: int) -> None:
    assert Configuration.from_values({"listenPort": str(port)}).server.listen_port == port


@pytest.mark.parametrize(
    ("changes", "key", "text"),
    [
        ({"dLegerGroup": ""}, "dLegerGroup", "name the group"),
        ({"dLegerSelfId": ""}, "dLegerSelfId", "which item"),
        ({"dLegerSelfId": "n7"}, "dLegerPeers", "dLegerPeers has only n0, n1, n2"),
        ({"dLegerPeers": "n1:127.0.0.1"}, "dLegerPeers", "write id-host:port"),
        ({"dLegerPeers": "n1-127.0.0.1:0"}, "dLegerPeers", "port from 1 to 65535"),
        ({"dLegerPeers": "n1-a:1;n1-b:1"}, "dLegerPeers", "twice"),
        ({"preferredLeaderId": "n9"}, "preferredLeaderId", "not in dLegerPeers"),
        ({"brokerRole": "SLAVE"}, "brokerId", "needs a brokerId"),
    ],
)
def test_a_group_that_cannot_be_joined_is_refused_with_what_to_do(changes: dict[str, str], key: str, text: str) -> None:
    with pytest.raises(SettingError, match=key) as refused:
        Configuration.from_values({**GROUP, **changes})
    assert text in str(refused.value)
