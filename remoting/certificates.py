"""SSL contexts that are made again when their files change.

    ServerCertificates   the context of connections that others open: made at the first handshake, off the event loop
    ClientCertificates   the context of connections that this side opens: made at the start, which fails without it

New connections use the new files; open ones keep what they began with. A file that cannot be used leaves the context
in place and logs one error. A certificate and its key are two files, replaced one after the other: while only one of
them has changed and they do not fit, the other one has SETTLE_SECONDS to follow.

Only the event loop touches an object of this module.
"""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

import trio

from triomq.remoting import tls
from triomq.remoting.log import get_logger
from triomq.remoting.tls import TlsError, TlsSettings

log = get_logger("triomq.remoting.tls")

WATCH_SECONDS: Final = 0.5
SETTLE_SECONDS: Final = 5.0
MAX_FILE_BYTES: Final = 4 * 1024 * 1024


class Watched:
    """One context and its files. `what` says for which connections it is; `pair` are the certificate and its key, which
    change together, `others` the files that change alone."""

    def __init__(
        self,
        what: str,
        make: Callable[[], ssl.SSLContext],
        *,
        pair: tuple[str | None, ...] = (),
        others: tuple[str | None, ...] = (),
        context: ssl.SSLContext | None = None,
    ) -> None:
        self._what = what
        self._make_context = make
        self._pair = frozenset(path for path in pair if path is not None)
        self._others = frozenset(path for path in others if path is not None)
        self._present = context
        self._is_tried = context is not None
        self._making = trio.Lock()
        self._hashes = self._read_hashes()
        self._pending: set[str] = set()
        self._pending_since = 0.0

    async def context(self) -> ssl.SSLContext | None:
        """Return the context, or None if it cannot be made. The first call makes it."""
        if not self._is_tried:
            async with self._making:
                if not self._is_tried:
                    await self._make(is_settled=True)
        return self._present

    async def watch(self) -> None:
        """Load changed files until cancelled; return when no file is configured.

        Configured files are read immediately, so that errors in them are logged when the daemon starts.
        """
        if self._hashes:
            await self.context()
        while self._hashes:
            await trio.sleep(WATCH_SECONDS)
            await self.refresh()

    async def refresh(self) -> bool:
        """Look at the files once. Return whether changed ones were loaded, or were given up with an error."""
        hashes = self._read_hashes()
        changed = {path for path, digest in hashes.items() if digest != self._hashes[path]}
        if changed:
            self._pending |= changed
            self._pending_since = trio.current_time()
        self._hashes = hashes
        if not self._is_tried or not self._pending:
            return False
        waits = bool(self._pending & self._pair) and not self._pair <= self._pending
        is_settled = not waits or trio.current_time() >= self._pending_since + SETTLE_SECONDS
        if not changed and not is_settled:
            return False
        if not await self._make(is_settled=is_settled):
            return False
        self._pending.clear()
        return True

    async def _make(self, *, is_settled: bool) -> bool:
        """Make the context. Return False if that failed and another file may still follow."""
        try:
            context = await trio.to_thread.run_sync(self._make_context)
        except (TlsError, OSError, ValueError) as error:
            if not is_settled:
                return False
            consequence = "the previous certificate stays in use" if self._present else "TLS connections are refused"
            log.error("TLS context not made", connections=self._what, error=str(error), consequence=consequence)
        else:
            if self._present is not None:
                log.info("TLS files changed", connections=self._what)
            self._present = context
        self._is_tried = True  # skipped when cancelled: the next connection tries again
        return True

    def _read_hashes(self) -> dict[str, bytes]:
        """Return path -> digest of each configured file; the digest of an unreadable file is empty."""
        return {path: _digest(path) for path in sorted(self._pair | self._others)}


class ServerCertificates(Watched):
    """The context for TLS connections that a server accepts. Pass `context` to it and run `watch` beside it. Failure
    to make a context is logged once per cause, and TLS connections are refused. `client_auth` replaces what the
    tls.server.* keys require of clients."""

    def __init__(
        self, settings: TlsSettings, *, what: str = "incoming", client_auth: ssl.VerifyMode | None = None
    ) -> None:
        has_files = not settings.is_test_mode and (client_auth is not None or settings.mode != tls.DISABLED)
        super().__init__(
            what,
            lambda: tls.make_server_context(settings, client_auth),
            pair=(settings.server_certificate, settings.server_key) if has_files else (),
            others=(settings.server_trust, settings.server_key_password_file) if has_files else (),
        )


class ClientCertificates(Watched):
    """The context for connections that this side opens; `current` returns it. Raises TlsError if it cannot be made.
    `checks` makes the check of the server's certificate and name a duty, whatever the tls.client.* keys say."""

    def __init__(self, settings: TlsSettings, *, what: str = "outgoing", checks: bool = False) -> None:
        has_files = not settings.is_test_mode

        def make() -> ssl.SSLContext:
            return tls.client_context(settings, checks=checks)

        self._first = make()
        super().__init__(
            what,
            make,
            pair=(settings.client_certificate, settings.client_key) if has_files else (),
            others=(settings.client_trust, settings.client_key_password_file) if has_files else (),
            context=self._first,
        )

    def current(self) -> ssl.SSLContext:
        """Return the context for a new connection."""
        return self._present or self._first


def _digest(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return hashlib.sha256(file.read(MAX_FILE_BYTES)).digest()
    except OSError:
        return b""


def names_of(certificate: object) -> frozenset[str]:
    """Return the names of a peer's certificate in small letters: subjectAltName (DNS, IP, URI, email), common names."""
    if not isinstance(certificate, dict):
        return frozenset()
    found = [str(value) for _, value in certificate.get("subjectAltName", ())]
    found += [str(value) for part in certificate.get("subject", ()) for kind, value in part if kind == "commonName"]
    return frozenset(name.lower() for name in found)
