"""The rules between the broker's settings records, checked when they are bound."""

from __future__ import annotations

import pytest

from triomq.broker.configuration import Configuration
from triomq.protocol.settings import SettingError, to_text


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


@pytest.mark.parametrize("key", ["enableDLegerCommitLog", "duplicationEnable"])
def test_what_would_lose_messages_silently_is_refused(key: str) -> None:
    with pytest.raises(SettingError, match=key):
        Configuration.from_values({key: "true"}).check()
