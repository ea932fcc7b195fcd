"""TLS: the tls.* keys and the SSL contexts they describe (RocketMQ: TlsSystemConfig, TlsHelper).

    TlsSettings           the keys, from system properties and the TLS file
    make_server_context   the context of connections that a server accepts
    client_context        the context of outgoing connections

certificates.py makes the contexts again when the files change, handshake.py uses them.

In test mode, the default, the server presents a temporary self-signed certificate, a client trusts any server, and the
configured files are not read. Open connections keep the context they began with.

Python's ssl cannot request a client certificate without verifying it. With tls.server.authClient=false, which means
"accept any certificate", none is requested.
"""

from __future__ import annotations

import ssl
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from triomq.protocol.secret_text import SecretError
from triomq.protocol.settings import SettingsRecord, bind, setting
from triomq.remoting.log import get_logger
from triomq.remoting.secret_file import read_secret

log = get_logger("triomq.remoting.tls")

DISABLED, PERMISSIVE, ENFORCING = "disabled", "permissive", "enforcing"


class TlsError(Exception):
    """A context cannot be created; the message names the file or program and the reason."""


class TlsSettings(SettingsRecord, frozen=True, kw_only=True):
    """The tls.* keys. Paths name PEM files; an empty text becomes None."""

    mode_text: str = setting("tls.server.mode", PERMISSIVE, meaning="disabled, permissive or enforcing")
    client_enabled_text: str = setting("tls.enable", "", meaning="true: outgoing connections use TLS")
    test_mode_text: str = setting(
        "tls.test.mode.enable", "true", meaning="self-signed certificate; clients trust any server"
    )
    client_auth_text: str = setting("tls.server.need.client.auth", "none", meaning="none, optional or require")
    server_key: str | None = setting("tls.server.keyPath", None, meaning="PKCS#8 private key")
    server_key_password: str | None = setting("tls.server.keyPassword", None, meaning="password of the private key")
    server_key_password_file: str | None = setting(
        "tls.server.keyPasswordFile", None, meaning="file that holds that password instead", own=True
    )
    server_certificate: str | None = setting("tls.server.certPath", None, meaning="certificate chain")
    check_clients_text: str = setting("tls.server.authClient", "false", meaning="true: check client certificates")
    server_trust: str | None = setting("tls.server.trustCertPath", None, meaning="CAs of client certificates")
    client_key: str | None = setting("tls.client.keyPath", None, meaning="PKCS#8 private key")
    client_key_password: str | None = setting("tls.client.keyPassword", None, meaning="password of the private key")
    client_key_password_file: str | None = setting(
        "tls.client.keyPasswordFile", None, meaning="file that holds that password instead", own=True
    )
    client_certificate: str | None = setting("tls.client.certPath", None, meaning="certificate chain")
    check_servers_text: str = setting("tls.client.authServer", "false", meaning="true: check server certificates")
    client_trust: str | None = setting("tls.client.trustCertPath", None, meaning="CAs of server certificates")
    checks_names_text: str = setting(
        "tls.client.checkServerName",
        "false",
        meaning="true: with tls.client.authServer, a server's certificate has to name the host that was connected to",
        own=True,
    )

    @classmethod
    def from_values(cls, values: Mapping[str, str]) -> TlsSettings:
        """Read key -> text (the configuration's layers); ignore other keys. Never raises: as in RocketMQ an unknown
        mode is permissive, an unknown authentication is none, and every word but "true" is false."""
        return bind(cls, values, source="tls")[0]

    @property
    def mode(self) -> str:
        """One of disabled, permissive, enforcing."""
        return self.mode_text if self.mode_text in (DISABLED, ENFORCING) else PERMISSIVE

    @property
    def is_test_mode(self) -> bool:
        return _is_true(self.test_mode_text)

    @property
    def client_auth(self) -> ssl.VerifyMode:
        """What the server requires of its clients; see the module's docstring."""
        if self.is_test_mode or not _is_true(self.check_clients_text):
            return ssl.CERT_NONE
        modes = {"optional": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}
        return modes.get(self.client_auth_text.lower(), ssl.CERT_NONE)

    @property
    def checks_servers(self) -> bool:
        return not self.is_test_mode and _is_true(self.check_servers_text)

    @property
    def checks_names(self) -> bool:
        return self.checks_servers and _is_true(self.checks_names_text)

    def use_for_clients(self, use_tls: bool | None = None) -> bool:
        """Whether outgoing connections use TLS: by useTLS, else by tls.enable, else if the mode is enforcing."""
        if use_tls is not None:
            return use_tls
        if self.client_enabled_text:
            return _is_true(self.client_enabled_text)
        return self.mode == ENFORCING

    def __repr__(self) -> str:
        return f"TlsSettings(mode={self.mode!r}, test_mode={self.is_test_mode})"  # no password


