"""The tls.dleger.* keys: TLS of the port of dLegerPeers. A daemon without a group reads them, too, and nothing else of
this package."""

from __future__ import annotations

from triomq.protocol.settings import setting
from triomq.remoting.link_tls import LinkTls, LinkTlsMode, LinkTlsSettings, PeerAuth
from triomq.remoting.tls import TlsSettings


class MemberTlsSettings(LinkTlsSettings, frozen=True, kw_only=True):
    """The tls.dleger.* keys. All are TrioMQ's own."""

    mode: LinkTlsMode = setting(
        "tls.dleger.mode",
        LinkTlsMode.disabled,
        meaning="what the port of dLegerPeers accepts: disabled (plain only), permissive or enforcing",
    )
    enable: bool | None = setting(
        "tls.dleger.enable",
        None,
        meaning="true: a member connects to the others with TLS; empty = if tls.dleger.mode=enforcing",
    )
    peer_auth: PeerAuth = setting(
        "tls.dleger.need.client.auth",
        PeerAuth.none,
        meaning="none, optional or require: a member's certificate, checked against tls.server.trustCertPath",
    )
    peer_names: str = setting(
        "tls.dleger.memberNames",
        "",
        meaning="names, separated by commas, one of which a member's certificate must have as subjectAltName or common "
        "name; requires a certificate. Empty = any name",
    )

    @property
    def names_key(self) -> str:
        return "tls.dleger.memberNames"

    def made(self, tls: TlsSettings, *, accepts: bool) -> LinkTls:
        """Return the TLS of a member, or of a tool, which accepts nothing. Raises TlsError if the files of the dialing
        side cannot be used."""
        return LinkTls(
            self, tls, accepts="port of dLegerPeers" if accepts else "", dials="to the other members of the group"
        )
