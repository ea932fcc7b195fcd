"""The tls.ha.* keys: TLS of the HA port (replication/ha_tls.py)."""

from __future__ import annotations

from triomq.protocol.settings import setting
from triomq.remoting.link_tls import LinkTlsMode, LinkTlsSettings, PeerAuth


class HaTlsSettings(LinkTlsSettings, frozen=True, kw_only=True):
    """The tls.ha.* keys. All are TrioMQ's own."""

    mode: LinkTlsMode = setting(
        "tls.ha.mode",
        LinkTlsMode.disabled,
        meaning="what the HA port accepts: disabled (plain only), permissive or enforcing",
    )
    enable: bool | None = setting(
        "tls.ha.enable", None, meaning="true: a slave connects to its master with TLS; empty = if tls.ha.mode=enforcing"
    )
    peer_auth: PeerAuth = setting(
        "tls.ha.need.client.auth",
        PeerAuth.none,
        meaning="none, optional or require: a slave's certificate, checked against tls.server.trustCertPath",
    )
    peer_names: str = setting(
        "tls.ha.slaveNames",
        "",
        meaning="names, separated by commas, one of which a slave's certificate must have as subjectAltName or common "
        "name; requires a certificate. Empty = any name",
    )
    master_name: str = setting(
        "tls.ha.masterName",
        "",
        meaning="name or address that the master's certificate must have; empty = the address connected to",
    )

    @property
    def names_key(self) -> str:
        return "tls.ha.slaveNames"