def make_server_context(settings: TlsSettings, client_auth: ssl.VerifyMode | None = None) -> ssl.SSLContext:
    """Create the server's context: from the files, or in test mode with the openssl program. Raise TlsError.
    `client_auth` replaces what the settings require of clients."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # OpenSSL 3 refuses that by itself. While it lasted, OpenSSL would accept no output (tls_transport).
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["h2"])  # gRPC clients give up if nothing is negotiated; others do not ask
    if settings.is_test_mode:
        _load_temporary_certificate(context)
        return context
    if settings.server_certificate is None or settings.server_key is None:
        raise TlsError("tls.server.certPath and tls.server.keyPath are both needed without tls.test.mode.enable")
    password = _password("tls.server.keyPassword", settings.server_key_password, settings.server_key_password_file)
    _load_pair(context, settings.server_certificate, settings.server_key, password)
    context.verify_mode = settings.client_auth if client_auth is None else client_auth
    if context.verify_mode is not ssl.CERT_NONE:
        _load_trust(context, settings.server_trust, ssl.Purpose.CLIENT_AUTH)
    elif client_auth is None and settings.client_auth_text.lower() in ("optional", "require"):
        log.warning("client certificates not requested", because="tls.server.authClient is false")
    return context


def client_context(settings: TlsSettings, *, checks: bool = False) -> ssl.SSLContext:
    """Create the context of outgoing connections. Raises TlsError. As in RocketMQ, host names are not checked, unless
    tls.client.checkServerName asks for it. With `checks` both are checked, except in test mode."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    checks = checks and not settings.is_test_mode
    context.check_hostname = False  # first: it must be off before verify_mode can be CERT_NONE
    context.verify_mode = ssl.CERT_REQUIRED if checks or settings.checks_servers else ssl.CERT_NONE
    context.check_hostname = checks or settings.checks_names
    if context.verify_mode is not ssl.CERT_NONE:
        _load_trust(context, settings.client_trust, ssl.Purpose.SERVER_AUTH)
    if settings.is_test_mode or (settings.client_certificate is None and settings.client_key is None):
        return context
    if settings.client_certificate is None or settings.client_key is None:
        raise TlsError("tls.client.certPath and tls.client.keyPath belong together: set both, or none")
    password = _password("tls.client.keyPassword", settings.client_key_password, settings.client_key_password_file)
    _load_pair(context, settings.client_certificate, settings.client_key, password)
    return context


def _password(key: str, text: str | None, path: str | None) -> str | None:
    """Return the password of a private key: `text`, or what the file holds."""
    if path is None:
        return text
    if text is not None:
        raise TlsError(f"{key} and {key}File are both set: remove one")
    try:
        return read_secret(Path(path))
    except SecretError as error:
        raise TlsError(f"{key}File {error}") from None


def _load_pair(context: ssl.SSLContext, certificate: str, key: str, password: str | None) -> None:
    for path in (certificate, key):
        if not Path(path).is_file():
            raise TlsError(f"no such file: {path}")
    try:
        # Without a password OpenSSL would prompt for one on the terminal.
        context.load_cert_chain(certificate, key, password or "")
    except (OSError, ValueError) as error:  # SSLError is an OSError
        raise TlsError(f"certificate {certificate} and key {key} cannot be used: {error}") from None


def _load_trust(context: ssl.SSLContext, path: str | None, purpose: ssl.Purpose) -> None:
    """Load CAs from the file, or those of the system if none is configured."""
    if path is None:
        context.load_default_certs(purpose)
        return
    try:
        context.load_verify_locations(path)
    except OSError as error:
        raise TlsError(f"the trusted certificates {path} cannot be used: {error}") from None


_OPENSSL = (
    *("openssl", "req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
    *("-days", "3650", "-subj", "/CN=triomq test mode", "-config", "/dev/null"),
)


def _load_temporary_certificate(context: ssl.SSLContext) -> None:
    """Load a new key and self-signed certificate, generated by the openssl program. Neither stays on disk."""
    with tempfile.TemporaryDirectory(prefix="triomq-tls-") as directory:
        key = Path(directory, "key.pem")
        certificate = Path(directory, "certificate.pem")
        command = [*_OPENSSL, "-keyout", str(key), "-out", str(certificate)]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=10)
        except FileNotFoundError:
            raise TlsError(
                "test mode needs the openssl program for its self-signed certificate; install it, or set "
                "tls.test.mode.enable=false with tls.server.certPath and tls.server.keyPath"
            ) from None
        except (OSError, subprocess.SubprocessError) as error:
            raise TlsError(f"openssl could not make a self-signed certificate: {error}") from None
        context.load_cert_chain(certificate, key)


def _is_true(text: str) -> bool:
    return text.strip().lower() == "true"
