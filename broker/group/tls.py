"""TLS between the members of a group: what the configuration of a broker says of it."""

from __future__ import annotations

from triomq.broker.configuration import Configuration
from triomq.daemon.errors import StartError
from triomq.remoting.link_tls import LinkTls
from triomq.remoting.tls import TlsError, TlsSettings


def member_tls(configuration: Configuration) -> LinkTls:
    """Return the TLS of this broker's port of dLegerPeers, and of its calls to the others. Raises StartError."""
    try:
        return configuration.member_tls.made(TlsSettings.from_values(configuration.properties), accepts=True)
    except TlsError as error:
        raise StartError(f"TLS of the port of dLegerPeers: {error}") from None
