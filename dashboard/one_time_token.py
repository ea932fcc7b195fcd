"""The login of a dashboard without accounts: a token in a file that only the daemon's user can read.

A process that can read the file could change the files of the daemon anyway. A token is good for one login; then the
file has another one, so that none that was seen on a screen or in a history can be used again.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

log = structlog.get_logger("triomq.dashboard")

FILE_NAME: Final = "dashboard.token"
_TOKEN_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class TokenHolder:
    """Sees and does everything."""

    name: str = "token"
    is_admin: bool = True
    stamp: str = ""

    def may_read(self, topic: str) -> bool:
        return True

    def may_read_group(self, group: str) -> bool:
        return True


class OneTimeToken:
    """Accounts (sessions.py) of which there is one, without a name. `path` is the file; `renew` must run first."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._digest = b""  # of the token in force; empty: there is none

    def log_in(self, name: str, secret: str) -> TokenHolder | None:
        """Return the holder if the token is right, which is then used up."""
        if not hmac.compare_digest(hashlib.sha256(secret.strip().encode(errors="replace")).digest(), self._digest):
            return None
        self._digest = b""
        return TokenHolder()

    def viewer(self, name: str) -> TokenHolder | None:
        """Return the holder, whose sessions end with the daemon."""
        return TokenHolder()

    def renew(self) -> None:
        """Write another token; a thread may do it. If it cannot be written, nobody can log in until the next start, and
        the log says so."""
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        try:
            _write(self.path, token)
        except OSError as error:
            log.error("dashboard's token not written", path=str(self.path), error=str(error))
            return
        self._digest = hashlib.sha256(token.encode()).digest()


def _write(path: Path, token: str) -> None:
    """Replace the file by one that nobody else could open at any time."""
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(token + "\n")
    new.replace(path)
