"""The tls.ha.* keys: TLS of the HA port (replication/ha_tls.py)."""

from __future__ import annotations

import ssl
from enum import Enum

from triomq.protocol.settings import SettingError, SettingsRecord, setting, settings_record
from triomq.remoting.tls import TlsSettings


class HaTlsMode(Enum):
    """What the HA port accepts. The names are the words of the configuration."""

    disabled = "plain links only"
    permissive = "both"
    enforcing = "TLS only"


class SlaveAuth(Enum):
    """Whether a slave has to present a certificate."""

    none = ssl.CERT_NONE
    optional = ssl.CERT_OPTIONAL
    require = ssl.CERT_REQUIRED


@settings_record
class HaTlsSettings(SettingsRecord):
    """The tls.ha.* keys. All are TrioMQ's own."""

    mode: HaTlsMode = setting(
        "tls.ha.mode",
        HaTlsMode.disabled,
        meaning="what the HA port accepts: disabled (plain only), permissive or enforcing",
    )
    enable: bool | None = setting(
        "tls.ha.enable", None, meaning="true: a slave connects to its master with TLS; empty = if tls.ha.mode=enforcing"
    )
    slave_auth: SlaveAuth = setting(
        "tls.ha.need.client.auth",
        SlaveAuth.none,
        meaning="none, optional or require: a slave's certificate, checked against tls.server.trustCertPath",
    )
    slave_names: str = setting(
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

    def check(self, tls: TlsSettings) -> None:
        """Raise SettingError if the keys contradict each other."""
        if tls.is_test_mode and (self.needs_certificate is not SlaveAuth.none):
            raise SettingError(
                "configuration",
                "tls.ha.slaveNames" if self.slave_names else "tls.ha.need.client.auth",
                "has no effect in test mode, which checks nobody; set tls.test.mode.enable=false",
            )

    @property
    def needs_certificate(self) -> SlaveAuth:
        return SlaveAuth.require if self.accepted_names else self.slave_auth

    @property
    def accepted_names(self) -> frozenset[str]:
        return frozenset(name.strip().lower() for name in self.slave_names.split(",") if name.strip())

    @property
    def is_dialing_secure(self) -> bool:
        """Return whether this broker, as a slave, uses TLS."""
        return self.enable if self.enable is not None else self.mode is HaTlsMode.enforcing
