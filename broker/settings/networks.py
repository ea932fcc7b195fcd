"""Settings whose values are lists of addresses and networks."""

from __future__ import annotations

from triomq.protocol.networks import Network, parse_networks
from triomq.protocol.settings import SettingError


def networks_of(key: str, text: str) -> tuple[Network, ...]:
    """Return the networks that the value of a key lists. Raises SettingError."""
    try:
        return parse_networks(text)
    except ValueError as error:
        raise SettingError("broker configuration", key, str(error)) from None
