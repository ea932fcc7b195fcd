"""Settings that cause a warning but do not prevent the start, as in RocketMQ."""

from __future__ import annotations

import pytest

from triomq.broker.configuration import Configuration
from triomq.broker.settings.ha_tls import HaTlsSettings
from triomq.broker.start_warnings import delete_when_problem, start_warnings
from triomq.remoting.link_tls import LinkTlsMode


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"namesrvAddr": "a:1"}, []),
        ({"fetchNamesrvAddrByAddressServer": "true"}, []),
        ({}, ["no NameServer is configured"]),
        ({"namesrvAddr": "a:1", "deleteWhen": "25"}, ["deleteWhen: there is no hour 25"]),
        ({"deleteWhen": "noon"}, ["no NameServer is configured", "deleteWhen: 'noon' is not an hour"]),
    ],
)
def test_warnings(values: dict[str, str], expected: list[str]) -> None:
    found = list(start_warnings(Configuration.from_values(values)))
    assert len(found) == len(expected)
    assert all(text.startswith(begin) for text, begin in zip(found, expected, strict=True))


def test_clients_and_slaves_that_are_sent_to_where_nothing_listens() -> None:
    values = {"namesrvAddr": "a:1", "bindAddress": "10.0.0.5", "brokerIP1": "10.0.0.5", "brokerIP2": "192.168.0.9"}
    [found] = start_warnings(Configuration.from_values(values))
    assert found.startswith("bindAddress=10.0.0.5: slaves are sent to 192.168.0.9") and "brokerIP2=10.0.0.5" in found
    for bound in ("", "0.0.0.0", "::"):
        assert list(start_warnings(Configuration.from_values({**values, "bindAddress": bound}))) == []


@pytest.mark.parametrize("mode", list(LinkTlsMode))
def test_an_encrypted_broker_says_that_its_ha_port_is_in_the_clear(mode: LinkTlsMode) -> None:
    for server_mode in ("enforcing", "permissive"):
        properties = {"tls.server.mode": server_mode, "tls.test.mode.enable": "false"}
        found = list(start_warnings(Configuration(ha_tls=HaTlsSettings(mode=mode), properties=properties)))
        wanted = server_mode == "enforcing" and mode is LinkTlsMode.disabled
        assert sum("the HA port is in the clear" in text for text in found) == wanted


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("04", None),
        ("0;23", None),
        (" 4 ; 16 ", None),
        ("24", "there is no hour 24"),
        ("4,16", "'4,16' is not an hour"),
        ("", "no hour is given"),
        ("4;", None),
    ],
)
def test_hours(text: str, problem: str | None) -> None:
    assert delete_when_problem(text) == problem
