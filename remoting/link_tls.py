"""TLS of the ports where servers talk to each other, for both sides: who accepts it, and who asks for it.

RocketMQ's are plain, so TLS is off there unless a mode says otherwise. Files, passwords and test mode are those of the
tls.server.* keys on the accepting side and of the tls.client.* keys on the other. Each port has keys of its own for
what it needs in addition:

    who accepts    may require a certificate, and one of the names that it lists
    who dials      always checks the certificate of the other side, and that it names the host that is dialed, or the
                   name that is configured; only test mode checks nothing

A LinkTls is touched only on the event loop.
"""

from __future__ import annotations

import ssl
from enum import Enum
from typing import Final

import trio

from triomq.protocol.settings import SettingError, SettingsRecord
from triomq.remoting.certificates import ClientCertificates, ServerCertificates
from triomq.remoting.tls import TlsSettings

MAX_NAMES_SHOWN: Final = 8


class LinkTlsMode(Enum):
    """What a port accepts. The names are the words of the configuration."""

    disabled = "plain connections only"
    permissive = "both"
    enforcing = "TLS only"


class PeerAuth(Enum):
    """Whether who connects has to present a certificate. The values are those of ssl.VerifyMode."""

    none = 0
    optional = 1
    require = 2

    @property
    def verify_mode(self) -> ssl.VerifyMode:
        return ssl.VerifyMode(self.value)


class LinkTlsSettings(SettingsRecord, frozen=True, kw_only=True):
    """What the records of such keys have in common."""

    mode: LinkTlsMode
    enable: bool | None
    peer_auth: PeerAuth
    peer_names: str

    @property
    def names_key(self) -> str:
        """The key of `peer_names`, such as tls.ha.slaveNames."""
        raise NotImplementedError

    def check(self, tls: TlsSettings) -> None:
        """Raise SettingError if the keys contradict each other."""
        if tls.is_test_mode and self.needs_certificate is not PeerAuth.none:
            raise SettingError(
                "configuration",
                self.names_key if self.peer_names else self.names_key.rpartition(".")[0] + ".need.client.auth",
                "has no effect in test mode, which checks nobody; set tls.test.mode.enable=false",
            )

    @property
    def needs_certificate(self) -> PeerAuth:
        return PeerAuth.require if self.accepted_names else self.peer_auth

    @property
    def accepted_names(self) -> frozenset[str]:
        return frozenset(name.strip().lower() for name in self.peer_names.split(",") if name.strip())

    @property
    def is_dialing_secure(self) -> bool:
        """Return whether this side uses TLS when it dials."""
        return self.enable if self.enable is not None else self.mode is LinkTlsMode.enforcing


class LinkTls:
    """The contexts of one port, made of its settings. Run `watch` beside the connections."""

    def __init__(self, settings: LinkTlsSettings, tls: TlsSettings, *, accepts: str = "", dials: str = "") -> None:
        """`accepts` and `dials` say for logs what the connections of a side are; empty: there is no such side. Raises
        TlsError if the files of the dialing side cannot be used."""
        self._settings = settings
        self.accepting: ServerCertificates | None = None
        self.dialing: ClientCertificates | None = None
        if accepts and settings.mode is not LinkTlsMode.disabled:
            auth = settings.needs_certificate.verify_mode
            self.accepting = ServerCertificates(tls, what=accepts, client_auth=auth)
        if dials and settings.is_dialing_secure:
            self.dialing = ClientCertificates(tls, what=dials, checks=True)

    @property
    def mode(self) -> LinkTlsMode:
        return self._settings.mode

    async def watch(self) -> None:
        """Load changed certificates until cancelled."""
        async with trio.open_nursery() as nursery:
            for certificates in filter(None, (self.accepting, self.dialing)):
                nursery.start_soon(certificates.watch)

    def names_fault(self, presented: frozenset[str]) -> str | None:
        """Return why a peer whose certificate has these names is refused, or None."""
        wanted = self._settings.accepted_names
        if not wanted or wanted & presented:
            return None
        shown = ", ".join(sorted(presented)[:MAX_NAMES_SHOWN]) or "no name"
        return (
            f"its certificate has {shown}, and none of {self._settings.names_key}: add the name here, or give the peer "
            "another certificate"
        )
