"""MasterAccount: the account with which a slave asks its master for tables.

It is the one of mqadmin, `accessKey` and `secretKey` in <home>/conf/tools.yml, read again for each round. Without that
file requests carry no account, as RocketMQ's do; a master with access control then has to know the slave's address.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import structlog

from triomq.protocol.clock import NowMs
from triomq.protocol.command import RemotingCommand
from triomq.protocol.signature import sign_bound, stamp

log = structlog.get_logger("triomq.broker.replication")

MAX_FILE_BYTES: Final = 65_536


class MasterAccount:
    """Signs requests with the account in a file, if there is one."""

    def __init__(self, path: Path, now_ms: NowMs) -> None:
        self._path = path
        self._now_ms = now_ms
        self._problem = ""

    def sign(self, request: RemotingCommand) -> None:
        """Add the account and its signatures to a request. Never raises: a file that cannot be used is logged once."""
        try:
            account = _read(self._path)
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            problem = error.strerror or "" if isinstance(error, OSError) else str(error)
            if problem != self._problem:
                log.warning("the account for the master cannot be read", path=str(self._path), reason=problem)
            self._problem = problem
            return
        self._problem = ""
        signed_at = stamp(self._now_ms(), os.urandom(8))
        fields = request.ext_fields or {}
        request.ext_fields = sign_bound(request.code, fields, request.body, *account, signed_at=signed_at)


def _read(path: Path) -> tuple[str, str]:
    """Return access key and secret key. Raises OSError, and ValueError with a reason that quotes nothing."""
    with path.open("rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise ValueError(f"longer than {MAX_FILE_BYTES} bytes")
    import yaml

    try:
        document: Any = yaml.load(data, Loader=yaml.BaseLoader)
    except (yaml.YAMLError, UnicodeDecodeError):
        raise ValueError("not YAML") from None
    members = document if isinstance(document, dict) else {}
    access_key, secret_key = members.get("accessKey"), members.get("secretKey")
    if not isinstance(access_key, str) or not isinstance(secret_key, str) or not access_key or not secret_key:
        raise ValueError("accessKey and secretKey are expected, as plain values")
    return access_key, secret_key
